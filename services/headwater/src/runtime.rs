//! The async runtime of a process that runs parts.

use std::io;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

/// How long a thread for blocking calls waits for the next one. tokio hands the calls to its idle threads by
/// turns. With its own 10 s, a few calls a second kept thirty threads of a hub alive, each with 0.1 MB.
const BLOCKING_KEEP_ALIVE: Duration = Duration::from_secs(2);

/// Builds the runtime.
///
/// # Errors
/// The system has no thread or no descriptor left.
pub(crate) fn build() -> io::Result<Runtime> {
    Builder::new_multi_thread().thread_keep_alive(BLOCKING_KEEP_ALIVE).enable_all().build()
}
