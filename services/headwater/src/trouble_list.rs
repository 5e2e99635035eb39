//! The troubles of a process, as `status` lists them.

use std::sync::{Arc, Mutex, PoisonError};

/// The most troubles in the list.
const TROUBLES_MAX: usize = 100;

/// The troubles of a process. Cheap to clone; all clones share one list.
#[derive(Clone, Default)]
pub(crate) struct TroubleList(Arc<Mutex<Vec<String>>>);

impl TroubleList {
    /// Adds a trouble, if the list is not full.
    pub(crate) fn add(&self, trouble: String) {
        let mut troubles = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if troubles.len() < TROUBLES_MAX {
            troubles.push(trouble);
        }
    }

    /// Returns all troubles, the oldest first.
    pub(crate) fn all(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
