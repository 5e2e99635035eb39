//! The bytes a second of all streams of an edge together: a copy of a gigabyte must not delay what the
//! session sends over the same link.

use std::num::NonZeroU64;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// Gives room for bytes at a rate. Its users share it.
#[derive(Debug)]
pub struct RateLimiter {
    bytes_per_second: NonZeroU64,
    /// When the room for the next bytes begins.
    next: Mutex<Option<Instant>>,
}

impl RateLimiter {
    /// A limiter that has given no room yet.
    pub fn new(bytes_per_second: NonZeroU64) -> Self {
        Self { bytes_per_second, next: Mutex::new(None) }
    }

    /// Waits until so many bytes may move.
    pub async fn take(&self, bytes: usize) {
        let at = {
            // No code here panics while it holds the lock; a poisoned one is still whole.
            let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
            let now = Instant::now();
            let at = next.map_or(now, |next| next.max(now));
            *next = Some(at + self.time_of(bytes));
            at
        };
        sleep_until(at).await;
    }

    /// How long so many bytes take.
    fn time_of(&self, bytes: usize) -> Duration {
        let nanos = bytes as u128 * 1_000_000_000 / u128::from(self.bytes_per_second.get());
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn all_users_together_move_the_bytes_of_the_rate() {
        let limiter = RateLimiter::new(NonZeroU64::new(1_000).expect("not zero"));
        let began = Instant::now();
        let user = async || {
            for _ in 0..10 {
                limiter.take(100).await;
            }
        };
        tokio::join!(user(), user(), user());
        // The last bytes begin when those before them are through.
        assert_eq!(began.elapsed().as_millis(), 2_900);
        tokio::time::sleep(Duration::from_secs(60)).await;
        let began = Instant::now();
        limiter.take(100).await;
        limiter.take(1).await;
        assert_eq!(began.elapsed().as_millis(), 100, "an idle time is no stock");
    }
}
