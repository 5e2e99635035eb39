//! The hub's end of a session.

mod io;

use headwater_event::{Identity, LogId, NodeName, Seq, StreamId};

pub use io::{HubEnd, HubInput, HubOutput, Violation};

use crate::settings::HubSettings;
use crate::source::Source;

/// The hub's end of one connection.
pub struct HubSession {
    settings: HubSettings,
    node: NodeName,
}

/// Where a node stands in a stream:
/// `acked <= durable <= applied <= received <= sent <= tail`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubStream {
    /// The stream.
    pub stream: StreamId,
    /// The log that it is sent from.
    pub log_id: LogId,
    /// The end of the stream in the hub's fold.
    pub tail: Seq,
    /// The last event sent.
    pub sent: Seq,
    /// The last event of the pushes received whole.
    pub received: Seq,
    /// What the edge applied.
    pub applied: Seq,
    /// What the edge synced.
    pub durable: Seq,
    /// What the hub took as acknowledged.
    pub acked: Seq,
    /// Why it is not served, where it is not.
    pub parked: Option<String>,
}

impl HubSession {
    /// The session of a connection whose certificate is for `node`.
    pub fn new(settings: HubSettings, node: NodeName) -> Self {
        Self { settings, node }
    }

    /// Takes in what happened and says what is to be done, in order. Never panics.
    pub fn step(&mut self, _source: &dyn Source, _input: HubInput) -> Vec<HubOutput> {
        let _ = &self.settings;
        Vec::new()
    }

    /// The node that the connection is for.
    pub fn node(&self) -> &NodeName {
        &self.node
    }

    /// Who the edge said it is, once it did.
    pub fn identity(&self) -> Option<&Identity> {
        None
    }

    /// Where the node stands in each of its streams.
    pub fn streams(&self) -> impl Iterator<Item = HubStream> + '_ {
        std::iter::empty()
    }
}
