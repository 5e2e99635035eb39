//! Appends the reports of edges to the upstream log: one task, and one append for the reports of
//! many edges.
//!
//! A session acknowledges a report once the log has it durably. An append whose outcome is unknown
//! is made again: the report's id orders it, so a second copy has no effect.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use headwater_event::upstream::encode_report;
use headwater_event::{NodeName, NodeProgress, Partition, Report, ReportId, ReportKey, StreamId};
use headwater_log::{Append, AppendError, Log, Record};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Span;

use super::spans;
use crate::backoff::Backoff;
use crate::metrics::{HubMetrics, RecordKind, UpstreamMetrics};

/// Groups of records that wait for the log, over all edges. A session queues a few at most, so
/// only thousands of sessions reach the bound; the others wait in their sessions.
const QUEUE_MAX: usize = 1024;

/// Records of one append: bounds the memory of a burst, and the time to its first acknowledgement.
const BATCH_RECORDS_MAX: usize = 2048;

/// The first wait before an append of unknown outcome is made again. The waits double, so that a
/// log that is away receives few appends.
const RETRY_FIRST: Duration = Duration::from_millis(50);

/// The longest wait before an append of unknown outcome is made again.
const RETRY_LONGEST: Duration = Duration::from_secs(5);

/// How long the queued records may take when the hub stops. A log that works needs far less, and
/// the hub does not wait for one that does not.
const DRAIN_WITHIN: Duration = Duration::from_secs(2);

/// A record for the upstream log.
struct OutgoingRecord {
    append: Append,
    kind: RecordKind,
    /// Ends when the log has the record.
    span: Option<Span>,
}

/// Records that are appended in order.
struct RecordGroup {
    records: Vec<OutgoingRecord>,
    /// Receives the id of the last report once all records are durable.
    acked: Option<(watch::Sender<ReportId>, ReportId)>,
}

/// A handle on the task that appends upstream. Cheap to clone.
#[derive(Clone)]
pub(crate) struct UpstreamAppender {
    queue: mpsc::Sender<RecordGroup>,
    partitions: u32,
    metrics: UpstreamMetrics,
}

impl UpstreamAppender {
    /// Starts the task over `log`. Once `stop` is cancelled, the task takes no more records. It
    /// ends when the queued ones are in the log, or after [`DRAIN_WITHIN`].
    pub(crate) fn start(
        log: Arc<dyn Log>,
        partitions: u32,
        metrics: &HubMetrics,
        stop: &CancellationToken,
    ) -> (Self, JoinHandle<()>) {
        let (queue, groups) = mpsc::channel(QUEUE_MAX);
        let metrics = metrics.upstream.clone();
        let task = tokio::spawn(run(log, groups, metrics.clone(), stop.clone()));
        (Self { queue, partitions, metrics }, task)
    }

    /// Queues the reports of `node`, in order. `acked` receives the last id once all of them are
    /// durable. Returns whether the task still runs.
    pub(crate) async fn append(
        &self,
        node: &NodeName,
        reports: Vec<Report>,
        acked: watch::Sender<ReportId>,
    ) -> bool {
        let Some(last) = reports.last().map(|report| report.id) else { return true };
        let partition = self.partition(node);
        let records = reports.into_iter().filter_map(|report| outgoing(node, partition, report));
        let group = RecordGroup { records: records.collect(), acked: Some((acked, last)) };
        self.queue.send(group).await.is_ok()
    }

    /// Queues the position of `node`, without a receipt. When the queue is full, the position is
    /// left out: a later one supersedes it.
    pub(crate) fn append_position(&self, node: &NodeName, position: &NodeProgress) {
        let Ok(value) = serde_json::to_vec(position) else { return };
        let record = Record {
            key: ReportKey::Position.record_key(node).into(),
            value: Some(value.into()),
            header: Bytes::new(),
            traceparent: None,
        };
        let append = Append { partition: self.partition(node), record };
        let records = vec![OutgoingRecord { append, kind: RecordKind::Position, span: None }];
        if self.queue.try_send(RecordGroup { records, acked: None }).is_err() {
            self.metrics.position_left_out();
            tracing::debug!(%node, "a position is left out: the upstream queue is full");
        }
    }

    fn partition(&self, node: &NodeName) -> Partition {
        StreamId::node(node).partition(self.partitions)
    }
}

fn outgoing(node: &NodeName, partition: Partition, mut report: Report) -> Option<OutgoingRecord> {
    let encoded = encode_report(node, &report)
        .inspect_err(|error| {
            tracing::error!(%node, id = %report.id, %error, "a report has no record key");
        })
        .ok()?;
    let span = spans::append_report(&mut report, node, partition);
    let kind = RecordKind::Report(report.body.kind());
    let record = Record {
        key: encoded.key,
        value: encoded.value,
        header: encoded.header,
        traceparent: report.traceparent,
    };
    Some(OutgoingRecord { append: Append { partition, record }, kind, span })
}

async fn run(
    log: Arc<dyn Log>,
    mut queue: mpsc::Receiver<RecordGroup>,
    metrics: UpstreamMetrics,
    stop: CancellationToken,
) {
    let appending = async {
        let mut groups = Vec::new();
        let mut stopping = pin!(stop.cancelled().fuse());
        loop {
            tokio::select! {
                biased;
                () = &mut stopping => queue.close(),
                received = queue.recv_many(&mut groups, BATCH_RECORDS_MAX) => {
                    if received == 0 {
                        return;
                    }
                    append_groups(log.as_ref(), &metrics, &mut groups).await;
                }
            }
        }
    };
    let too_long = async {
        stop.cancelled().await;
        tokio::time::sleep(DRAIN_WITHIN).await;
    };
    tokio::select! {
        biased;
        () = appending => {}
        () = too_long => tracing::warn!("the hub stops before all reports are in the log"),
    }
}

async fn append_groups(log: &dyn Log, metrics: &UpstreamMetrics, groups: &mut Vec<RecordGroup>) {
    let records = groups.iter_mut().flat_map(|group| std::mem::take(&mut group.records)).collect();
    append_durably(log, metrics, records).await;
    for (acked, last) in groups.drain(..).filter_map(|group| group.acked) {
        // The session may be over: its edge then sends the reports again.
        acked.send_replace(last);
    }
}

/// Returns once the log has every record, except those that it rejects.
async fn append_durably(
    log: &dyn Log,
    metrics: &UpstreamMetrics,
    mut records: Vec<OutgoingRecord>,
) {
    let mut backoff = Backoff::new(RETRY_FIRST, RETRY_LONGEST);
    while !records.is_empty() {
        let batch = records.iter().take(BATCH_RECORDS_MAX);
        let batch: Vec<Append> = batch.map(|outgoing| outgoing.append.clone()).collect();
        let count = batch.len();
        let began = Instant::now();
        let outcome = log.append(batch).await;
        if let Err(error) = &outcome {
            metrics.failed(error);
        }
        match outcome {
            Ok(_) => {
                metrics.batch(count, began.elapsed());
                for OutgoingRecord { kind, span, .. } in records.drain(..count) {
                    metrics.appended(kind);
                    drop(span);
                }
                backoff.reset();
            }
            Err(AppendError::Rejected { reason }) if count == 1 => {
                let key = String::from_utf8_lossy(&records[0].append.record.key).into_owned();
                tracing::error!(%key, %reason, "the log rejects a report; the hub leaves it out");
                records.remove(0);
            }
            Err(AppendError::Rejected { .. }) => {
                // The log rejects one of them: alone, each of the others passes.
                for record in records.drain(..count).collect::<Vec<_>>() {
                    Box::pin(append_durably(log, metrics, vec![record])).await;
                }
            }
            Err(error) => {
                tracing::warn!(%error, "the hub cannot append upstream; it will try again");
                backoff.wait().await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use headwater_event::{Partition, ReportBody};
    use headwater_log::{AppendFault, MemoryLog, MemorySettings};
    use prometheus::{Registry, TextEncoder};

    use super::*;

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

    async fn next(acked: &mut watch::Receiver<ReportId>) -> ReportId {
        acked.changed().await.expect("the task runs");
        *acked.borrow_and_update()
    }

    #[tokio::test]
    async fn a_report_is_acknowledged_once_the_log_has_it() {
        let log = Arc::new(MemoryLog::new(MemorySettings::default()));
        let partitions = log.describe().await.expect("there").partitions;
        let stop = CancellationToken::new();
        let (appender, task) = UpstreamAppender::start(log.clone(), partitions, &metrics(), &stop);
        let (through, mut acked) = watch::channel(ReportId::default());
        let node: NodeName = "gw-1".parse().expect("a name");
        assert!(appender.append(&node, vec![report(1), report(2)], through).await);
        assert_eq!(next(&mut acked).await, report(2).id);
        let partition = StreamId::node(&node).partition(partitions);
        assert_eq!(log.bounds(partition).await.expect("there").high.0, 2);

        // Reports that were queued before the stop are in the log after it.
        let (through, mut acked) = watch::channel(ReportId::default());
        assert!(appender.append(&node, vec![report(3)], through.clone()).await);
        stop.cancel();
        task.await.expect("it ends");
        assert_eq!(next(&mut acked).await, report(3).id);
        assert!(
            !appender.append(&node, vec![report(4)], through).await,
            "it takes no more reports"
        );
    }

    #[tokio::test]
    async fn an_append_of_unknown_outcome_is_retried_and_a_rejected_report_delays_no_other() {
        let settings = MemorySettings { record_bytes_max: 200, ..MemorySettings::default() };
        let log = MemoryLog::new(settings);
        log.inject_fault(AppendFault::UnknownLost);
        log.inject_fault(AppendFault::UnknownWritten);
        let counted = Registry::new();
        let metrics = HubMetrics::new(&counted).expect("a fresh registry");
        let stop = CancellationToken::new();
        let (appender, _task) = UpstreamAppender::start(Arc::new(log.clone()), 1, &metrics, &stop);
        let (through, mut acked) = watch::channel(ReportId::default());
        let node: NodeName = "gw-1".parse().expect("a name");
        let mut large = report(2);
        if let ReportBody::PodStatus { status, .. } = &mut large.body {
            *status = Bytes::from(vec![b' '; 300]);
        }
        assert!(appender.append(&node, vec![report(1), large, report(3)], through).await);
        assert_eq!(next(&mut acked).await, report(3).id);
        let start = log.start(Partition(0)).await.expect("there");
        let mut reader = log.read(vec![start]).await.expect("there");
        let count = reader.next().await.expect("readable").records.len();
        assert_eq!(count, 3, "the first twice; the second is too large for the log");
        let text = TextEncoder::new().encode_to_string(&counted.gather()).expect("text");
        for line in [
            r#"headwater_hub_reports_appended_total{kind="pod_status"} 2"#,
            r#"headwater_hub_report_append_failures_total{kind="unknown"} 2"#,
            r#"headwater_hub_report_append_failures_total{kind="rejected"} 2"#,
            "headwater_hub_report_batch_records_count 2",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
    }
}
