//! The counts of one edge: handles that are bound once, so that counting is an atomic addition.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use headwater_event::StreamId;
use headwater_session::EdgeStreamStatus;
use prometheus::{Gauge, Histogram, IntCounter, IntGauge};

use super::EdgeMetrics;
use super::kinds::{ERROR_KINDS, ErrorKind, RESYNCS, Resync};

/// The counts of one edge; without a registry they do nothing. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct EdgeCounts(pub(super) Option<Arc<Handles>>);

/// The handles of one node.
#[derive(Debug)]
pub(super) struct Handles {
    pub(super) node: String,
    pub(super) families: EdgeMetrics,
    pub(super) streams: Mutex<BTreeMap<StreamId, StreamHandles>>,
    pub(super) batch_changes: Histogram,
    pub(super) apply_seconds: Histogram,
    pub(super) sync_seconds: Histogram,
    pub(super) propagation_seconds: Histogram,
    pub(super) resyncs: [IntCounter; RESYNCS.len()],
    pub(super) outbox_records: IntGauge,
    pub(super) outbox_bytes: IntGauge,
    pub(super) outbox_dropped: IntCounter,
    pub(super) reports_refused: IntCounter,
    pub(super) connected: IntGauge,
    pub(super) last_contact: Gauge,
    pub(super) last_meta_sync: Gauge,
    pub(super) sessions: IntCounter,
    pub(super) waiting_pushes: IntGauge,
    pub(super) watches: IntGauge,
    pub(super) watches_ended: IntCounter,
    pub(super) errors: [IntCounter; ERROR_KINDS.len()],
}

/// The handles of one stream of a node.
#[derive(Debug)]
pub(super) struct StreamHandles {
    applied: IntGauge,
    durable: IntGauge,
    tail: IntGauge,
    lag: IntGauge,
}

impl EdgeCounts {
    /// Whether there are metrics. Without them a caller need not read a clock.
    pub(crate) fn counts(&self) -> bool {
        self.0.is_some()
    }

    /// Counts a batch of `changes` that was folded and committed.
    pub(crate) fn applied(&self, changes: usize, took: Duration) {
        let Some(handles) = &self.0 else { return };
        handles.batch_changes.observe(f64::from(u32::try_from(changes).unwrap_or(u32::MAX)));
        handles.apply_seconds.observe(took.as_secs_f64());
    }

    /// Counts a sync of what is applied.
    pub(crate) fn synced(&self, took: Duration) {
        if let Some(handles) = &self.0 {
            handles.sync_seconds.observe(took.as_secs_f64());
        }
    }

    /// Counts an event that was written at `written_ms` and became visible at `now_ms`. The clocks are
    /// of two machines, so the second may be the smaller one.
    pub(crate) fn propagated(&self, written_ms: i64, now_ms: i64) {
        if let Some(handles) = &self.0 {
            let ms = u64::try_from(now_ms.saturating_sub(written_ms)).unwrap_or(0);
            handles.propagation_seconds.observe(Duration::from_millis(ms).as_secs_f64());
        }
    }

    /// Counts a delta, snapshot or correction of a stream.
    pub(crate) fn resynced(&self, by: Resync) {
        if let Some(handles) = &self.0 {
            count(&handles.resyncs, &RESYNCS, by);
        }
    }

    /// Counts an error.
    pub(crate) fn failed(&self, kind: ErrorKind) {
        if let Some(handles) = &self.0 {
            count(&handles.errors, &ERROR_KINDS, kind);
        }
    }

    /// Sets the positions of all streams. A stream that is missing loses its series.
    pub(crate) fn streams(&self, streams: &[EdgeStreamStatus]) {
        let Some(handles) = &self.0 else { return };
        let (families, node) = (&handles.families, handles.node.as_str());
        let mut known = handles.streams.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|stream, _| {
            let exists = streams.iter().any(|other| other.stream == *stream);
            if !exists {
                let labels = [node, &stream.to_string()];
                for family in [&families.applied, &families.durable, &families.tail, &families.lag]
                {
                    // The series exists, because its handle does.
                    let _ = family.remove_label_values(&labels);
                }
            }
            exists
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

    /// Sets the size of the outbox.
    pub(crate) fn outbox(&self, records: usize, bytes: usize) {
        let Some(handles) = &self.0 else { return };
        handles.outbox_records.set(i64::try_from(records).unwrap_or(i64::MAX));
        handles.outbox_bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// Counts messages that the full outbox discarded.
    pub(crate) fn discarded(&self, messages: u64) {
        if let Some(handles) = &self.0 {
            handles.outbox_dropped.inc_by(messages);
        }
    }

    /// Counts a report that the cloud refused.
    pub(crate) fn refused(&self) {
        if let Some(handles) = &self.0 {
            handles.reports_refused.inc();
        }
    }

    /// Sets when the pod status snapshot was last derived.
    pub(crate) fn meta_synced(&self, now_ms: i64) {
        if let Some(handles) = &self.0 {
            handles.last_meta_sync.set(seconds(now_ms));
        }
    }

    /// Sets whether a hub has welcomed the session, and counts a welcome.
    pub(crate) fn connected(&self, connected: bool) {
        let Some(handles) = &self.0 else { return };
        handles.connected.set(connected.into());
        handles.sessions.inc_by(connected.into());
    }

    /// Sets when a hub last sent a message.
    pub(crate) fn contacted(&self, now_ms: i64) {
        if let Some(handles) = &self.0 {
            handles.last_contact.set(seconds(now_ms));
        }
    }

    /// Sets how many pushes wait to be applied.
    pub(crate) fn waiting(&self, pushes: usize) {
        if let Some(handles) = &self.0 {
            handles.waiting_pushes.set(i64::try_from(pushes).unwrap_or(i64::MAX));
        }
    }

    /// Sets how many watches are open, and counts those that were ended because they lagged.
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

fn count<K: PartialEq>(counters: &[IntCounter], kinds: &[(K, &str)], kind: K) {
    let counter = kinds.iter().zip(counters).find(|((known, _), _)| *known == kind);
    if let Some((_, counter)) = counter {
        counter.inc();
    }
}

fn seconds(ms: i64) -> f64 {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0)).as_secs_f64()
}
