//! The records of one life of a topic, and the effects of time and elections on them.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use headwater_event::{Cursor, LeaderEpoch, Offset, Partition, TopicId};

use crate::log::{Append, ReadError, Record, RecordPosition, StoredRecord};

#[derive(Debug)]
pub(super) struct Topic {
    pub(super) id: TopicId,
    partitions: Vec<PartitionRecords>,
}

/// The records of one partition.
#[derive(Debug, Default)]
pub(super) struct PartitionRecords {
    pub(super) low: Offset,
    pub(super) high: Offset,
    pub(super) records: BTreeMap<Offset, TopicEntry>,
    /// The first offset of each leader epoch.
    epochs: BTreeMap<LeaderEpoch, Offset>,
    leader_epoch: LeaderEpoch,
    last_time_ms: i64,
}

#[derive(Clone, Debug)]
pub(super) struct TopicEntry {
    pub(super) record: Record,
    pub(super) time_ms: i64,
    pub(super) leader_epoch: LeaderEpoch,
    /// When compaction may drop this tombstone (KIP-534); set by its first compaction.
    horizon_ms: Option<i64>,
}

impl Topic {
    pub(super) fn new(id: TopicId, partitions: u32) -> Self {
        Self { id, partitions: (0..partitions).map(|_| PartitionRecords::new()).collect() }
    }

    /// Adds empty partitions up to `partitions`.
    pub(super) fn grow(&mut self, partitions: u32) {
        let added = self.partitions.len()..partitions as usize;
        self.partitions.extend(added.map(|_| PartitionRecords::new()));
    }

    pub(super) fn partition(&self, partition: Partition) -> Result<&PartitionRecords, ReadError> {
        let index = partition.0 as usize;
        self.partitions.get(index).ok_or(ReadError::NoPartition { partition })
    }

    fn partition_mut(&mut self, partition: Partition) -> Option<&mut PartitionRecords> {
        self.partitions.get_mut(partition.0 as usize)
    }

    /// Appends a record that the caller has checked.
    pub(super) fn push(&mut self, append: Append, now_ms: i64) -> RecordPosition {
        let partition = append.partition;
        let records = self.partition_mut(partition);
        let offset = records.map_or(Offset(0), |records| records.push(append.record, now_ms));
        RecordPosition { partition, offset }
    }

    pub(super) fn start(&self, partition: Partition) -> Result<Cursor, ReadError> {
        let next = self.partition(partition)?.low;
        // Nothing is read yet, so the cursor has the lowest epoch: a truncation diverges at the
        // cursor at the earliest.
        Ok(Cursor { topic: self.id, partition, next, leader_epoch: LeaderEpoch(0) })
    }

    /// Checks that `cursor` is still the end of a prefix of this log.
    pub(super) fn check(&self, cursor: &Cursor) -> Result<(), ReadError> {
        let partition = cursor.partition;
        if cursor.topic != self.id {
            return Err(ReadError::Recreated { was: cursor.topic, is: self.id });
        }
        let content = self.partition(partition)?;
        if cursor.next < content.low {
            return Err(ReadError::Expired { partition, wanted: cursor.next, low: content.low });
        }
        let diverged = content.end_of(cursor.leader_epoch);
        if cursor.next > diverged && cursor.next > content.low {
            return Err(ReadError::Truncated { partition, diverged });
        }
        Ok(())
    }

    pub(super) fn compact(&mut self, now_ms: i64, window_ms: u64, retention_ms: u64) {
        for content in &mut self.partitions {
            content.compact(now_ms, window_ms, retention_ms);
        }
    }

    pub(super) fn expire(&mut self, partition: Partition, up_to: Offset) {
        let Some(content) = self.partition_mut(partition) else { return };
        content.low = content.low.max(up_to.min(content.high));
        content.records = content.records.split_off(&content.low);
    }

    pub(super) fn truncate(&mut self, partition: Partition, high: Offset) {
        let Some(content) = self.partition_mut(partition) else { return };
        if high >= content.high {
            return;
        }
        content.high = high.max(content.low);
        let high = content.high;
        content.records.split_off(&high);
        content.leader_epoch = LeaderEpoch(content.leader_epoch.0 + 1);
        content.epochs.retain(|_, start| *start < high);
        content.epochs.insert(content.leader_epoch, high);
    }

    pub(super) fn skip(&mut self, partition: Partition, count: u64) {
        let Some(content) = self.partition_mut(partition) else { return };
        content.high = Offset(content.high.0 + count);
    }
}

impl PartitionRecords {
    fn new() -> Self {
        let epochs = BTreeMap::from([(LeaderEpoch(0), Offset(0))]);
        Self { epochs, last_time_ms: i64::MIN, ..Self::default() }
    }

    fn push(&mut self, record: Record, now_ms: i64) -> Offset {
        let offset = self.high;
        self.last_time_ms = self.last_time_ms.max(now_ms);
        let (time_ms, leader_epoch) = (self.last_time_ms, self.leader_epoch);
        self.records.insert(offset, TopicEntry { record, time_ms, leader_epoch, horizon_ms: None });
        self.high = offset.next();
        offset
    }

    /// The offset after the last record of `epoch` and of the epochs before it (KIP-320).
    fn end_of(&self, epoch: LeaderEpoch) -> Offset {
        let later = self.epochs.iter().find(|(later, _)| **later > epoch);
        later.map_or(self.high, |(_, start)| *start)
    }

    /// The leader epoch of the offset just before `offset`.
    pub(super) fn epoch_before(&self, offset: Offset) -> LeaderEpoch {
        let begun = self.epochs.iter().rev().find(|(_, start)| **start < offset);
        begun.map_or(LeaderEpoch(0), |(epoch, _)| *epoch)
    }

    fn compact(&mut self, now_ms: i64, window_ms: u64, retention_ms: u64) {
        let cleanable =
            |stored: &TopicEntry| stored.time_ms.saturating_add_unsigned(window_ms) <= now_ms;
        // Times never decrease with the offset: the cleanable records are a prefix.
        let mut last: HashMap<Bytes, Offset> = HashMap::new();
        for (offset, stored) in self.records.iter().take_while(|(_, stored)| cleanable(stored)) {
            last.insert(stored.record.key.clone(), *offset);
        }
        self.records.retain(|offset, stored| match last.get(&stored.record.key) {
            Some(latest) if offset < latest => false,
            Some(latest) if offset == latest && stored.record.value.is_none() => {
                match stored.horizon_ms {
                    Some(horizon_ms) => now_ms < horizon_ms,
                    None => {
                        stored.horizon_ms = Some(now_ms.saturating_add_unsigned(retention_ms));
                        true
                    }
                }
            }
            _ => true,
        });
    }
}

impl TopicEntry {
    pub(super) fn recorded(&self, partition: Partition, offset: Offset) -> StoredRecord {
        let (time_ms, leader_epoch) = (self.time_ms, self.leader_epoch);
        StoredRecord { partition, offset, leader_epoch, time_ms, record: self.record.clone() }
    }
}
