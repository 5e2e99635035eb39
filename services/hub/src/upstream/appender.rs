//! The way of the sessions into the upstream log: a queue for each partition, and a task behind each
//! ([`super::partition_appender`]).
//!
//! A session acknowledges a report once the log has it durably. An append whose outcome is unknown
//! is made again: the report's id orders it, so a second copy has no effect.

use std::sync::Arc;

use headwater_event::{NodeName, Partition, Report, ReportId};
use headwater_log::Log;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::event_limiter::EventLimiter;
use super::receipt::{AppendOutcome, AppendReceipt};
use super::record_group::RecordGroup;
use super::topic::{PartitionQueues, UpstreamTopic, queue_of};
use crate::metrics::HubMetrics;
use crate::watched_value::WatchedValue;

/// A handle on the tasks that append upstream. Cheap to clone.
#[derive(Clone)]
pub(crate) struct UpstreamAppender {
    queues: watch::Receiver<PartitionQueues>,
    /// The Events of each node.
    events: Arc<EventLimiter>,
    stop: CancellationToken,
}

/// Room for one group of a node in the queue of its partition.
pub(crate) struct AppendPermit {
    node: NodeName,
    partition: Partition,
    events: Arc<EventLimiter>,
    room: mpsc::OwnedPermit<RecordGroup>,
}

impl UpstreamAppender {
    /// Starts the tasks over `log`. Once `stop` is cancelled, they take no more records. The
    /// returned task ends when the queued ones are in the log, or after a short time.
    pub(crate) fn start(
        log: Arc<dyn Log>,
        groups_max: usize,
        new_uuid: impl Fn() -> Uuid + Send + Sync + 'static,
        metrics: &HubMetrics,
        stop: &CancellationToken,
    ) -> (Self, JoinHandle<()>) {
        let (sender, queues) = watch::channel(PartitionQueues::default());
        let metrics = metrics.upstream.clone();
        let topic = UpstreamTopic {
            log,
            metrics,
            groups_max,
            new_uuid: Box::new(new_uuid),
            queues: sender,
            stop: stop.clone(),
        };
        let task = tokio::spawn(topic.run());
        (Self { queues, events: Arc::new(EventLimiter::new()), stop: stop.clone() }, task)
    }

    /// Room for a group of `node`, if there is some now.
    pub(crate) fn try_reserve(&self, node: &NodeName) -> Option<AppendPermit> {
        let queues = self.queues.borrow();
        let (partition, queue) = queue_of(&queues, node)?;
        let room = queue.clone().try_reserve_owned().ok()?;
        let (node, events) = (node.clone(), self.events.clone());
        Some(AppendPermit { node, partition, events, room })
    }

    /// Waits for room for a group of `node`; `None`: the hub takes no more reports.
    pub(crate) async fn reserve(&self, node: &NodeName) -> Option<AppendPermit> {
        let mut queues = self.queues.clone();
        loop {
            let (partition, queue) = {
                let queues = queues.wait_for(|queues| !queues.is_empty()).await.ok()?;
                let (partition, queue) = queue_of(&queues, node)?;
                (partition, queue.clone())
            };
            if let Ok(room) = queue.reserve_owned().await {
                let (node, events) = (node.clone(), self.events.clone());
                return Some(AppendPermit { node, partition, events, room });
            }
            if self.stop.is_cancelled() {
                return None;
            }
            // The queue belongs to a former life of the topic.
            queues.changed().await.ok()?;
        }
    }
}

impl AppendPermit {
    /// Queues reports, in order, behind the group up to `after`. `outcome` receives what becomes of
    /// them. Returns the last one.
    pub(crate) fn append(
        self,
        reports: Vec<Report>,
        after: ReportId,
        outcome: &Arc<WatchedValue<AppendOutcome>>,
    ) -> ReportId {
        let last = reports.last().map_or(after, |report| report.id);
        let receipt = AppendReceipt::new(outcome.clone(), after, last);
        let Self { node, partition, events, room } = self;
        room.send(RecordGroup::of_reports(&node, partition, reports, receipt, &events));
        last
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use headwater_event::{Cursor, ReportBody, StreamId};
    use headwater_log::{AppendFault, MemoryLog, MemorySettings, PartitionFault};
    use headwater_session::message::ReportsAcked;
    use prometheus::{Registry, TextEncoder};
    use tokio::time::timeout;

    use super::*;

    /// How long a test waits for something that must happen.
    const SOON: Duration = Duration::from_secs(60);

    /// What one session appends.
    struct Session {
        appender: UpstreamAppender,
        node: NodeName,
        outcome: Arc<WatchedValue<AppendOutcome>>,
        queued: ReportId,
    }

    impl Session {
        fn new(appender: &UpstreamAppender, node: &str) -> Self {
            let (appender, node) = (appender.clone(), node.parse().expect("a name"));
            Self { appender, node, outcome: Arc::default(), queued: ReportId::default() }
        }

        async fn append(&mut self, reports: Vec<Report>) {
            let permit = self.appender.reserve(&self.node).await.expect("the task runs");
            self.queued = permit.append(reports, self.queued, &self.outcome);
        }

        async fn outcome(&mut self) -> Option<ReportsAcked> {
            timeout(SOON, self.outcome.changed()).await.expect("soon");
            AppendOutcome::take(&self.outcome)
        }
    }

    fn start(
        log: &MemoryLog,
        metrics: &HubMetrics,
        stop: &CancellationToken,
    ) -> (UpstreamAppender, JoinHandle<()>) {
        UpstreamAppender::start(Arc::new(log.handle()), 1, Uuid::new_v4, metrics, stop)
    }

    fn metrics() -> HubMetrics {
        HubMetrics::new(&Registry::new()).expect("a fresh registry")
    }

    fn report(seq: u64) -> Report {
        Report {
            id: ReportId { boot: 1, seq, ..ReportId::default() },
            body: ReportBody::PodStatus {
                pod: "d/pod/web".parse().expect("a key"),
                uid: "u".to_owned(),
                status: Bytes::from_static(b"{}"),
            },
            traceparent: None,
        }
    }

    fn large(seq: u64, bytes: usize) -> Report {
        let mut large = report(seq);
        if let ReportBody::PodStatus { status, .. } = &mut large.body {
            *status = Bytes::from(vec![b' '; bytes]);
        }
        large
    }

    fn acked(seq: u64) -> Option<ReportsAcked> {
        Some(report(seq).id.into())
    }

    /// How many reports each partition of the log has.
    async fn counts(log: &MemoryLog) -> Vec<usize> {
        let mut counts = Vec::new();
        for partition in (0..log.describe().await.expect("there").partitions).map(Partition) {
            let mut cursor: Cursor = log.start(partition).await.expect("there");
            let high = log.bounds(partition).await.expect("there").high;
            let mut reader = log.read(vec![cursor]).await.expect("readable");
            let mut count = 0;
            while cursor.next < high {
                let batch = reader.next().await.expect("readable");
                cursor = batch.cursor;
                let reports = batch.records.iter().filter(|it| it.record.key.starts_with(b"node/"));
                count += reports.count();
            }
            counts.push(count);
        }
        counts
    }

    /// The names of two nodes whose streams are in partitions 0 and 1 of two.
    fn two_nodes() -> [String; 2] {
        [0, 1].map(|partition| {
            let names = (0..).map(|n| format!("n{n}"));
            let of = |name: &String| StreamId::node(&name.parse().expect("a name")).partition(2);
            names.filter(|name| of(name) == Partition(partition)).take(1).collect()
        })
    }

    #[tokio::test]
    async fn a_report_is_acknowledged_once_the_log_has_it() {
        let log = MemoryLog::new(MemorySettings::default());
        let stop = CancellationToken::new();
        let (appender, task) = start(&log, &metrics(), &stop);
        let mut session = Session::new(&appender, "gw-1");
        session.append(vec![report(1), report(2)]).await;
        assert_eq!(session.outcome().await, acked(2));
        assert_eq!(counts(&log).await, [2]);

        // Reports that were queued before the stop are in the log after it.
        session.append(vec![report(3)]).await;
        stop.cancel();
        task.await.expect("it ends");
        assert_eq!(session.outcome().await, acked(3));
        let permit = appender.reserve(&session.node).await;
        assert!(permit.is_none(), "it takes no more reports");
    }

    #[tokio::test]
    async fn an_append_of_unknown_outcome_is_retried_and_a_rejected_report_is_refused_by_name() {
        let settings = MemorySettings { record_bytes_max: 200, ..MemorySettings::default() };
        let log = MemoryLog::new(settings);
        let counted = Registry::new();
        let metrics = HubMetrics::new(&counted).expect("a fresh registry");
        let stop = CancellationToken::new();
        let faulty = log.handle();
        let log_of_hub = Arc::new(faulty.clone());
        let (appender, _task) =
            UpstreamAppender::start(log_of_hub, 1, Uuid::new_v4, &metrics, &stop);
        let mut session = Session::new(&appender, "gw-1");
        session.append(vec![report(1)]).await;
        assert_eq!(session.outcome().await, acked(1));
        faulty.inject_fault(AppendFault::UnknownLost);
        faulty.inject_fault(AppendFault::UnknownWritten);
        session.append(vec![report(2), large(3, 300), report(4)]).await;
        let outcome = session.outcome().await.expect("nothing is lost");
        assert_eq!(outcome.through, report(4).id);
        let [refused] = &outcome.refused[..] else { panic!("{outcome:?}") };
        assert_eq!(refused.id, report(3).id);
        assert!(refused.reason.contains("the maximum is 200"), "{refused:?}");
        assert_eq!(counts(&log).await, [4], "one twice; the third is too large for the log");
        let text = TextEncoder::new().encode_to_string(&counted.gather()).expect("text");
        for line in [
            r#"headwater_hub_reports_appended_total{kind="pod_status"} 3"#,
            r#"headwater_hub_report_append_failures_total{kind="unknown"} 2"#,
            r#"headwater_hub_report_append_failures_total{kind="rejected"} 2"#,
            "headwater_hub_reports_refused_total 1",
            "headwater_hub_report_batch_records_count 3",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_partition_that_cannot_be_written_delays_no_other_and_repeats_none_of_it() {
        for fault in [PartitionFault::Fails, PartitionFault::Hangs] {
            let log = MemoryLog::new(MemorySettings { partitions: 2, ..Default::default() });
            let stop = CancellationToken::new();
            let (appender, _task) = start(&log, &metrics(), &stop);
            let [stalled, healthy] = two_nodes().map(|node| Session::new(&appender, &node));
            let (mut stalled, mut healthy) = (stalled, healthy);
            stalled.append(vec![report(1)]).await;
            assert_eq!(stalled.outcome().await, acked(1));
            log.set_partition_fault(Partition(0), Some(fault));
            stalled.append(vec![report(2)]).await;
            for seq in 1..=50 {
                healthy.append(vec![report(seq)]).await;
                assert_eq!(healthy.outcome().await, acked(seq));
            }
            assert_eq!(counts(&log).await, [1, 50], "{fault:?}");
            log.set_partition_fault(Partition(0), None);
            assert_eq!(stalled.outcome().await, acked(2));
            assert_eq!(counts(&log).await, [2, 50]);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_acknowledged_that_a_topic_created_again_does_not_have() {
        let log = MemoryLog::new(MemorySettings { partitions: 2, ..Default::default() });
        let stop = CancellationToken::new();
        let (appender, _task) = start(&log, &metrics(), &stop);
        let [_, node] = two_nodes();
        let mut session = Session::new(&appender, &node);
        session.append(vec![report(1)]).await;
        assert_eq!(session.outcome().await, acked(1));
        log.recreate(1);
        session.append(vec![report(2)]).await;
        session.append(vec![report(3)]).await;
        assert_eq!(session.outcome().await, None, "its edge sends them once more");
        // In its next session.
        let mut session = Session::new(&appender, &node);
        session.append(vec![report(2), report(3)]).await;
        assert_eq!(session.outcome().await, acked(3));
        assert_eq!(counts(&log).await, [2]);
    }

    #[tokio::test(start_paused = true)]
    async fn partitions_that_are_added_to_the_topic_stay_unused() {
        let log = MemoryLog::new(MemorySettings::default());
        let stop = CancellationToken::new();
        let (appender, _task) = start(&log, &metrics(), &stop);
        let nodes: Vec<String> = (0..32).map(|n| format!("n{n}")).collect();
        let mut session = Session::new(&appender, &nodes[0]);
        session.append(vec![report(1)]).await;
        assert_eq!(session.outcome().await, acked(1));
        log.add_partitions(4);
        // Also by a hub that starts now.
        let (next, _task) = start(&log, &metrics(), &stop);
        for node in &nodes {
            let mut session = Session::new(&next, node);
            session.append(vec![report(1)]).await;
            assert_eq!(session.outcome().await, acked(1));
        }
        assert_eq!(counts(&log).await, [33, 0, 0, 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn reports_wait_while_the_topic_cannot_be_reached() {
        let log = MemoryLog::new(MemorySettings::default());
        log.set_available(false);
        let stop = CancellationToken::new();
        let (appender, _task) = start(&log, &metrics(), &stop);
        let mut session = Session::new(&appender, "gw-1");
        assert!(appender.try_reserve(&session.node).is_none());
        let reserve = appender.reserve(&session.node);
        log.set_available(true);
        assert!(reserve.await.is_some());
        session.append(vec![report(1)]).await;
        assert_eq!(session.outcome().await, acked(1));
    }
}
