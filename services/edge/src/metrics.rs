//! The metrics of an edge. Several edges may share a process, so each family has a label `node`.

mod counts;
mod kinds;

use std::sync::{Arc, Mutex};

use headwater_event::NodeName;
use prometheus::{
    Error, GaugeVec, HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Registry,
    register_gauge_vec_with_registry, register_histogram_vec_with_registry,
    register_int_counter_vec_with_registry, register_int_gauge_vec_with_registry,
};

pub use self::counts::EdgeCounts;
use self::counts::Handles;
use self::kinds::{ERROR_KINDS, RESYNCS};
pub(crate) use self::kinds::{ErrorKind, Resync};

/// Buckets of durations, in seconds: from a quick commit to a minute on a slow network.
pub(crate) const SECONDS: [f64; 15] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];

/// Buckets of batches, in changes: up to the most of one commit.
const CHANGES: [f64; 8] = [1.0, 4.0, 16.0, 64.0, 256.0, 1_024.0, 4_096.0, 16_384.0];

/// The metric families of all edges of a process.
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
    reports_refused: IntCounterVec,
    connected: IntGaugeVec,
    last_contact: GaugeVec,
    last_meta_sync: GaugeVec,
    sessions: IntCounterVec,
    waiting_pushes: IntGaugeVec,
    watches: IntGaugeVec,
    watches_ended: IntCounterVec,
    errors: IntCounterVec,
}

impl EdgeMetrics {
    /// Registers the families.
    ///
    /// # Errors
    /// When one is registered already.
    pub fn new(registry: &Registry) -> Result<Self, Error> {
        let gauge = |name: &str, help: &str, labels: &[&str]| {
            register_int_gauge_vec_with_registry!(name, help, labels, registry)
        };
        let time = |name: &str, help: &str| {
            register_gauge_vec_with_registry!(name, help, &["node"], registry)
        };
        let counter = |name: &str, help: &str, labels: &[&str]| {
            register_int_counter_vec_with_registry!(name, help, labels, registry)
        };
        let histogram = |name: &str, help: &str, buckets: &[f64]| {
            let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
            register_histogram_vec_with_registry!(options, &["node"], registry)
        };
        let (of_node, of_stream): (&[&str], &[&str]) = (&["node"], &["node", "stream"]);
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
                "The last event of a stream that a hub has announced; 0: none yet.",
                of_stream,
            )?,
            lag: gauge(
                "headwater_edge_replication_lag_events",
                "Events of a stream that a hub has announced and that are not in the node's view.",
                of_stream,
            )?,
            batch_changes: histogram(
                "headwater_edge_apply_batch_changes",
                "Changes in one commit.",
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
                "From the writing of an event in the cloud, by its clock, to its visibility on the \
                 node, by the node's; only events that were pushed one by one.",
                &SECONDS,
            )?,
            resyncs: counter(
                "headwater_edge_resyncs_total",
                "Deltas, snapshots and corrections that a stream received.",
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
                "Messages of functions that a full outbox discarded.",
                of_node,
            )?,
            reports_refused: counter(
                "headwater_edge_reports_refused_total",
                "Reports that the cloud never takes, for example because they are too large.",
                of_node,
            )?,
            connected: gauge(
                "headwater_edge_connected",
                "Whether a hub has welcomed the node's session (1) or not (0).",
                of_node,
            )?,
            last_contact: time(
                "headwater_edge_last_contact_timestamp_seconds",
                "When a hub last sent a message, in seconds since the Unix epoch; 0: never.",
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
                "Received pushes that wait to be applied.",
                of_node,
            )?,
            watches: gauge("headwater_edge_watches", "Watches of the node's view.", of_node)?,
            watches_ended: counter(
                "headwater_edge_lagging_watches_total",
                "Watches that were ended because they did not keep up.",
                of_node,
            )?,
            errors: counter("headwater_edge_errors_total", "Errors by kind.", &["node", "kind"])?,
        })
    }

    /// The counts of the edge of `node`. Every call returns the same series.
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
            reports_refused: self.reports_refused.with_label_values(&of),
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

#[cfg(test)]
mod tests {
    use headwater_event::{Checkpoint, Seq, StateHash, StreamId};
    use headwater_session::EdgeStreamStatus;
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
            assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
        }
        let again = EdgeMetrics::new(&registry);
        assert!(again.is_err(), "families are registered once");
    }

    #[test]
    fn a_stream_that_is_dropped_loses_its_series() {
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
