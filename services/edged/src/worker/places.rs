//! The places of pods that are started, or taken down, at the same time.

use std::pin::pin;
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

/// The time for which an operation keeps its place. A sandbox takes seconds on a slow gateway. What takes longer hangs, as
/// a mount, a network plugin or a runtime may: it goes on without a place, and delays no other pod.
const HELD_MAX: Duration = Duration::from_secs(10);

/// A number of places.
#[derive(Debug)]
pub(crate) struct Places(Semaphore);

/// A place that is taken.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    /// `None` where the places are closed, which they never are.
    _permit: Option<SemaphorePermit<'a>>,
}

impl Places {
    /// So many places, at least one.
    pub(crate) fn new(count: usize) -> Self {
        Self(Semaphore::new(count.max(1)))
    }

    /// Waits for a place; in turn.
    pub(crate) async fn take(&self) -> Place<'_> {
        Place { _permit: self.0.acquire().await.ok() }
    }
}

impl Place<'_> {
    /// Does the work. The place is free when the work is done, or has taken [`HELD_MAX`].
    pub(crate) async fn during<T>(self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        match timeout(HELD_MAX, &mut work).await {
            Ok(done) => done,
            Err(_) => {
                drop(self);
                work.await
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::Arc;

    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn work_that_hangs_keeps_its_place_for_a_while_only() {
        let places = Arc::new(Places::new(2));
        for _ in 0..2 {
            let places = places.clone();
            tokio::spawn(async move { places.take().await.during(pending::<()>()).await });
        }
        tokio::task::yield_now().await;
        let began = Instant::now();
        assert_eq!(places.take().await.during(async { 7 }).await, 7);
        assert_eq!(began.elapsed(), HELD_MAX);
        let began = Instant::now();
        assert_eq!(places.take().await.during(async { 8 }).await, 8, "both places are free");
        assert_eq!(began.elapsed(), Duration::ZERO);
    }
}
