//! Room for open files: two databases, a socket and two connections a node are more than many
//! systems let a process have unless it asks.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Files that a node holds open: about 17, and some more while its databases are compacted.
const FILES_PER_NODE: u64 = 24;

/// Files that everything else holds open: the cloud's databases, sockets, and clients.
const FILES_BESIDES: u64 = 512;

/// There are more nodes than open files allow.
#[derive(Debug, thiserror::Error)]
#[error(
    "{nodes} nodes hold about {needed} files open, and this process may have {allowed}: raise the \
     hard limit (`ulimit -Hn`, LimitNOFILE= of systemd), or ask for fewer nodes"
)]
pub(crate) struct TooFewFiles {
    nodes: usize,
    needed: u64,
    allowed: u64,
}

/// Raises this process's soft limit to its hard one, as far as that helps `nodes` nodes.
///
/// # Errors
/// When the hard limit is too low. Where it cannot be known, nothing is refused.
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
