//! The ends of the shim's children: one thread reaps them all, and passes the ends of commands on to
//! the threads that await them.

use std::collections::HashMap;
use std::io::{self, Write as _};
use std::os::unix::net::UnixStream;
use std::process::Child;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

use super::child::LaunchStage;
use super::stage::LaunchOrder;

/// The commands whose ends are awaited. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Reaper(Arc<Mutex<CommandTable>>);

#[derive(Debug, Default)]
struct CommandTable {
    commands: HashMap<i32, UnixStream>,
    /// The container has ended, and nothing starts any more.
    is_closed: bool,
}

impl Reaper {
    /// Starts a command. The stream receives its exit code, in four bytes, when it has ended.
    pub(super) fn start(&self, order: &LaunchOrder<'_>) -> io::Result<(Child, UnixStream)> {
        let (end, ended) = UnixStream::pair()?;
        let stage = {
            let mut awaited = self.awaited();
            if awaited.is_closed {
                return Err(io::Error::other("the container has ended"));
            }
            // Under the lock: the command may end before its id is known here.
            let stage = LaunchStage::start()?;
            let pid = i32::try_from(stage.id()).map_err(io::Error::other)?;
            awaited.commands.insert(pid, end);
            stage
        };
        let child = stage.become_command(order).map_err(|error| error.source)?;
        Ok((child, ended))
    }

    /// Kills a command that has not ended, with its process group.
    pub(super) fn kill(&self, pid: i32) {
        // Under the lock: the id is not used again while the command is not reaped.
        if self.awaited().commands.contains_key(&pid) {
            let pid = Pid::from_raw(pid);
            let _ = killpg(pid, Signal::SIGKILL);
            let _ = kill(pid, Signal::SIGKILL);
        }
    }

    /// Reaps every child until the container's process ends.
    pub(super) fn wait_for(&self, pid: i32) -> Option<WaitStatus> {
        loop {
            let status = match waitpid(None, None) {
                Ok(status) => status,
                Err(Errno::EINTR) => continue,
                Err(_) => return None,
            };
            let (ended, code) = match status {
                WaitStatus::Exited(ended, code) => (ended.as_raw(), code),
                WaitStatus::Signaled(ended, signal, _) => (ended.as_raw(), 128 + signal as i32),
                _ => continue,
            };
            if ended == pid {
                return Some(status);
            }
            let end = self.awaited().commands.remove(&ended);
            if let Some(mut end) = end {
                // The thread may have given the command up.
                let _ = end.write_all(&code.to_le_bytes());
            }
        }
    }

    /// Starts nothing any more.
    pub(super) fn close(&self) {
        self.awaited().is_closed = true;
    }

    fn awaited(&self) -> MutexGuard<'_, CommandTable> {
        // No code under this lock panics half-way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
