//! The interest, shared between the publisher, which writes it, and its readers.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};

use super::Interest;

/// The objects, and which node uses which.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedInterest(Arc<RwLock<Interest>>);

/// The same, without keeping it alive.
#[derive(Clone, Debug)]
pub(crate) struct WeakInterest(Weak<RwLock<Interest>>);

impl From<Interest> for SharedInterest {
    fn from(interest: Interest) -> Self {
        Self(Arc::new(RwLock::new(interest)))
    }
}

impl SharedInterest {
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Interest> {
        // Interest is whole between two calls, and none of them panics by itself.
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// For the publisher alone.
    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, Interest> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn downgrade(&self) -> WeakInterest {
        WeakInterest(Arc::downgrade(&self.0))
    }
}

impl WeakInterest {
    pub(crate) fn upgrade(&self) -> Option<SharedInterest> {
        self.0.upgrade().map(SharedInterest)
    }
}
