//! What was published and the log does not hold any more: one that was made again holds nothing
//! yet, one that lost its tail too little, and the pods that nodes run are to stay what they are,
//! by UID and by place.
//!
//! It is put aside before the fold is dropped, and forgotten once the log holds everything again. A
//! controller that is killed in between still knows who is who. So it does which epochs there were:
//! the next writer's is higher also than one whose claim the log has lost.

use std::collections::BTreeMap;

use headwater_event::{LogId, ResourceKey, WriterEpoch};
use headwater_follow::FollowError;
use headwater_log::{Log, ReadError};
use headwater_store::position::CURSORS;
use headwater_store::{Batch, Durability, Engine, EngineError, Json, Table, TableId};
use headwater_view::{Selection, StreamReader};
use serde::{Deserialize, Serialize};

use crate::source::PublishedObject;

/// Entries of the fold read at once.
const CHUNK_ENTRIES: usize = 256;

/// Rows group before they are written: an engine takes 8 MiB at once, and a chunk brings at most
/// one object of the largest size beyond this.
const WRITE_BYTES: usize = 1 << 20;

/// Objects that the log held once and may not hold yet again.
const BACKUP: Table<ResourceKey, Json<BackupObject>> = Table::new(TableId::InheritedEntries);

/// The highest epoch of a writer that was met here, in any life of the log.
const EPOCH: Table<(), Json<WriterEpoch>> = Table::new(TableId::HighestEpoch);

/// An object as it was published.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct BackupObject {
    uid: String,
    /// JSON.
    payload: String,
}

/// Puts aside what `engine` has folded, where `log`, which is in this `life`, does not hold it any
/// more: the log was made again, or has lost its tail. So it does where the fold `is_given_up`.
pub(crate) async fn keep(
    log: &dyn Log,
    life: LogId,
    engine: &dyn Engine,
    is_given_up: bool,
) -> Result<(), FollowError> {
    let streams = StreamReader::new(engine).streams()?;
    let is_of_another = streams.iter().any(|position| position.checkpoint.log_id != life);
    if is_of_another || is_given_up || is_ahead(log, engine).await? {
        let kept = put_aside(engine)?;
        tracing::info!(objects = kept, "what was published keeps its UIDs until it is again");
    }
    Ok(())
}

/// Whether the log does not reach to where the fold of `engine` was read, or is another.
async fn is_ahead(log: &dyn Log, engine: &dyn Engine) -> Result<bool, FollowError> {
    let rows = CURSORS.rows(engine).map(|row| row.map(|(_, cursor)| cursor));
    let cursors = rows.collect::<Result<Vec<_>, _>>()?;
    if cursors.is_empty() {
        return Ok(false);
    }
    match log.read(cursors).await {
        Err(ReadError::Truncated { .. } | ReadError::Recreated { .. }) => Ok(true),
        Err(error @ ReadError::Unavailable { .. }) => Err(error.into()),
        Ok(_) | Err(_) => Ok(false),
    }
}

fn put_aside(engine: &dyn Engine) -> Result<u64, EngineError> {
    let mut batch = Batch::new();
    let met = StreamReader::new(engine).streams()?.into_iter();
    let met = met.map(|position| position.checkpoint.epoch).max().unwrap_or_default();
    batch.put(&EPOCH, &(), &Json(epoch(engine)?.max(met)));
    let mut kept = 0;
    for_each_published(engine, |key, object| {
        let payload = String::from_utf8_lossy(&object.payload).into_owned();
        batch.put(&BACKUP, &key, &Json(BackupObject { uid: object.uid, payload }));
        kept += 1;
        if batch.bytes() < WRITE_BYTES {
            return Ok(());
        }
        std::mem::take(&mut batch).write(engine, Durability::Buffered)
    })?;
    // The fold is dropped next.
    batch.write(engine, Durability::Synced)?;
    Ok(kept)
}

/// The highest epoch of a writer that is known here, whatever the log has lost.
pub(crate) fn epoch(engine: &dyn Engine) -> Result<WriterEpoch, EngineError> {
    Ok(EPOCH.get(engine, &())?.map_or_else(WriterEpoch::default, |Json(epoch)| epoch))
}

/// Remembers with `batch` that a writer of this epoch was met; it is higher than any before.
pub(crate) fn met(batch: &mut Batch, epoch: WriterEpoch) {
    batch.put(&EPOCH, &(), &Json(epoch));
}

/// Forgets the objects: the log holds everything again.
pub(crate) fn forget(engine: &dyn Engine) -> Result<(), EngineError> {
    if BACKUP.rows(engine).next().is_none() {
        return Ok(());
    }
    let mut batch = Batch::new();
    batch.clear(&BACKUP);
    batch.write(engine, Durability::Buffered)
}

/// Every object that an earlier run published, each once; what the log does not hold yet again as
/// it was before.
pub(crate) fn published(
    engine: &dyn Engine,
) -> Result<BTreeMap<ResourceKey, PublishedObject>, EngineError> {
    let mut objects = BTreeMap::new();
    for row in BACKUP.rows(engine) {
        let (key, Json(BackupObject { uid, payload })) = row?;
        objects.insert(key, PublishedObject { uid, payload: payload.into() });
    }
    for_each_published(engine, |key, object| {
        objects.insert(key, object);
        Ok(())
    })?;
    Ok(objects)
}

fn for_each_published(
    engine: &dyn Engine,
    mut each: impl FnMut(ResourceKey, PublishedObject) -> Result<(), EngineError>,
) -> Result<(), EngineError> {
    let reader = StreamReader::new(engine);
    for position in reader.streams()? {
        let mut after = None;
        loop {
            let stream = &position.stream;
            let chunk = reader.entries(stream, Selection::All, after.as_ref(), CHUNK_ENTRIES)?;
            let last = chunk.len() < CHUNK_ENTRIES;
            after = chunk.last().map(|(key, _)| key.clone());
            for (key, entry) in chunk {
                if let Some(key) = key.resource() {
                    let (uid, payload) = (entry.uid, entry.object);
                    each(key.clone(), PublishedObject { uid, payload })?;
                }
            }
            if last {
                break;
            }
        }
    }
    Ok(())
}
