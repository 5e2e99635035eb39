//! An owner that needs the runtime.

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::{JoinError, JoinHandle};
use tokio_util::sync::CancellationToken;

/// Runs `owner` until it ends or `stop` is cancelled, on a thread of the runtime's blocking pool.
///
/// On a single-threaded runtime `owner` is a task like any other, so the driver of that runtime
/// decides what runs when: a simulation depends on that.
///
/// # Panics
/// Outside of a Tokio runtime.
pub fn spawn_owner(
    stop: CancellationToken,
    owner: impl Future<Output = ()> + Send + 'static,
) -> JoinHandle<()> {
    let runtime = Handle::current();
    if runtime.runtime_flavor() == RuntimeFlavor::CurrentThread {
        return tokio::spawn(async move {
            let _ = stop.run_until_cancelled(owner).await;
        });
    }
    tokio::task::spawn_blocking(move || {
        let _ = runtime.block_on(stop.run_until_cancelled(owner));
    })
}

/// Runs `work`, which blocks, on a thread of the runtime's blocking pool.
///
/// On a single-threaded runtime it runs at once, for the reason that [`spawn_owner`] gives.
///
/// # Errors
/// When `work` panics on its thread.
///
/// # Panics
/// Outside of a Tokio runtime.
pub async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, JoinError> {
    if Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread {
        return Ok(work());
    }
    tokio::task::spawn_blocking(work).await
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_blocking_owner_keeps_no_task_from_running() {
        let stop = CancellationToken::new();
        let owner = spawn_owner(stop.clone(), {
            let stop = stop.clone();
            async move {
                while !stop.is_cancelled() {
                    thread::yield_now();
                }
            }
        });
        tokio::spawn(async move { stop.cancel() }).await.expect("no panic");
        owner.await.expect("no panic");
    }

    #[tokio::test]
    async fn a_single_threaded_runtime_stays_one() {
        let here = thread::current().id();
        let owner = spawn_owner(CancellationToken::new(), async move {
            assert_eq!(thread::current().id(), here);
        });
        owner.await.expect("no panic");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn an_owner_that_waits_ends_when_it_is_stopped() {
        let stop = CancellationToken::new();
        let owner = spawn_owner(stop.clone(), std::future::pending());
        stop.cancel();
        owner.await.expect("no panic");
    }
}
