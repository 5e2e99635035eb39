//! The identity of a process: its id, its start time and the machine's boot. No other process has it.

use std::io;

use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use crate::boot_time::boot_id;

/// A process that is recognized even after its id is used again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ProcessIdentity {
    pid: i32,
    /// Clock ticks from the machine's boot: `/proc/<pid>/stat`, field 22.
    start_ticks: u64,
    boot_id: String,
}

impl ProcessIdentity {
    /// The identity of the process with this id.
    ///
    /// # Errors
    /// There is no such process.
    pub(super) fn of(pid: i32) -> io::Result<Self> {
        let start_ticks = ProcessStat::of(pid)?.start_ticks;
        Ok(Self { pid, start_ticks, boot_id: boot_id()? })
    }

    /// Whether the process still runs.
    pub(super) fn is_alive(&self) -> bool {
        self.is_of_this_boot()
            && ProcessStat::of(self.pid)
                .is_ok_and(|stat| stat.start_ticks == self.start_ticks && !stat.has_ended())
    }

    /// Whether the process was started since the machine's last boot.
    pub(super) fn is_of_this_boot(&self) -> bool {
        boot_id().is_ok_and(|boot_id| boot_id == self.boot_id)
    }

    /// Whether another process has its id. The kernel keeps the id of a session from new processes
    /// while a process is in the session.
    pub(super) fn is_succeeded(&self) -> bool {
        ProcessStat::of(self.pid).is_ok_and(|stat| stat.start_ticks != self.start_ticks)
    }

    /// Whether a process is in the session that this process leads.
    pub(super) fn leads(&self, stat: &ProcessStat) -> bool {
        stat.session == self.pid && stat.start_ticks >= self.start_ticks
    }

    /// Sends a signal to the process group that the process leads. Does nothing if the process has
    /// ended.
    ///
    /// Between the check and the signal another process could only receive the id if the shim, the
    /// parent, reaped the process and the kernel used all other ids.
    ///
    /// # Errors
    /// The kernel refuses the signal.
    pub(super) fn signal_group(&self, signal: Signal) -> nix::Result<()> {
        if !self.is_alive() {
            return Ok(());
        }
        match killpg(Pid::from_raw(self.pid), signal) {
            Err(Errno::ESRCH) => Ok(()),
            result => result,
        }
    }
}

/// The kernel's facts of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProcessStat {
    state: char,
    session: i32,
    start_ticks: u64,
}

impl ProcessStat {
    pub(super) fn of(pid: i32) -> io::Result<Self> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
        Self::parse(&text).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, "/proc/<pid>/stat has an unknown form")
        })
    }

    /// Field 2, the name, is in parentheses and may contain any character, even parentheses.
    fn parse(text: &str) -> Option<Self> {
        let mut fields = text.rsplit_once(')')?.1.split_whitespace();
        let state = fields.next()?.chars().next()?;
        // Field 3 was the state; field 6 is the third after it, field 22 the 16th after that.
        let session = fields.nth(2)?.parse().ok()?;
        Some(Self { state, session, start_ticks: fields.nth(15)?.parse().ok()? })
    }

    /// Whether it only waits to be reaped.
    pub(super) fn has_ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let text = "7 (a) b) S 1 7 6 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4242 9 10 11";
        let stat = ProcessStat { state: 'S', session: 6, start_ticks: 4242 };
        assert_eq!(ProcessStat::parse(text), Some(stat));
    }

    #[test]
    fn this_process_is_alive_and_its_number_with_another_start_is_not() {
        let pid = i32::try_from(std::process::id()).expect("a pid");
        let mut identity = ProcessIdentity::of(pid).expect("this process");
        assert!(identity.is_alive());
        identity.start_ticks += 1;
        assert!(!identity.is_alive(), "another process under the same number");
        identity.start_ticks -= 1;
        identity.boot_id.push('x');
        assert!(!identity.is_alive(), "a number of another boot");
    }
}
