//! The limit of open files. Two databases, a socket and two connections a node are more than the
//! soft limit of many systems.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// The open files of a node: about 17, and some more while its databases compact.
const FILES_PER_NODE: u64 = 24;

/// The open files of everything else: the cloud's databases, sockets, and clients.
const FILES_BESIDES: u64 = 512;

/// The limit of open files is too low for the nodes.
#[derive(Debug, thiserror::Error)]
#[error(
    "{nodes} nodes need about {needed} open files, and the limit of this process is {allowed}: \
     raise the hard limit (`ulimit -Hn`, LimitNOFILE= of systemd), or run fewer nodes"
)]
pub(crate) struct TooFewFiles {
    nodes: usize,
    needed: u64,
    allowed: u64,
}

/// Raises this process's soft limit to its hard limit if `nodes` nodes need that.
///
/// # Errors
/// When the hard limit is too low. An unknown limit is no error.
pub(crate) fn make_room(nodes: usize) -> Result<(), TooFewFiles> {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return Ok(()) };
    let needed = needed(nodes);
    if soft >= needed {
        return Ok(());
    }
    if let Err(error) = setrlimit(Resource::RLIMIT_NOFILE, hard, hard) {
        tracing::warn!(%error, soft, hard, "the limit of open files cannot be raised");
    }
    if hard < needed { Err(TooFewFiles { nodes, needed, allowed: hard }) } else { Ok(()) }
}

fn needed(nodes: usize) -> u64 {
    (nodes as u64).saturating_mul(FILES_PER_NODE).saturating_add(FILES_BESIDES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_nodes_fit_the_usual_limit_and_a_fleet_does_not() {
        assert!(needed(2) < 1024 && needed(200) > 1024);
    }
}
