//! The metrics of a hub.
//!
//! No metric has a label for nodes: a hub serves thousands of them. Series that every event updates
//! are looked up once, at the start; series that a session updates once are looked up then.
//!
//! | module | what it owns |
//! |---|---|
//! | `handshake` | TLS handshakes |
//! | `session` | sessions, pushes, requests |
//! | `upstream` | appends of reports and positions |
//! | `fold` | the progress of the fold |
//! | `wire` | connections and their bytes |
//! | `gauges` | values that each scrape computes |

mod fold;
mod gauges;
mod handshake;
mod session;
mod upstream;
mod wire;

use std::sync::Arc;

use headwater_telemetry::Families;
use prometheus::Registry;

pub(crate) use fold::FoldMetrics;
pub(crate) use gauges::{GaugeSource, GaugeValues, HubGauges};
pub(crate) use handshake::{HandshakeMetrics, HandshakeOutcome, LATE};
pub(crate) use session::{EndReason, HelloOutcome, SessionMetrics};
pub(crate) use upstream::{RecordKind, UpstreamMetrics};
pub(crate) use wire::{ConnectionLimit, WireMetrics};

/// The metrics of a hub. Cheap to clone; one per registry.
#[derive(Clone)]
pub struct HubMetrics {
    pub(crate) handshakes: HandshakeMetrics,
    pub(crate) wire: WireMetrics,
    /// Shared by thousands of sessions.
    pub(crate) sessions: Arc<SessionMetrics>,
    pub(crate) upstream: UpstreamMetrics,
    pub(crate) fold: FoldMetrics,
    pub(crate) gauges: HubGauges,
}

impl HubMetrics {
    /// Registers the metrics.
    ///
    /// # Errors
    /// When the registry already has metrics of these names.
    pub fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let families = Families::new(registry);
        let gauges = HubGauges::new()?;
        registry.register(Box::new(gauges.clone()))?;
        Ok(Self {
            handshakes: HandshakeMetrics::new(&families)?,
            wire: WireMetrics::new(&families)?,
            sessions: Arc::new(SessionMetrics::new(&families)?),
            upstream: UpstreamMetrics::new(&families)?,
            fold: FoldMetrics::new(&families)?,
            gauges,
        })
    }
}

/// A count as the value of a gauge.
fn level(count: impl TryInto<i64>) -> i64 {
    count.try_into().unwrap_or(i64::MAX)
}
