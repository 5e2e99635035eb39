//! What passes through the sockets of edges.

use prometheus::IntCounter;

use super::Families;

/// What the sockets of a hub count together.
#[derive(Clone)]
pub(crate) struct WireMetrics {
    connections: IntCounter,
    /// Bytes read.
    pub(crate) received: IntCounter,
    /// Bytes written.
    pub(crate) sent: IntCounter,
}

impl WireMetrics {
    pub(super) fn new(families: &Families<'_>) -> Result<Self, prometheus::Error> {
        Ok(Self {
            connections: families.counter(
                "headwater_hub_connections_total",
                "Connections that were taken up, whatever became of them.",
            )?,
            received: families.counter(
                "headwater_hub_received_bytes_total",
                "Bytes that were read from them, framing and TLS included.",
            )?,
            sent: families.counter(
                "headwater_hub_sent_bytes_total",
                "Bytes that were written to them, framing and TLS included.",
            )?,
        })
    }

    /// A connection is taken up.
    pub(crate) fn connected(&self) {
        self.connections.inc();
    }
}
