//! The target of a reader that catches up: the ends of the partitions at its start. A reader that
//! has reached them knows all records that the log had then.

use std::collections::BTreeMap;

use headwater_event::{Cursor, Offset, Partition};

use crate::log::{Log, ReadError};

/// The ends of the partitions that a reader has not reached yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CatchUpTarget {
    ahead: BTreeMap<Partition, Offset>,
}

impl CatchUpTarget {
    /// Notes the present end of each partition in `cursors` that is ahead of its cursor.
    ///
    /// # Errors
    /// As [`Log::bounds`].
    pub async fn ahead_of(log: &dyn Log, cursors: &[Cursor]) -> Result<Self, ReadError> {
        let mut ahead = BTreeMap::new();
        for cursor in cursors {
            let high = log.bounds(cursor.partition).await?.high;
            if cursor.next < high {
                ahead.insert(cursor.partition, high);
            }
        }
        Ok(Self { ahead })
    }

    /// Adds the ends of other partitions.
    pub fn include(&mut self, others: Self) {
        self.ahead.extend(others.ahead);
    }

    /// Whether the reader has not reached the end of `partition`.
    pub fn is_ahead(&self, partition: Partition) -> bool {
        self.ahead.contains_key(&partition)
    }

    /// The partitions whose ends the reader has not reached.
    pub fn partitions(&self) -> impl Iterator<Item = Partition> {
        self.ahead.keys().copied()
    }

    /// Whether the reader has reached every end.
    pub fn is_reached(&self) -> bool {
        self.ahead.is_empty()
    }

    /// Notes that the reader has read everything below `cursor`. Returns whether it thereby reached
    /// the last end.
    pub fn pass(&mut self, cursor: &Cursor) -> bool {
        match self.ahead.get(&cursor.partition) {
            Some(high) if cursor.next >= *high => {
                self.ahead.remove(&cursor.partition);
                self.is_reached()
            }
            _ => false,
        }
    }
}

/// Returns a cursor at the start of each partition of `log`.
///
/// # Errors
/// As [`Log::describe`] and [`Log::start`].
pub async fn start_cursors(log: &dyn Log) -> Result<Vec<Cursor>, ReadError> {
    let mut cursors = Vec::new();
    for partition in log.describe().await?.all_partitions() {
        cursors.push(log.start(partition).await?);
    }
    Ok(cursors)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::{Append, MemoryLog, MemorySettings, Record};

    #[tokio::test]
    async fn the_last_end_is_reached_once() {
        let log = MemoryLog::new(MemorySettings { partitions: 3, ..MemorySettings::default() });
        let empty = CatchUpTarget::ahead_of(&log, &start_cursors(&log).await.expect("there")).await;
        assert!(empty.expect("there").is_reached(), "an empty log has been read");
        let record = |partition| Append {
            partition: Partition(partition),
            record: Record {
                key: Bytes::from_static(b"k"),
                value: None,
                header: Bytes::new(),
                traceparent: None,
            },
        };
        log.append(vec![record(0), record(0), record(2)]).await.expect("appended");
        let cursors = start_cursors(&log).await.expect("there");
        let mut ends = CatchUpTarget::ahead_of(&log, &cursors).await.expect("there");
        let read = |at: usize, by| Cursor { next: Offset(cursors[at].next.0 + by), ..cursors[at] };
        assert!(!ends.pass(&read(0, 1)), "one record is left");
        assert!(!ends.pass(&read(2, 1)) && !ends.is_reached());
        assert!(ends.pass(&read(0, 2)) && ends.is_reached());
        assert!(!ends.pass(&read(0, 3)), "only once");
    }
}
