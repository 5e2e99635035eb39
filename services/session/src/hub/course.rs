//! Which way brings a replica forward: the decision, and nothing else.
//!
//! ```text
//!   fold not complete, or behind the edge ------------------------> park
//!   nothing held, another history, or reset --- reconciled? ------> snapshot, else park
//!   few events, all of them there --------------------------------> tail
//!   no hole since the edge's position ----------------------------> delta
//!   many events, all of them there -------------------------------> tail
//!   otherwise ------------------------------- reconciled? --------> snapshot, else park
//! ```

use headwater_event::{Seq, WriterEpoch};

use crate::message::StreamPosition;
use crate::source::{Readiness, Standing};

/// What to do next for a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Course {
    /// The edge has everything.
    Rest,
    /// Not served just now.
    Park(&'static str),
    /// Events as they are.
    Tail,
    /// Each changed key once.
    Delta,
    /// The complete state.
    Snapshot,
}

/// Where the edge stands, as the decision sees it.
#[derive(Clone, Debug)]
pub(super) struct Behind<'a> {
    /// What the edge will have once it has everything that was sent; `None`: nothing.
    pub(super) held: Option<&'a StreamPosition>,
    /// Whether the edge said that its state differs from the log.
    pub(super) reset: bool,
    /// Whether the window was closed with events left: they come as one delta.
    pub(super) overflowed: bool,
    /// The first seq of the lowest epoch above the held one.
    pub(super) next_epoch_from: Option<Seq>,
}

const FOLDING: &str = "the hub has not read the log to its end";
const BEHIND: &str = "the hub is behind the edge";
const OTHER_LOG: &str = "the edge's state is of a log that this one does not follow";
const UNRECONCILED: &str = "the edge needs a snapshot, and the writer has not reconciled yet";

/// Decides. `tail_events_max` is how many events may go out as such.
pub(super) fn choose(behind: &Behind<'_>, standing: &Standing, tail_events_max: u64) -> Course {
    if standing.readiness < Readiness::Folded {
        return Course::Park(FOLDING);
    }
    let snapshot = match standing.readiness {
        Readiness::Reconciled => Course::Snapshot,
        Readiness::Folded | Readiness::Folding => Course::Park(UNRECONCILED),
    };
    let Some(position) = behind.held else { return snapshot };
    let (held, tail) = (position.checkpoint, standing.checkpoint);
    if held.log_id != tail.log_id {
        let follows = tail.log_id.follows(&held.log_id);
        return if follows { snapshot } else { Course::Park(OTHER_LOG) };
    }
    if (tail.epoch, tail.seq) < (held.epoch, held.seq) {
        return Course::Park(BEHIND);
    }
    if behind.reset || has_diverged(position, behind.next_epoch_from, standing) {
        return snapshot;
    }
    if held.seq == tail.seq {
        return Course::Rest;
    }
    let events = tail.seq.0 - held.seq.0;
    let is_few = events <= tail_events_max && (events == 1 || !behind.overflowed);
    let has_events = held.seq >= standing.raw_from;
    match (has_events, is_few, held.seq >= standing.delta_from) {
        (true, true, _) | (true, false, false) => Course::Tail,
        (_, _, true) => Course::Delta,
        (false, _, false) => snapshot,
    }
}

/// Whether the edge holds events that are not in this history. Called with the fold at or ahead
/// of the edge in (epoch, seq).
fn has_diverged(
    position: &StreamPosition,
    next_epoch_from: Option<Seq>,
    standing: &Standing,
) -> bool {
    let (held, tail) = (position.checkpoint, standing.checkpoint);
    let overtaken = next_epoch_from.is_some_and(|first| first <= held.seq);
    // The claim of a higher epoch settled that the history ends below what is held.
    let went_back = tail.seq < held.seq;
    let differs = tail.seq == held.seq && standing.hash != position.hash;
    // No writer has epoch 0: a position in it is not of any log.
    let is_void = held.seq > Seq::ZERO && held.epoch == WriterEpoch::default();
    overtaken || went_back || differs || is_void
}
