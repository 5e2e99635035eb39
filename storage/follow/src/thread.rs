//! The thread of a loop that follows a log.

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Runs `task` until it ends or `stop` is cancelled, on a thread where it may block: a long fold
/// reads and writes the store without a pause, and must not keep others from running.
///
/// A runtime of one thread stays one: there it is a task like any other, so that whoever drives
/// that runtime decides what runs when.
///
/// # Panics
/// Outside of a Tokio runtime.
pub fn on_its_own_thread(
    stop: CancellationToken,
    task: impl Future<Output = ()> + Send + 'static,
) -> JoinHandle<()> {
    let runtime = Handle::current();
    if runtime.runtime_flavor() == RuntimeFlavor::CurrentThread {
        return tokio::spawn(async move {
            let _ = stop.run_until_cancelled(task).await;
        });
    }
    tokio::task::spawn_blocking(move || {
        // Stopped or ended: either way it is over.
        let _ = runtime.block_on(stop.run_until_cancelled(task));
    })
}
