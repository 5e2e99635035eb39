//! Opens the fold of what is published.

use std::collections::BTreeMap;
use std::sync::Arc;

use headwater_event::{ResourceKey, StreamId};
use headwater_follow::{FollowError, Follower, WallClock};
use headwater_log::{BirthWish, Ends, Log, read_or_create_birth};
use headwater_store::{Engine, EngineError};
use headwater_view::{Selection, StreamReader};

use super::{DrawUuid, Lost};
use crate::lives::last_life;
use crate::source::PublishedObject;

/// Entries read at once when the fold is shown to a source.
const CHUNK_ENTRIES: usize = 256;

/// Opens the fold of what is published and reads to the end of the log; an empty log is born.
pub(crate) async fn open(
    log: &dyn Log,
    upstream: &dyn Log,
    engine: &Arc<dyn Engine>,
    clock: &WallClock,
    draw: &DrawUuid,
) -> Result<Follower<()>, OpenError> {
    follow(log, upstream, engine, clock, draw, false).await.map_err(OpenError)
}

/// Why what is published cannot be known.
#[derive(Debug, thiserror::Error)]
#[error("what was published before cannot be read")]
pub struct OpenError(#[source] Lost);

pub(super) async fn follow(
    log: &dyn Log,
    upstream: &dyn Log,
    engine: &Arc<dyn Engine>,
    clock: &WallClock,
    draw: &DrawUuid,
    rebuild: bool,
) -> Result<Follower<()>, Lost> {
    let previous = last_life(log, upstream, &**engine).await?;
    let wish = BirthWish { previous, uuid: draw() };
    read_or_create_birth(log, wish).await?;
    let (engine, clock) = (engine.clone(), clock.clone());
    let mut follower = if rebuild {
        Follower::rebuild(log, engine, (), clock).await?
    } else {
        Follower::open(log, engine, (), clock).await?
    };
    // A fold that was complete in an earlier life may stand anywhere before the end: what a loss
    // of power took from it is still in the log.
    let mut ends =
        Ends::ahead_of(log, &follower.acceptance().cursors()).await.map_err(FollowError::from)?;
    while !follower.is_folded() || !ends.are_reached() {
        if let Some((cursor, _)) = follower.next().await?.read {
            ends.pass(&cursor);
        }
    }
    Ok(follower)
}

/// Every object that an earlier run published, each once.
pub(crate) fn published(
    follower: &Follower<()>,
) -> Result<BTreeMap<ResourceKey, PublishedObject>, EngineError> {
    let engine = follower.state().engine();
    let reader = StreamReader::new(&**engine);
    let mut objects = BTreeMap::new();
    let streams: Vec<StreamId> =
        follower.acceptance().streams().map(|(stream, _)| stream.clone()).collect();
    for stream in streams {
        let mut after = None;
        loop {
            let chunk = reader.entries(&stream, Selection::All, after.as_ref(), CHUNK_ENTRIES)?;
            let last = chunk.len() < CHUNK_ENTRIES;
            after = chunk.last().map(|(key, _)| key.clone());
            for (key, entry) in chunk {
                if let Some(key) = key.resource() {
                    let (uid, payload) = (entry.uid, entry.object);
                    objects.insert(key.clone(), PublishedObject { uid, payload });
                }
            }
            if last {
                break;
            }
        }
    }
    Ok(objects)
}
