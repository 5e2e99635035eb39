//! Which inputs a state accepts: pure rules over positions.
//!
//! A state is always a prefix of its stream, so an event must continue it. Of advances
//! [`headwater_event::advance`] decides; here its faults become refusals.

use headwater_event::{AdvanceBase, AdvanceFault, Checkpoint, Envelope, LogId, Seq, check_advance};

use super::advance::{Advance, AdvanceMode, Continuity};
use super::refusal::Refusal;

/// Checks that a state at `at` accepts `envelope` of the log `log_id`.
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
    // A sparse fold may have applied an event behind a hole, which was never accepted; the next
    // writer continues before it.
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

/// Checks that a state at `at` accepts `advance`.
pub(crate) fn admit_advance(at: Option<&Checkpoint>, advance: &Advance) -> Result<(), Refusal> {
    let Advance { stream, from, to, mode, .. } = advance;
    let base = match mode {
        AdvanceMode::Snapshot | AdvanceMode::Correction => AdvanceBase::Complete,
        AdvanceMode::Tail | AdvanceMode::Delta => AdvanceBase::Position(*from),
    };
    let Err(fault) = check_advance(at, base, to) else { return Ok(()) };
    let stream = stream.clone();
    let applied = at.map_or(Seq::ZERO, |at| at.seq);
    Err(match (fault, at) {
        (AdvanceFault::ForeignLog, Some(at)) => {
            Refusal::ForeignLog { stream, at: at.log_id, found: to.log_id }
        }
        (AdvanceFault::Fenced, Some(at)) => {
            Refusal::Fenced { stream, at: at.epoch, found: to.epoch }
        }
        (AdvanceFault::Gap, _) => {
            Refusal::Gap { stream, expected: applied.next(), found: from.next() }
        }
        _ => {
            let found = if base == AdvanceBase::Complete { to.seq } else { *from };
            Refusal::Stale { stream, at: applied, found }
        }
    })
}
