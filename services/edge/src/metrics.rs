//! What an edge counts. Several edges may share a process, so each family has a label `node`; the
//! handles of one node are bound once, and counting is an atomic addition.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use headwater_event::{NodeName, StreamId};
use headwater_session::EdgeStreamStatus;
use headwater_view::AdvanceMode;
use prometheus::core::Collector;
use prometheus::{
    Error, Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec,
    IntGauge, IntGaugeVec, Opts, Registry,
};

/// Bounds of durations, in seconds: from a quick commit to a minute of a network that is slow.
pub(crate) const SECONDS: [f64; 15] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];

/// Bounds of batches, in changes: up to the most that one commit gathers.
const CHANGES: [f64; 8] = [1.0, 4.0, 16.0, 64.0, 256.0, 1_024.0, 4_096.0, 16_384.0];

/// The families of all edges of a process.
#[derive(Clone, Debug)]
pub struct EdgeMetrics {
    applied: IntGaugeVec,
    durable: IntGaugeVec,
    tail: IntGaugeVec,
    lag: IntGaugeVec,
    batch_changes: HistogramVec,
    apply_seconds: HistogramVec,
    sync_seconds: HistogramVec,
    propagation_seconds: HistogramVec,
    resyncs: IntCounterVec,
    outbox_records: IntGaugeVec,
    outbox_bytes: IntGaugeVec,
    outbox_dropped: IntCounterVec,
    connected: IntGaugeVec,
    last_contact: GaugeVec,
    last_meta_sync: GaugeVec,
    sessions: IntCounterVec,
    waiting_pushes: IntGaugeVec,
    watches: IntGaugeVec,
    watches_ended: IntCounterVec,
    errors: IntCounterVec,
}

/// What one edge counts; without a registry, nothing. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct EdgeCounts(Option<Arc<Handles>>);

/// Why a stream was brought forward otherwise than event by event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resync {
    /// It was far behind.
    Delta,
    /// There was nothing to go on from.
    Snapshot,
    /// What it held was compared with the complete state.
    Correction,
    /// It differed from the log; a snapshot follows.
    Diverged,
}

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorKind {
    /// No hub accepted a connection.
    Connect,
    /// A connection broke.
    Link,
    /// A hub said what the protocol does not know.
    Malformed,
    /// A hub refused the session.
    Refused,
    /// A session ended over something else.
    Session,
    /// A report found no room.
    OutboxFull,
}

const RESYNCS: [(Resync, &str); 4] = [
    (Resync::Delta, "delta"),
    (Resync::Snapshot, "snapshot"),
    (Resync::Correction, "correction"),
    (Resync::Diverged, "diverged"),
];

const ERROR_KINDS: [(ErrorKind, &str); 6] = [
    (ErrorKind::Connect, "connect"),
    (ErrorKind::Link, "link"),
    (ErrorKind::Malformed, "malformed"),
    (ErrorKind::Refused, "refused"),
    (ErrorKind::Session, "session"),
    (ErrorKind::OutboxFull, "outbox_full"),
];

#[derive(Debug)]
struct Handles {
    node: String,
    families: EdgeMetrics,
    streams: Mutex<BTreeMap<StreamId, StreamHandles>>,
    batch_changes: Histogram,
    apply_seconds: Histogram,
    sync_seconds: Histogram,
    propagation_seconds: Histogram,
    resyncs: [IntCounter; RESYNCS.len()],
    outbox_records: IntGauge,
    outbox_bytes: IntGauge,
    outbox_dropped: IntCounter,
    connected: IntGauge,
    last_contact: Gauge,
    last_meta_sync: Gauge,
    sessions: IntCounter,
    waiting_pushes: IntGauge,
    watches: IntGauge,
    watches_ended: IntCounter,
    errors: [IntCounter; ERROR_KINDS.len()],
}

#[derive(Debug)]
struct StreamHandles {
    applied: IntGauge,
    durable: IntGauge,
    tail: IntGauge,
    lag: IntGauge,
}

impl EdgeMetrics {
    /// Registers the families.
    ///
    /// # Errors
    /// When one is registered already.
    pub fn new(registry: &Registry) -> Result<Self, Error> {
        let to = |collector: Box<dyn Collector>| registry.register(collector);
        let gauge = |name, help, labels: &[&str]| {
            let gauge = IntGaugeVec::new(Opts::new(name, help), labels)?;
            to(Box::new(gauge.clone())).map(|()| gauge)
        };
        let time = |name, help| {
            let gauge = GaugeVec::new(Opts::new(name, help), &["node"])?;
            to(Box::new(gauge.clone())).map(|()| gauge)
        };
        let counter = |name, help, labels: &[&str]| {
            let counter = IntCounterVec::new(Opts::new(name, help), labels)?;
            to(Box::new(counter.clone())).map(|()| counter)
        };
        let histogram = |name, help, buckets: &[f64]| {
            let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
            let histogram = HistogramVec::new(options, &["node"])?;
            to(Box::new(histogram.clone())).map(|()| histogram)
        };
        let (of_node, of_stream) = (&["node"], &["node", "stream"]);
        Ok(Self {
            applied: gauge(
                "headwater_edge_applied_seq",
                "The last event of a stream that is in the node's view.",
                of_stream,
            )?,
            durable: gauge(
                "headwater_edge_durable_seq",
                "The last event of a stream that is on the node's disk.",
                of_stream,
            )?,
            tail: gauge(
                "headwater_edge_tail_seq",
                "The last event of a stream that a hub has told of; 0: none yet.",
                of_stream,
            )?,
            lag: gauge(
                "headwater_edge_replication_lag_events",
                "Events of a stream that a hub has told of and that are not in the node's view.",
                of_stream,
            )?,
            batch_changes: histogram(
                "headwater_edge_apply_batch_changes",
                "Changes that one commit gathered.",
                &CHANGES,
            )?,
            apply_seconds: histogram(
                "headwater_edge_apply_duration_seconds",
                "How long a batch took to fold and commit, without syncing it.",
                &SECONDS,
            )?,
            sync_seconds: histogram(
                "headwater_edge_sync_duration_seconds",
                "How long it took to sync what is applied to disk.",
                &SECONDS,
            )?,
            propagation_seconds: histogram(
                "headwater_edge_propagation_seconds",
                "From an event's writing in the cloud, by its clock, to when watchers on the node \
                 may see it, by the node's; only events that came one by one.",
                &SECONDS,
            )?,
            resyncs: counter(
                "headwater_edge_resyncs_total",
                "Times that a stream was brought forward otherwise than event by event.",
                &["node", "reason"],
            )?,
            outbox_records: gauge(
                "headwater_edge_outbox_records",
                "Reports that the cloud has not acknowledged.",
                of_node,
            )?,
            outbox_bytes: gauge(
                "headwater_edge_outbox_bytes",
                "Bytes of reports that the cloud has not acknowledged.",
                of_node,
            )?,
            outbox_dropped: counter(
                "headwater_edge_outbox_dropped_total",
                "Messages of functions that gave way in a full outbox.",
                of_node,
            )?,
            connected: gauge(
                "headwater_edge_connected",
                "Whether a hub has welcomed the node's session (1) or not (0).",
                of_node,
            )?,
            last_contact: time(
                "headwater_edge_last_contact_timestamp_seconds",
                "When a hub last said anything, in seconds since the Unix epoch; 0: never.",
            )?,
            last_meta_sync: time(
                "headwater_edge_last_meta_sync_timestamp_seconds",
                "When the pod status snapshot was last derived, in seconds since the Unix epoch; \
                 0: never.",
            )?,
            sessions: counter(
                "headwater_edge_sessions_total",
                "Sessions that a hub has welcomed.",
                of_node,
            )?,
            waiting_pushes: gauge(
                "headwater_edge_waiting_pushes",
                "Pushes that were received and wait to be applied.",
                of_node,
            )?,
            watches: gauge("headwater_edge_watches", "Watches of the node's view.", of_node)?,
            watches_ended: counter(
                "headwater_edge_lagging_watches_total",
                "Watches that were ended because they did not keep up.",
                of_node,
            )?,
            errors: counter(
                "headwater_edge_errors_total",
                "What went wrong, by kind.",
                &["node", "kind"],
            )?,
        })
    }

    /// What the edge of `node` counts: the same, whenever it is asked for.
    pub fn of(&self, node: &NodeName) -> EdgeCounts {
        let of = [node.as_str()];
        let resyncs =
            RESYNCS.map(|(_, reason)| self.resyncs.with_label_values(&[node.as_str(), reason]));
        let errors =
            ERROR_KINDS.map(|(_, kind)| self.errors.with_label_values(&[node.as_str(), kind]));
        EdgeCounts(Some(Arc::new(Handles {
            node: node.to_string(),
            streams: Mutex::default(),
            batch_changes: self.batch_changes.with_label_values(&of),
            apply_seconds: self.apply_seconds.with_label_values(&of),
            sync_seconds: self.sync_seconds.with_label_values(&of),
            propagation_seconds: self.propagation_seconds.with_label_values(&of),
            resyncs,
            outbox_records: self.outbox_records.with_label_values(&of),
            outbox_bytes: self.outbox_bytes.with_label_values(&of),
            outbox_dropped: self.outbox_dropped.with_label_values(&of),
            connected: self.connected.with_label_values(&of),
            last_contact: self.last_contact.with_label_values(&of),
            last_meta_sync: self.last_meta_sync.with_label_values(&of),
            sessions: self.sessions.with_label_values(&of),
            waiting_pushes: self.waiting_pushes.with_label_values(&of),
            watches: self.watches.with_label_values(&of),
            watches_ended: self.watches_ended.with_label_values(&of),
            errors,
            families: self.clone(),
        })))
    }
}

impl EdgeCounts {
    /// Whether anything is counted: a clock need not be read otherwise.
    pub(crate) fn counts(&self) -> bool {
        self.0.is_some()
    }

    /// A batch of `changes` was folded and committed.
    pub(crate) fn applied(&self, changes: usize, took: Duration) {
        let Some(handles) = &self.0 else { return };
        handles.batch_changes.observe(f64::from(u32::try_from(changes).unwrap_or(u32::MAX)));
        handles.apply_seconds.observe(took.as_secs_f64());
    }

    /// What is applied was synced.
    pub(crate) fn synced(&self, took: Duration) {
        if let Some(handles) = &self.0 {
            handles.sync_seconds.observe(took.as_secs_f64());
        }
    }

    /// An event written at `written_ms` may be seen at `now_ms`; clocks of two machines may
    /// disagree about which was first.
    pub(crate) fn propagated(&self, written_ms: i64, now_ms: i64) {
        if let Some(handles) = &self.0 {
            let ms = u64::try_from(now_ms.saturating_sub(written_ms)).unwrap_or(0);
            handles.propagation_seconds.observe(Duration::from_millis(ms).as_secs_f64());
        }
    }

    /// A stream was brought forward by other means than its tail.
    pub(crate) fn resynced(&self, by: Resync) {
        if let Some(handles) = &self.0 {
            count(&handles.resyncs, &RESYNCS, by);
        }
    }

    /// Something went wrong.
    pub(crate) fn failed(&self, how: ErrorKind) {
        if let Some(handles) = &self.0 {
            count(&handles.errors, &ERROR_KINDS, how);
        }
    }

    /// Where the streams stand, all of them.
    pub(crate) fn streams(&self, streams: &[EdgeStreamStatus]) {
        let Some(handles) = &self.0 else { return };
        let (families, node) = (&handles.families, handles.node.as_str());
        let mut known = handles.streams.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|stream, _| {
            let is_there = streams.iter().any(|there| there.stream == *stream);
            if !is_there {
                let labels = [node, &stream.to_string()];
                for family in [&families.applied, &families.durable, &families.tail, &families.lag]
                {
                    // It is there, for its handle is.
                    let _ = family.remove_label_values(&labels);
                }
            }
            is_there
        });
        for stream in streams {
            let of = known.entry(stream.stream.clone()).or_insert_with(|| {
                let labels = [node, &stream.stream.to_string()];
                StreamHandles {
                    applied: families.applied.with_label_values(&labels),
                    durable: families.durable.with_label_values(&labels),
                    tail: families.tail.with_label_values(&labels),
                    lag: families.lag.with_label_values(&labels),
                }
            });
            of.set(stream);
        }
    }

    /// What the outbox holds.
    pub(crate) fn outbox(&self, records: usize, bytes: usize) {
        let Some(handles) = &self.0 else { return };
        handles.outbox_records.set(i64::try_from(records).unwrap_or(i64::MAX));
        handles.outbox_bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// Messages gave way in the full outbox.
    pub(crate) fn gave_way(&self, messages: u64) {
        if let Some(handles) = &self.0 {
            handles.outbox_dropped.inc_by(messages);
        }
    }

    /// The pod status snapshot was derived.
    pub(crate) fn meta_synced(&self, now_ms: i64) {
        if let Some(handles) = &self.0 {
            handles.last_meta_sync.set(seconds(now_ms));
        }
    }

    /// Whether a hub has welcomed the session.
    pub(crate) fn connected(&self, connected: bool) {
        let Some(handles) = &self.0 else { return };
        handles.connected.set(connected.into());
        handles.sessions.inc_by(connected.into());
    }

    /// A hub said something.
    pub(crate) fn heard(&self, now_ms: i64) {
        if let Some(handles) = &self.0 {
            handles.last_contact.set(seconds(now_ms));
        }
    }

    /// Pushes wait to be applied.
    pub(crate) fn waiting(&self, pushes: usize) {
        if let Some(handles) = &self.0 {
            handles.waiting_pushes.set(i64::try_from(pushes).unwrap_or(i64::MAX));
        }
    }

    /// So many watches are open, and so many were ended because they lag.
    pub(crate) fn watches(&self, open: usize, newly_ended: u64) {
        let Some(handles) = &self.0 else { return };
        handles.watches.set(i64::try_from(open).unwrap_or(i64::MAX));
        handles.watches_ended.inc_by(newly_ended);
    }
}

impl StreamHandles {
    fn set(&self, stream: &EdgeStreamStatus) {
        let number = |seq: u64| i64::try_from(seq).unwrap_or(i64::MAX);
        let applied = stream.applied.map_or(0, |checkpoint| checkpoint.seq.0);
        let tail = stream.tail.0;
        self.applied.set(number(applied));
        self.durable.set(number(stream.durable.0));
        self.tail.set(number(tail));
        self.lag.set(number(tail.saturating_sub(applied)));
    }
}

impl Resync {
    /// How a push of this mode counts.
    pub(crate) fn by(mode: AdvanceMode) -> Option<Self> {
        match mode {
            AdvanceMode::Tail => None,
            AdvanceMode::Delta => Some(Self::Delta),
            AdvanceMode::Snapshot => Some(Self::Snapshot),
            AdvanceMode::Correction => Some(Self::Correction),
        }
    }
}

fn count<K: PartialEq>(counters: &[IntCounter], kinds: &[(K, &str)], kind: K) {
    let counter = kinds.iter().zip(counters).find(|((known, _), _)| *known == kind);
    if let Some((_, counter)) = counter {
        counter.inc();
    }
}

fn seconds(ms: i64) -> f64 {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0)).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use headwater_event::{Checkpoint, Seq, StateHash};
    use prometheus::TextEncoder;

    use super::*;

    fn counted() -> (Registry, EdgeMetrics) {
        let registry = Registry::new();
        let metrics = EdgeMetrics::new(&registry).expect("names");
        (registry, metrics)
    }

    fn node(name: &str) -> NodeName {
        NodeName::try_from(name.to_owned()).expect("a name")
    }

    fn text(registry: &Registry) -> String {
        TextEncoder::new().encode_to_string(&registry.gather()).expect("text")
    }

    fn stream(stream: StreamId, tail: u64) -> EdgeStreamStatus {
        EdgeStreamStatus {
            stream,
            tail: Seq(tail),
            received: Seq(0),
            applied: None::<Checkpoint>,
            hash: StateHash::default(),
            durable: Seq(0),
            stopped: false,
        }
    }

    #[test]
    fn nodes_share_families_and_each_counts_for_itself() {
        let (registry, metrics) = counted();
        let (a, b) = (metrics.of(&node("a")), metrics.of(&node("b")));
        a.failed(ErrorKind::Link);
        a.failed(ErrorKind::Link);
        b.connected(true);
        b.propagated(1_000, 1_250);
        b.propagated(9_000, 1_000);
        let text = text(&registry);
        for line in [
            "headwater_edge_errors_total{kind=\"link\",node=\"a\"} 2",
            "headwater_edge_errors_total{kind=\"link\",node=\"b\"} 0",
            "headwater_edge_connected{node=\"b\"} 1",
            "headwater_edge_sessions_total{node=\"b\"} 1",
            // The clock of the cloud may be ahead.
            "headwater_edge_propagation_seconds_sum{node=\"b\"} 0.25",
            "headwater_edge_propagation_seconds_count{node=\"b\"} 2",
        ] {
            assert!(text.lines().any(|said| said == line), "{line} in\n{text}");
        }
        let again = EdgeMetrics::new(&registry);
        assert!(again.is_err(), "families are registered once");
    }

    #[test]
    fn a_stream_that_is_dropped_is_no_longer_told_of() {
        let (registry, metrics) = counted();
        let counts = metrics.of(&node("a"));
        let (own, shared) = (StreamId::node(&node("a")), StreamId::Cluster);
        counts.streams(&[stream(own.clone(), 7), stream(shared, 3)]);
        let lag = |of: &str, lag: u64| {
            let series = "headwater_edge_replication_lag_events";
            format!("{series}{{node=\"a\",stream=\"{of}\"}} {lag}\n")
        };
        assert!(text(&registry).contains(&lag("node/a", 7)), "{}", text(&registry));
        assert!(text(&registry).contains(&lag("cluster", 3)));
        counts.streams(&[stream(own, 8)]);
        assert!(text(&registry).contains(&lag("node/a", 8)));
        assert!(!text(&registry).contains("stream=\"cluster\""), "{}", text(&registry));
    }
}
