//! Which inputs a state takes: pure rules over positions.
//!
//! A state is always a prefix of its stream, so an input must continue it. The one exception
//! is what begins anew, a snapshot or a correction, which may take a diverged replica back (to a
//! higher writer epoch) or over to a later life of the log. Within one log and epoch nothing goes
//! back, so what was removed stays removed: no older snapshot or delta can bring a removed UID
//! again.

use headwater_event::{Checkpoint, Envelope, LogId, Seq};

use crate::advance::{Advance, Continuity};
use crate::refusal::Refusal;

/// Whether a state that stands at `at` takes `envelope` of the log `log_id`.
pub(crate) fn admit_event(
    at: Option<&Checkpoint>,
    log_id: &LogId,
    envelope: &Envelope,
    continuity: Continuity,
) -> Result<(), Refusal> {
    let stream = || envelope.stream.clone();
    let applied = at.map_or(Seq::ZERO, |at| at.seq);
    if let Some(at) = at {
        if at.log_id != *log_id {
            return Err(Refusal::ForeignLog { stream: stream(), at: at.log_id, found: *log_id });
        }
        if envelope.epoch < at.epoch {
            return Err(Refusal::Fenced { stream: stream(), at: at.epoch, found: envelope.epoch });
        }
    }
    // Where compaction left gaps, a fold may have taken an event from behind a hole, which never
    // counted: the next writer goes back behind it.
    let may_go_back =
        continuity == Continuity::Sparse && at.is_some_and(|at| envelope.epoch > at.epoch);
    if envelope.seq <= applied && !may_go_back {
        return Err(Refusal::Stale { stream: stream(), at: applied, found: envelope.seq });
    }
    if continuity == Continuity::Dense && envelope.seq != applied.next() {
        let expected = applied.next();
        return Err(Refusal::Gap { stream: stream(), expected, found: envelope.seq });
    }
    Ok(())
}

/// Whether a state that stands at `at` takes `advance`.
pub(crate) fn admit_advance(at: Option<&Checkpoint>, advance: &Advance) -> Result<(), Refusal> {
    let stream = || advance.stream.clone();
    let to = &advance.to;
    let applied = at.map_or(Seq::ZERO, |at| at.seq);
    if let Some(at) = at {
        if at.log_id != to.log_id {
            let follows = advance.mode.begins_anew() && to.log_id.follows(&at.log_id);
            let refusal = Refusal::ForeignLog { stream: stream(), at: at.log_id, found: to.log_id };
            return if follows { Ok(()) } else { Err(refusal) };
        }
        if to.epoch < at.epoch {
            return Err(Refusal::Fenced { stream: stream(), at: at.epoch, found: to.epoch });
        }
    }
    if advance.mode.begins_anew() {
        // Only a new writer's history may be shorter than what a replica of the old one has.
        let may_go_back = at.is_none_or(|at| to.epoch > at.epoch);
        if to.seq < applied && !may_go_back {
            return Err(Refusal::Stale { stream: stream(), at: applied, found: to.seq });
        }
        return Ok(());
    }
    if advance.from > applied {
        let expected = applied.next();
        return Err(Refusal::Gap { stream: stream(), expected, found: advance.from.next() });
    }
    if advance.from < applied || to.seq < applied {
        return Err(Refusal::Stale { stream: stream(), at: applied, found: advance.from });
    }
    Ok(())
}
