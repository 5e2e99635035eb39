//! The bounds of all sessions of a hub together, and their defaults.
//!
//! The bounds of one session are [`headwater_session::HubSettings`]. The bounds here are about
//! connections: how many there are, how fast they come, how long they live, what they carry.

use std::time::Duration;

/// How long a connection may take to send its hello (slowloris). Enough for a round trip of a
/// second.
pub const HELLO_WITHIN: Duration = Duration::from_secs(5);

/// How long a TLS handshake may take: three ways over a network with a round trip of a second.
pub const HANDSHAKE_WITHIN: Duration = Duration::from_secs(5);

/// TLS handshakes at once: a site whose edges all connect within a second. Further connections
/// wait to be accepted.
pub const HANDSHAKES_MAX: usize = 1_024;

/// Connections of one address that have not sent their hello: a quarter of [`HANDSHAKES_MAX`], so
/// that no address keeps the others out. It is enough for a site behind one address: each
/// connection needs some round trips, so a few hundred edges a second pass.
pub const ADDRESS_PENDING_MAX: usize = 256;

/// How long a connection may be silent before the hub pings it. With [`KEEPALIVE_TIMEOUT`] the hub
/// detects a half-open connection before the 45 s after which a silent session ends. An edge sends
/// heartbeats more often, so the hub does not ping an idle one.
pub const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(25);

/// How long the response to a ping may take.
pub const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// TCP's own keepalive, for a connection before HTTP/2.
pub const TCP_KEEPALIVE: Duration = Duration::from_secs(60);

/// Bytes of the largest message from an edge: a full frame of reports with one object of the
/// largest size (1.5 MiB), and room for framing.
pub const RECEIVE_BYTES_MAX: usize = 4 << 20;

/// Bytes of the largest message to an edge: a frame of the session's own bound, or one object of
/// the largest size, and room for framing.
pub const SEND_BYTES_MAX: usize = 4 << 20;

/// Bytes of the largest header list (CONTINUATION floods).
pub const HEADER_LIST_BYTES_MAX: u32 = 16 << 10;

/// Streams of one connection: a session and one that replaces it; or on an edge's second connection 16
/// streams for clients, and the refusals of as many more.
pub const STREAMS_PER_CONNECTION: u32 = 32;

/// Sessions of a hub: twice the ten thousand edges that a hub is made for, so that it can take
/// over from another one. An idle session costs some 10 KiB, and its connection twice that.
pub const SESSIONS_MAX: usize = 20_000;

/// Connections of a hub: its sessions, and room to refuse further ones with a reason.
pub const CONNECTIONS_MAX: usize = SESSIONS_MAX + 4_096;

/// How long a session lives before the hub asks its edge to connect again. Edges thereby spread
/// over all hubs, and the hub checks each certificate again.
pub const CONNECTION_AGE: Duration = Duration::from_secs(6 * 3600);

/// How far the age of a session may differ from [`CONNECTION_AGE`], to either side: edges that
/// connected at once do not leave at once.
pub const CONNECTION_AGE_JITTER: Duration = Duration::from_secs(3600);

/// How much longer than any session a connection lives before the hub closes it.
pub const CONNECTION_AGE_GRACE: Duration = Duration::from_secs(60);

/// Hellos a second that the hub admits. Each costs a handshake and some reads, about a millisecond
/// of one core. A refused edge comes back at a random time.
pub const HELLOS_PER_SECOND: u32 = 500;

/// Hellos that the hub admits at once before the rate holds: the start of a whole site.
pub const HELLOS_AT_ONCE: u32 = 1_000;

/// Hellos a second that the hub admits of one node. An edge waits between its attempts and stays
/// far below; only a loop is slowed down.
pub const NODE_HELLOS_PER_SECOND: u32 = 1;

/// Hellos that the hub admits of one node at once. See [`NODE_HELLOS_PER_SECOND`].
pub const NODE_HELLOS_AT_ONCE: u32 = 10;

/// How long a hub that stops may send goodbyes to its edges, one after the other, so that they do
/// not reach the other hubs at once. The default rate has time for all sessions of a hub, and the
/// whole stop stays below the 30 s that a Kubernetes pod has.
pub const HANDOVER_WITHIN: Duration = Duration::from_secs(20);

/// How many times faster than the steady rate of hellos a hub that stops sends goodbyes. The
/// bursts that the remaining hubs admit absorb the difference, also when they are few.
const HANDOVER_SPEED: u32 = 2;

/// Sessions that may begin a delta or a snapshot at once. Each reads a stream's state from the store.
pub const TRANSFERS_MAX: usize = 64;

/// How long a session may keep its transfer slot. After that another session gets the slot, and a
/// slow edge still receives what its session holds.
pub const TRANSFER_WITHIN: Duration = Duration::from_secs(5);

/// Sessions that may hold a delta or a snapshot in memory at once, slow ones included: some hundred
/// KiB for a node of a hundred pods, some MiB at most. When slow edges hold all of them, another
/// edge waits until one has its transfer, at most as long as a transfer may take.
pub const TRANSFERS_HELD_MAX: usize = 256;

/// Messages that wait for a session's socket. The session's own window bounds their bytes.
pub const OUTBOUND_MESSAGES_MAX: usize = 256;

/// How long a message may wait for room among those. After the time that a silent peer has, the
/// hub drops a session whose edge reads nothing; the edge resumes.
pub const OUTBOUND_WITHIN: Duration = Duration::from_secs(45);

/// Reports a second of one node that the hub appends; the others wait. A node of a hundred pods
/// reports a few, and ten thousand such nodes together far less than a log takes.
pub const NODE_REPORTS_PER_SECOND: u32 = 100;

/// Reports of one node that the hub appends at once: the whole outbox of an edge that was offline.
pub const NODE_REPORTS_AT_ONCE: u32 = 8_192;

/// Groups of reports that wait for the log, over all partitions and edges; each partition has its
/// share. A session queues a few, so only thousands of sessions reach the bound; the others wait in
/// their sessions.
pub const UPSTREAM_GROUPS_MAX: usize = 1_024;

/// Requests of all nodes in flight at once. A further one fails, and its edge asks again.
pub const REQUESTS_MAX: usize = 256;

/// Requests of one node in flight at once. A further one fails, and its edge asks again.
pub const NODE_REQUESTS_MAX: usize = 16;

/// How long an edge may take to confirm a dial before the hub answers the client that the node does not respond: the
/// round trip over a geostationary satellite (0.6 s), and a client has its answer within a second.
pub const DIAL_RECEIPT_WITHIN: Duration = Duration::from_millis(900);

/// The bounds of all sessions of a hub together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubLimits {
    /// See [`HELLO_WITHIN`].
    pub hello_within: Duration,
    /// See [`HANDSHAKE_WITHIN`].
    pub handshake_within: Duration,
    /// See [`HANDSHAKES_MAX`].
    pub handshakes_max: usize,
    /// See [`ADDRESS_PENDING_MAX`].
    pub address_pending_max: usize,
    /// See [`KEEPALIVE_INTERVAL`].
    pub keepalive_interval: Duration,
    /// See [`KEEPALIVE_TIMEOUT`].
    pub keepalive_timeout: Duration,
    /// See [`TCP_KEEPALIVE`].
    pub tcp_keepalive: Duration,
    /// See [`RECEIVE_BYTES_MAX`].
    pub receive_bytes_max: usize,
    /// See [`SEND_BYTES_MAX`].
    pub send_bytes_max: usize,
    /// See [`HEADER_LIST_BYTES_MAX`].
    pub header_list_bytes_max: u32,
    /// See [`STREAMS_PER_CONNECTION`].
    pub streams_per_connection: u32,
    /// See [`SESSIONS_MAX`].
    pub sessions_max: usize,
    /// See [`CONNECTIONS_MAX`].
    pub connections_max: usize,
    /// See [`CONNECTION_AGE`].
    pub connection_age: Duration,
    /// See [`CONNECTION_AGE_JITTER`].
    pub connection_age_jitter: Duration,
    /// See [`CONNECTION_AGE_GRACE`].
    pub connection_age_grace: Duration,
    /// See [`HELLOS_PER_SECOND`].
    pub hellos_per_second: u32,
    /// See [`HELLOS_AT_ONCE`].
    pub hellos_at_once: u32,
    /// See [`NODE_HELLOS_PER_SECOND`].
    pub node_hellos_per_second: u32,
    /// See [`NODE_HELLOS_AT_ONCE`].
    pub node_hellos_at_once: u32,
    /// See [`HANDOVER_WITHIN`].
    pub handover_within: Duration,
    /// See [`TRANSFERS_MAX`].
    pub transfers_max: usize,
    /// See [`TRANSFER_WITHIN`].
    pub transfer_within: Duration,
    /// See [`TRANSFERS_HELD_MAX`].
    pub transfers_held_max: usize,
    /// See [`OUTBOUND_MESSAGES_MAX`].
    pub outbound_messages_max: usize,
    /// See [`OUTBOUND_WITHIN`].
    pub outbound_within: Duration,
    /// See [`NODE_REPORTS_PER_SECOND`].
    pub node_reports_per_second: u32,
    /// See [`NODE_REPORTS_AT_ONCE`].
    pub node_reports_at_once: u32,
    /// See [`UPSTREAM_GROUPS_MAX`].
    pub upstream_groups_max: usize,
    /// See [`REQUESTS_MAX`].
    pub requests_max: usize,
    /// See [`NODE_REQUESTS_MAX`].
    pub node_requests_max: usize,
    /// See [`DIAL_RECEIPT_WITHIN`].
    pub dial_receipt_within: Duration,
}

impl Default for HubLimits {
    fn default() -> Self {
        Self {
            hello_within: HELLO_WITHIN,
            handshake_within: HANDSHAKE_WITHIN,
            handshakes_max: HANDSHAKES_MAX,
            address_pending_max: ADDRESS_PENDING_MAX,
            keepalive_interval: KEEPALIVE_INTERVAL,
            keepalive_timeout: KEEPALIVE_TIMEOUT,
            tcp_keepalive: TCP_KEEPALIVE,
            receive_bytes_max: RECEIVE_BYTES_MAX,
            send_bytes_max: SEND_BYTES_MAX,
            header_list_bytes_max: HEADER_LIST_BYTES_MAX,
            streams_per_connection: STREAMS_PER_CONNECTION,
            sessions_max: SESSIONS_MAX,
            connections_max: CONNECTIONS_MAX,
            connection_age: CONNECTION_AGE,
            connection_age_jitter: CONNECTION_AGE_JITTER,
            connection_age_grace: CONNECTION_AGE_GRACE,
            hellos_per_second: HELLOS_PER_SECOND,
            hellos_at_once: HELLOS_AT_ONCE,
            node_hellos_per_second: NODE_HELLOS_PER_SECOND,
            node_hellos_at_once: NODE_HELLOS_AT_ONCE,
            handover_within: HANDOVER_WITHIN,
            transfers_max: TRANSFERS_MAX,
            transfer_within: TRANSFER_WITHIN,
            transfers_held_max: TRANSFERS_HELD_MAX,
            outbound_messages_max: OUTBOUND_MESSAGES_MAX,
            outbound_within: OUTBOUND_WITHIN,
            node_reports_per_second: NODE_REPORTS_PER_SECOND,
            node_reports_at_once: NODE_REPORTS_AT_ONCE,
            upstream_groups_max: UPSTREAM_GROUPS_MAX,
            requests_max: REQUESTS_MAX,
            node_requests_max: NODE_REQUESTS_MAX,
            dial_receipt_within: DIAL_RECEIPT_WITHIN,
        }
    }
}

impl HubLimits {
    /// The age at which a session ends; `chance` is in `[0, 1)`.
    pub(crate) fn age(&self, chance: f64) -> Duration {
        let earliest = self.connection_age.saturating_sub(self.connection_age_jitter);
        let spread = self.age_max().saturating_sub(earliest);
        earliest.saturating_add(spread.mul_f64(chance.clamp(0.0, 1.0)))
    }

    /// The time between two goodbyes of a hub that stops.
    pub(crate) fn between_goodbyes(&self) -> Duration {
        Duration::from_secs(1) / self.hellos_per_second.max(1).saturating_mul(HANDOVER_SPEED)
    }

    /// The greatest age of a session.
    pub(crate) fn age_max(&self) -> Duration {
        self.connection_age.saturating_add(self.connection_age_jitter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_spread_around_the_setting() {
        let limits = HubLimits::default();
        let hours = |hours: u64| Duration::from_secs(hours * 3600);
        let ages = [0.0, 0.5, 1.0].map(|chance| limits.age(chance));
        assert_eq!(ages, [hours(5), hours(6), hours(7)]);
    }
}
