//! What a part counts, asked over HTTP as a monitoring system does.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// How long an answer may take.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// The sum of all samples of the metric `name` at `address`; `None`: it has none.
///
/// # Errors
/// When nobody answers in time.
pub(crate) fn sum(address: SocketAddr, name: &str) -> io::Result<Option<f64>> {
    let mut stream = TcpStream::connect_timeout(&address, ANSWER_MAX)?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(sum_in(&answer, name))
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
