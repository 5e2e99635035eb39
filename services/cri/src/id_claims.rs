//! Ids that have a task each: one at a time.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The ids that have a task, whether it has a place yet or not.
#[derive(Clone, Debug, Default)]
pub(crate) struct IdClaims(Arc<Mutex<BTreeSet<String>>>);

/// The claim of a task on its id, until it is dropped.
#[derive(Debug)]
pub(crate) struct IdClaim {
    claims: IdClaims,
    id: String,
}

impl IdClaims {
    /// Claims the id; `None` if a task has it.
    pub(crate) fn claim(&self, id: &str) -> Option<IdClaim> {
        let is_free = self.lock().insert(id.to_owned());
        is_free.then(|| IdClaim { claims: self.clone(), id: id.to_owned() })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<String>> {
        // The set is whole even if a thread died.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for IdClaim {
    fn drop(&mut self) {
        self.claims.lock().remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_claimed_once_until_its_claim_is_dropped() {
        let claims = IdClaims::default();
        let first = claims.claim("c1").expect("it is free");
        assert!(claims.claim("c1").is_none());
        assert!(claims.claim("c1").is_none(), "a refused claim frees nothing");
        assert!(claims.claim("c2").is_some());
        drop(first);
        assert!(claims.claim("c1").is_some());
    }
}
