//! The bases of report patches, on the hub's disk.
//!
//! Within a session an edge sends a report as a patch of an earlier report of the same key; the
//! hub keeps those earlier bodies. On disk, an idle edge costs the hub no memory for them. They
//! are worthless once the session is over: writes are never synced, a session deletes its own
//! bases at its end, and a hub that starts deletes the bases that a crash left behind.

use std::sync::Arc;

use bytes::Bytes;
use headwater_session::SessionId;
use headwater_session::report_codec::BaseStore;
use headwater_store::{Batch, Durability, Engine, EngineError, Table, TableId};

/// By session and number: a body.
const BASES: Table<(u64, u32), Bytes> = Table::new(TableId::SessionReports);

/// The bases of one session.
pub(crate) struct ReportBases {
    engine: Arc<dyn Engine>,
    session: u64,
    /// The highest number in use.
    highest: u32,
    /// The bases that the current message adds.
    batch: Batch,
}

/// Deletes the bases of all sessions.
///
/// # Errors
/// As the engine.
pub(crate) fn wipe_bases(engine: &dyn Engine) -> Result<(), EngineError> {
    if BASES.chunk(engine, None, 1)?.is_empty() {
        return Ok(());
    }
    let mut batch = Batch::new();
    batch.clear(&BASES);
    batch.write(engine, Durability::Buffered)
}

impl ReportBases {
    /// A session without bases.
    pub(crate) fn new(engine: Arc<dyn Engine>, session: SessionId) -> Self {
        Self { engine, session: session.0, highest: 0, batch: Batch::new() }
    }

    /// Writes the bases that the current message adds.
    ///
    /// # Errors
    /// As the engine.
    pub(crate) fn commit(&mut self) -> Result<(), EngineError> {
        let batch = std::mem::take(&mut self.batch);
        if batch.is_empty() { Ok(()) } else { batch.write(&*self.engine, Durability::Buffered) }
    }
}

impl BaseStore for ReportBases {
    type Error = EngineError;

    fn get(&mut self, number: u32) -> Result<Option<Bytes>, EngineError> {
        self.batch.get(&*self.engine, &BASES, &(self.session, number))
    }

    fn put(&mut self, number: u32, body: Bytes) -> Result<(), EngineError> {
        self.highest = self.highest.max(number);
        self.batch.put(&BASES, &(self.session, number), &body);
        Ok(())
    }
}

impl Drop for ReportBases {
    /// Deletes the rows one by one: a range deletion would cost every later read of the store. Rows
    /// that a failing engine keeps are never read, because a session id is used once.
    fn drop(&mut self) {
        if self.highest == 0 {
            return;
        }
        let mut batch = Batch::new();
        (1..=self.highest).for_each(|number| batch.delete(&BASES, &(self.session, number)));
        if let Err(error) = batch.write(&*self.engine, Durability::Buffered) {
            tracing::debug!(%error, "the report bases of a session stay until the hub restarts");
        }
    }
}

/// The number of bases of all sessions.
#[cfg(test)]
pub(crate) fn base_count(engine: &dyn Engine) -> usize {
    BASES.rows(engine).count()
}

#[cfg(test)]
mod tests {
    use headwater_store::MemoryEngine;

    use super::*;

    #[test]
    fn each_session_has_its_own_bases_and_removes_them() {
        let engine = Arc::new(MemoryEngine::new());
        let mut one = ReportBases::new(engine.clone(), SessionId(1));
        let mut other = ReportBases::new(engine.clone(), SessionId(2));
        one.put(3, Bytes::from_static(b"status")).expect("kept");
        assert_eq!(
            one.get(3).expect("read").as_deref(),
            Some(&b"status"[..]),
            "in its own message"
        );
        one.commit().expect("written");
        assert_eq!(one.get(3).expect("read").as_deref(), Some(&b"status"[..]), "and in later ones");
        assert_eq!(other.get(3).expect("read"), None);
        other.put(512, Bytes::from_static(b"node")).expect("kept");
        other.commit().expect("written");
        assert_eq!(base_count(&*engine), 2);
        drop(one);
        assert_eq!(base_count(&*engine), 1);
        drop(other);
        assert_eq!(base_count(&*engine), 0);
    }

    #[test]
    fn a_hub_that_starts_wipes_the_bases_of_before() {
        let engine = Arc::new(MemoryEngine::new());
        let mut bases = ReportBases::new(engine.clone(), SessionId(1));
        bases.put(1, Bytes::from_static(b"status")).expect("kept");
        bases.commit().expect("written");
        std::mem::forget(bases);
        wipe_bases(&*engine).expect("wiped");
        assert_eq!(base_count(&*engine), 0);
        wipe_bases(&*engine).expect("nothing to do");
    }
}
