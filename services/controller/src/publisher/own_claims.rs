//! The claims of this controller.
//!
//! An append whose outcome is unknown may reach the log later. A controller that took such a claim for
//! that of another one would wait for its own silence, and would take what it has not published yet
//! for what another controller has removed. So an attempt is stored before its claim is appended.
//!
//! While partition 0 takes nothing, any number of attempts fails, and any of them may be in the log. The
//! UUIDs of all attempts between two claims that were won therefore begin alike, and the first of them
//! is stored for all.

use std::sync::Arc;

use headwater_event::WriterEpoch;
use headwater_store::{Batch, Durability, Engine, EngineError, Free, Json, Table, TableId};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::backup;

/// The UUIDs of the claims. One process at a time opens the database, so a controller that finds a
/// claim here knows that the writer of that claim has ended.
const OWN_CLAIM: Table<(), Json<Claims>, Free> = Table::new(TableId::OwnClaim);

/// See the module.
pub(super) struct OwnClaims {
    engine: Arc<dyn Engine>,
    claims: Claims,
}

/// The claim that was won, if any, and the attempts after it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StoredClaims")]
struct Claims {
    won: Option<Uuid>,
    /// The first attempt. The others begin with the same 64 bits, of which 60 are random.
    first: Option<Uuid>,
}

/// The claims as they are stored. An earlier version stored the won one alone.
#[derive(Deserialize)]
#[serde(untagged)]
enum StoredClaims {
    Won(Uuid),
    All { won: Option<Uuid>, first: Option<Uuid> },
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
        let Claims { won, first } = self.claims;
        won == Some(claim) || first.is_some_and(|first| beginning(first) == beginning(claim))
    }

    /// Begins an attempt and returns its UUID, made of `random`. When this returns, the attempt is durable.
    ///
    /// # Errors
    /// When the store cannot be written; nothing must be claimed.
    pub(super) fn begin(&mut self, random: Uuid) -> Result<Uuid, EngineError> {
        if let Some(first) = self.claims.first {
            let (_, end) = random.as_u64_pair();
            return Ok(Uuid::from_u64_pair(beginning(first), end));
        }
        self.claims.first = Some(random);
        let written = self.write(Batch::new());
        if written.is_err() {
            // A later attempt must not count as stored.
            self.claims.first = None;
        }
        written.map(|()| random)
    }

    /// Notes that the claim of `attempt` was won with `epoch`. Earlier attempts count no more, however late
    /// the log takes them. When this returns, the claim is durable, and a restart claims at once.
    ///
    /// # Errors
    /// When the store cannot be written.
    pub(super) fn win(&mut self, attempt: Uuid, epoch: WriterEpoch) -> Result<(), EngineError> {
        self.claims = Claims { won: Some(attempt), first: None };
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
            StoredClaims::Won(won) => Self { won: Some(won), first: None },
            StoredClaims::All { won, first } => Self { won, first },
        }
    }
}

/// The part of a UUID that all attempts between two claims have in common.
fn beginning(claim: Uuid) -> u64 {
    claim.as_u64_pair().0
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use headwater_store::MemoryEngine;

    use super::*;

    const FIRST: Uuid = Uuid::from_u128(1);

    /// More attempts than a controller makes in a day.
    const ATTEMPTS: usize = 20_000;

    fn reopened(engine: &Arc<dyn Engine>) -> OwnClaims {
        let (claims, result) = OwnClaims::load(engine.clone());
        result.expect("read");
        claims
    }

    #[test]
    fn every_attempt_is_known_after_a_restart_until_one_is_won_however_many_there_are() {
        let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::new());
        let mut claims = reopened(&engine);
        claims.win(FIRST, WriterEpoch(1)).expect("written");
        let mut attempts = Vec::new();
        for _ in 0..ATTEMPTS {
            attempts.push(claims.begin(Uuid::new_v4()).expect("written"));
        }
        let distinct: BTreeSet<Uuid> = attempts.iter().copied().collect();
        assert_eq!(distinct.len(), ATTEMPTS, "two claims with one UUID would share a key");
        let mut claims = reopened(&engine);
        assert!(claims.contains(FIRST), "the last one that was won");
        assert!(attempts.iter().all(|attempt| claims.contains(*attempt)));
        assert!(!claims.contains(Uuid::new_v4()), "another controller's");
        let last = claims.begin(Uuid::new_v4()).expect("written");
        assert!(claims.contains(last) && claims.contains(attempts[0]));
        claims.win(last, WriterEpoch(2)).expect("written");
        let mut claims = reopened(&engine);
        assert!(claims.contains(last) && !claims.contains(FIRST) && !claims.contains(attempts[0]));
        assert_eq!(backup::highest_epoch(&*engine).expect("read"), WriterEpoch(2));
        let next = claims.begin(Uuid::new_v4()).expect("written");
        assert_ne!(beginning(next), beginning(last), "a copy of the database makes others");
    }

    #[test]
    fn a_claim_that_an_earlier_version_stored_is_the_won_one() {
        let stored: Claims = serde_json::from_value(serde_json::json!(FIRST)).expect("read");
        assert_eq!(stored, Claims { won: Some(FIRST), first: None });
    }
}
