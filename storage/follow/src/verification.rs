//! The verification of a stored fold: each stream against the state hash that is stored with its position.
//!
//! RocksDB finds a corrupt byte when it reads it, and a missing file when it opens. A truncated list of
//! files can pass for a shorter one, so objects may be missing. Every object is read and hashed, so the
//! streams are divided between the processors.

use headwater_event::StreamId;
use headwater_owner::try_for_each_parallel;
use headwater_store::Engine;
use headwater_view::StreamReader;

use crate::follower::FollowError;

/// Streams for which a thread more is worth its start: a stream of a hundred objects takes as long.
const STREAMS_PER_THREAD: usize = 64;

/// Verifies the objects of a stream.
///
/// # Errors
/// [`FollowError::LostObjects`], and [`FollowError::Engine`].
pub(crate) fn verify_stream(engine: &dyn Engine, stream: &StreamId) -> Result<(), FollowError> {
    let snapshot = engine.snapshot();
    match StreamReader::new(&*snapshot).verify(stream)? {
        Some(found) if !found.agrees() => Err(FollowError::LostObjects { stream: stream.clone() }),
        _ => Ok(()),
    }
}

/// Verifies the objects of streams, on every processor if they are many.
///
/// # Errors
/// As [`verify_stream`].
pub(crate) fn verify_streams(engine: &dyn Engine, streams: &[StreamId]) -> Result<(), FollowError> {
    try_for_each_parallel(streams, STREAMS_PER_THREAD, |stream| verify_stream(engine, stream))
}
