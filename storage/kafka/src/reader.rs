//! Reads: a consumer whose queue the reader polls directly, and a watch over the topic.
//!
//! librdkafka fetches ahead on its own threads, within the bounds of its settings. Those threads
//! wake the reader, which polls directly: no further thread lies on the way of a record to a node.

mod broker_loss;
mod position;
mod record_stream;
mod topic_watch;

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use headwater_event::{Cursor, Offset, Partition, TopicId};
use headwater_log::{Batch, Bounds, ReadError, Reader};
use tokio::sync::{Notify, mpsc};
use tokio::time::{Interval, MissedTickBehavior, interval_at};
use tokio_util::task::AbortOnDropHandle;

use self::position::ReaderPosition;
use self::record_stream::RecordStream;
use self::topic_watch::TopicWatch;
use crate::cluster::ClusterClient;
use crate::metrics::Counts;
use crate::settings::KafkaSettings;

pub(crate) use self::position::OpenReaders;
pub(crate) use self::record_stream::NO_EPOCH;

/// How often a reader without records checks whether its position is to be committed, and whether its
/// client knows a broker.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// What a reader needs of its log.
#[derive(Clone)]
pub(crate) struct ReaderDependencies {
    pub(crate) settings: Arc<KafkaSettings>,
    pub(crate) cluster: Arc<ClusterClient>,
    pub(crate) counts: Option<Arc<Counts>>,
}

/// Reads from cursors on.
pub(crate) struct KafkaReader {
    /// Taken when this is dropped.
    records: Option<RecordStream>,
    /// Notified by librdkafka when an empty queue gets an event.
    wake: Arc<Notify>,
    position: Arc<ReaderPosition>,
    counts: Option<Arc<Counts>>,
    cluster: Arc<ClusterClient>,
    /// The end of the last returned batch: handled once the next batch is requested.
    returned: Option<(Partition, Offset)>,
    /// Why the reader cannot go on, from the watch.
    faults: mpsc::Receiver<ReadError>,
    /// When a reader without records checks its position and its client. One timer for all waits: a
    /// timer for each would enter the runtime's wheel, and leave it, with every record that comes alone.
    checks: Interval,
    _watch: AbortOnDropHandle<()>,
}

impl KafkaReader {
    /// Opens a reader. Each cursor is within the bounds beside it.
    pub(crate) fn open(
        dependencies: ReaderDependencies,
        readers: &Arc<OpenReaders>,
        topic: TopicId,
        cursors: &[(Cursor, Bounds)],
    ) -> Result<Self, ReadError> {
        let wake = Arc::new(Notify::new());
        let from = cursors.iter().map(|(cursor, _)| (cursor.partition, cursor.next));
        let position = readers.open(from.collect());
        let records =
            RecordStream::open(&dependencies, topic, cursors, position.clone(), wake.clone())?;
        let (counts, cluster) = (dependencies.counts.clone(), dependencies.cluster.clone());
        if let Some(counts) = &counts {
            counts.opened();
        }
        let (sender, faults) = mpsc::channel(1);
        let watch = TopicWatch { dependencies, topic, position: position.clone() };
        let _watch = AbortOnDropHandle::new(tokio::spawn(watch.run(sender)));
        Ok(Self {
            records: Some(records),
            wake,
            position,
            counts,
            cluster,
            returned: None,
            faults,
            checks: checks(),
            _watch,
        })
    }

    async fn wait(&mut self) -> Result<Batch, ReadError> {
        loop {
            // Lets other tasks run while there are always records.
            tokio::task::consume_budget().await;
            // A fault comes first: the records may be of another topic.
            if let Ok(error) = self.faults.try_recv() {
                return Err(error);
            }
            let ended = || ReadError::Unavailable { reason: "the reader has ended".to_owned() };
            if let Some(batch) = self.records.as_mut().ok_or_else(ended)?.poll()? {
                return Ok(batch);
            }
            tokio::select! {
                () = self.wake.notified() => {}
                Some(error) = self.faults.recv() => return Err(error),
                _ = self.checks.tick() => {
                    if let Some(records) = &mut self.records {
                        records.check_brokers();
                    }
                }
            }
        }
    }

    fn handled(&self, partition: Partition, next: Offset) {
        self.position.handled(partition, next);
        if let Some(counts) = self.counts.as_ref().filter(|_| self.position.is_shown()) {
            counts.handled(partition, next);
        }
    }
}

fn checks() -> Interval {
    let first = tokio::time::Instant::now() + CHECK_INTERVAL;
    let mut checks = interval_at(first, CHECK_INTERVAL);
    checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    checks
}

#[async_trait]
impl Reader for KafkaReader {
    async fn next(&mut self) -> Result<Batch, ReadError> {
        if let Some((partition, next)) = self.returned.take() {
            self.handled(partition, next);
        }
        let next = self.wait().await;
        if let Ok(batch) = &next {
            self.returned = Some((batch.cursor.partition, batch.cursor.next));
            self.cluster.clock().heard(Instant::now());
        }
        match (&self.counts, &next) {
            (Some(counts), Ok(batch)) => counts.returned(&batch.records),
            (Some(counts), Err(error)) => counts.read_failed(error),
            (None, _) => {}
        }
        next
    }
}

impl Drop for KafkaReader {
    fn drop(&mut self) {
        self.position.close();
        let records = self.records.take();
        // Closing a consumer takes a moment: on a thread, or here if there is none.
        let _ = thread::Builder::new().name("closes a reader".to_owned()).spawn(|| drop(records));
    }
}
