//! What an edge says in one session, without saying anything twice.
//!
//! ```text
//!   edge                                    hub
//!   EdgeMessage -> EdgeMessageEncoder -> short form -> EdgeMessageDecoder -> EdgeMessage
//!                  keeps bodies             has the same bodies kept (BaseStore)
//! ```
//!
//! A session is one ordered stream, so both ends know what was said in it. A report's body goes as
//! a patch against the last one of its key, or against another one where it is the first of its key;
//! its id, what it comes after, and all of a closing snapshot but its hash follow from what was
//! said before. The edge chooses what is kept and under which number; the hub holds it to the bounds
//! below and needs no index. With the session all of it is forgotten.

mod decoder;
mod encoder;
mod frame;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::convert::Infallible;

use bytes::Bytes;
use headwater_event::ReportId;

use super::WireError;
pub use decoder::EdgeMessageDecoder;
pub use encoder::EdgeMessageEncoder;

/// Bodies that are kept in a session: one for each pod of a large node, and room for its Node and
/// what functions say. Both ends go by it: a body is kept under a number from 1 to this.
pub const BASES_MAX: u32 = 512;

/// Bytes of a body that is kept: statuses have one to four KiB. With [`BASES_MAX`] this bounds what a
/// session can make its hub keep to 8 MiB. A larger body goes whole each time.
pub const BASE_BYTES_MAX: usize = 16 << 10;

/// What the packed bodies of one message may come to: as much as a message that is not packed.
pub const UNPACKED_BYTES_MAX: usize = 4 << 20;

/// What a hub keeps for one session.
pub trait BaseStore {
    /// Why something cannot be kept, or read again.
    type Error;

    /// What is kept under `number`.
    ///
    /// # Errors
    /// When it cannot be read; it says nothing of the edge.
    fn get(&mut self, number: u32) -> Result<Option<Bytes>, Self::Error>;

    /// Keeps `body` under `number`, in place of what was kept there.
    ///
    /// # Errors
    /// When it cannot be kept; it says nothing of the edge.
    fn put(&mut self, number: u32, body: Bytes) -> Result<(), Self::Error>;
}

/// Why a message was not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EdgeMessageError<E> {
    /// It is not one of the protocol.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// What was kept cannot be reached.
    #[error("what was said in this session cannot be kept or read")]
    Store(#[source] E),
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

/// The id that a report has which does not say it.
fn next(id: ReportId) -> Option<ReportId> {
    Some(ReportId { seq: id.seq.checked_add(1)?, ..id })
}
