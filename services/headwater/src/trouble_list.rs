//! What is wrong with what runs, as `status` says it.

use std::sync::{Arc, Mutex, PoisonError};

/// TroubleList that are remembered.
const TROUBLES_MAX: usize = 100;

/// What went wrong and was not mended since. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct TroubleList(Arc<Mutex<Vec<String>>>);

impl TroubleList {
    /// Remembers one more, if there is room.
    pub(crate) fn add(&self, trouble: String) {
        let mut troubles = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if troubles.len() < TROUBLES_MAX {
            troubles.push(trouble);
        }
    }

    /// All of them, the oldest first.
    pub(crate) fn all(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
