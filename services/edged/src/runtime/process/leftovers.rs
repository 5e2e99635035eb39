//! Processes that a container left behind when its shim was killed.
//!
//! The kernel kills the container's own process with its shim. Processes that it had started live
//! on. They are recognized by the container's session, which is named after its first process, or,
//! if they left it, by the container's root directory in the environment that they started with. A
//! process that changed both is not found.

use std::fs;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::process_identity::{ProcessIdentity, ProcessStat};

/// Each round kills what it finds, and the next finds what has not ended yet. A process that starts
/// others all the time is faster than a few rounds.
const ROUNDS_MAX: usize = 200;

/// The wait between rounds: a killed process ends when it is scheduled next.
const ROUND_WAIT: Duration = Duration::from_millis(10);

/// Kills the processes of a container without a shim. `root` is the container's root directory.
pub(super) fn kill_leftovers(first: Option<&ProcessIdentity>, root: &str) {
    // Nothing survives a boot of the machine.
    if first.is_some_and(|first| !first.is_of_this_boot()) {
        return;
    }
    for _ in 0..ROUNDS_MAX {
        let found = leftovers(first, root);
        if found.is_empty() {
            return;
        }
        for process in found {
            let _ = kill(Pid::from_raw(process), Signal::SIGKILL);
        }
        std::thread::sleep(ROUND_WAIT);
    }
    tracing::warn!(root, "processes of a container without a shim have not ended");
}

fn leftovers(first: Option<&ProcessIdentity>, root: &str) -> Vec<i32> {
    let own = std::process::id();
    // A live process of another start under the session's id: the session has ended.
    let session = first.filter(|first| !first.is_succeeded());
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let is_left = |id: &i32| {
        let Ok(stat) = ProcessStat::of(*id) else { return false };
        let is_of_session = session.is_some_and(|first| first.leads(&stat));
        u32::try_from(*id) != Ok(own) && !stat.has_ended() && (is_of_session || has_root(*id, root))
    };
    ids.filter(is_left).collect()
}

/// Whether the process started with this root directory in its environment.
fn has_root(id: i32, root: &str) -> bool {
    let variable = format!("HEADWATER_ROOT={root}");
    let environment = fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(|found| found == variable.as_bytes())
}
