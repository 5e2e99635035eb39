//! Connections of edges and their bytes.

use prometheus::IntCounter;

use super::Families;

/// The metrics of sockets.
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
            connections: families
                .counter("headwater_hub_connections_total", "Accepted connections.")?,
            received: families.counter(
                "headwater_hub_received_bytes_total",
                "Bytes read from connections, including framing and TLS.",
            )?,
            sent: families.counter(
                "headwater_hub_sent_bytes_total",
                "Bytes written to connections, including framing and TLS.",
            )?,
        })
    }

    /// Counts an accepted connection.
    pub(crate) fn connected(&self) {
        self.connections.inc();
    }
}
