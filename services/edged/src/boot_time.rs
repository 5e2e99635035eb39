//! Times in a boot of the machine. Nothing sets the clock of a boot, while that of the wall is set by years on a node without a
//! clock of its own.

use std::io;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// The kernel's file with the id of the boot.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// A time in a boot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootTime {
    /// The id of the boot.
    pub boot_id: String,
    /// Milliseconds since it began, with those in which the machine slept.
    pub since_boot_ms: u64,
}

impl BootTime {
    /// The time now; `None` if the kernel does not say it.
    pub fn now() -> Option<Self> {
        let since_boot = Duration::from(clock_gettime(ClockId::CLOCK_BOOTTIME).ok()?);
        let since_boot_ms = u64::try_from(since_boot.as_millis()).ok()?;
        Some(Self { boot_id: boot_id().ok()?, since_boot_ms })
    }

    /// The time from `start` until this one; `None` if they are times of different boots.
    pub fn since(&self, start: &Self) -> Option<Duration> {
        let since_ms = self.since_boot_ms.saturating_sub(start.since_boot_ms);
        (self.boot_id == start.boot_id).then(|| Duration::from_millis(since_ms))
    }
}

/// The id of the machine's current boot.
///
/// # Errors
/// The kernel does not say it.
pub(crate) fn boot_id() -> io::Result<String> {
    Ok(std::fs::read_to_string(BOOT_ID)?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boot_goes_on_and_no_time_passes_from_one_to_another() {
        let start = BootTime::now().expect("a time");
        let later = BootTime { since_boot_ms: start.since_boot_ms + 7, ..start.clone() };
        assert!(BootTime::now().is_some_and(|now| now.since(&start).is_some()));
        assert_eq!(later.since(&start), Some(Duration::from_millis(7)));
        assert_eq!(start.since(&later), Some(Duration::ZERO));
        let other = BootTime { boot_id: "another".to_owned(), ..later };
        assert_eq!(other.since(&start), None);
    }
}
