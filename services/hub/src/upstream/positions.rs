//! Appends the positions of nodes to the upstream log, apart from their reports: one task, and one
//! append for the positions of many nodes. A partition without a leader delays no other.
//!
//! Only the newest position of a node counts, so a position that still waits is replaced by the next
//! one. A log that is away costs no more than one position of each node.
//!
//! A topic that is made again has none of the positions, and perhaps another number of partitions. The task notices
//! its id, and the hub appends the position of each connected node once more. What waits then is appended to the new
//! topic. Partitions that are added to a topic stay unused until the hub starts again: other parts read them only after
//! their own start.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use headwater_event::{NodeName, NodeProgress, Partition, ReportKey, TopicId};
use headwater_log::{
    Append, AppendError, Description, Log, POSITIONS_FROM, ReadError, Record, is_of_positions,
};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::backoff::Backoff;
use crate::metrics::{HubMetrics, RecordKind, UpstreamMetrics};

/// Positions of one append, some 500 bytes each: a small fraction of what a log takes at once.
const BATCH_POSITIONS_MAX: usize = 1_024;

/// The first wait before a failed append is made again. The waits double, so that a log that is away
/// receives few appends.
const RETRY_FIRST: Duration = Duration::from_millis(50);

/// The longest wait before a failed append is made again.
const RETRY_LONGEST: Duration = Duration::from_secs(5);

/// How long the positions that wait may take when the hub stops. The hub does not wait for a log
/// that does not work.
const DRAIN_WITHIN: Duration = Duration::from_secs(2);

/// How often the id of the topic is read while all appends succeed: a topic that was made again takes them too.
const LOOK_INTERVAL: Duration = Duration::from_secs(30);

/// The wait before the id of the topic is read after an append has failed.
const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// A handle on the task that appends positions. Cheap to clone.
#[derive(Clone)]
pub(crate) struct PositionAppender {
    queues: watch::Receiver<Arc<PositionQueues>>,
}

/// The positions that are not in the log yet, by partition, in one life of the topic.
struct PositionQueues {
    described: Description,
    of: BTreeMap<Partition, WaitingPositions>,
}

/// The positions of a partition that are not in the log yet.
#[derive(Default)]
struct WaitingPositions {
    /// Bounded by the nodes that the hub knows.
    positions: Mutex<BTreeMap<NodeName, NodeProgress>>,
    added: Notify,
}

/// Positions of one append. A drop puts them back: they may not be in the log.
struct TakenPositions<'a> {
    waiting: &'a WaitingPositions,
    positions: Vec<(NodeName, NodeProgress)>,
}

impl PositionAppender {
    /// Starts the task over `log`, which `described` describes. Once `stop` is cancelled, the task
    /// ends when the waiting positions are in the log, or after [`DRAIN_WITHIN`].
    pub(crate) fn start(
        log: Arc<dyn Log>,
        described: Description,
        metrics: &HubMetrics,
        stop: &CancellationToken,
    ) -> (Self, JoinHandle<()>) {
        let (sender, queues) = watch::channel(Arc::new(PositionQueues::new(described)));
        let (metrics, stop) = (metrics.upstream.clone(), stop.clone());
        let task = AppenderTask { log, queues: sender, metrics };
        (Self { queues }, tokio::spawn(task.run(stop)))
    }

    /// Waits until the topic was made again, so that it has no position; `None`: the task has ended. Cancel safe.
    pub(crate) async fn topic_replaced(&mut self) -> Option<()> {
        self.queues.changed().await.ok()
    }

    /// Appends the position of `node` soon, unless a later one replaces it before.
    pub(crate) fn append(&self, node: &NodeName, position: NodeProgress) {
        // While it is borrowed, no other takes over what waits.
        let queues = self.queues.borrow();
        let Some(waiting) = queues.waiting(node) else { return };
        waiting.lock().insert(node.clone(), position);
        waiting.added.notify_one();
    }
}

impl PositionQueues {
    fn new(described: Description) -> Self {
        let all = described.all_partitions().collect::<Vec<_>>();
        let apart = all.iter().any(|partition| is_of_positions(*partition));
        let own = all.into_iter().filter(|partition| !apart || is_of_positions(*partition));
        let of = own.map(|partition| (partition, WaitingPositions::default())).collect();
        Self { described, of }
    }

    /// What waits with the position of `node`.
    fn waiting(&self, node: &NodeName) -> Option<&WaitingPositions> {
        self.of.get(&self.described.position_partition(node))
    }

    /// Takes over the positions that wait in `former`, where no later one waits.
    fn take_over(&self, former: &Self) {
        for waiting in former.of.values() {
            let positions = std::mem::take(&mut *waiting.lock());
            for (node, position) in positions {
                let Some(own) = self.waiting(&node) else { continue };
                own.lock().entry(node).or_insert(position);
                own.added.notify_one();
            }
        }
    }
}

impl WaitingPositions {
    /// Takes positions for one append.
    fn take(&self) -> TakenPositions<'_> {
        let mut positions = self.lock();
        let count = positions.len().min(BATCH_POSITIONS_MAX);
        let taken = (0..count).map_while(|_| positions.pop_first()).collect();
        TakenPositions { waiting: self, positions: taken }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<NodeName, NodeProgress>> {
        // No code here panics while it holds the lock; a poisoned one is still whole.
        self.positions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TakenPositions<'_> {
    /// Notes that the log has the positions, or never takes them.
    fn settle(mut self) {
        self.positions.clear();
    }
}

impl Drop for TakenPositions<'_> {
    fn drop(&mut self) {
        let mut waiting = self.waiting.lock();
        for (node, position) in self.positions.drain(..) {
            // A later position may wait meanwhile.
            waiting.entry(node).or_insert(position);
        }
    }
}

/// The task that appends positions.
struct AppenderTask {
    log: Arc<dyn Log>,
    queues: watch::Sender<Arc<PositionQueues>>,
    metrics: UpstreamMetrics,
}

impl AppenderTask {
    async fn run(self, stop: CancellationToken) {
        // The topic of the present queues. One that was made again since it was described is another one.
        let mut topic = self.queues.borrow().described.position_topic;
        loop {
            let queues = self.queues.borrow().clone();
            let failed = Notify::new();
            let serving = queues.of.iter();
            let serving = serving
                .map(|(partition, waiting)| self.serve((*partition, waiting), &failed, &stop));
            let appending = join_all(serving);
            let too_long = async {
                stop.cancelled().await;
                sleep(DRAIN_WITHIN).await;
            };
            tokio::select! {
                biased;
                _ = appending => return,
                () = too_long => {
                    tracing::warn!("the hub stops before all positions are in the log");
                    return;
                }
                described = self.replaced(&mut topic, &failed) => {
                    tracing::warn!("the topic of positions was made again; those of connected nodes are appended once more");
                    let former = self.queues.send_replace(Arc::new(PositionQueues::new(described)));
                    self.queues.borrow().take_over(&former);
                }
            }
        }
    }

    /// Returns the description of the log once its positions are in another topic than `topic`, and notes that one.
    async fn replaced(&self, topic: &mut TopicId, failed: &Notify) -> Description {
        loop {
            let mut is_settled = true;
            match self.look(*topic).await {
                Ok((found, None)) if *topic == found => {}
                // It was made again beside the look.
                Ok((_, None)) => is_settled = false,
                Ok((found, Some(described))) => {
                    *topic = found;
                    return described;
                }
                Err(error) => tracing::debug!(%error, "the topic of positions cannot be described"),
            }
            tokio::select! {
                () = failed.notified() => sleep(LOOK_AGAIN_AFTER).await,
                () = sleep(LOOK_AGAIN_AFTER), if !is_settled => {}
                () = sleep(LOOK_INTERVAL) => {}
            }
        }
    }

    /// The topic that has the positions and, if it is another one than `former`, the description of the log: none if the
    /// topic was made again meanwhile, because the description may be of either.
    async fn look(&self, former: TopicId) -> Result<(TopicId, Option<Description>), ReadError> {
        let is_apart = self.queues.borrow().described.position_partitions > 0;
        let partition = Partition(if is_apart { POSITIONS_FROM } else { 0 });
        let found = self.log.start(partition).await?.topic;
        if former == found {
            return Ok((found, None));
        }
        let described = self.log.describe().await?;
        let is_same = self.log.start(partition).await?.topic == found;
        Ok((found, is_same.then_some(described)))
    }

    /// Appends the positions of a partition until `stop`.
    async fn serve(
        &self,
        (partition, waiting): (Partition, &WaitingPositions),
        failed: &Notify,
        stop: &CancellationToken,
    ) {
        loop {
            // The positions of before the stop are appended after it.
            let is_last = tokio::select! {
                biased;
                () = stop.cancelled() => true,
                () = waiting.added.notified() => false,
            };
            self.append_all(partition, waiting, failed).await;
            if is_last {
                return;
            }
        }
    }

    /// Appends until no position of the partition waits.
    async fn append_all(&self, partition: Partition, waiting: &WaitingPositions, failed: &Notify) {
        let mut backoff = Backoff::new(RETRY_FIRST, RETRY_LONGEST);
        loop {
            let taken = waiting.take();
            if taken.positions.is_empty() {
                return;
            }
            if self.append(partition, &taken.positions).await {
                taken.settle();
                backoff.reset();
            } else {
                drop(taken);
                failed.notify_one();
                backoff.wait().await;
            }
        }
    }

    /// Appends positions to a partition. Returns whether they are settled: in the log, or never taken by it.
    async fn append(&self, partition: Partition, taken: &[(NodeName, NodeProgress)]) -> bool {
        let appends: Vec<Append> = taken
            .iter()
            .filter_map(|(node, position)| record(node, position))
            .map(|record| Append { partition, record })
            .collect();
        let count = appends.len();
        let Err(error) = self.log.append(appends).await else {
            (0..count).for_each(|_| self.metrics.appended(RecordKind::Position));
            return true;
        };
        self.metrics.failed(&error);
        if let AppendError::Rejected { .. } = error {
            tracing::error!(%partition, %error, "the log rejects positions of nodes; the hub leaves them out");
            return true;
        }
        tracing::warn!(%partition, %error, "the hub cannot append positions; it will try again");
        false
    }
}

fn record(node: &NodeName, position: &NodeProgress) -> Option<Record> {
    let value = serde_json::to_vec(position).ok()?;
    Some(Record {
        key: ReportKey::Position.record_key(node).into(),
        value: Some(value.into()),
        header: Bytes::new(),
        traceparent: None,
    })
}

#[cfg(test)]
mod tests {
    use headwater_event::{Boot, Cursor, Incarnation};
    use headwater_log::{
        AppendFault, Bounds, CatchUpTarget, MemoryLog, MemorySettings, PartitionFault, Reader,
        RecordPosition, start_cursors,
    };
    use prometheus::Registry;

    use super::*;

    /// A log whose topic is made again behind a description of the former one.
    struct ChangingLog {
        log: MemoryLog,
        /// The number of partitions that the topic has after the next description.
        next: Mutex<Option<u32>>,
    }

    #[tonic::async_trait]
    impl Log for ChangingLog {
        async fn describe(&self) -> Result<Description, ReadError> {
            let described = self.log.describe().await;
            let next = self.next.lock().expect("no test panics with it").take();
            if let Some(partitions) = next {
                self.log.recreate(partitions);
            }
            described
        }

        async fn append(&self, records: Vec<Append>) -> Result<Vec<RecordPosition>, AppendError> {
            self.log.append(records).await
        }

        async fn bounds(&self, partition: Partition) -> Result<Bounds, ReadError> {
            self.log.bounds(partition).await
        }

        async fn start(&self, partition: Partition) -> Result<Cursor, ReadError> {
            self.log.start(partition).await
        }

        async fn read(&self, cursors: Vec<Cursor>) -> Result<Box<dyn Reader>, ReadError> {
            self.log.read(cursors).await
        }
    }

    fn node(name: &str) -> NodeName {
        name.parse().expect("a name")
    }

    fn position(contact_ms: i64) -> NodeProgress {
        NodeProgress {
            hub: "hub-1".to_owned(),
            connected: true,
            incarnation: Incarnation(1),
            boot: Boot::default(),
            connection: 0,
            outbox_depth: 0,
            contact_ms,
            meta_sync_ms: 0,
            consumes_cluster: None,
            streams: Vec::new(),
        }
    }

    async fn start(
        log: &MemoryLog,
        stop: &CancellationToken,
    ) -> (PositionAppender, JoinHandle<()>) {
        start_over(Arc::new(log.clone()), stop).await
    }

    async fn start_over(
        log: Arc<dyn Log>,
        stop: &CancellationToken,
    ) -> (PositionAppender, JoinHandle<()>) {
        let described = log.describe().await.expect("there");
        let metrics = HubMetrics::new(&Registry::new()).expect("a fresh registry");
        PositionAppender::start(log, described, &metrics, stop)
    }

    /// The positions in the log, in order: node and contact.
    async fn appended(log: &MemoryLog) -> Vec<(String, i64)> {
        let cursors = start_cursors(log).await.expect("there");
        let mut ends = CatchUpTarget::ahead_of(log, &cursors).await.expect("there");
        let mut reader = log.read(cursors).await.expect("readable");
        let mut found = Vec::new();
        while !ends.is_reached() {
            let batch = reader.next().await.expect("readable");
            for recorded in &batch.records {
                let (node, _) = ReportKey::decode(&recorded.record.key).expect("a key");
                let value = recorded.record.value.as_deref().expect("a value");
                let position: NodeProgress = serde_json::from_slice(value).expect("JSON");
                found.push((node.to_string(), position.contact_ms));
            }
            ends.pass(&batch.cursor);
        }
        found
    }

    #[tokio::test(start_paused = true)]
    async fn the_newest_position_of_each_node_is_appended_and_none_waits_after_the_stop() {
        let log = MemoryLog::new(MemorySettings::default());
        let stop = CancellationToken::new();
        let (appender, task) = start(&log, &stop).await;
        log.inject_fault(AppendFault::UnknownLost);
        appender.append(&node("a"), position(1));
        appender.append(&node("b"), position(1));
        tokio::task::yield_now().await;
        // The append has failed: a later position replaces one that waits for the next.
        appender.append(&node("a"), position(2));
        while appended(&log).await.is_empty() {
            tokio::time::advance(RETRY_FIRST).await;
        }
        assert_eq!(appended(&log).await, [("a".to_owned(), 2), ("b".to_owned(), 1)]);
        appender.append(&node("b"), position(3));
        stop.cancel();
        task.await.expect("it ends");
        assert_eq!(appended(&log).await.last(), Some(&("b".to_owned(), 3)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_partition_without_a_leader_delays_no_other() {
        let log = MemoryLog::new(MemorySettings { partitions: 2, ..MemorySettings::default() });
        let described = log.describe().await.expect("there");
        let in_partition = |number| {
            let names = (0..).map(|n| node(&format!("n{n}")));
            let mut of = names.filter(|it| described.position_partition(it) == Partition(number));
            of.next().expect("a name")
        };
        let (stalled, healthy) = (in_partition(0), in_partition(1));
        let stop = CancellationToken::new();
        let (appender, task) = start(&log, &stop).await;
        log.set_partition_fault(Partition(0), Some(PartitionFault::Hangs));
        appender.append(&stalled, position(1));
        for contact_ms in 1..=3 {
            appender.append(&healthy, position(contact_ms));
            let expected = Some((healthy.to_string(), contact_ms));
            let mut turns = 0..10_000;
            while appended(&log).await.last() != expected.as_ref() {
                assert!(turns.next().is_some(), "position {contact_ms} is not appended");
                tokio::task::yield_now().await;
            }
        }
        log.set_partition_fault(Partition(0), None);
        stop.cancel();
        task.await.expect("it ends");
    }

    #[tokio::test(start_paused = true)]
    async fn a_log_that_is_away_delays_the_stop_by_a_bound_only() {
        let log = MemoryLog::new(MemorySettings::default());
        let stop = CancellationToken::new();
        let (appender, task) = start(&log, &stop).await;
        log.set_available(false);
        appender.append(&node("a"), position(1));
        stop.cancel();
        let stopped = tokio::time::timeout(DRAIN_WITHIN + RETRY_LONGEST, task).await;
        stopped.expect("in time").expect("it ends");
    }

    #[tokio::test(start_paused = true)]
    async fn a_topic_made_again_is_noticed_and_its_own_partitions_get_the_positions() {
        let log = MemoryLog::new(MemorySettings { partitions: 2, ..MemorySettings::default() });
        let stop = CancellationToken::new();
        let (mut appender, task) = start(&log, &stop).await;
        let nodes: Vec<NodeName> = (0..8).map(|n| node(&format!("n{n}"))).collect();
        let all_appended = async || {
            let appending = async {
                while appended(&log).await.len() < nodes.len() {
                    sleep(RETRY_FIRST).await;
                }
            };
            tokio::time::timeout(RETRY_LONGEST, appending).await.expect("the log has them");
        };
        nodes.iter().for_each(|node| appender.append(node, position(1)));
        all_appended().await;
        log.recreate(1);
        let replaced = tokio::time::timeout(2 * LOOK_INTERVAL, appender.topic_replaced()).await;
        replaced.expect("it is noticed").expect("the task runs");
        nodes.iter().for_each(|node| appender.append(node, position(2)));
        all_appended().await;
        stop.cancel();
        task.await.expect("it ends");
    }

    #[tokio::test(start_paused = true)]
    async fn a_topic_made_again_before_the_first_look_is_noticed_by_it() {
        let log = MemoryLog::new(MemorySettings { partitions: 2, ..MemorySettings::default() });
        // The hub describes the log at its start. The topic is made again right behind that.
        let next = Mutex::new(Some(1));
        let changing = Arc::new(ChangingLog { log: log.clone(), next });
        let stop = CancellationToken::new();
        let (mut appender, task) = start_over(changing, &stop).await;
        let replaced = tokio::time::timeout(LOOK_AGAIN_AFTER, appender.topic_replaced()).await;
        replaced.expect("it is noticed").expect("the task runs");
        stop.cancel();
        task.await.expect("it ends");
    }

    #[tokio::test(start_paused = true)]
    async fn a_topic_made_again_beside_a_look_gets_the_positions_in_its_own_partitions() {
        let log = MemoryLog::new(MemorySettings { partitions: 2, ..MemorySettings::default() });
        let changing = Arc::new(ChangingLog { log: log.clone(), next: Mutex::default() });
        let stop = CancellationToken::new();
        let (mut appender, task) = start_over(changing.clone(), &stop).await;
        // The first look is over.
        sleep(RETRY_FIRST).await;
        // The next look finds the second topic. The third one is made behind its description.
        log.recreate(2);
        *changing.next.lock().expect("no test panics with it") = Some(1);
        let replaced = tokio::time::timeout(2 * LOOK_INTERVAL, appender.topic_replaced()).await;
        replaced.expect("it is noticed").expect("the task runs");
        let nodes: Vec<NodeName> = (0..8).map(|n| node(&format!("n{n}"))).collect();
        nodes.iter().for_each(|node| appender.append(node, position(1)));
        let appending = async {
            while appended(&log).await.len() < nodes.len() {
                sleep(RETRY_FIRST).await;
            }
        };
        tokio::time::timeout(RETRY_LONGEST, appending).await.expect("the log has them");
        stop.cancel();
        task.await.expect("it ends");
    }

    #[tokio::test(start_paused = true)]
    async fn a_position_that_waits_is_appended_to_the_topic_that_is_made_again() {
        let log = MemoryLog::new(MemorySettings { partitions: 2, ..MemorySettings::default() });
        let described = log.describe().await.expect("there");
        let mut names = (0..).map(|n| node(&format!("n{n}")));
        let gone = names.find(|it| described.position_partition(it) == Partition(1));
        let gone = gone.expect("a name");
        let stop = CancellationToken::new();
        let (mut appender, task) = start(&log, &stop).await;
        // The append of the position goes on when the topic is made again.
        log.set_partition_fault(Partition(1), Some(PartitionFault::Hangs));
        appender.append(&gone, position(1));
        sleep(RETRY_FIRST).await;
        log.recreate(1);
        let replaced = tokio::time::timeout(2 * LOOK_INTERVAL, appender.topic_replaced()).await;
        replaced.expect("it is noticed").expect("the task runs");
        let appending = async {
            while appended(&log).await != [(gone.to_string(), 1)] {
                sleep(RETRY_FIRST).await;
            }
        };
        tokio::time::timeout(RETRY_LONGEST, appending).await.expect("the log has it");
        stop.cancel();
        task.await.expect("it ends");
    }
}
