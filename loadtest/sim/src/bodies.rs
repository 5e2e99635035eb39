//! The bodies of a log as the auditor reads them: the objects to which records refer.

use std::collections::BTreeMap;

use bytes::Bytes;
use headwater_event::{
    Applied, BodyAddress, BodyHeader, BodyId, Change, EntryKey, EventHeader, ObjectHash, Offset,
    Removed,
};
use headwater_log::StoredRecord;
use headwater_log::value::{ValueError, decode_reference, decode_value};

/// Every record of every body, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct LoggedBodies(BTreeMap<BodyAddress, Vec<(Offset, LoggedBody)>>);

/// A body; `None`: it is retired.
type LoggedBody = Option<(BodyHeader, Bytes)>;

/// Why a record has no change.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChangeError {
    /// The log does not have the body to which it refers.
    #[error("no body {0:?}")]
    NoBody(BodyAddress),
    /// Its value, or that of the body.
    #[error(transparent)]
    Value(#[from] ValueError),
}

impl LoggedBodies {
    /// Adds the record of a body; returns what is wrong with it.
    pub(crate) fn observe(&mut self, recorded: &StoredRecord, id: BodyId) -> Result<(), String> {
        let StoredRecord { partition, offset, record, .. } = recorded;
        let at = BodyAddress { partition: *partition, id };
        let body = match &record.value {
            None => None,
            Some(value) => {
                let header = BodyHeader::decode(&record.header);
                let header = header.map_err(|error| format!("{at:?}: {error}"))?;
                let object = decode_value(value).map_err(|error| format!("{at:?}: {error}"))?;
                if ObjectHash::of(&object) != header.object_hash {
                    return Err(format!("{at:?} does not have the hash of its header"));
                }
                Some((header, object))
            }
        };
        self.0.entry(at).or_default().push((*offset, body));
        Ok(())
    }

    /// Forgets the records that `is_lost` selects.
    pub(crate) fn truncate(&mut self, is_lost: impl Fn(&BodyAddress, Offset) -> bool) {
        for (at, records) in &mut self.0 {
            records.retain(|(offset, _)| !is_lost(at, *offset));
        }
    }

    /// The change that a record makes to its stream.
    pub(crate) fn change(
        &self,
        key: EntryKey,
        header: &EventHeader,
        recorded: &StoredRecord,
    ) -> Result<Change, ChangeError> {
        let (mut uid, mut resource_version) = (header.uid.clone(), header.resource_version.clone());
        let Some(value) = &recorded.record.value else {
            return Ok(Change::Removed(Removed { key, uid }));
        };
        let object = match decode_reference(value)? {
            None => decode_value(value)?,
            Some(number) => {
                let id = BodyId { epoch: header.epoch, number };
                let at = BodyAddress { partition: recorded.partition, id };
                let last = self.0.get(&at).and_then(|records| records.last());
                let Some((_, Some((body, object)))) = last else {
                    return Err(ChangeError::NoBody(at));
                };
                uid.clone_from(&body.uid);
                resource_version.clone_from(&body.resource_version);
                object.clone()
            }
        };
        Ok(Change::Applied(Applied { key, uid, resource_version, object }))
    }
}
