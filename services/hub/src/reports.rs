//! Appends what edges report to the upstream log: one task, every edge's reports in one append.
//!
//! A report is answered only once the log has it durably. An append whose outcome is unknown is
//! simply made again: a report is ordered by its own id, so a second copy has no effect.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use headwater_event::upstream::encode_report;
use headwater_event::{NodeName, Report, ReportId, StreamId};
use headwater_log::{Append, AppendError, Log, Record};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Span;

use crate::metrics::{HubMetrics, RecordKind, UpstreamMetrics};
use crate::spans;

/// Appends waiting for the log, over all edges: each session holds at most a few, so this is
/// reached only by thousands of them; the rest wait in their sessions.
const QUEUE_MAX: usize = 1024;

/// Records of one append: bounds the memory of a burst and the time to its first answer.
const BATCH_RECORDS_MAX: usize = 2048;

/// Waits between tries of an append whose outcome is unknown: doubling from the first to the
/// last, so that a log that is away is not hammered.
const RETRY_FIRST: Duration = Duration::from_millis(50);
const RETRY_LAST: Duration = Duration::from_secs(5);

/// How long what is queued may take when the hub stops: a log that works takes far less, one
/// that does not is not waited for.
const LAST_WITHIN: Duration = Duration::from_secs(2);

/// A record that goes upstream.
struct Outgoing {
    append: Append,
    kind: RecordKind,
    /// Ends when the log has it.
    span: Option<Span>,
}

/// Records that go upstream, with who waits for them.
struct Job {
    records: Vec<Outgoing>,
    /// Told when all are durable.
    done: Option<(watch::Sender<ReportId>, ReportId)>,
}

/// A handle on the task that appends upstream.
#[derive(Clone)]
pub(crate) struct Upstream {
    jobs: mpsc::Sender<Job>,
    partitions: u32,
    metrics: UpstreamMetrics,
}

impl Upstream {
    /// Starts the task over `log`. Once `stop` is cancelled it takes nothing more, and ends when
    /// what it took is in the log or [`LAST_WITHIN`] is over.
    pub(crate) fn start(
        log: Arc<dyn Log>,
        partitions: u32,
        metrics: &HubMetrics,
        stop: &CancellationToken,
    ) -> (Self, JoinHandle<()>) {
        let (jobs, queue) = mpsc::channel(QUEUE_MAX);
        let metrics = metrics.upstream.clone();
        let task = tokio::spawn(run(log, queue, metrics.clone(), stop.clone()));
        (Self { jobs, partitions, metrics }, task)
    }

    /// Appends what `node` reported, in order; `done` is at the last id once all is durable.
    /// Returns whether the task still runs.
    pub(crate) async fn append(
        &self,
        node: &NodeName,
        reports: Vec<Report>,
        done: watch::Sender<ReportId>,
    ) -> bool {
        let Some(last) = reports.last().map(|report| report.id) else { return true };
        let partition = StreamId::node(node).partition(self.partitions);
        let records = reports
            .into_iter()
            .filter_map(|mut report| match encode_report(node, &report) {
                Ok(encoded) => {
                    let span = spans::append_report(&mut report, node, partition);
                    let record = Record {
                        key: encoded.key,
                        value: encoded.value,
                        header: encoded.header,
                        traceparent: report.traceparent,
                    };
                    let kind = RecordKind::of(&report.body);
                    Some(Outgoing { append: Append { partition, record }, kind, span })
                }
                Err(error) => {
                    tracing::error!(%node, id = %report.id, %error, "a report has no record key");
                    None
                }
            })
            .collect();
        self.jobs.send(Job { records, done: Some((done, last)) }).await.is_ok()
    }

    /// Appends the hub's account of where `node` stands; nobody waits for it.
    /// Left out when the queue is full: the next one says more.
    pub(crate) fn position(&self, node: &NodeName, record: Record) {
        let partition = StreamId::node(node).partition(self.partitions);
        let (append, kind) = (Append { partition, record }, RecordKind::Position);
        let job = Job { records: vec![Outgoing { append, kind, span: None }], done: None };
        if self.jobs.try_send(job).is_err() {
            self.metrics.position_left_out();
            tracing::debug!(%node, "position record left out: the upstream queue is full");
        }
    }
}

async fn run(
    log: Arc<dyn Log>,
    mut queue: mpsc::Receiver<Job>,
    metrics: UpstreamMetrics,
    stop: CancellationToken,
) {
    let appending = async {
        let mut jobs = Vec::new();
        let mut stopping = pin!(stop.cancelled().fuse());
        loop {
            tokio::select! {
                biased;
                () = &mut stopping => queue.close(),
                received = queue.recv_many(&mut jobs, BATCH_RECORDS_MAX) => {
                    if received == 0 {
                        return;
                    }
                    append_jobs(log.as_ref(), &metrics, &mut jobs).await;
                }
            }
        }
    };
    let given_up = async {
        stop.cancelled().await;
        tokio::time::sleep(LAST_WITHIN).await;
    };
    tokio::select! {
        biased;
        () = appending => {}
        () = given_up => tracing::warn!("the hub stops with reports that are not in the log"),
    }
}

async fn append_jobs(log: &dyn Log, metrics: &UpstreamMetrics, jobs: &mut Vec<Job>) {
    let records = jobs.iter_mut().flat_map(|job| std::mem::take(&mut job.records)).collect();
    append_durably(log, metrics, records).await;
    for (done, last) in jobs.drain(..).filter_map(|job| job.done) {
        // Nobody may listen any more: of a session that has ended the edge sends again.
        done.send_replace(last);
    }
}

/// Returns once every record that the log can take is in it.
async fn append_durably(log: &dyn Log, metrics: &UpstreamMetrics, mut records: Vec<Outgoing>) {
    let mut wait = RETRY_FIRST;
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
                for Outgoing { kind, span, .. } in records.drain(..count) {
                    metrics.appended(kind);
                    drop(span);
                }
                wait = RETRY_FIRST;
            }
            Err(AppendError::Rejected { reason }) if count == 1 => {
                let key = String::from_utf8_lossy(&records[0].append.record.key).into_owned();
                tracing::error!(%key, %reason, "the log refused a report; it is left out");
                records.remove(0);
            }
            Err(AppendError::Rejected { .. }) => {
                // One of them is refused: each goes by itself, so that the others get through.
                for record in records.drain(..count).collect::<Vec<_>>() {
                    Box::pin(append_durably(log, metrics, vec![record])).await;
                }
            }
            Err(error) => {
                tracing::warn!(%error, "the upstream log cannot be written; trying again");
                tokio::time::sleep(wait).await;
                wait = (wait * 2).min(RETRY_LAST);
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

    async fn next(answers: &mut watch::Receiver<ReportId>) -> ReportId {
        answers.changed().await.expect("the task answers");
        *answers.borrow_and_update()
    }

    #[tokio::test]
    async fn reports_are_answered_once_the_log_has_them() {
        let log = Arc::new(MemoryLog::new(MemorySettings::default()));
        let partitions = log.describe().await.expect("there").partitions;
        let stop = CancellationToken::new();
        let (upstream, task) = Upstream::start(log.clone(), partitions, &metrics(), &stop);
        let (done, mut answers) = watch::channel(ReportId::default());
        let node: NodeName = "gw-1".parse().expect("a name");
        assert!(upstream.append(&node, vec![report(1), report(2)], done).await);
        assert_eq!(next(&mut answers).await, report(2).id);
        let partition = StreamId::node(&node).partition(partitions);
        assert_eq!(log.bounds(partition).await.expect("there").high.0, 2);

        // What was taken before the stop is in the log after it.
        let (done, mut answers) = watch::channel(ReportId::default());
        assert!(upstream.append(&node, vec![report(3)], done.clone()).await);
        stop.cancel();
        task.await.expect("it ends");
        assert_eq!(next(&mut answers).await, report(3).id);
        assert!(!upstream.append(&node, vec![report(4)], done).await, "nothing more is taken");
    }

    #[tokio::test]
    async fn an_unknown_outcome_is_tried_again_and_what_the_log_refuses_holds_up_nobody() {
        let settings = MemorySettings { record_bytes_max: 200, ..MemorySettings::default() };
        let log = MemoryLog::new(settings);
        log.inject(AppendFault::UnknownLost);
        log.inject(AppendFault::UnknownWritten);
        let counted = Registry::new();
        let metrics = HubMetrics::new(&counted).expect("a fresh registry");
        let stop = CancellationToken::new();
        let (upstream, _task) = Upstream::start(Arc::new(log.clone()), 1, &metrics, &stop);
        let (done, mut answers) = watch::channel(ReportId::default());
        let node: NodeName = "gw-1".parse().expect("a name");
        let mut large = report(2);
        if let ReportBody::PodStatus { status, .. } = &mut large.body {
            *status = Bytes::from(vec![b' '; 300]);
        }
        assert!(upstream.append(&node, vec![report(1), large, report(3)], done).await);
        assert_eq!(next(&mut answers).await, report(3).id);
        let start = log.start(Partition(0)).await.expect("there");
        let mut reader = log.read(vec![start]).await.expect("there");
        let count = reader.next().await.expect("readable").records.len();
        assert_eq!(count, 3, "the first twice, the second, which is too large, not at all");
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
