//! The bodies of a log: objects to which entries of several streams refer.
//!
//! A fold keeps the bodies of a partition as the log has them, in the batch of its entries. A row of
//! an entry then has the address of a body, and a reader of the entry takes the object from there.

use headwater_event::BodyAddress;
use headwater_store::{Batch, EngineError, Folded, Read, Table, TableId};

use super::entry::{Entry, StoredEntry};

/// The bodies, each as an entry without a seq.
pub(crate) const BODIES: Table<BodyAddress, StoredEntry, Folded> = Table::new(TableId::Bodies);

impl StoredEntry {
    /// The entry with its object. If the body is absent, the object is empty: its hash then differs
    /// from the entry's, so no peer accepts it, and the writer appends the object again.
    pub(crate) fn resolve(self, from: &(impl Read + ?Sized)) -> Result<Entry, EngineError> {
        self.with_body(|body| BODIES.get(from, body))
    }

    /// As [`StoredEntry::resolve`], with the rows of a batch over `from`.
    pub(crate) fn resolve_in(
        self,
        batch: &Batch<Folded>,
        from: &(impl Read + ?Sized),
    ) -> Result<Entry, EngineError> {
        self.with_body(|body| batch.get(from, &BODIES, body))
    }

    fn with_body(
        self,
        body: impl FnOnce(&BodyAddress) -> Result<Option<Self>, EngineError>,
    ) -> Result<Entry, EngineError> {
        let Self { mut entry, body: at } = self;
        if let Some(at) = at
            && let Some(body) = body(&at)?
        {
            entry.object = body.entry.object;
        }
        Ok(entry)
    }
}
