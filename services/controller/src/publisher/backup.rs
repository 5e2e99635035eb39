//! A backup of the published objects that the log may have lost.
//!
//! A log that was created again is empty, and a log that lost its tail lacks the newest objects.
//! The pods that nodes run must keep their UIDs and nodes nevertheless. Before the fold is dropped,
//! its objects go into this backup; once the log holds everything again, the backup is cleared. A
//! controller that is killed in between finds it. The backup also keeps the highest epoch, so that
//! the next writer's epoch is higher than one whose claim the log has lost.

use std::ops::ControlFlow;
use std::sync::Arc;

use headwater_event::{EntryKey, LogId, ResourceKey, StreamId, WriterEpoch};
use headwater_follow::FollowError;
use headwater_log::{Log, ReadError};
use headwater_store::position::CURSORS;
use headwater_store::{
    Batch, Durability, Engine, EngineError, Json, Read, StreamCheckpoint, Table, TableId,
};
use headwater_view::{Entry, Selection, StreamReader};
use serde::{Deserialize, Serialize};

use crate::source::{PublishedObject, PublishedReader};

/// Entries of the fold read at once.
const CHUNK_ENTRIES: usize = 256;

/// Bytes of rows in one write: an engine takes 8 MiB at once, and a chunk exceeds this by at most one
/// object of the largest size.
const WRITE_BYTES: usize = 1 << 20;

/// Objects that were published and that the log may have lost.
const BACKUP: Table<ResourceKey, Json<BackupObject>> = Table::new(TableId::InheritedEntries);

/// The highest writer's epoch that this controller has read, in any generation of the log.
const EPOCH: Table<(), Json<WriterEpoch>> = Table::new(TableId::HighestEpoch);

/// An object as it was published.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct BackupObject {
    uid: String,
    /// An earlier version has it in the payload.
    #[serde(default)]
    resource_version: String,
    /// JSON.
    payload: String,
}

/// What is published, as the fold of the log has it, and the backup what the log has lost.
pub(crate) struct PublishedFold(pub(crate) Arc<dyn Engine>);

/// What is published, at one moment: neither the fold nor a fold that is dropped changes it.
pub(super) struct PublishedSnapshot<'e> {
    rows: Box<dyn Read + 'e>,
    streams: Vec<StreamCheckpoint>,
}

/// Saves what `engine` has folded when `log`, whose generation is `log_id`, no longer holds it:
/// another generation, a lost tail, or a fold that `is_dropped` next.
pub(crate) async fn save_if_lost(
    log: &dyn Log,
    log_id: LogId,
    engine: &dyn Engine,
    is_dropped: bool,
) -> Result<(), FollowError> {
    let streams = StreamReader::new(engine).streams()?;
    let is_of_another = streams.iter().any(|position| position.checkpoint.log_id != log_id);
    if is_of_another || is_dropped || is_ahead(log, engine).await? {
        let saved = save(engine)?;
        tracing::info!(
            objects = saved,
            "the log lost published objects; they keep their UIDs until it holds them again"
        );
    }
    Ok(())
}

/// Whether the fold of `engine` has read further than the log reaches, or has read another log.
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

fn save(engine: &dyn Engine) -> Result<u64, EngineError> {
    let mut batch = Batch::new();
    let folded = StreamReader::new(engine).streams()?.into_iter();
    let folded = folded.map(|position| position.checkpoint.epoch).max().unwrap_or_default();
    batch.put(&EPOCH, &(), &Json(highest_epoch(engine)?.max(folded)));
    let mut saved = 0;
    for row in PublishedSnapshot::of(engine)?.folded() {
        let (key, object) = row?;
        batch.put(&BACKUP, &key, &Json(object.into()));
        saved += 1;
        if batch.bytes() >= WRITE_BYTES {
            std::mem::take(&mut batch).write(engine, Durability::Buffered)?;
        }
    }
    // The fold, the only other copy, is dropped next.
    batch.write(engine, Durability::Synced)?;
    Ok(saved)
}

/// The highest writer's epoch that is known, including epochs that the log has lost.
pub(crate) fn highest_epoch(engine: &dyn Engine) -> Result<WriterEpoch, EngineError> {
    Ok(EPOCH.get(engine, &())?.map_or_else(WriterEpoch::default, |Json(epoch)| epoch))
}

/// Records the epoch of a claim with `batch`. It is higher than any before.
pub(crate) fn record_epoch(batch: &mut Batch, epoch: WriterEpoch) {
    batch.put(&EPOCH, &(), &Json(epoch));
}

/// Removes the objects: the log holds everything again.
pub(crate) fn clear(engine: &dyn Engine) -> Result<(), EngineError> {
    if BACKUP.rows(engine).next().is_none() {
        return Ok(());
    }
    let mut batch = Batch::new();
    batch.clear(&BACKUP);
    batch.write(engine, Durability::Buffered)
}

/// The object at `key` as it is published in the first of `streams` that has it, and otherwise as it
/// is in the backup.
pub(crate) fn published_in(
    engine: &dyn Engine,
    key: &ResourceKey,
    streams: &[StreamId],
) -> Result<Option<PublishedObject>, EngineError> {
    let (reader, entry_key) = (StreamReader::new(engine), EntryKey::from(key.clone()));
    for stream in streams {
        if let Some(entry) = reader.entry(stream, &entry_key)? {
            return Ok(Some(entry.into()));
        }
    }
    let saved = BACKUP.get(engine, key)?;
    Ok(saved.map(|Json(saved)| saved.into()))
}

impl From<PublishedObject> for BackupObject {
    fn from(object: PublishedObject) -> Self {
        let PublishedObject { uid, resource_version, payload, .. } = object;
        let payload = String::from_utf8_lossy(&payload).into_owned();
        Self { uid, resource_version, payload }
    }
}

impl From<BackupObject> for PublishedObject {
    fn from(saved: BackupObject) -> Self {
        let BackupObject { uid, resource_version, payload } = saved;
        Self::new(uid, resource_version, payload.into())
    }
}

impl From<Entry> for PublishedObject {
    fn from(entry: Entry) -> Self {
        let Entry { uid, resource_version, object: payload, object_hash: payload_hash, .. } = entry;
        Self { uid, resource_version, payload, payload_hash }
    }
}

impl<'e> PublishedSnapshot<'e> {
    /// What is published now.
    ///
    /// # Errors
    /// As [`Read::scan`].
    pub(super) fn of(engine: &'e dyn Engine) -> Result<Self, EngineError> {
        let rows = engine.snapshot();
        let streams = StreamReader::new(&*rows).streams()?;
        Ok(Self { rows, streams })
    }

    /// The objects of all streams, then those of the backup. An object of several streams comes once
    /// for each of them.
    pub(super) fn objects(
        &self,
    ) -> impl Iterator<Item = Result<(ResourceKey, PublishedObject), EngineError>> {
        let saved = BACKUP.rows(&*self.rows).map(|row| {
            let (key, Json(saved)) = row?;
            Ok((key, saved.into()))
        });
        self.folded().chain(saved)
    }

    fn folded(&self) -> impl Iterator<Item = Result<(ResourceKey, PublishedObject), EngineError>> {
        let reader = StreamReader::new(&*self.rows);
        let entries = self.streams.iter().flat_map(move |position| {
            reader.all_entries(&position.stream, Selection::All, CHUNK_ENTRIES)
        });
        entries.filter_map(|entry| {
            let object = |(key, entry): (EntryKey, Entry)| {
                Some((key.resource()?.clone(), PublishedObject::from(entry)))
            };
            entry.map(object).transpose()
        })
    }
}

impl PublishedReader for PublishedFold {
    fn read(
        &self,
        each: &mut dyn FnMut(ResourceKey, PublishedObject) -> ControlFlow<()>,
    ) -> Result<(), EngineError> {
        for row in PublishedSnapshot::of(&*self.0)?.objects() {
            let (key, object) = row?;
            if each(key, object).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn find(&self, key: &ResourceKey) -> Result<Option<PublishedObject>, EngineError> {
        let positions = StreamReader::new(&*self.0).streams()?;
        let streams: Vec<StreamId> =
            positions.into_iter().map(|position| position.stream).collect();
        published_in(&*self.0, key, &streams)
    }
}
