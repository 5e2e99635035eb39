//! The bounds of a session, and their defaults.

/// Bytes of pushes in flight to one edge: enough for a few full frames at a long round trip, and
/// few enough that a hub can serve ten thousand slow edges.
pub const WINDOW_BYTES: u64 = 4 << 20;

/// Bytes of changes in one push: leaves room below the 4 MiB that a gRPC message may have. A larger
/// object has a push part of its own.
pub const FRAME_BYTES_MAX: u64 = 1 << 20;

/// Events that a hub sends one by one to an edge that is behind. Beyond them a delta is smaller.
pub const TAIL_EVENTS_MAX: u64 = 1024;

/// Streams of one node: its private one and shared ones.
pub const STREAMS_MAX: usize = 64;

/// Reports sent and not yet acknowledged.
pub const REPORTS_WINDOW: usize = 256;

/// Bytes of reports sent and not yet acknowledged: the statuses of some fifty pods. A hub holds as many while its log takes
/// none, and reads on: acknowledgements, summaries and requests of the edge do not wait behind them.
pub const REPORT_BYTES_WINDOW: u64 = 64 << 10;

/// Reports of one edge that await their append at a hub; a session with more violates the window.
pub const REPORTS_UNAPPENDED_MAX: usize = 4 * REPORTS_WINDOW;

/// Requests of one edge without a response.
pub const REQUESTS_MAX: usize = 64;

/// Pushes that the shell has received and not yet applied; a shell that batches stays far below.
pub const UNAPPLIED_MAX: usize = 65_536;

/// Snapshots that an edge may cause by divergences in one session. After more it connects again
/// after a back-off.
pub const RESETS_MAX: u32 = 8;

/// Entries in a summary, six bytes each: less than half of a full frame. A hub needs some 50 ms to
/// look them up, and keeps nothing of them. An edge with more entries receives a snapshot.
pub const SUMMARY_ENTRIES_MAX: usize = 65_536;

/// How often a hub sends the tails of its streams.
pub const HEARTBEAT_MS: u64 = 10_000;

/// A session ends when its peer has been silent for this long: half-open connections end within
/// 45 s.
pub const SILENCE_MS_MAX: u64 = 45_000;

/// How long a hub delays the welcome while it has not read the beginning of its log. A start takes
/// less time, and the edge does not yet consider the connection dead.
pub const WELCOME_MS_MAX: u64 = 30_000;

/// How long a session is open at least before the hub ends it because the log has a later start of
/// its node. An edge that only listens would not hear of that start otherwise. Two clones at two
/// hubs raise their boot numbers past each other in turns, so each of them connects again, and
/// reports all its pods again, at most once in this time.
pub const OUTRANKED_MS_MIN: u64 = 120_000;

/// The session ends when a transfer takes longer, so that a stalled edge cannot pin an old state of
/// the hub's store.
pub const TRANSFER_MS_MAX: u64 = 300_000;

/// Bounds at the edge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EdgeSettings {
    /// See [`WINDOW_BYTES`].
    pub window_bytes: u64,
    /// Bytes of reports in one message; see [`FRAME_BYTES_MAX`].
    pub frame_bytes_max: u64,
    /// See [`REPORTS_WINDOW`].
    pub reports_window: usize,
    /// See [`REPORT_BYTES_WINDOW`]. A larger report is sent alone.
    pub report_bytes_window: u64,
    /// See [`REQUESTS_MAX`].
    pub requests_max: usize,
    /// See [`UNAPPLIED_MAX`].
    pub unapplied_max: usize,
    /// See [`SUMMARY_ENTRIES_MAX`].
    pub summary_entries_max: usize,
    /// See [`SILENCE_MS_MAX`].
    pub silence_ms_max: u64,
    /// Whether the edge opens streams for clients of the hub.
    pub takes_dials: bool,
}

impl Default for EdgeSettings {
    fn default() -> Self {
        Self {
            window_bytes: WINDOW_BYTES,
            frame_bytes_max: FRAME_BYTES_MAX,
            reports_window: REPORTS_WINDOW,
            report_bytes_window: REPORT_BYTES_WINDOW,
            requests_max: REQUESTS_MAX,
            unapplied_max: UNAPPLIED_MAX,
            summary_entries_max: SUMMARY_ENTRIES_MAX,
            silence_ms_max: SILENCE_MS_MAX,
            takes_dials: false,
        }
    }
}

/// Bounds at the hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubSettings {
    /// See [`WINDOW_BYTES`]; the edge's own window applies too.
    pub window_bytes: u64,
    /// See [`FRAME_BYTES_MAX`].
    pub frame_bytes_max: u64,
    /// See [`TAIL_EVENTS_MAX`].
    pub tail_events_max: u64,
    /// See [`STREAMS_MAX`].
    pub streams_max: usize,
    /// See [`REPORTS_UNAPPENDED_MAX`].
    pub reports_unappended_max: usize,
    /// See [`REQUESTS_MAX`].
    pub requests_max: usize,
    /// See [`RESETS_MAX`].
    pub resets_max: u32,
    /// See [`SUMMARY_ENTRIES_MAX`].
    pub summary_entries_max: usize,
    /// See [`HEARTBEAT_MS`].
    pub heartbeat_ms: u64,
    /// See [`SILENCE_MS_MAX`].
    pub silence_ms_max: u64,
    /// See [`WELCOME_MS_MAX`].
    pub welcome_ms_max: u64,
    /// See [`OUTRANKED_MS_MIN`].
    pub outranked_ms_min: u64,
    /// See [`TRANSFER_MS_MAX`].
    pub transfer_ms_max: u64,
}

impl Default for HubSettings {
    fn default() -> Self {
        Self {
            window_bytes: WINDOW_BYTES,
            frame_bytes_max: FRAME_BYTES_MAX,
            tail_events_max: TAIL_EVENTS_MAX,
            streams_max: STREAMS_MAX,
            reports_unappended_max: REPORTS_UNAPPENDED_MAX,
            requests_max: REQUESTS_MAX,
            resets_max: RESETS_MAX,
            summary_entries_max: SUMMARY_ENTRIES_MAX,
            heartbeat_ms: HEARTBEAT_MS,
            silence_ms_max: SILENCE_MS_MAX,
            welcome_ms_max: WELCOME_MS_MAX,
            outranked_ms_min: OUTRANKED_MS_MIN,
            transfer_ms_max: TRANSFER_MS_MAX,
        }
    }
}
