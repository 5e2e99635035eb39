//! The memory of a process, as the kernel accounts for it.

use std::time::Duration;

use headwater_loadtest::failure::{Attempt, Failure};
use headwater_loadtest::kernel::memory_bytes;

/// Between two looks at a memory that is to come to rest.
const REST: Duration = Duration::from_millis(500);

/// How many looks at most.
const LOOKS: usize = 10;

/// Two looks that differ by less are one: a part of the whole.
const SAME: f64 = 0.005;

/// The memory of a process in bytes, once it has come to rest.
///
/// # Errors
/// When it does not run.
pub(crate) fn memory_at_rest(id: u32) -> Result<f64, Failure> {
    let look = || memory_bytes(id).map(|bytes| bytes as f64).tried("it does not run");
    let mut before = look()?;
    for _ in 0..LOOKS {
        std::thread::sleep(REST);
        let now = look()?;
        if (now - before).abs() <= before * SAME {
            return Ok(now);
        }
        before = now;
    }
    Ok(before)
}
