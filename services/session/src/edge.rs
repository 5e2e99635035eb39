//! The edge's end of a session.

mod io;

use headwater_event::{Checkpoint, Seq, StateHash, StreamId};

pub use io::{EdgeInput, EdgeOutput, EdgeState, PushFault, SessionEnd, StreamStop};

use crate::settings::EdgeSettings;

/// The edge's end of the protocol, for one start of an edge: lives across connections.
#[derive(Debug)]
pub struct EdgeSession {
    settings: EdgeSettings,
    state: EdgeState,
}

/// Where a stream stands, for `status`: `durable <= applied <= received <= tail`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EdgeStream {
    /// The stream.
    pub stream: StreamId,
    /// The end of the stream at the hub, as last heard; never below `received`.
    pub tail: Seq,
    /// The last event of the pushes received whole.
    pub received: Seq,
    /// What is applied and visible; `None` while the edge holds nothing of the stream.
    pub applied: Option<Checkpoint>,
    /// The state hash at `applied`.
    pub hash: StateHash,
    /// What of `applied` is synced.
    pub durable: Seq,
    /// Whether it differs from the log and waits for a snapshot.
    pub stopped: bool,
}

impl EdgeSession {
    /// A session that stands where the edge's disk stands.
    pub fn new(settings: EdgeSettings, state: EdgeState) -> Self {
        Self { settings, state }
    }

    /// Takes in what happened and says what is to be done, in order. Never panics.
    pub fn step(&mut self, _input: EdgeInput) -> Vec<EdgeOutput> {
        let _ = (&self.settings, &self.state);
        Vec::new()
    }

    /// Whether a hub has welcomed the present connection.
    pub fn is_open(&self) -> bool {
        false
    }

    /// Where every stream stands.
    pub fn streams(&self) -> impl Iterator<Item = EdgeStream> + '_ {
        std::iter::empty()
    }
}
