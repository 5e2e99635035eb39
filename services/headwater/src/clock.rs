//! The wall clock of every part of the process.
//!
//! The wall clock is data for people; nothing is ordered by it. A test of the whole program may
//! shift it: `HEADWATER_TEST_CLOCK_SHIFT` names a file with a number of milliseconds, which is read
//! at every call. It is not a setting and has no other use.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

use headwater_edge::{Clock, SystemClock};

/// The variable that names the file with the shift.
const SHIFT: &str = "HEADWATER_TEST_CLOCK_SHIFT";

/// The file with the shift, if the variable is set. It is read once.
static SHIFTED_BY: OnceLock<Option<PathBuf>> = OnceLock::new();

/// Returns the time in milliseconds since the Unix epoch.
pub(crate) fn wall_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let system = i64::try_from(since.as_millis()).unwrap_or(i64::MAX);
    system.saturating_add(shift_ms())
}

fn shift_ms() -> i64 {
    let file = SHIFTED_BY.get_or_init(|| std::env::var_os(SHIFT).map(PathBuf::from));
    let text = file.as_ref().and_then(|file| std::fs::read_to_string(file).ok());
    text.and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

/// The clocks of an edge of this process.
#[derive(Debug, Default)]
pub(crate) struct EdgeClock(SystemClock);

impl Clock for EdgeClock {
    fn wall_ms(&self) -> i64 {
        wall_ms()
    }

    fn monotonic_ms(&self) -> u64 {
        self.0.monotonic_ms()
    }
}
