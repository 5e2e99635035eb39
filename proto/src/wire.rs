//! Conversions between the wire and the replication protocol.
//!
//! Into the wire always succeeds; from the wire, everything is checked once, here, and trusted
//! from then on. [`WireError`] names the field that is wrong.
//!
//! What an edge says is said and heard in a session, by a [`EdgeMessageEncoder`] and a [`EdgeMessageDecoder`]: they leave
//! out, and put back, what follows from what was said before.

mod edge;
mod edge_codec;
mod hub;
mod packed;
mod position;
mod report;
#[cfg(test)]
mod tests;

pub use edge_codec::{EdgeMessageDecoder, EdgeMessageEncoder, EdgeMessageError};

use headwater_event::stream::StreamIdError;
use headwater_event::{EntryKey, KeyError, NameError, NodeName, ResourceKey, StreamId};
use headwater_session::report_codec::ReportFault;

/// Positions, tails or streams in one message: a node has a handful.
pub const STREAMS_MAX: usize = 1024;

/// Changes in one push; a frame is full before.
pub const CHANGES_MAX: usize = 65_536;

/// Entries of a summary, and those that a correction speaks of.
pub const SUMMARY_ENTRIES_MAX: usize = headwater_session::settings::SUMMARY_ENTRIES_MAX;

/// Reports in one message; the window of a session is far smaller.
pub const REPORTS_MAX: usize = 16_384;

/// A message that is not one of the protocol.
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
    /// A field that must be there is not.
    #[error("missing")]
    Missing,
    /// A value that this version of the protocol does not know.
    #[error("{value} is not known")]
    Unknown {
        /// The value.
        value: i32,
    },
    /// Bytes of a wrong length.
    #[error("{found} bytes, want {want}")]
    Length {
        /// The length it must have.
        want: usize,
        /// The length it has.
        found: usize,
    },
    /// Too many elements.
    #[error("{count} elements, at most {max} are taken")]
    TooMany {
        /// How many there are.
        count: usize,
        /// How many there may be.
        max: usize,
    },
    /// A patch where only whole objects go: in a delta or snapshot, in a removal, or of a reserved
    /// entry.
    #[error("a patch, where only a whole object goes")]
    Patch,
    /// Bytes that are no whole number of elements.
    #[error("{found} bytes, want a multiple of {of}")]
    Multiple {
        /// The length of one element.
        of: usize,
        /// The length there is.
        found: usize,
    },
    /// What is gone, said where nothing was compared.
    #[error("entries that are gone, where only a correction says so")]
    Gone,
    /// A position above one that bounds it.
    #[error("{lower} is above {upper}")]
    OutOfOrder {
        /// What must not be above.
        lower: u64,
        /// What bounds it.
        upper: u64,
    },
    /// It stands for what was said before it in its session, and there is none.
    #[error("it means nothing outside of its session")]
    OutOfSession,
    /// The short form of reports breaks the protocol.
    #[error(transparent)]
    Report(ReportFault),
    /// What is packed cannot be unpacked.
    #[error("cannot be unpacked: {reason}")]
    Packed {
        /// What is wrong with it.
        reason: String,
    },
    /// No key of an entry or a resource.
    #[error("no key")]
    Key(#[source] KeyError),
    /// No stream id.
    #[error("no stream")]
    Stream(#[source] StreamIdError),
    /// No node name.
    #[error("no node name")]
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

/// The wire writes an absent text as an empty one.
fn optional(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}
