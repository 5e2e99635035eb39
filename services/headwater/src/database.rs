//! Opens a database that can be rebuilt. It reads every row before any use, and moves a damaged
//! database aside.

pub(crate) mod damaged;

use std::path::Path;
use std::sync::Arc;

use headwater_rocks::{DatabaseMemory, RocksEngine, Role, move_aside};
use headwater_store::{Engine, EngineError, Range, Schema};

/// The rows of one read: a few MiB if the objects are large.
const CHUNK_ROWS: usize = 256;

/// Opens a database that can be rebuilt from elsewhere. Moves a damaged one aside, logs that, and
/// creates an empty one.
///
/// # Errors
/// As the engine, except for damage.
pub(crate) fn open(
    path: &Path,
    role: Role,
    memory: &DatabaseMemory,
    schema: Schema,
) -> Result<Arc<RocksEngine>, EngineError> {
    match open_whole(path, role, memory, schema) {
        Err(EngineError::Corrupt { reason }) => {
            set_aside(path, &reason)?;
            Ok(Arc::new(RocksEngine::open(path, role, memory, schema)?))
        }
        opened => Ok(Arc::new(opened?)),
    }
}

/// Moves a damaged database aside, and logs it.
///
/// # Errors
/// When it cannot be moved.
pub(crate) fn set_aside(path: &Path, reason: &str) -> Result<(), EngineError> {
    let aside = move_aside(path).map_err(|error| EngineError::Read {
        reason: format!("{} cannot be moved aside: {error}", path.display()),
    })?;
    tracing::error!(
        path = %path.display(), aside = %aside.display(), %reason,
        "the database is damaged; it was moved aside, and an empty one takes its place"
    );
    Ok(())
}

/// Opens the database at `path` and reads every row. A read detects a damaged byte; this one does
/// so while the database can still be moved aside.
///
/// # Errors
/// [`EngineError::Corrupt`] when a row is damaged; the database is closed then. Otherwise as the
/// engine.
fn open_whole(
    path: &Path,
    role: Role,
    memory: &DatabaseMemory,
    schema: Schema,
) -> Result<RocksEngine, EngineError> {
    let engine = RocksEngine::open(path, role, memory, schema)?;
    read_through(&engine)?;
    Ok(engine)
}

fn read_through(engine: &dyn Engine) -> Result<(), EngineError> {
    let mut range = Range::all();
    loop {
        let rows = engine.scan(&range, CHUNK_ROWS)?;
        match rows.last() {
            Some((last, _)) if rows.len() == CHUNK_ROWS => range = range.after(last),
            _ => return Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use headwater_store::{Durability, MemoryEngine, WriteBatch};

    use super::*;

    #[test]
    fn every_row_is_read_however_many_there_are() {
        for rows in [0, 1, CHUNK_ROWS, 3 * CHUNK_ROWS + 1] {
            let engine = MemoryEngine::new();
            let mut batch = WriteBatch::default();
            for row in 0..rows {
                batch.put(row.to_be_bytes().to_vec(), &b"value"[..]);
            }
            engine.write(batch, Durability::Buffered).expect("writes");
            read_through(&engine).expect("whole");
        }
    }
}
