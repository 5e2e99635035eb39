//! A job that may block for ever, as a look at a folder of a network whose server is away.

use std::time::Duration;

use tokio::task::{JoinError, JoinHandle, spawn_blocking};
use tokio::time::timeout;

/// Runs one job after the other, each on a thread of its own. A job that is overdue keeps its thread; no other begins
/// before it has ended.
#[derive(Debug)]
pub(super) struct BlockingJob<T> {
    within: Duration,
    overdue: Option<JoinHandle<T>>,
}

/// Why there is no result.
#[derive(Debug)]
pub(super) enum JobError {
    /// The job, or the one before, is overdue.
    Overdue,
    /// The job panicked.
    Ended(JoinError),
}

impl<T: Send + 'static> BlockingJob<T> {
    /// Jobs with this time limit.
    pub(super) fn new(within: Duration) -> Self {
        Self { within, overdue: None }
    }

    /// Runs `job`. If the job before is overdue, it waits for that first, and gives its result away, which is old.
    pub(super) async fn run(
        &mut self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, JobError> {
        if let Some(before) = &mut self.overdue {
            let ended = timeout(self.within, before).await;
            let _ = ended.map_err(|_| JobError::Overdue)?;
            self.overdue = None;
        }
        let mut running = spawn_blocking(job);
        match timeout(self.within, &mut running).await {
            Ok(ended) => ended.map_err(JobError::Ended),
            Err(_) => {
                self.overdue = Some(running);
                Err(JobError::Overdue)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn an_overdue_job_has_no_second_one_beside_it() {
        let mut jobs = BlockingJob::new(Duration::from_millis(20));
        let (release, released) = mpsc::sync_channel::<()>(1);
        let hanging = move || {
            let _ = released.recv();
            "old"
        };
        assert!(matches!(jobs.run(hanging).await, Err(JobError::Overdue)));
        for _ in 0..2 {
            let (began, has_begun) = mpsc::sync_channel::<()>(1);
            let second = move || {
                drop(began);
                "second"
            };
            assert!(matches!(jobs.run(second).await, Err(JobError::Overdue)));
            // The job was dropped without a run.
            assert_eq!(has_begun.try_recv(), Err(mpsc::TryRecvError::Disconnected));
        }
        drop(release);
        jobs.within = Duration::from_secs(20);
        assert_eq!(jobs.run(|| "new").await.expect("a result"), "new");
    }
}
