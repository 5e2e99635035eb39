//! Connections of edges and their bytes.

use prometheus::IntCounter;

use super::Families;

/// The metrics of sockets.
#[derive(Clone)]
pub(crate) struct WireMetrics {
    connections: IntCounter,
    /// See [`ConnectionLimit`].
    closed: [IntCounter; 2],
    /// Bytes read.
    pub(crate) received: IntCounter,
    /// Bytes written.
    pub(crate) sent: IntCounter,
}

/// The limit that an accepted connection exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionLimit {
    /// Connections of the hub.
    Hub,
    /// Connections of one address without a hello.
    Address,
}

impl WireMetrics {
    pub(super) fn new(families: &Families<'_>) -> Result<Self, prometheus::Error> {
        Ok(Self {
            connections: families
                .counter("headwater_hub_connections_total", "Accepted connections.")?,
            closed: families.counters(
                "headwater_hub_connections_closed_total",
                "Connections that the hub closed at once: hub, it has as many as it may; address, \
                 the peer's address has as many without a hello as it may.",
                "limit",
                ["hub", "address"],
            )?,
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

    /// Counts a connection that was closed at once because of `limit`.
    pub(crate) fn closed(&self, limit: ConnectionLimit) {
        let [hub, address] = &self.closed;
        match limit {
            ConnectionLimit::Hub => hub.inc(),
            ConnectionLimit::Address => address.inc(),
        }
    }
}
