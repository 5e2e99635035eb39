//! Opens the fold of what is published.

use std::sync::Arc;

use headwater_follow::{FollowError, Follower, WallClock};
use headwater_log::{CatchUpTarget, Log, MetadataProposal, read_or_create_metadata};
use headwater_store::Engine;

use super::log_generation::last_life;
use super::{PublishError, UuidGenerator};
use crate::publisher::backup;

/// Opens the fold of what is published and reads to the end of the log; an empty log is born.
pub(crate) async fn open(
    log: &dyn Log,
    upstream: &dyn Log,
    engine: &Arc<dyn Engine>,
    clock: &WallClock,
    draw: &UuidGenerator,
) -> Result<Follower<()>, OpenError> {
    follow(log, upstream, engine, clock, draw, false).await.map_err(OpenError)
}

/// Why what is published cannot be known.
#[derive(Debug, thiserror::Error)]
#[error("what was published before cannot be read")]
pub struct OpenError(#[source] PublishError);

pub(super) async fn follow(
    log: &dyn Log,
    upstream: &dyn Log,
    engine: &Arc<dyn Engine>,
    clock: &WallClock,
    draw: &UuidGenerator,
    rebuild: bool,
) -> Result<Follower<()>, PublishError> {
    let previous = last_life(log, upstream, &**engine).await?;
    let wish = MetadataProposal { previous, uuid: draw() };
    let log_metadata = read_or_create_metadata(log, wish).await?;
    backup::keep(log, log_metadata.log_id, &**engine, rebuild).await?;
    let (held, clock) = (engine.clone(), clock.clone());
    let mut follower = if rebuild {
        Follower::rebuild(log, held, (), clock).await?
    } else {
        Follower::open(log, held, (), clock).await?
    };
    // A fold that was complete in an earlier life may stand anywhere before the end: what a loss
    // of power took from it is still in the log.
    let mut ends = CatchUpTarget::ahead_of(log, &follower.acceptance().cursors())
        .await
        .map_err(FollowError::from)?;
    while !follower.is_folded() || !ends.is_reached() {
        if let Some((cursor, _)) = follower.next().await?.read {
            ends.pass(&cursor);
        }
    }
    if follower.acceptance().is_reconciled() {
        backup::forget(&**engine)?;
    }
    Ok(follower)
}
