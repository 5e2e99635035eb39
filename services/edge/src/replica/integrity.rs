//! Whether a replica holds what was folded into it.
//!
//! RocksDB finds a rotten byte when it reads it, and a missing file when it opens; a list of
//! files that lost its end it may take for a shorter list, and go on with a hole. The state hash
//! that is kept with the position tells.

use headwater_store::{Engine, EngineError};
use headwater_view::StreamReader;

/// Reads every object of every stream, and compares their hash with the one that is kept.
///
/// # Errors
/// [`EngineError::Corrupt`] when they differ; as the engine.
pub(crate) fn check(engine: &dyn Engine) -> Result<(), EngineError> {
    let snapshot = engine.snapshot();
    let reader = StreamReader::new(&*snapshot);
    for position in reader.streams()? {
        let stream = position.stream;
        let Some(found) = reader.verify(&stream)? else { continue };
        if !found.agrees() {
            let (seq, kept, recomputed) = (found.checkpoint.seq, found.kept, found.recomputed);
            let reason = format!("{stream} {seq}: the objects hash to {recomputed}, not to {kept}");
            return Err(EngineError::Corrupt { reason });
        }
    }
    Ok(())
}
