//! Counts the entries that refer to each body, for the writer, which retires a body without any.

use headwater_event::{BodyAddress, Envelope};
use headwater_store::{EngineError, Folded, Read, Table, TableId};
use headwater_view::{Continuity, StreamState};

use crate::derived_rows::DerivedRows;

/// Per body of the log: the entries that refer to it. A body without a row is retired.
const REFERENCES: Table<BodyAddress, u64, Folded> = Table::new(TableId::BodyReferences);

/// Keeps the counts in the batch of the events, so they are those of the stored entries.
#[derive(Clone, Copy, Debug, Default)]
pub struct BodyReferences;

impl BodyReferences {
    /// The bodies to which no committed entry refers.
    ///
    /// # Errors
    /// As [`Read::scan`].
    pub fn unreferenced<'r>(
        from: &'r dyn Read,
    ) -> impl Iterator<Item = Result<BodyAddress, EngineError>> + 'r {
        let unreferenced = |row: Result<(BodyAddress, u64), EngineError>| {
            row.map(|(body, count)| (count == 0).then_some(body)).transpose()
        };
        REFERENCES.rows(from).filter_map(unreferenced)
    }
}

impl DerivedRows for BodyReferences {
    fn derive(
        &mut self,
        envelope: &Envelope,
        _continuity: Continuity,
        state: &mut StreamState,
    ) -> Result<(), EngineError> {
        let Some(key) = envelope.event.key() else { return Ok(()) };
        let before = state.entry_summary(&envelope.stream, key)?.and_then(|entry| entry.body);
        let now = envelope.shared.map(|shared| shared.body);
        if before == now {
            return Ok(());
        }
        if let Some(before) = before {
            change(state, &before, |count| count.saturating_sub(1))?;
        }
        now.map_or(Ok(()), |now| change(state, &now, |count| count.saturating_add(1)))
    }

    fn body_added(
        &mut self,
        body: &BodyAddress,
        state: &mut StreamState,
    ) -> Result<(), EngineError> {
        if count(state, body)?.is_none() {
            state.batch().put(&REFERENCES, body, &0);
        }
        Ok(())
    }

    fn body_retired(
        &mut self,
        body: &BodyAddress,
        state: &mut StreamState,
    ) -> Result<(), EngineError> {
        state.batch().delete(&REFERENCES, body);
        Ok(())
    }
}

fn count(state: &mut StreamState, body: &BodyAddress) -> Result<Option<u64>, EngineError> {
    let engine = state.engine().clone();
    state.batch().get(&*engine, &REFERENCES, body)
}

fn change(
    state: &mut StreamState,
    body: &BodyAddress,
    change: impl FnOnce(u64) -> u64,
) -> Result<(), EngineError> {
    if let Some(count) = count(state, body)? {
        state.batch().put(&REFERENCES, body, &change(count));
    }
    Ok(())
}
