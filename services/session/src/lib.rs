//! The replication protocol as a pure state machine, both ends.
//!
//! No socket, no clock, no task: inputs go in, outputs come out. A shell feeds [`EdgeSession`] or
//! [`HubSession`] with what happened and does what comes out, in order. [`message`] holds what
//! the two ends say; `headwater-proto` puts it on the wire.
//!
//! | module | what it owns |
//! |---|---|
//! | [`message`] | what the two ends say to each other |
//! | [`edge`] | the edge's end: checks every push, offers reports |
//! | [`hub`] | the hub's end: decides tail, delta or snapshot, keeps the window |
//! | [`comparison`] | which of the hub's entries an edge has already |
//! | [`source`] | what the hub's end reads of the hub's fold |
//! | [`memory_source`] | a fold in memory, for tests and simulation |
//! | [`registry`] | which session speaks for a node; clones |
//! | [`settings`] | the bounds |

pub mod comparison;
pub mod edge;
pub mod hub;
pub mod memory_source;
pub mod message;
pub mod registry;
pub mod report_codec;
pub mod settings;
pub mod source;

pub use comparison::Comparison;
pub use edge::{
    EdgeCloseReason, EdgeInput, EdgeOutput, EdgeSession, EdgeState, EdgeStreamStatus, PushFault,
    StreamStop,
};
pub use hub::{HubCloseReason, HubInput, HubOutput, HubSession, HubStreamStatus, Violation};
pub use memory_source::{FoldOrderError, MemorySource};
pub use registry::{Admission, SessionId, SessionRegistry};
pub use settings::{EdgeSettings, HubSettings};
pub use source::{
    CatchUp, CatchUpPart, FoldStatus, Readiness, SourceError, StreamSource, TailEvent,
};
