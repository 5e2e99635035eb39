//! What the hub counts, for whoever scrapes the process.
//!
//! Nothing is labelled by node: a hub serves thousands of them. What every event touches has its
//! handles bound here, once; what a session touches once is looked up.
//!
//! | module | what it owns |
//! |---|---|
//! | `handshake` | TLS handshakes |
//! | `session` | sessions, pushes, requests |
//! | `upstream` | reports on their way into the log |
//! | `fold` | how far the downstream log is folded |
//! | `wire` | what passes through their sockets |
//! | `scrape` | what is looked up when somebody asks |

mod fold;
mod handshake;
mod scrape;
mod session;
mod upstream;
mod wire;

use headwater_telemetry::Families;
use prometheus::Registry;

pub(crate) use fold::FoldMetrics;
pub(crate) use handshake::{Handshake, HandshakeMetrics};
pub(crate) use scrape::Scrape;
pub(crate) use session::{HelloEnd, SessionMetrics, SessionOver};
pub(crate) use upstream::{RecordKind, UpstreamMetrics};
pub(crate) use wire::WireMetrics;

/// The metrics of a hub. Cheap to clone; one per registry.
#[derive(Clone)]
pub struct HubMetrics {
    pub(crate) handshakes: HandshakeMetrics,
    pub(crate) wire: WireMetrics,
    pub(crate) sessions: SessionMetrics,
    pub(crate) upstream: UpstreamMetrics,
    pub(crate) fold: FoldMetrics,
    pub(crate) scrape: Scrape,
}

impl HubMetrics {
    /// Registers them.
    ///
    /// # Errors
    /// When the registry has metrics of these names already.
    pub fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let families = Families::new(registry);
        let scrape = Scrape::new()?;
        registry.register(Box::new(scrape.clone()))?;
        Ok(Self {
            handshakes: HandshakeMetrics::new(&families)?,
            wire: WireMetrics::new(&families)?,
            sessions: SessionMetrics::new(&families)?,
            upstream: UpstreamMetrics::new(&families)?,
            fold: FoldMetrics::new(&families)?,
            scrape,
        })
    }
}

/// A count as a gauge takes it.
fn level(count: impl TryInto<i64>) -> i64 {
    count.try_into().unwrap_or(i64::MAX)
}
