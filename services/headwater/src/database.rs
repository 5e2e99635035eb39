//! Opens a database that can be rebuilt. It reads every row before any use, and moves a damaged
//! database aside.

pub(crate) mod damaged;

use std::path::Path;
use std::sync::Arc;

use headwater_rocks::{DatabaseMemory, RocksEngine, Role, move_aside};
use headwater_store::{EngineError, Schema};

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
    engine.read_through()?;
    Ok(engine)
}
