//! The one writer of a log.

use std::sync::Arc;

use headwater_event::LogId;
use headwater_follow::Follower;
use headwater_loadtest::failure::{Attempt, Failure};
use headwater_log::{Claimant, Log, MetadataProposal, Writer, read_or_create_metadata};
use headwater_store::MemoryEngine;
use uuid::Uuid;

use crate::clock::wall_clock;

/// Becomes the one writer of an empty log.
pub(crate) async fn claim(log: &Arc<dyn Log>) -> Result<Writer, Failure> {
    claim_anew(log, None).await
}

/// Becomes the one writer of an empty log that had another life before.
pub(crate) async fn claim_anew(
    log: &Arc<dyn Log>,
    previous: Option<LogId>,
) -> Result<Writer, Failure> {
    let wish = MetadataProposal { previous, uuid: Uuid::new_v4() };
    read_or_create_metadata(&**log, wish).await.tried("beginning a log")?;
    let engine = Arc::new(MemoryEngine::new());
    let mut follower =
        Follower::open(&**log, engine, (), wall_clock()).await.tried("reading a log")?;
    while !follower.is_folded() {
        follower.next().await.tried("reading a log")?;
    }
    let claimant = Claimant::new(Uuid::new_v4());
    follower.take_over(log, &claimant).await.tried("claiming a log")
}
