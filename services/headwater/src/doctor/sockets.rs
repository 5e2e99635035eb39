//! Checks of the sockets of a data directory, and of the address of its metrics.

use std::fs;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use headwater_operator::client::SOCKET;
use headwater_settings::MetricsAt;

use super::Check;
use crate::data_dir::{METRICS_ADDRESS, SOCKET_PATH_BYTES_MAX};

/// How long a process on this machine may take to accept a connection.
const ACCEPT_MAX: Duration = Duration::from_secs(2);

/// The longest path of a socket below a data directory besides a node's name.
const LONGEST: &str = "nodes//edge.sock";

/// The length of the name of a numbered node: enough for 9,999 nodes.
const NODE_NAME_BYTES: usize = 9;

/// Checks every socket of the data directory, and the address of metrics.
pub(super) fn look(data: &Path) -> Vec<Check> {
    let mut checks = vec![judge_path(data)];
    checks.extend(sockets(data).iter().map(|socket| judge_socket(data, socket)));
    checks.push(match fs::read_to_string(data.join(METRICS_ADDRESS)) {
        Ok(address) => judge_served(address.trim()),
        Err(_) => judge_free(std::env::var("HEADWATER_METRICS").ok().as_deref()),
    });
    checks
}

fn judge_path(data: &Path) -> Check {
    let bytes = data.as_os_str().len() + 1 + LONGEST.len() + NODE_NAME_BYTES;
    let found = format!("{bytes} bytes for a node's socket");
    if bytes <= SOCKET_PATH_BYTES_MAX {
        Check::ok("socket paths", found)
    } else {
        let advice = format!(
            "use a data directory with a shorter path: a socket's has at most \
             {SOCKET_PATH_BYTES_MAX} bytes"
        );
        Check::fail("socket paths", found, advice)
    }
}

/// Returns the existing sockets.
fn sockets(data: &Path) -> Vec<PathBuf> {
    let nodes = fs::read_dir(data.join("nodes")).into_iter().flatten().flatten();
    let mut sockets: Vec<_> = nodes.map(|node| node.path().join("edge.sock")).collect();
    sockets.sort();
    sockets.insert(0, data.join(SOCKET));
    sockets.retain(|socket| socket.exists());
    sockets
}

fn judge_socket(data: &Path, socket: &Path) -> Check {
    let name = format!("socket {}", socket.strip_prefix(data).unwrap_or(socket).display());
    match UnixStream::connect(socket) {
        Ok(_) => Check::ok(name, "a process answers"),
        // A killed process left it; the next start replaces it.
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => Check::ok(
            name,
            "no process answers: a killed process left it behind; the next start replaces it",
        ),
        Err(error) => {
            Check::fail(name, error.to_string(), "run doctor as the user that runs headwater")
        }
    }
}

fn judge_served(address: &str) -> Check {
    let name = "metrics";
    let Ok(parsed) = address.parse::<SocketAddr>() else {
        let advice = format!("start headwater again: it rewrites {METRICS_ADDRESS}");
        return Check::warn(name, format!("{METRICS_ADDRESS} has no address"), advice);
    };
    match TcpStream::connect_timeout(&parsed, ACCEPT_MAX) {
        Ok(_) => Check::ok(name, format!("http://{address}/metrics")),
        Err(_) => {
            let found = format!("no process answers at {address}: the next start replaces it");
            Check::ok(name, found)
        }
    }
}

/// Checks whether the configured address is free while nothing runs.
fn judge_free(set: Option<&str>) -> Check {
    let name = "metrics";
    let Some(set) = set else { return Check::ok(name, "not served now") };
    match set.parse() {
        Ok(MetricsAt(None)) => Check::ok(name, "off"),
        Ok(MetricsAt(Some(address))) => match TcpListener::bind(address) {
            Ok(_) => Check::ok(name, format!("{address} is free")),
            Err(error) => Check::fail(
                name,
                format!("{address}: {error}"),
                "name another address with --metrics or HEADWATER_METRICS",
            ),
        },
        Err(error) => Check::fail(name, error.to_string(), "mend HEADWATER_METRICS"),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::super::Verdict;
    use super::*;

    #[test]
    fn sockets_answer_or_were_left_behind() {
        let dir = tempfile::tempdir().expect("a directory");
        let node = dir.path().join("nodes/gw");
        fs::create_dir_all(&node).expect("made");
        let alive = UnixListener::bind(dir.path().join(SOCKET)).expect("listens");
        drop(UnixListener::bind(node.join("edge.sock")).expect("listens"));
        let found: Vec<_> = sockets(dir.path())
            .iter()
            .map(|socket| judge_socket(dir.path(), socket))
            .map(|check| (check.check, check.result, check.found))
            .collect();
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!(found[0].2, "a process answers");
        assert!(found[1].0 == "socket nodes/gw/edge.sock" && found[1].2.contains("left it behind"));
        assert!(found.iter().all(|(_, result, _)| *result == Verdict::Ok), "{found:?}");
        drop(alive);
    }

    #[test]
    fn a_path_too_long_and_a_port_in_use_fail() {
        assert_eq!(judge_path(Path::new("/var/lib/headwater")).result, Verdict::Ok);
        let long = PathBuf::from(format!("/{}", "d".repeat(90)));
        assert_eq!(judge_path(&long).result, Verdict::Fail);

        let taken = TcpListener::bind("127.0.0.1:0").expect("listens");
        let address = taken.local_addr().expect("an address").to_string();
        assert_eq!(judge_free(Some(&address)).result, Verdict::Fail);
        assert_eq!(judge_served(&address).result, Verdict::Ok);
        assert_eq!(judge_free(Some("off")).found, "off");
        assert_eq!(judge_free(Some("here")).result, Verdict::Fail);
        assert_eq!(judge_served("here").result, Verdict::Warn);
    }
}
