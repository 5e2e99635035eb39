//! A value of which one task learns that it has changed.
//!
//! A watch channel of tokio has some 400 bytes, because any number of tasks may wait for it. A hub has
//! thousands of sessions, and two such values for each, for which the session alone waits.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// A value that one task watches.
#[derive(Debug, Default)]
pub(crate) struct WatchedValue<T> {
    value: Mutex<T>,
    changed: Notify,
}

impl<T> WatchedValue<T> {
    /// Changes the value, and notifies its watcher.
    pub(crate) fn modify(&self, change: impl FnOnce(&mut T)) {
        change(&mut self.lock());
        self.changed.notify_one();
    }

    /// Takes from the value, or looks at it. It is no change to the watcher, which calls this.
    pub(crate) fn with<R>(&self, take: impl FnOnce(&mut T) -> R) -> R {
        take(&mut self.lock())
    }

    /// Waits until the value has changed since the last return, or since it was made; changes that follow
    /// each other closely are one. Cancel safe: a change is kept for the next call.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    fn lock(&self) -> MutexGuard<'_, T> {
        // A panic of a change leaves a value that is whole: each sets one field after the other.
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;
    use crate::admission::Dismissal;
    use crate::upstream::AppendOutcome;

    /// A quarter of a watch channel.
    const BYTES_MAX: usize = 128;

    #[test]
    fn a_change_is_kept_until_its_watcher_waits_and_several_are_one() {
        let value = WatchedValue::<u32>::default();
        assert_eq!(value.changed().now_or_never(), None);
        value.modify(|value| *value += 1);
        value.modify(|value| *value += 1);
        assert_eq!(value.changed().now_or_never(), Some(()));
        assert_eq!(value.with(std::mem::take), 2);
        assert_eq!(value.changed().now_or_never(), None, "taking is no change");
    }

    #[test]
    fn a_change_that_a_dropped_wait_was_notified_of_is_not_lost() {
        let value = WatchedValue::<u32>::default();
        {
            let mut waiting = std::pin::pin!(value.changed());
            assert_eq!(waiting.as_mut().now_or_never(), None);
            value.modify(|value| *value = 7);
        }
        assert_eq!(value.changed().now_or_never(), Some(()));
    }

    #[test]
    fn a_watched_value_is_smaller_than_a_channel() {
        assert!(size_of::<WatchedValue<Option<Dismissal>>>() <= BYTES_MAX);
        assert!(size_of::<WatchedValue<AppendOutcome>>() <= BYTES_MAX);
    }
}
