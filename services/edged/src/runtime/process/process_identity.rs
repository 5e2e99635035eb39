//! Which process a process id means: with its start time and the machine's boot, never another.

use std::io;

use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

/// A process, beyond the life of its number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProcessIdentity {
    pid: i32,
    /// Clock ticks from the machine's boot: `/proc/<pid>/stat`, field 22.
    start_ticks: u64,
    boot_id: String,
}

impl ProcessIdentity {
    /// The process that has this number now.
    ///
    /// # Errors
    /// When there is none.
    pub(crate) fn of(pid: i32) -> io::Result<Self> {
        let (_, start_ticks) = stat(pid)?;
        Ok(Self { pid, start_ticks, boot_id: boot_id()? })
    }

    /// Whether it still runs.
    pub(crate) fn is_alive(&self) -> bool {
        let is_this_boot = boot_id().is_ok_and(|boot_id| boot_id == self.boot_id);
        is_this_boot
            && stat(self.pid).is_ok_and(|(state, ticks)| {
                ticks == self.start_ticks && !matches!(state, 'Z' | 'X')
            })
    }

    /// Sends a signal to the group it leads; one that is gone needs none.
    ///
    /// Between the look and the signal the number could only pass to another process if its
    /// parent, the shim, reaped it and the kernel went once around all numbers.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(crate) fn signal_group(&self, signal: Signal) -> nix::Result<()> {
        if !self.is_alive() {
            return Ok(());
        }
        match killpg(Pid::from_raw(self.pid), signal) {
            Err(Errno::ESRCH) => Ok(()),
            result => result,
        }
    }
}

/// The id of the machine's current boot.
fn boot_id() -> io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

/// State and start time of a process.
fn stat(pid: i32) -> io::Result<(char, u64)> {
    parse_stat(&std::fs::read_to_string(format!("/proc/{pid}/stat"))?)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "unknown form of /proc stat"))
}

/// The name, field 2, is in parentheses and may hold anything, parentheses too.
fn parse_stat(text: &str) -> Option<(char, u64)> {
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?.chars().next()?;
    // Field 3 was the state; field 22 is the 19th after it.
    Some((state, fields.nth(18)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let text = "7 (a) b) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4242 9 10 11";
        assert_eq!(parse_stat(text), Some(('S', 4242)));
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
