//! Turns: one operation on a pod or a volume at a time, whatever the others do.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::OwnedMutexGuard;

/// A turn; the next one begins when its last clone is dropped. Work on the disk holds a clone: it goes on when the
/// operation is dropped.
pub(crate) type Turn = Arc<OwnedMutexGuard<()>>;

/// The turns of all keys.
#[derive(Debug)]
pub(crate) struct Turns<K>(Mutex<HashMap<K, Arc<tokio::sync::Mutex<()>>>>);

impl<K> Default for Turns<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash> Turns<K> {
    /// The next turn of the key; `None` if it does not come within this time.
    pub(crate) async fn take(&self, key: K, within: Duration) -> Option<Turn> {
        let turn = {
            // No code here panics while it holds the lock; a poisoned one is still whole.
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            all.retain(|_, turn| Arc::strong_count(turn) > 1);
            all.entry(key).or_default().clone()
        };
        tokio::time::timeout(within, turn.lock_owned()).await.ok().map(Arc::new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_turn_ends_with_its_last_clone_and_other_keys_do_not_wait() {
        let turns = Turns::default();
        let soon = Duration::from_millis(20);
        let first = turns.take("a", soon).await.expect("free");
        let clone = first.clone();
        drop(first);
        assert!(turns.take("a", soon).await.is_none(), "a clone holds it");
        assert!(turns.take("b", soon).await.is_some());
        drop(clone);
        assert!(turns.take("a", soon).await.is_some());
    }
}
