//! The short form in which an edge's reports travel in a session.
//!
//! ```text
//!   edge                                        hub
//!   Reports -> ReportEncoder -> EncodedReports -> ReportDecoder -> Reports
//!              keeps bases                        has the same bases (BaseStore)
//! ```
//!
//! A session is one ordered stream, so both ends know which reports it has carried. The short form
//! leaves out what follows from them:
//!
//! - A body travels as a patch: of the last body of its key, or of the last body sent if its key
//!   is new.
//! - An id that continues the report before it is left out, as is the id of the predecessor.
//! - A closed snapshot that differs from the last one in its hash alone is that hash.
//!
//! The edge chooses which bodies are kept as bases, and under which number. The hub checks the
//! bounds below and needs no index. Both ends forget everything with the session.
//!
//! The bytes of a body come from a [`BodyFormat`], which the wire provides.

mod decoder;
mod encoder;
mod frame;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::convert::Infallible;

use bytes::Bytes;
use headwater_event::{ReportBody, ReportId, StateHash};

pub use decoder::ReportDecoder;
pub use encoder::ReportEncoder;

/// Bases in a session: one for each pod of a large node, and room for its Node object and its
/// messages. A base has a number from 1 to this.
pub const BASES_MAX: u32 = 512;

/// Bytes of a base; pod statuses have one to four KiB. With [`BASES_MAX`] this bounds what a hub
/// keeps for a session to 8 MiB. A larger body travels whole each time.
pub const BASE_BYTES_MAX: usize = 16 << 10;

/// Bytes of all unpacked bodies of one message: as many as a message may have that is not packed.
pub const UNPACKED_BYTES_MAX: usize = 4 << 20;

/// Reports in their short form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedReports {
    /// The report before these.
    pub after: Predecessor,
    /// The reports, ids rising.
    pub reports: Vec<EncodedReport>,
    /// One further report behind the others, with the next id: a closed snapshot that differs from
    /// the last one of this session in this hash alone.
    pub closed: Option<StateHash>,
}

/// The report that was sent before others in the same session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Predecessor {
    /// Its id; `None`: these are the first.
    Id(Option<ReportId>),
    /// The number of reports sent before; at least 1.
    Count(u64),
}

/// A report in its short form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedReport {
    /// `None`: the id behind that of the report before.
    pub id: Option<ReportId>,
    /// W3C trace context.
    pub traceparent: Option<String>,
    /// The body.
    pub body: EncodedBody,
}

/// The body of a report in its short form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EncodedBody {
    /// As it is; it becomes no base.
    Whole(ReportBody),
    /// Compressed.
    Packed {
        /// The zstd frame without its magic number.
        frame: Bytes,
        /// The number of the base that the body becomes; 0: none.
        keep: u32,
    },
    /// Compressed as a patch of a base.
    Patch {
        /// The zstd frame without its magic number.
        frame: Bytes,
        /// The number of the base that the body becomes; 0: none.
        keep: u32,
        /// The number of the base that the patch applies to; 0: that of `keep`.
        base: u32,
    },
}

/// The bytes of a body: what is compressed and kept as a base.
pub trait BodyFormat {
    /// Why bytes are no body.
    type Error;

    /// Encodes a body.
    fn encode(body: &ReportBody) -> Bytes;

    /// Decodes a body.
    ///
    /// # Errors
    /// When the bytes are no body.
    fn decode(bytes: &Bytes) -> Result<ReportBody, Self::Error>;
}

/// The bases that a hub keeps for one session.
pub trait BaseStore {
    /// Why a base cannot be stored or read.
    type Error;

    /// Reads the base under `number`; `None`: there is none.
    ///
    /// # Errors
    /// When the store fails; the edge is not at fault.
    fn get(&mut self, number: u32) -> Result<Option<Bytes>, Self::Error>;

    /// Stores `body` under `number`, in place of the base that is there.
    ///
    /// # Errors
    /// When the store fails; the edge is not at fault.
    fn put(&mut self, number: u32, body: Bytes) -> Result<(), Self::Error>;
}

/// In memory.
impl BaseStore for BTreeMap<u32, Bytes> {
    type Error = Infallible;

    fn get(&mut self, number: u32) -> Result<Option<Bytes>, Infallible> {
        Ok(BTreeMap::get(self, &number).cloned())
    }

    fn put(&mut self, number: u32, body: Bytes) -> Result<(), Infallible> {
        self.insert(number, body);
        Ok(())
    }
}

/// Why reports in their short form cannot be decoded. The session cannot go on afterwards.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReportDecodeError<F, S> {
    /// The short form breaks the protocol.
    #[error(transparent)]
    Report(#[from] ReportFault),
    /// The bytes of a body are no body.
    #[error("the body of a report cannot be decoded")]
    Body(#[source] F),
    /// The store of the bases failed.
    #[error("the bases of the session cannot be stored or read")]
    Store(#[source] S),
}

/// How the short form of reports breaks the protocol.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReportFault {
    /// Reports were lost between the two ends.
    #[error("{sent} reports were sent before, {received} arrived")]
    Missing {
        /// The number that the edge sent.
        sent: u64,
        /// The number that the hub received.
        received: u64,
    },
    /// A report without an id is the first of its session.
    #[error("it has no id, and this session has no report before it")]
    NoPreviousReport,
    /// A hash alone represents a closed snapshot, and the session has none before it.
    #[error("it is the hash of a closed snapshot, and this session has none before it")]
    NoPreviousSnapshot,
    /// A patch of a base that the session does not have.
    #[error("it is a patch of base {number}, which this session does not have")]
    NoBase {
        /// The number of the base.
        number: u32,
    },
    /// A number that no base may have.
    #[error("{number} is above {BASES_MAX}")]
    BaseNumber {
        /// The number.
        number: u32,
    },
    /// A frame that cannot be unpacked.
    #[error("cannot be unpacked: {reason}")]
    Frame {
        /// Whether it is a patch.
        is_patch: bool,
        /// What is wrong with it.
        reason: String,
    },
}

/// The id of a report whose id is left out.
fn next(id: ReportId) -> Option<ReportId> {
    Some(ReportId { seq: id.seq.checked_add(1)?, ..id })
}
