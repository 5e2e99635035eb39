//! Conversions between the wire and the replication protocol.
//!
//! A conversion into the wire form always succeeds. A conversion from the wire form checks every
//! field once; other crates trust the result. A [`WireError`] names the wrong field.
//!
//! In a session, an [`EdgeMessageEncoder`] and an [`EdgeMessageDecoder`] convert the messages of an
//! edge. They leave out, and restore, what follows from earlier messages.

mod edge;
mod edge_codec;
mod frame;
mod hub;
mod packed;
mod position;
mod presence;
mod report;
#[cfg(test)]
mod tests;

pub use edge_codec::{EdgeMessageDecoder, EdgeMessageEncoder, EdgeMessageError};
pub use frame::HubFrame;

use headwater_event::stream::StreamIdError;
use headwater_event::{EntryKey, KeyError, NameError, NodeName, ResourceKey, StreamId};
use headwater_session::report_codec::ReportFault;

/// Positions, tails or streams in one message: a node has a handful.
pub const STREAMS_MAX: usize = 1024;

/// Changes in one push; the bound on a frame's bytes is reached earlier.
pub const CHANGES_MAX: usize = 65_536;

/// Entries of a summary, and entries that a correction keeps or removes.
pub const SUMMARY_ENTRIES_MAX: usize = headwater_session::settings::SUMMARY_ENTRIES_MAX;

/// Nodes in one presence update: a message of at most 1 MiB has room for so many names.
pub const PRESENCE_NODES_MAX: usize = 4_096;

/// Reports in one message; the window of a session is far smaller.
pub const REPORTS_MAX: usize = 16_384;

/// A message that violates the protocol.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {fault}")]
pub struct WireError {
    /// The field, as the .proto file names it: `Push.to`.
    pub field: &'static str,
    /// What is wrong with it.
    #[source]
    pub fault: WireFault,
}

/// What is wrong with a field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireFault {
    /// A required field is missing.
    #[error("missing")]
    Missing,
    /// The protocol version of this build does not define the value.
    #[error("{value} is not known")]
    Unknown {
        /// The value.
        value: i32,
    },
    /// The bytes have a wrong length.
    #[error("{found} bytes, want {want}")]
    Length {
        /// The required length.
        want: usize,
        /// The actual length.
        found: usize,
    },
    /// There are too many elements.
    #[error("{count} elements, at most {max} are allowed")]
    TooMany {
        /// The actual number.
        count: usize,
        /// The largest number allowed.
        max: usize,
    },
    /// The number of elements is not that of another field.
    #[error("{found} elements, want {want}")]
    Count {
        /// The required number.
        want: usize,
        /// The actual number.
        found: usize,
    },
    /// There is a patch where the protocol requires a whole object: in a delta, snapshot or
    /// correction, in a removal, or of a reserved entry.
    #[error("a patch where only a whole object is allowed")]
    Patch,
    /// The bytes are not a whole number of elements.
    #[error("{found} bytes, want a multiple of {of}")]
    Multiple {
        /// The length of one element.
        of: usize,
        /// The actual length.
        found: usize,
    },
    /// A push other than a correction lists removed entries.
    #[error("removed entries are allowed only in a correction")]
    Gone,
    /// A position is above its bound.
    #[error("{lower} is above {upper}")]
    OutOfOrder {
        /// The position.
        lower: u64,
        /// Its bound.
        upper: u64,
    },
    /// The field refers to earlier messages of its session, and there is no session.
    #[error("it is valid only within a session")]
    OutOfSession,
    /// The short form of reports violates the protocol.
    #[error(transparent)]
    Report(ReportFault),
    /// A packed field cannot be unpacked.
    #[error("cannot be unpacked: {reason}")]
    Packed {
        /// The cause.
        reason: String,
    },
    /// The text is not the key of an entry or a resource.
    #[error("not a key")]
    Key(#[source] KeyError),
    /// The text is not a stream id.
    #[error("not a stream id")]
    Stream(#[source] StreamIdError),
    /// The text is not a node name.
    #[error("not a node name")]
    Node(#[source] NameError),
}

impl WireFault {
    fn of(self, field: &'static str) -> WireError {
        WireError { field, fault: self }
    }
}

fn required<T>(value: Option<T>, field: &'static str) -> Result<T, WireError> {
    value.ok_or(WireFault::Missing.of(field))
}

fn fixed<const N: usize>(bytes: &[u8], field: &'static str) -> Result<[u8; N], WireError> {
    bytes.try_into().map_err(|_| WireFault::Length { want: N, found: bytes.len() }.of(field))
}

fn at_most<T>(elements: &[T], max: usize, field: &'static str) -> Result<(), WireError> {
    let count = elements.len();
    if count <= max { Ok(()) } else { Err(WireFault::TooMany { count, max }.of(field)) }
}

fn stream(text: &str, field: &'static str) -> Result<StreamId, WireError> {
    text.parse().map_err(|error| WireFault::Stream(error).of(field))
}

fn entry_key(text: &str, field: &'static str) -> Result<EntryKey, WireError> {
    text.parse().map_err(|error| WireFault::Key(error).of(field))
}

fn resource_key(text: &str, field: &'static str) -> Result<ResourceKey, WireError> {
    text.parse().map_err(|error| WireFault::Key(error).of(field))
}

fn node_name(text: String, field: &'static str) -> Result<NodeName, WireError> {
    text.try_into().map_err(|error| WireFault::Node(error).of(field))
}

/// Reads an empty text, the wire form of an absent one, as `None`.
fn optional(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}
