//! The task that appends to one partition: one append for the records of many edges, retried until
//! the log has them. A partition that cannot be written delays no other.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use headwater_log::{Append, AppendError, Log};
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::record_group::RecordGroup;
use crate::backoff::Backoff;
use crate::metrics::UpstreamMetrics;

/// Records of one append: bounds the memory of a burst, and the time to its first acknowledgement.
const BATCH_RECORDS_MAX: usize = 2048;

/// Bytes of the groups of one append. Each partition has one append in flight, so a few that cannot
/// be written leave the log's client its room for the others.
const BATCH_BYTES_MAX: usize = 4 << 20;

/// Groups that are taken from the queue at once.
const GROUPS_AT_ONCE: usize = 256;

/// The first wait before an append is made again. The waits double, so that a log that is away
/// receives few appends.
pub(super) const RETRY_FIRST: Duration = Duration::from_millis(50);

/// The longest wait before an append is made again.
pub(super) const RETRY_LONGEST: Duration = Duration::from_secs(5);

/// Appends to one partition.
pub(super) struct PartitionAppender {
    pub(super) log: Arc<dyn Log>,
    pub(super) metrics: UpstreamMetrics,
    /// Notified when an append fails: the topic may have been created again.
    pub(super) failed: Arc<Notify>,
}

impl PartitionAppender {
    /// Appends the groups of the queue. Once `stop` is cancelled, the queue takes no more; the task
    /// ends when the log has the queued ones.
    pub(super) async fn run(self, mut queue: mpsc::Receiver<RecordGroup>, stop: CancellationToken) {
        let mut received = Vec::new();
        let mut stopping = pin!(stop.cancelled_owned().fuse());
        loop {
            tokio::select! {
                biased;
                () = &mut stopping => queue.close(),
                count = queue.recv_many(&mut received, GROUPS_AT_ONCE) => {
                    if count == 0 {
                        return;
                    }
                    let mut groups: VecDeque<_> = received.drain(..).collect();
                    while !groups.is_empty() {
                        self.append_groups(next_batch(&mut groups)).await;
                    }
                }
            }
        }
    }

    /// Returns once the log has every record of the groups, except those that it never takes.
    async fn append_groups(&self, mut groups: Vec<RecordGroup>) {
        if self.append(&groups).await.is_err() {
            // The log refuses one of the records: alone, each of the others passes.
            for group in &mut groups {
                self.append_each(group).await;
            }
        }
        for group in groups {
            self.metrics.refused(group.refusals());
            group.done();
        }
    }

    async fn append_each(&self, group: &mut RecordGroup) {
        let mut index = 0;
        while let Some(record) = group.records.get(index) {
            match self.append_batch(vec![record.append.clone()]).await {
                Ok(()) => {
                    self.metrics.appended(record.kind);
                    index += 1;
                }
                Err(reason) => group.refuse(index, &reason),
            }
        }
    }

    async fn append(&self, groups: &[RecordGroup]) -> Result<(), String> {
        let records = || groups.iter().flat_map(|group| &group.records);
        self.append_batch(records().map(|outgoing| outgoing.append.clone()).collect()).await?;
        records().for_each(|outgoing| self.metrics.appended(outgoing.kind));
        Ok(())
    }

    /// Returns once the log has the batch, or why it never takes it.
    async fn append_batch(&self, batch: Vec<Append>) -> Result<(), String> {
        if batch.is_empty() {
            return Ok(());
        }
        let mut backoff = Backoff::new(RETRY_FIRST, RETRY_LONGEST);
        loop {
            let began = Instant::now();
            let error = match self.log.append(batch.clone()).await {
                Ok(_) => {
                    self.metrics.batch(batch.len(), began.elapsed());
                    return Ok(());
                }
                Err(error) => error,
            };
            self.metrics.failed(&error);
            if let AppendError::Rejected { reason } = error {
                return Err(reason);
            }
            let partition = batch[0].partition;
            tracing::warn!(%partition, %error, "the hub cannot append upstream; it will try again");
            self.failed.notify_one();
            backoff.wait().await;
        }
    }
}

/// The groups of the next append: at least one.
fn next_batch(groups: &mut VecDeque<RecordGroup>) -> Vec<RecordGroup> {
    let (mut batch, mut records, mut bytes) = (Vec::new(), 0, 0);
    while let Some(group) = groups.front() {
        records += group.records.len();
        bytes += group.bytes();
        if !batch.is_empty() && (records > BATCH_RECORDS_MAX || bytes > BATCH_BYTES_MAX) {
            break;
        }
        batch.extend(groups.pop_front());
    }
    batch
}
