//! Waits until something has come about.

use std::thread;
use std::time::{Duration, Instant};

use headwater_e2e::proxy::{Proxy, Traffic};
use headwater_loadtest::failure::Failure;

/// How long anything may take to come about.
const WAIT: Duration = Duration::from_secs(60);

/// Between two looks.
const POLL: Duration = Duration::from_millis(1);

/// How long nothing may have passed for a hop to be called quiet.
pub(crate) const QUIET: Duration = Duration::from_millis(300);

/// Waits until nothing passes `hop` any more, and gives what has passed.
///
/// # Errors
/// When it never gets quiet.
pub(crate) fn quiet(hop: &Proxy) -> Result<Traffic, Failure> {
    wait("quiet on the wire", || {
        let before = hop.traffic();
        thread::sleep(QUIET);
        (hop.traffic() == before).then_some(before)
    })
}

/// Waits until `look` gives something.
///
/// # Errors
/// When it does not.
pub(crate) fn wait<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> Result<T, Failure> {
    let deadline = Instant::now() + WAIT;
    loop {
        if let Some(found) = look() {
            return Ok(found);
        }
        if Instant::now() >= deadline {
            return Err(Failure::of(format!("{what}: not within {} s", WAIT.as_secs())));
        }
        thread::sleep(POLL);
    }
}
