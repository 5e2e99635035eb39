//! Drafts what a group of changes has to append.

use headwater_event::{Applied, EntryKey, ObjectHash, StreamId};
use headwater_log::Draft;
use headwater_store::EngineError;

use super::difference::difference;
use super::intake::Intake;
use super::writable_log::WritableLog;
use crate::interest::EntryId;

/// Drafts the differences of entries. The entries of an object that many nodes use follow each
/// other: the object is unpacked and hashed once, and their drafts have the same bytes in memory.
pub(super) struct EntryDifferences<'p> {
    intake: &'p Intake,
    log: &'p mut WritableLog,
    /// An object that more nodes use is shared; `None`: none is.
    users_max: Option<usize>,
    /// The object of the last entry.
    desired: Option<DesiredObject>,
}

/// An object as it should be published.
#[derive(Clone)]
struct DesiredObject {
    applied: Applied,
    hash: ObjectHash,
    is_shared: bool,
}

impl<'p> EntryDifferences<'p> {
    /// Compares the objects of `intake` with the entries of `log`. With `shares_objects`, the log
    /// has an object once in a partition if two nodes or more of each partition use it on average.
    pub(super) fn new(intake: &'p Intake, log: &'p mut WritableLog, shares_objects: bool) -> Self {
        let users_max = shares_objects.then(|| log.partitions());
        Self { intake, log, users_max, desired: None }
    }

    /// The event that makes an entry what it should be; `None`: it is so already.
    ///
    /// # Errors
    /// When the published entry cannot be read.
    pub(super) fn draft(&mut self, entry: &EntryId) -> Result<Option<Draft>, EngineError> {
        let EntryId { stream, key } = entry;
        let published = self.log.entry_summary(stream, key)?;
        let desired = self.desired(stream, key);
        let is_shared = desired.as_ref().is_some_and(|desired| desired.is_shared);
        let desired = desired.map(|desired| (desired.applied, desired.hash));
        let draft = difference(entry, desired, published.as_ref());
        Ok(draft.map(|draft| Draft { is_shared, ..draft }))
    }

    fn desired(&mut self, stream: &StreamId, key: &EntryKey) -> Option<DesiredObject> {
        if !self.intake.is_desired(stream, key) {
            return None;
        }
        // An object is the same in all streams; the assigned streams are each node's own.
        let is_known = |desired: &DesiredObject| desired.applied.key == *key;
        if key.resource().is_none() || !self.desired.as_ref().is_some_and(is_known) {
            self.desired = self.intake.desired(stream, key).map(|applied| {
                let hash = ObjectHash::of(&applied.object);
                let users = self.intake.users_count(key);
                let is_shared = self.users_max.is_some_and(|users_max| users > users_max);
                DesiredObject { applied, hash, is_shared }
            });
        }
        self.desired.clone()
    }
}
