//! The upstream log on two topics: reports in one, positions in the other.
//!
//! A report stays readable for the replay window, because the past is asked for. A position is of use
//! only until the next one, and there is one of each node every few minutes: kept for the window,
//! they would be most of the log. Compaction works by the settings of a topic, so positions have their
//! own, where it may drop what is superseded at once. Readers see one log, in which the partitions of
//! positions are numbered from [`POSITIONS_FROM`].

use std::sync::Arc;

use async_trait::async_trait;
use headwater_event::{Cursor, Partition};

use crate::log::{
    Append, AppendError, Batch, Bounds, Description, Log, LogContact, POSITIONS_FROM, ReadError,
    Reader, RecordPosition,
};

/// A log whose positions are in a topic of their own.
pub struct UpstreamLog {
    reports: Arc<dyn Log>,
    positions: Arc<dyn Log>,
}

/// Reads both topics.
struct UpstreamReader {
    reports: Option<Box<dyn Reader>>,
    positions: Option<Box<dyn Reader>>,
}

impl UpstreamLog {
    /// The log of these topics.
    pub fn new(reports: Arc<dyn Log>, positions: Arc<dyn Log>) -> Self {
        Self { reports, positions }
    }
}

#[async_trait]
impl Log for UpstreamLog {
    async fn describe(&self) -> Result<Description, ReadError> {
        let reports = self.reports.describe().await?;
        let positions = self.positions.describe().await?;
        let (position_partitions, position_topic) = (positions.partitions, positions.topic);
        Ok(Description { position_partitions, position_topic, ..reports })
    }

    /// As [`Log::append`]. An append of reports and positions together is rejected: it could not keep
    /// their order.
    async fn append(&self, mut records: Vec<Append>) -> Result<Vec<RecordPosition>, AppendError> {
        let positions = records.iter().filter(|append| is_of_positions(append.partition)).count();
        if positions == 0 {
            return self.reports.append(records).await;
        }
        if positions < records.len() {
            let reason = "an append is of reports or of positions, not of both".to_owned();
            return Err(AppendError::Rejected { reason });
        }
        for append in &mut records {
            append.partition = in_topic(append.partition);
        }
        let mut appended = self.positions.append(records).await?;
        for position in &mut appended {
            position.partition = in_log(position.partition);
        }
        Ok(appended)
    }

    fn contact(&self) -> Option<LogContact> {
        let contacts = [self.reports.contact(), self.positions.contact()].into_iter().flatten();
        contacts.reduce(LogContact::joined)
    }

    async fn bounds(&self, partition: Partition) -> Result<Bounds, ReadError> {
        if !is_of_positions(partition) {
            return self.reports.bounds(partition).await;
        }
        self.positions.bounds(in_topic(partition)).await.map_err(error_in_log)
    }

    async fn start(&self, partition: Partition) -> Result<Cursor, ReadError> {
        if !is_of_positions(partition) {
            return self.reports.start(partition).await;
        }
        let start = self.positions.start(in_topic(partition)).await;
        start.map(cursor_in_log).map_err(error_in_log)
    }

    async fn read(&self, cursors: Vec<Cursor>) -> Result<Box<dyn Reader>, ReadError> {
        let (positions, reports): (Vec<Cursor>, Vec<Cursor>) =
            cursors.into_iter().partition(|cursor| is_of_positions(cursor.partition));
        let in_topic = |cursor: Cursor| Cursor { partition: in_topic(cursor.partition), ..cursor };
        let positions: Vec<Cursor> = positions.into_iter().map(in_topic).collect();
        let mut reader = UpstreamReader { reports: None, positions: None };
        if !reports.is_empty() {
            reader.reports = Some(self.reports.read(reports).await?);
        }
        if !positions.is_empty() {
            let opened = self.positions.read(positions).await;
            reader.positions = Some(opened.map_err(error_in_log)?);
        }
        Ok(Box::new(reader))
    }
}

#[async_trait]
impl Reader for UpstreamReader {
    async fn next(&mut self) -> Result<Batch, ReadError> {
        tokio::select! {
            batch = next(&mut self.reports) => batch,
            batch = next(&mut self.positions) => batch.map(batch_in_log).map_err(error_in_log),
        }
    }
}

async fn next(reader: &mut Option<Box<dyn Reader>>) -> Result<Batch, ReadError> {
    match reader {
        Some(reader) => reader.next().await,
        None => std::future::pending().await,
    }
}

/// Whether `partition` keeps positions apart from other records.
pub fn is_of_positions(partition: Partition) -> bool {
    partition.0 >= POSITIONS_FROM
}

/// A partition in words: those of positions are numbered in their own topic.
pub fn partition_name(partition: Partition) -> String {
    match is_of_positions(partition) {
        true => format!("partition {} of the topic of positions", in_topic(partition)),
        false => format!("partition {partition} of the upstream topic"),
    }
}

fn in_topic(partition: Partition) -> Partition {
    Partition(partition.0.saturating_sub(POSITIONS_FROM))
}

fn in_log(partition: Partition) -> Partition {
    Partition(partition.0.saturating_add(POSITIONS_FROM))
}

fn cursor_in_log(cursor: Cursor) -> Cursor {
    Cursor { partition: in_log(cursor.partition), ..cursor }
}

fn batch_in_log(mut batch: Batch) -> Batch {
    batch.cursor = cursor_in_log(batch.cursor);
    for recorded in &mut batch.records {
        recorded.partition = in_log(recorded.partition);
    }
    batch
}

fn error_in_log(mut error: ReadError) -> ReadError {
    match &mut error {
        ReadError::Expired { partition, .. }
        | ReadError::Truncated { partition, .. }
        | ReadError::NoPartition { partition }
        | ReadError::Corrupt { partition, .. } => *partition = in_log(*partition),
        ReadError::Recreated { .. } | ReadError::Unavailable { .. } => {}
    }
    error
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use bytes::Bytes;
    use headwater_event::{NodeName, Offset};

    use super::*;
    use crate::{CatchUpTarget, MemoryLog, MemorySettings, Record, start_cursors};

    fn topics() -> (MemoryLog, MemoryLog, UpstreamLog) {
        let topic =
            |partitions| MemoryLog::new(MemorySettings { partitions, ..Default::default() });
        let (reports, positions) = (topic(2), topic(3));
        let log = UpstreamLog::new(Arc::new(reports.clone()), Arc::new(positions.clone()));
        (reports, positions, log)
    }

    fn record(partition: Partition, key: &str) -> Append {
        let key = Bytes::copy_from_slice(key.as_bytes());
        let record = Record { key, value: None, header: Bytes::new(), traceparent: None };
        Append { partition, record }
    }

    /// The records that are read from `cursors` on, and the cursors behind them.
    async fn read(log: &UpstreamLog, cursors: Vec<Cursor>) -> (BTreeSet<String>, Vec<Cursor>) {
        let mut ends = CatchUpTarget::ahead_of(log, &cursors).await.expect("there");
        let mut reader = log.read(cursors.clone()).await.expect("readable");
        let (mut found, mut cursors) = (BTreeSet::new(), cursors);
        while !ends.is_reached() {
            let batch = reader.next().await.expect("readable");
            for recorded in &batch.records {
                let key = String::from_utf8_lossy(&recorded.record.key);
                found.insert(format!("{} {key}", recorded.partition));
                assert_eq!(recorded.partition, batch.cursor.partition);
            }
            ends.pass(&batch.cursor);
            let of_batch = cursors.iter_mut().find(|it| it.partition == batch.cursor.partition);
            *of_batch.expect("a partition that is read") = batch.cursor;
        }
        (found, cursors)
    }

    #[tokio::test]
    async fn both_topics_are_read_as_one_log_and_continued_from_its_cursors() {
        let (_, _, log) = topics();
        let described = log.describe().await.expect("there");
        let node: NodeName = "a".parse().expect("a name");
        let of_positions = described.position_partition(&node);
        assert_eq!(described.all_partitions().count(), 5);
        let start = log.start(of_positions).await.expect("there");
        assert_eq!(described.position_topic, start.topic);
        assert_ne!(described.topic, described.position_topic);
        assert!(described.all_partitions().any(|partition| partition == of_positions));
        log.append(vec![record(Partition(0), "r1"), record(Partition(1), "r2")]).await.expect("ok");
        let appended = log.append(vec![record(of_positions, "p1")]).await.expect("appended");
        assert_eq!((appended[0].partition, appended[0].offset), (of_positions, Offset(0)));
        let (found, cursors) = read(&log, start_cursors(&log).await.expect("there")).await;
        let expected = ["0 r1".to_owned(), "1 r2".to_owned(), format!("{of_positions} p1")];
        assert_eq!(found, BTreeSet::from(expected));
        log.append(vec![record(of_positions, "p2")]).await.expect("appended");
        let (found, cursors) = read(&log, cursors).await;
        assert_eq!(found, BTreeSet::from([format!("{of_positions} p2")]));
        assert_eq!(read(&log, cursors).await.0, BTreeSet::new());
    }

    #[tokio::test]
    async fn an_append_of_both_writes_neither() {
        let (reports, positions, log) = topics();
        let both = vec![record(Partition(0), "r"), record(Partition(POSITIONS_FROM), "p")];
        assert!(matches!(log.append(both).await, Err(AppendError::Rejected { .. })));
        for topic in [reports, positions] {
            assert_eq!(topic.bounds(Partition(0)).await.expect("there").high, Offset(0));
        }
    }

    #[tokio::test]
    async fn cursors_of_a_topic_made_again_are_refused_whichever_it_is() {
        for which in 0..2 {
            let (reports, positions, log) = topics();
            let cursors = start_cursors(&log).await.expect("there");
            [&reports, &positions][which].recreate(3);
            assert!(matches!(log.read(cursors).await.err(), Some(ReadError::Recreated { .. })));
        }
        let (_, positions, log) = topics();
        let of_positions = Partition(POSITIONS_FROM + 1);
        log.append(vec![record(of_positions, "p")]).await.expect("appended");
        let cursor = log.start(of_positions).await.expect("there");
        positions.expire(Partition(1), Offset(1));
        let error = log.read(vec![cursor]).await.err();
        assert!(
            matches!(&error, Some(ReadError::Expired { partition, .. }) if *partition == of_positions),
            "{error:?}"
        );
    }
}
