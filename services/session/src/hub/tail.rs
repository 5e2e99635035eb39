//! A tail: events of the fold as a push.

use headwater_event::{Checkpoint, RemovalRuns, Seq, StreamId};

use crate::message::{Push, PushMode};
use crate::source::{FoldStatus, SourceError, StreamSource};

/// The next events behind `from`, as one push of at most `bytes_max`; `None` if the source no longer
/// has the first one.
///
/// # Errors
/// When the fold cannot be read, or lacks an event.
pub fn tail_push(
    source: &(impl StreamSource + ?Sized),
    stream: &StreamId,
    from: Seq,
    status: &FoldStatus,
    bytes_max: u64,
) -> Result<Option<Push>, SourceError> {
    let events = source.events(stream, from, status.checkpoint.seq, bytes_max)?;
    let is_dense = events.iter().zip(from.next().0..).all(|(event, seq)| event.seq.0 == seq);
    let Some(last) = events.last() else { return Ok(None) };
    if !is_dense {
        let reason = format!("the fold lacks events of {stream} behind {from}");
        return Err(SourceError { reason });
    }
    let (epoch, seq, hash) = (last.epoch, last.seq, last.hash);
    let changes = events.into_iter().filter_map(|event| event.change);
    Ok(Some(Push {
        stream: stream.clone(),
        mode: PushMode::Tail,
        from,
        to: Checkpoint { log_id: status.checkpoint.log_id, epoch, seq },
        gone: RemovalRuns::default(),
        changes: changes.collect(),
        hash,
        part: 0,
        last_part: true,
    }))
}
