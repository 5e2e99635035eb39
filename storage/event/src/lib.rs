//! The vocabulary of Headwater: identifiers, positions, events and the state hash.
//!
//! Everything here is a value. Nothing does I/O, knows a clock or a runtime, or depends on
//! another crate of ours; every other crate speaks in these words.
//!
//! | module | what it owns |
//! |---|---|
//! | [`name`] | node names, validated once |
//! | [`key`] | resource keys and the keys of stream entries |
//! | [`stream`] | stream ids and their partition |
//! | [`position`] | seq, log id, writer epoch, checkpoint, offset, cursor |
//! | [`event`] | the events of a stream, and the envelope they travel in |
//! | [`header`] | the binary header of a downstream record |
//! | [`hash`] | the state hash |
//! | [`report`] | what edges say upstream, and the order of what they say |
//! | [`assignment`] | which streams a node has: the object of its `!streams` entry |
//! | [`upstream`] | reports as records of the upstream log |
//! | [`standing`] | where a node stands, as a hub says it |
//! | [`summary`] | what a replica says of its entries, so that another can tell which differ |
//! | [`advance`] | which advances the state of a stream accepts |
//! | [`record`] | keys, headers and values of log records, one place for both topics |

pub mod advance;
pub mod assignment;
pub mod event;
pub mod hash;
pub mod header;
pub mod key;
pub mod name;
pub mod position;
pub mod record;
pub mod report;
pub mod standing;
pub mod stream;
pub mod summary;
pub mod upstream;

pub use advance::{AdvanceBase, AdvanceFault, check_advance};
pub use assignment::{Assignment, AssignmentError};
pub use event::{Applied, Change, Envelope, Event, Removed};
pub use hash::{HashKey, ObjectHash, StateHash};
pub use header::EventHeader;
pub use key::{EntryKey, KeyError, ResourceKey};
pub use name::{NameError, NodeName};
pub use position::{
    Checkpoint, Cursor, LeaderEpoch, LogId, Offset, Partition, Seq, TopicId, WriterEpoch,
};
pub use record::{RecordKey, ReportKey};
pub use report::{Boot, Identity, Incarnation, Report, ReportBody, ReportId};
pub use standing::{NodeStanding, StreamStanding};
pub use stream::StreamId;
pub use summary::{DigestKey, EntryDigest, Gone};
