//! What is looked up when somebody asks: sums and maxima over the nodes of this hub.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use headwater_event::{Seq, StreamId};
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Gauge, IntGauge, Opts};

use super::level;
use crate::hub::lag;
use crate::shared::Shared;

/// Gauges of what a running hub holds; absent while none runs.
#[derive(Clone)]
pub(crate) struct Scrape {
    sessions: IntGauge,
    connected: IntGauge,
    disconnected: IntGauge,
    catch_ups: IntGauge,
    lag_sum: IntGauge,
    lag_max: IntGauge,
    lag_seconds: Gauge,
    hub: Arc<Mutex<Weak<Shared>>>,
}

/// How many events a replica lacks, and when the first of them was appended.
type Gap = (u64, Option<i64>);

/// How far the connected nodes are behind.
#[derive(Debug, Default, PartialEq, Eq)]
struct Behind {
    connected: usize,
    disconnected: usize,
    events_sum: u64,
    events_max: u64,
    since_ms: Option<i64>,
}

impl Scrape {
    pub(super) fn new() -> Result<Self, prometheus::Error> {
        let gauge = |name: &str, help: &str| IntGauge::new(name, help);
        let nodes = |state| {
            let opts = Opts::new("headwater_hub_nodes", "Nodes that were connected to this hub.");
            IntGauge::with_opts(opts.const_label("state", state))
        };
        Ok(Self {
            sessions: gauge("headwater_hub_sessions", "Sessions, welcomed or about to be.")?,
            connected: nodes("connected")?,
            disconnected: nodes("disconnected")?,
            catch_ups: gauge(
                "headwater_hub_catch_ups",
                "Sessions whose turn it is to hold a delta or a snapshot in memory.",
            )?,
            lag_sum: gauge(
                "headwater_hub_lag_events",
                "Events that connected nodes have not applied, of all streams and nodes.",
            )?,
            lag_max: gauge(
                "headwater_hub_lag_events_max",
                "Events that the connected node furthest behind in a stream has not applied.",
            )?,
            lag_seconds: Gauge::new(
                "headwater_hub_lag_seconds_max",
                "Age of the oldest event that a connected node has not applied.",
            )?,
            hub: Arc::default(),
        })
    }

    /// Looks at a hub that starts, from now on.
    pub(crate) fn look_at(&self, hub: &Arc<Shared>) {
        *self.hub.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(hub);
    }

    fn gauges(&self) -> [&dyn Collector; 7] {
        [
            &self.sessions,
            &self.connected,
            &self.disconnected,
            &self.catch_ups,
            &self.lag_sum,
            &self.lag_max,
            &self.lag_seconds,
        ]
    }
}

impl Collector for Scrape {
    fn desc(&self) -> Vec<&Desc> {
        self.gauges().into_iter().flat_map(Collector::desc).collect()
    }

    #[expect(clippy::cast_precision_loss, reason = "an age in milliseconds is small")]
    fn collect(&self) -> Vec<MetricFamily> {
        let hub = self.hub.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
        let Some(hub) = hub else { return Vec::new() };
        let behind = Behind::of(&hub);
        self.sessions.set(level(hub.session_count()));
        self.connected.set(level(behind.connected));
        self.disconnected.set(level(behind.disconnected));
        self.catch_ups.set(level(hub.turns.held()));
        self.lag_sum.set(level(behind.events_sum));
        self.lag_max.set(level(behind.events_max));
        let age_ms = behind.since_ms.map_or(0, |since_ms| (hub.wall_clock)() - since_ms);
        self.lag_seconds.set(age_ms.max(0) as f64 / 1000.0);
        self.gauges().into_iter().flat_map(Collector::collect).collect()
    }
}

impl Behind {
    /// Of every node, by one look at the fold. What cannot be read just now is left out.
    fn of(hub: &Shared) -> Self {
        let source = hub.fold.source();
        // Thousands of nodes stand at the same place of a shared stream.
        let mut known: HashMap<(StreamId, Seq), Option<Gap>> = HashMap::new();
        let mut all = Self::default();
        for standing in hub.standings().into_values() {
            if !standing.connected {
                all.disconnected += 1;
                continue;
            }
            all.connected += 1;
            for stream in standing.streams {
                let at = (stream.stream, stream.applied);
                let behind = known.entry(at).or_insert_with_key(|(stream, applied)| {
                    let lag = lag(&source, stream, *applied).ok()?;
                    Some((lag.tail.seq.0.saturating_sub(applied.0), lag.since_ms))
                });
                let Some((events, since_ms)) = *behind else { continue };
                all.events_sum += events;
                all.events_max = all.events_max.max(events);
                all.since_ms = [all.since_ms, since_ms].into_iter().flatten().min();
            }
        }
        all
    }
}
