//! The replication protocol as a pure state machine, both ends.
//!
//! The crate has no socket, no clock and no task. A shell passes each event as an input to
//! [`EdgeSession`] or [`HubSession`] and executes the outputs in order. `headwater-proto` puts the
//! messages on the wire.
//!
//! | module | what it owns |
//! |---|---|
//! | [`message`] | the messages of both ends |
//! | [`edge`] | the edge's end: checks every push, sends reports |
//! | [`hub`] | the hub's end: chooses tail, delta or snapshot, keeps the window |
//! | [`report_codec`] | the short form in which reports travel in a session |
//! | [`comparison`] | the lookup of the hub's entries in an edge's summary |
//! | [`shared_push`] | a push that several sessions send |
//! | [`source`] | the interface through which a hub session reads the hub's fold |
//! | [`memory_source`] | a fold in memory, for tests and simulation |
//! | [`registry`] | the live session of each node, and the clones |
//! | [`known_identity`] | the highest identity of a node |
//! | [`settings`] | the bounds |

pub mod comparison;
pub mod edge;
pub mod hub;
pub mod known_identity;
pub mod memory_source;
pub mod message;
pub mod registry;
pub mod report_codec;
pub mod settings;
pub mod shared_push;
pub mod source;

pub use comparison::Comparison;
pub use edge::{
    EdgeCloseReason, EdgeInput, EdgeOutput, EdgeSession, EdgeState, EdgeStreamStatus, PushFault,
    StreamStop,
};
pub use hub::{
    HubCloseReason, HubInput, HubOutput, HubSession, HubStreamStatus, Violation, tail_push,
};
pub use known_identity::highest_after;
pub use memory_source::{FoldOrderError, MemorySource};
pub use registry::{Admission, SessionId, SessionRegistry};
pub use settings::{EdgeSettings, HubSettings};
pub use shared_push::SharedPush;
pub use source::{
    FoldStatus, Readiness, SourceError, StreamSource, TailEvent, TransferPart, TransferReader,
};
