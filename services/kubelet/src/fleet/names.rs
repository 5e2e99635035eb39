//! The node that a server's name may have. Pure.

use std::net::IpAddr;

/// The most labels of a name that are looked at: a node's name with its dots has few.
const LABELS_MAX: usize = 8;

/// The names of nodes that `host` may begin with, the longest first: `a.b.example.org` may be of a node
/// `a.b`. A port is left out; an address names no node.
pub(super) fn node_names(host: &str) -> impl Iterator<Item = &str> {
    let is_address = |host: &str| host.starts_with('[') || host.parse::<IpAddr>().is_ok();
    let (whole, host) = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => (host, name),
        _ => (host, host),
    };
    // An address of version 6 without brackets ends as if it had a port.
    let is_address = is_address(whole) || is_address(host);
    let ends: Vec<usize> = host
        .match_indices('.')
        .map(|(at, _)| at)
        .chain([host.len()])
        .take(if is_address || host.is_empty() { 0 } else { LABELS_MAX })
        .collect();
    ends.into_iter().rev().map(move |end| &host[..end]).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_named_by_the_beginning_of_a_name() {
        let names = |host| node_names(host).collect::<Vec<_>>();
        assert_eq!(names("gw-1.edges.example"), ["gw-1.edges.example", "gw-1.edges", "gw-1"]);
        assert_eq!(names("gw-1:10250"), ["gw-1"]);
        assert_eq!(names("gw-1"), ["gw-1"]);
        for host in ["", ":1", "10.0.0.1", "10.0.0.1:10250", "[::1]:10250", "::1", ".."] {
            assert!(
                names(host).iter().all(|name| name.starts_with('.')),
                "{host}: {:?}",
                names(host)
            );
        }
        assert!(names(&"a.".repeat(1_000)).len() <= LABELS_MAX);
    }
}
