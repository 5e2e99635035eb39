//! The claims of this controller.
//!
//! An append whose outcome is unknown may reach the log later. A controller that took such a claim for
//! that of another one would wait for its own silence, and would take what it has not published yet
//! for what another controller has removed. So an attempt is stored before its claim is appended.

use std::sync::Arc;

use headwater_event::WriterEpoch;
use headwater_store::{Batch, Durability, Engine, EngineError, Free, Json, Table, TableId};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::backup;

/// The UUIDs of the claims. One process at a time opens the database, so a controller that finds a
/// claim here knows that the writer of that claim has ended.
const OWN_CLAIM: Table<(), Json<Claims>, Free> = Table::new(TableId::OwnClaim);

/// The claims that are kept, of some 40 bytes each: the last one that was won, and later attempts. With
/// the longest wait between two attempts, these are those of 20 minutes or more: as long as partition 0
/// may have no leader after it took one of them.
const CLAIMS_MAX: usize = 256;

/// See the module.
pub(super) struct OwnClaims {
    engine: Arc<dyn Engine>,
    claims: Claims,
}

/// The claim that was won, if any, and the attempts after it, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StoredClaims")]
struct Claims {
    won: Option<Uuid>,
    attempts: Vec<Uuid>,
}

/// The claims as they are stored. An earlier version stored the won one alone.
#[derive(Deserialize)]
#[serde(untagged)]
enum StoredClaims {
    Won(Uuid),
    All { won: Option<Uuid>, attempts: Vec<Uuid> },
}

impl OwnClaims {
    /// The claims that `engine` has; none if they cannot be read.
    pub(super) fn load(engine: Arc<dyn Engine>) -> (Self, Result<(), EngineError>) {
        let (claims, result) = match OWN_CLAIM.get(&*engine, &()) {
            Ok(stored) => (stored.map(|Json(claims)| claims), Ok(())),
            Err(error) => (None, Err(error)),
        };
        (Self { engine, claims: claims.unwrap_or_default() }, result)
    }

    /// Whether this controller made the claim.
    pub(super) fn contains(&self, claim: Uuid) -> bool {
        self.claims.won == Some(claim) || self.claims.attempts.contains(&claim)
    }

    /// Notes an attempt. When this returns, the attempt is durable.
    ///
    /// # Errors
    /// When the store cannot be written; the claim must not be appended.
    pub(super) fn begin(&mut self, attempt: Uuid) -> Result<(), EngineError> {
        let attempts = &mut self.claims.attempts;
        if attempts.len() + 1 >= CLAIMS_MAX {
            attempts.remove(0);
        }
        attempts.push(attempt);
        self.write(Batch::new())
    }

    /// Notes that the claim of `attempt` was won with `epoch`. Earlier attempts count no more, however late
    /// the log takes them. When this returns, the claim is durable, and a restart claims at once.
    ///
    /// # Errors
    /// When the store cannot be written.
    pub(super) fn win(&mut self, attempt: Uuid, epoch: WriterEpoch) -> Result<(), EngineError> {
        self.claims = Claims { won: Some(attempt), attempts: Vec::new() };
        let mut batch = Batch::new();
        backup::record_epoch(&mut batch, epoch);
        self.write(batch)
    }

    fn write(&self, mut batch: Batch) -> Result<(), EngineError> {
        batch.put(&OWN_CLAIM, &(), &Json(self.claims.clone()));
        batch.write(&*self.engine, Durability::Synced)
    }
}

impl From<StoredClaims> for Claims {
    fn from(stored: StoredClaims) -> Self {
        match stored {
            StoredClaims::Won(won) => Self { won: Some(won), attempts: Vec::new() },
            StoredClaims::All { won, attempts } => Self { won, attempts },
        }
    }
}

#[cfg(test)]
mod tests {
    use headwater_store::MemoryEngine;

    use super::*;

    const FIRST: Uuid = Uuid::from_u128(1);

    fn reopened(engine: &Arc<dyn Engine>) -> OwnClaims {
        let (claims, result) = OwnClaims::load(engine.clone());
        result.expect("read");
        claims
    }

    #[test]
    fn an_attempt_is_known_after_a_restart_until_another_one_is_won() {
        let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::new());
        let mut claims = reopened(&engine);
        claims.win(FIRST, WriterEpoch(1)).expect("written");
        let attempts: Vec<Uuid> = (2..).map(Uuid::from_u128).take(CLAIMS_MAX + 5).collect();
        for attempt in &attempts {
            claims.begin(*attempt).expect("written");
        }
        let mut claims = reopened(&engine);
        assert!(claims.contains(FIRST), "the last one that was won");
        let known = attempts.iter().filter(|attempt| claims.contains(**attempt)).count();
        let [.., earlier, last] = attempts[..] else { panic!("attempts") };
        assert_eq!((known, claims.contains(last)), (CLAIMS_MAX - 1, true));
        claims.win(last, WriterEpoch(2)).expect("written");
        let claims = reopened(&engine);
        assert!(!claims.contains(FIRST) && !claims.contains(earlier) && claims.contains(last));
        assert_eq!(backup::highest_epoch(&*engine).expect("read"), WriterEpoch(2));
    }

    #[test]
    fn a_claim_that_an_earlier_version_stored_is_the_won_one() {
        let stored: Claims = serde_json::from_value(serde_json::json!(FIRST)).expect("read");
        assert_eq!(stored, Claims { won: Some(FIRST), attempts: Vec::new() });
    }
}
