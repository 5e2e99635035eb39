//! An owner on an OS thread of its own.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::thread::{Builder, JoinHandle};

use tokio::sync::oneshot;

/// An owner that runs on an OS thread. Await it for its result, or [`join`](Self::join) it.
///
/// The result arrives after everything that the owner captured is dropped: an engine that it held
/// is free then. Dropping the handle detaches the thread.
#[derive(Debug)]
#[must_use = "a dropped handle detaches the thread"]
pub struct OwnerThread<T> {
    thread: JoinHandle<()>,
    result: oneshot::Receiver<T>,
}

/// The owner panicked. The panic itself was reported where it happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the thread panicked")]
pub struct OwnerPanicked;

impl<T: Send + 'static> OwnerThread<T> {
    /// Starts `owner` on a thread of this name. `stack_bytes` bounds its stack; `None`: the
    /// system's default.
    ///
    /// # Errors
    /// When the system has no thread for it.
    pub fn start(
        name: impl Into<String>,
        stack_bytes: Option<usize>,
        owner: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<Self> {
        let (sender, result) = oneshot::channel();
        let mut builder = Builder::new().name(name.into());
        if let Some(bytes) = stack_bytes {
            builder = builder.stack_size(bytes);
        }
        let thread = builder.spawn(move || {
            // A dropped handle receives no result.
            let _ = sender.send(owner());
        })?;
        Ok(Self { thread, result })
    }
}

impl<T> OwnerThread<T> {
    /// Wakes an owner that parks its thread.
    pub fn unpark(&self) {
        self.thread.thread().unpark();
    }

    /// Blocks until the thread has ended. For `drop` and for callers without a runtime.
    ///
    /// # Errors
    /// [`OwnerPanicked`].
    pub fn join(mut self) -> Result<T, OwnerPanicked> {
        self.thread.join().map_err(|_| OwnerPanicked)?;
        self.result.try_recv().map_err(|_| OwnerPanicked)
    }
}

impl<T> Future for OwnerThread<T> {
    type Output = Result<T, OwnerPanicked>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.result).poll(context).map_err(|_| OwnerPanicked)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test]
    async fn the_result_arrives_after_the_state_is_dropped() {
        let state = Arc::new(());
        let held = state.clone();
        let owner = OwnerThread::start("owner", None, move || Arc::strong_count(&held));
        assert_eq!(owner.expect("a thread").await, Ok(2));
        assert_eq!(Arc::strong_count(&state), 1);
    }

    #[test]
    fn a_parked_owner_is_woken_and_joined() {
        let owner = OwnerThread::start("owner", Some(1 << 16), std::thread::park);
        let owner = owner.expect("a thread");
        owner.unpark();
        assert_eq!(owner.join(), Ok(()));
    }

    #[tokio::test]
    async fn a_panic_is_the_result() {
        let owner = OwnerThread::start("owner", None, || panic!("on purpose"));
        assert_eq!(owner.expect("a thread").await, Err::<(), _>(OwnerPanicked));
    }
}
