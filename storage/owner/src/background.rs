//! Long work beside the work that a process is for.
//!
//! A list of a million objects takes a processor for half a minute. On a machine of two, each thread
//! that wakes up meanwhile waits for it. At the lowest priority such work has the processors only
//! while no other thread needs one, and costs the others next to nothing.
//!
//! Such a thread is stopped at any point, also while it holds a lock. So the work must take no lock that
//! urgent threads take for long or often.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::Builder;

use rustix::process::setpriority_process;
use tokio::sync::{mpsc, oneshot};

use crate::OwnerPanicked;

/// Jobs that wait for the thread. Above it their callers wait for room.
const WAITING_JOBS_MAX: usize = 16;

/// The niceness of the lowest priority. Beside a thread of the default priority it has one part in 69 of a
/// processor, so it is slow on a machine that is always busy, and still makes progress.
const LOWEST_PRIORITY: i32 = 19;

type Job = Box<dyn FnOnce() + Send>;

/// An OS thread of the lowest priority. Clones share it. It ends after the last one is dropped.
#[derive(Clone, Debug)]
pub struct BackgroundThread {
    jobs: mpsc::Sender<Job>,
}

impl BackgroundThread {
    /// Starts a thread of this name.
    ///
    /// # Errors
    /// When the system has no thread for it.
    pub fn start(name: impl Into<String>) -> io::Result<Self> {
        let (jobs, mut waiting) = mpsc::channel::<Job>(WAITING_JOBS_MAX);
        Builder::new().name(name.into()).spawn(move || {
            lower_priority();
            while let Some(job) = waiting.blocking_recv() {
                // The caller sees a panic: its job drops the sender of the result.
                let _ = catch_unwind(AssertUnwindSafe(job));
            }
        })?;
        Ok(Self { jobs })
    }

    /// Runs `work` on the thread, after the work that waits for it already. Work that its caller has
    /// given up meanwhile is not begun.
    ///
    /// # Errors
    /// [`OwnerPanicked`].
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, OwnerPanicked> {
        let (sender, result) = oneshot::channel();
        let job: Job = Box::new(move || {
            if !sender.is_closed() {
                // A caller that has gone needs no result.
                let _ = sender.send(work());
            }
        });
        self.jobs.send(job).await.map_err(|_| OwnerPanicked)?;
        result.await.map_err(|_| OwnerPanicked)
    }
}

/// Gives the calling thread, and no other one, the lowest priority. Most users may not raise it again.
pub fn lower_priority() {
    // Every process may lower it. Where a sandbox refuses, the work runs as any other.
    let _ = setpriority_process(None, LOWEST_PRIORITY);
}

#[cfg(test)]
mod tests {
    use rustix::process::getpriority_process;

    use super::*;

    fn priority() -> i32 {
        getpriority_process(None).expect("a priority")
    }

    #[tokio::test]
    async fn the_work_has_the_lowest_priority_and_its_caller_keeps_its_own() {
        let before = priority();
        let thread = BackgroundThread::start("background").expect("a thread");
        assert_eq!(thread.run(priority).await, Ok(LOWEST_PRIORITY));
        assert_eq!(priority(), before);
    }

    #[tokio::test]
    async fn a_panic_is_the_result_of_its_own_work_alone() {
        let thread = BackgroundThread::start("background").expect("a thread");
        assert_eq!(thread.run(|| panic!("on purpose")).await, Err::<(), _>(OwnerPanicked));
        assert_eq!(thread.run(|| 7).await, Ok(7));
    }
}
