//! What a part counts, asked over HTTP as a monitoring system does.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// How long an answer may take that is waited for.
pub const ANSWER_MAX: Duration = Duration::from_secs(5);

/// The sums of all samples of each of the metrics `names` at `address`; `None`: it has none.
///
/// # Errors
/// No answer arrives `within` that time.
pub fn sums<const N: usize>(
    address: SocketAddr,
    names: [&str; N],
    within: Duration,
) -> io::Result<[Option<f64>; N]> {
    let answer = get(address, "/metrics", within)?;
    Ok(names.map(|name| sum_in(&answer, name)))
}

/// Whether the part at `address` is ready.
///
/// # Errors
/// No answer arrives `within` that time.
pub fn is_ready(address: SocketAddr, within: Duration) -> io::Result<bool> {
    Ok(get(address, "/readyz", within)?.starts_with("HTTP/1.1 200 "))
}

fn get(address: SocketAddr, path: &str, within: Duration) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, within)?;
    stream.set_read_timeout(Some(within))?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

fn sum_in(text: &str, name: &str) -> Option<f64> {
    let samples = text.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        let is_whole = rest.starts_with('{') || rest.starts_with(' ');
        let (_, value) = rest.rsplit_once(' ')?;
        is_whole.then(|| value.parse::<f64>().ok())?
    });
    samples.fold(None, |sum, value| Some(sum.unwrap_or(0.0) + value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_one_name_are_added() {
        let text = "# HELP a_b x\na_b{n=\"1\"} 2\na_b{n=\"2\"} 3.5\na_b_total 9\na 7\n";
        assert_eq!(sum_in(text, "a_b"), Some(5.5));
        assert_eq!(sum_in(text, "a"), Some(7.0));
        assert_eq!(sum_in(text, "c"), None);
    }
}
