//! What edges said in their sessions, kept on the hub's disk: what their next reports build on.
//!
//! An idle edge costs the hub no memory for it. It is worth nothing once the session is over, so it
//! is never synced, a session takes its own away with it, and what a crash left is wiped at the next
//! start.

use std::sync::Arc;

use bytes::Bytes;
use headwater_session::SessionId;
use headwater_session::report_codec::BaseStore;
use headwater_store::{Batch, Durability, Engine, EngineError, Table, TableId};

/// By session and number: a body.
const SAID: Table<(u64, u32), Bytes> = Table::new(TableId::SaidReports);

/// What the edge of one session said.
pub(crate) struct SaidReports {
    engine: Arc<dyn Engine>,
    session: u64,
    /// No number above it was used.
    highest: u32,
    /// What the message at hand adds.
    batch: Batch,
}

/// Forgets what was said before the hub started.
///
/// # Errors
/// As the engine.
pub(crate) fn wipe(engine: &dyn Engine) -> Result<(), EngineError> {
    if SAID.chunk(engine, None, 1)?.is_empty() {
        return Ok(());
    }
    let mut batch = Batch::new();
    batch.clear(&SAID);
    batch.write(engine, Durability::Buffered)
}

impl SaidReports {
    /// Nothing yet.
    pub(crate) fn new(engine: Arc<dyn Engine>, session: SessionId) -> Self {
        Self { engine, session: session.0, highest: 0, batch: Batch::new() }
    }

    /// A message was heard: what it adds is kept.
    ///
    /// # Errors
    /// As the engine.
    pub(crate) fn heard(&mut self) -> Result<(), EngineError> {
        let batch = std::mem::take(&mut self.batch);
        if batch.is_empty() { Ok(()) } else { batch.write(&*self.engine, Durability::Buffered) }
    }
}

impl BaseStore for SaidReports {
    type Error = EngineError;

    fn get(&mut self, number: u32) -> Result<Option<Bytes>, EngineError> {
        self.batch.get(&*self.engine, &SAID, &(self.session, number))
    }

    fn put(&mut self, number: u32, body: Bytes) -> Result<(), EngineError> {
        self.highest = self.highest.max(number);
        self.batch.put(&SAID, &(self.session, number), &body);
        Ok(())
    }
}

impl Drop for SaidReports {
    /// One by one, for a range that was removed costs every later read of the store. What an engine
    /// that fails still has is never read: a session's number is not given twice.
    fn drop(&mut self) {
        if self.highest == 0 {
            return;
        }
        let mut batch = Batch::new();
        (1..=self.highest).for_each(|number| batch.delete(&SAID, &(self.session, number)));
        if let Err(error) = batch.write(&*self.engine, Durability::Buffered) {
            tracing::debug!(%error, "what an edge said stays until the hub starts again");
        }
    }
}

/// How many bodies are kept, of all sessions.
#[cfg(test)]
pub(crate) fn rows(engine: &dyn Engine) -> usize {
    SAID.rows(engine).count()
}

#[cfg(test)]
mod tests {
    use headwater_store::MemoryEngine;

    use super::*;

    #[test]
    fn each_session_has_its_own_and_takes_it_away() {
        let engine = Arc::new(MemoryEngine::new());
        let mut one = SaidReports::new(engine.clone(), SessionId(1));
        let mut other = SaidReports::new(engine.clone(), SessionId(2));
        one.put(3, Bytes::from_static(b"status")).expect("kept");
        assert_eq!(one.get(3).expect("read").as_deref(), Some(&b"status"[..]), "in its message");
        one.heard().expect("written");
        assert_eq!(one.get(3).expect("read").as_deref(), Some(&b"status"[..]), "and after it");
        assert_eq!(other.get(3).expect("read"), None);
        other.put(512, Bytes::from_static(b"node")).expect("kept");
        other.heard().expect("written");
        assert_eq!(rows(&*engine), 2);
        drop(one);
        assert_eq!(rows(&*engine), 1);
        drop(other);
        assert_eq!(rows(&*engine), 0);
    }

    #[test]
    fn a_hub_that_starts_keeps_nothing_of_before() {
        let engine = Arc::new(MemoryEngine::new());
        let mut said = SaidReports::new(engine.clone(), SessionId(1));
        said.put(1, Bytes::from_static(b"status")).expect("kept");
        said.heard().expect("written");
        std::mem::forget(said);
        wipe(&*engine).expect("wiped");
        assert_eq!(rows(&*engine), 0);
        wipe(&*engine).expect("nothing to do");
    }
}
