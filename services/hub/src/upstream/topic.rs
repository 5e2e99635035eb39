//! The upstream topic in its present life: its partitions, and the tasks that append to them.
//!
//! ```text
//!            metadata read or appended                  the topic has another id
//!  unknown ─────────────────────────────► life, tasks ─────────────────────────► unknown
//!                                             │ stop
//!                                             ▼
//!                                          drained
//! ```
//!
//! The metadata fix the number of partitions for the life of the topic. Were partitions counted anew
//! by each hub, an added partition would take the reports of some hubs, and a controller that does
//! not know it would never read them. A topic that is created again may have fewer partitions, and
//! none of the reports of its former life: what is not in the log by then is discarded, and its
//! sessions end, so that their edges send it once more.

use std::sync::Arc;
use std::time::Duration;

use headwater_event::{NodeName, Partition, StreamId, TopicId};
use headwater_log::{Log, MetadataError, ReadError, read_or_create_upstream_metadata};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::partition_appender::{PartitionAppender, RETRY_FIRST, RETRY_LONGEST};
use super::record_group::RecordGroup;
use crate::backoff::Backoff;
use crate::metrics::UpstreamMetrics;

/// Groups that may wait for one of many partitions: enough for an append of some size.
const PARTITION_QUEUE_MIN: usize = 16;

/// How long the queued records may take when the hub stops. A log that works needs far less, and
/// the hub does not wait for one that does not.
const DRAIN_WITHIN: Duration = Duration::from_secs(2);

/// How often the id of the topic is read while all appends succeed: a topic that was created again
/// takes them too.
const LOOK_INTERVAL: Duration = Duration::from_secs(30);

/// How often at most the id of the topic is read while appends fail.
const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// The queue of each partition. Empty while the topic is not known.
pub(super) type PartitionQueues = Arc<[mpsc::Sender<RecordGroup>]>;

/// The task that keeps the partitions of the upstream topic.
pub(super) struct UpstreamTopic {
    pub(super) log: Arc<dyn Log>,
    pub(super) metrics: UpstreamMetrics,
    /// See [`crate::limits::UPSTREAM_GROUPS_MAX`].
    pub(super) groups_max: usize,
    /// Draws the ids of new logs.
    pub(super) new_uuid: Box<dyn Fn() -> Uuid + Send + Sync>,
    pub(super) queues: watch::Sender<PartitionQueues>,
    pub(super) stop: CancellationToken,
}

impl UpstreamTopic {
    /// Runs until `stop` is cancelled, and then until the log has the queued records, or for
    /// [`DRAIN_WITHIN`].
    pub(super) async fn run(self) {
        loop {
            let described = tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                described = self.describe() => described,
            };
            if self.live(described).await.is_none() {
                return;
            }
        }
    }

    /// Appends for one life of the topic; `None`: the hub stops.
    async fn live(&self, (topic, partitions): (TopicId, u32)) -> Option<()> {
        let failed = Arc::new(Notify::new());
        let mut tasks = JoinSet::new();
        let count = usize::try_from(partitions).unwrap_or(usize::MAX);
        let room = (self.groups_max / count.max(1)).max(PARTITION_QUEUE_MIN);
        let queue_of = |_| {
            let (queue, groups) = mpsc::channel(room);
            let appender = PartitionAppender {
                log: self.log.clone(),
                metrics: self.metrics.clone(),
                failed: failed.clone(),
            };
            tasks.spawn(appender.run(groups, self.stop.clone()));
            queue
        };
        self.queues.send_replace((0..partitions).map(queue_of).collect());
        tokio::select! {
            biased;
            () = self.stop.cancelled() => {
                let drained = async { while tasks.join_next().await.is_some() {} };
                if timeout(DRAIN_WITHIN, drained).await.is_err() {
                    tracing::warn!("the hub stops before all reports are in the log");
                }
                None
            }
            now = self.replaced(topic, &failed) => {
                tracing::warn!(was = %topic, %now, "the upstream topic was created again; edges send their reports once more");
                self.queues.send_replace(PartitionQueues::default());
                tasks.shutdown().await;
                Some(())
            }
        }
    }

    /// The topic and the number of its partitions. Tries until the log can be reached.
    async fn describe(&self) -> (TopicId, u32) {
        let mut backoff = Backoff::new(RETRY_FIRST, RETRY_LONGEST);
        loop {
            match self.try_describe().await {
                Ok(described) => return described,
                Err(error) => {
                    let error: &dyn std::error::Error = &error;
                    tracing::warn!(error, "the hub cannot use the upstream log; it will try again");
                }
            }
            backoff.wait().await;
        }
    }

    async fn try_describe(&self) -> Result<(TopicId, u32), MetadataError> {
        let was = self.log.describe().await?.topic;
        let metadata = read_or_create_upstream_metadata(&*self.log, (self.new_uuid)()).await?;
        let is = self.log.describe().await?.topic;
        if was != is {
            return Err(ReadError::Recreated { was, is }.into());
        }
        Ok((is, metadata.partitions))
    }

    /// Returns the id of the topic once it is no longer `topic`.
    async fn replaced(&self, topic: TopicId, failed: &Notify) -> TopicId {
        loop {
            tokio::select! {
                () = failed.notified() => {}
                () = sleep(LOOK_INTERVAL) => {}
            }
            match self.log.describe().await {
                Ok(described) if described.topic != topic => return described.topic,
                Ok(_) => {}
                Err(error) => tracing::debug!(%error, "the upstream topic cannot be described"),
            }
            sleep(LOOK_AGAIN_AFTER).await;
        }
    }
}

/// The partition of a node, among as many as there are queues.
pub(super) fn queue_of<'q>(
    queues: &'q PartitionQueues,
    node: &NodeName,
) -> Option<(Partition, &'q mpsc::Sender<RecordGroup>)> {
    let partitions = u32::try_from(queues.len()).ok().filter(|count| *count > 0)?;
    let partition = StreamId::node(node).partition(partitions);
    Some((partition, queues.get(partition.0 as usize)?))
}
