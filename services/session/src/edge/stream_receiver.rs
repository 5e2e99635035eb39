//! One stream at the edge: its position, its pending pushes, and whether a push continues it.
//!
//! A stream only moves forward in (log number, writer epoch, seq). Only a push that begins anew, a
//! snapshot or a correction, may lower the seq, under a higher epoch or log number.
//!
//! ```text
//!              a push that continues it               Applied, equal hash
//!   applied ----------------------------> pending --------------------------> applied
//!      |                                   ^   |
//!      | heartbeat, another hash           |   | Applied, another hash
//!      v                                   |   v
//!   stopped -------------------------------+  stopped
//!      part 0 of a push that begins anew; every other push is discarded
//! ```

use std::collections::{BTreeSet, VecDeque};

use headwater_event::{
    AdvanceBase, AdvanceFault, Assignment, Change, Checkpoint, LogId, Seq, StateHash, WriterEpoch,
    check_advance,
};

use super::io::PushFault;
use crate::message::{Push, PushMode, ReplicaPosition};

/// Receives one stream at the edge.
#[derive(Debug, Default)]
pub(super) struct StreamReceiver {
    /// The position that is applied and visible.
    pub(super) applied: Option<Checkpoint>,
    /// The state hash at `applied`.
    pub(super) hash: StateHash,
    /// The position that is synced to disk.
    pub(super) durable: Option<Checkpoint>,
    /// The end of the stream at the hub, as last received.
    pub(super) tail: Seq,
    /// Where the state was found to differ from the log. Only a push that begins anew continues from
    /// there.
    pub(super) stopped: Option<Seq>,
    /// The node no longer has the stream. It is dropped once the shell has applied every push.
    pub(super) is_leaving: bool,
    /// The end of the last push that began anew. A durable position below it is of another history.
    history_from: Option<Checkpoint>,
    /// The stream stopped at a push that began anew: the hub is in that history, the edge is not.
    is_in_old_history: bool,
    /// Pushes received whole that the shell has not applied yet.
    pending: VecDeque<PendingPush>,
    /// The push whose last part has not arrived.
    staged: Option<StagedPush>,
    comparison: Comparison,
}

/// The comparison of this stream with the hub's.
#[derive(Clone, Copy, Debug, Default)]
enum Comparison {
    /// There is none, or its summary is stale.
    #[default]
    None,
    /// The shell has not summarized the stream yet. The summary is stale if a push has arrived since.
    Pending { nonce: u64, is_stale: bool },
    /// A summary of this many entries was sent, and no push has arrived since.
    Summarized { entries: u64 },
}

/// A push that the shell has not applied yet.
#[derive(Debug)]
struct PendingPush {
    to: Checkpoint,
    hash: StateHash,
    mode: PushMode,
    assignment: Option<Assignment>,
}

/// A push of which some parts have arrived.
#[derive(Debug)]
struct StagedPush {
    push: PendingPush,
    from: Seq,
    next_part: u32,
    changes: u64,
}

/// What to do with a push.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PushDecision {
    /// Apply it: it continues the stream.
    Apply,
    /// Discard it: the stream is leaving, or is stopped and the push does not begin anew.
    Discard,
}

/// The outcome of an `Applied` of the shell.
#[derive(Debug)]
pub(super) enum ApplyOutcome {
    /// The push is visible. One of the private stream may bring another assignment.
    Visible(Option<Assignment>),
    /// The hash differs, and a push that begins anew is already in flight.
    Superseded,
    /// The hash differs: the stream is stopped now.
    Stopped {
        /// The hash in the log.
        expected: StateHash,
        /// Whether parts are staged that will not be completed.
        unstage: bool,
    },
    /// The hash of a snapshot differs, and no other push begins anew: the stream is stopped now.
    BadSnapshot {
        /// The hash in the log.
        expected: StateHash,
    },
}

impl StreamReceiver {
    /// Creates the receiver of a stream at its position on disk.
    pub(super) fn from_disk(position: &ReplicaPosition) -> Self {
        Self {
            applied: Some(position.checkpoint),
            hash: position.hash,
            durable: Some(position.checkpoint),
            tail: position.checkpoint.seq,
            ..Self::default()
        }
    }

    /// The last event of the pushes received whole.
    pub(super) fn received(&self) -> Option<Checkpoint> {
        self.pending.back().map(|pending| pending.to).or(self.applied)
    }

    /// The newest assignment in the pushes that are pending or staged.
    pub(super) fn arrived_assignment(&self) -> Option<&Assignment> {
        let staged = self.staged.iter().map(|staged| &staged.push);
        let mut arrived = self.pending.iter().chain(staged).rev();
        arrived.find_map(|push| push.assignment.as_ref())
    }

    /// The number of pushes that the shell has not applied yet.
    pub(super) fn unapplied(&self) -> usize {
        self.pending.len()
    }

    /// Whether all that is applied is synced.
    pub(super) fn is_durable(&self) -> bool {
        self.durable == self.applied
    }

    /// Whether the edge is in the same history as the hub. From the first part of a push that begins
    /// anew until such a push is visible it is not, and its progress is not reported.
    pub(super) fn is_in_current_history(&self) -> bool {
        !self.is_in_old_history && !self.is_resetting()
    }

    /// Whether a push that begins anew is pending or staged.
    fn is_resetting(&self) -> bool {
        let staged = self.staged.iter().map(|staged| &staged.push);
        self.pending.iter().chain(staged).any(|push| push.mode.begins_anew())
    }

    /// Whether no push is pending or staged.
    pub(super) fn is_settled(&self) -> bool {
        self.pending.is_empty() && self.staged.is_none()
    }

    /// The durable seq in the history of `applied`; zero until the start of that history is synced.
    pub(super) fn durable_seq(&self) -> Seq {
        match (self.durable, self.history_from) {
            (Some(durable), Some(from)) if rank(&durable) < rank(&from) => Seq::ZERO,
            (Some(durable), _) => durable.seq,
            (None, _) => Seq::ZERO,
        }
    }

    /// Checks a part of a push against the position, and takes note of it. On a fault nothing
    /// changes.
    ///
    /// `log_id` is the log that the hub serves; `assignment` is that of a `!streams` entry in the
    /// part.
    pub(super) fn receive(
        &mut self,
        push: &Push,
        log_id: &LogId,
        assignment: Option<Assignment>,
    ) -> Result<PushDecision, PushFault> {
        if self.is_leaving || self.stopped.is_some() && !push.is_beginning() {
            return Ok(PushDecision::Discard);
        }
        if self.staged.is_none() || push.is_beginning() {
            self.check_position(push, log_id)?;
        }
        let staged = self.continue_staged(push, assignment)?;
        self.check_compared(push)?;
        self.comparison = match self.comparison {
            Comparison::Pending { nonce, .. } => Comparison::Pending { nonce, is_stale: true },
            Comparison::Summarized { .. } | Comparison::None => Comparison::None,
        };
        self.stopped = None;
        if push.last_part {
            self.staged = None;
            self.tail =
                if push.mode.begins_anew() { push.to.seq } else { self.tail.max(push.to.seq) };
            self.pending.push_back(staged.push);
        } else {
            self.staged = Some(staged);
        }
        Ok(PushDecision::Apply)
    }

    /// The shell has applied everything up to `to`, and the state has `hash`. `None`: no pending push
    /// ends there.
    pub(super) fn applied_to(&mut self, to: Checkpoint, hash: StateHash) -> Option<ApplyOutcome> {
        let at = self.pending.iter().position(|pending| pending.to == to)?;
        let push = self.pending.drain(..=at).next_back()?;
        if push.hash == hash {
            self.applied = Some(push.to);
            self.hash = hash;
            if push.mode.begins_anew() {
                self.history_from = Some(push.to);
                self.is_in_old_history = false;
            }
            return Some(ApplyOutcome::Visible(push.assignment));
        }
        let expected = push.hash;
        if self.is_resetting() {
            while self.pending.front().is_some_and(|push| !push.mode.begins_anew()) {
                self.pending.pop_front();
            }
            return Some(ApplyOutcome::Superseded);
        }
        if push.mode == PushMode::Snapshot {
            self.stop(to.seq);
            return Some(ApplyOutcome::BadSnapshot { expected });
        }
        let unstage = self.staged.is_some();
        self.is_in_old_history |= push.mode.begins_anew();
        self.stop(to.seq);
        Some(ApplyOutcome::Stopped { expected, unstage })
    }

    /// The state at `checkpoint` is synced. A checkpoint that is not applied is ignored: the sync
    /// began before the stream was dropped.
    pub(super) fn synced(&mut self, checkpoint: Checkpoint) {
        let is_applied = self.applied.is_some_and(|applied| rank(&checkpoint) <= rank(&applied));
        let is_newer = self.durable.is_none_or(|durable| rank(&durable) < rank(&checkpoint));
        if is_applied && is_newer {
            self.durable = Some(checkpoint);
        }
    }

    /// Compares the state with the end of the stream at the hub. If the stream is there with another
    /// hash, stops it and returns the hub's hash.
    pub(super) fn check_end(&mut self, end: &ReplicaPosition) -> Option<StateHash> {
        if self.applied.is_some_and(|applied| applied.log_id == end.checkpoint.log_id) {
            let received = self.received().map_or(Seq::ZERO, |received| received.seq);
            self.tail = received.max(end.checkpoint.seq);
        }
        let differs = self.stopped.is_none()
            && self.is_settled()
            && self.applied.is_some_and(|applied| is_same_position(&applied, &end.checkpoint))
            && self.hash != end.hash;
        differs.then(|| {
            self.stop(end.checkpoint.seq);
            end.hash
        })
    }

    /// Whether the stream can be summarized.
    pub(super) fn may_be_compared(&self) -> bool {
        self.applied.is_some() && !self.is_leaving
    }

    /// The hub asks for a summary. False: the summary of its last comparison is still pending.
    pub(super) fn begin_comparison(&mut self, nonce: u64) -> bool {
        let is_first = !matches!(self.comparison, Comparison::Pending { .. });
        self.comparison = Comparison::Pending { nonce, is_stale: false };
        is_first
    }

    /// The shell has summarized this many entries. False: the comparison was of another connection.
    pub(super) fn summarized(&mut self, nonce: u64, entries: u64) -> bool {
        let Comparison::Pending { nonce: pending, is_stale } = self.comparison else {
            return false;
        };
        if pending == nonce {
            self.comparison =
                if is_stale { Comparison::None } else { Comparison::Summarized { entries } };
        }
        pending == nonce
    }

    /// The connection is gone, and with it the comparison and the rest of a push. True: parts of a
    /// push had arrived.
    pub(super) fn disconnected(&mut self) -> bool {
        self.comparison = Comparison::None;
        self.unstage()
    }

    /// A hub begins in the history of the durable position.
    pub(super) fn begin_session(&mut self) {
        self.is_in_old_history = false;
    }

    /// Whether nothing of the stream is applied, or waits to be.
    pub(super) fn is_empty(&self) -> bool {
        self.applied.is_none() && self.is_settled()
    }

    /// Discards a push that will not be completed. True: parts of it had arrived.
    pub(super) fn unstage(&mut self) -> bool {
        self.staged.take().is_some()
    }

    fn stop(&mut self, seq: Seq) {
        self.stopped = Some(seq);
        self.pending.clear();
        self.staged = None;
    }

    /// Checks that the first part of a push continues the stream.
    fn check_position(&self, push: &Push, log_id: &LogId) -> Result<(), PushFault> {
        let to = push.to;
        if to.log_id != *log_id {
            return Err(PushFault::Log { held: *log_id, offered: to.log_id });
        }
        let held = self.received();
        let base = match push.mode.begins_anew() {
            true => AdvanceBase::Complete,
            false => AdvanceBase::Position(push.from),
        };
        if base == AdvanceBase::Complete && push.from != Seq::ZERO {
            let mode = name(push.mode);
            return Err(PushFault::Mode { mode, what: "continue a position" });
        }
        let Some(held) = held else {
            let is_complete = base == AdvanceBase::Complete;
            return if is_complete { Ok(()) } else { Err(PushFault::NoBase { from: push.from }) };
        };
        match check_advance(Some(&held), base, &to) {
            Err(AdvanceFault::ForeignLog) => {
                Err(PushFault::Log { held: held.log_id, offered: to.log_id })
            }
            _ if base == AdvanceBase::Position(push.from) && push.from != held.seq => {
                Err(PushFault::Gap { from: push.from, applied: held.seq })
            }
            // A push from a position brings at least one event.
            Ok(()) if base == AdvanceBase::Complete || to.seq > held.seq => Ok(()),
            _ => Err(PushFault::Back { held, to }),
        }
    }

    /// Checks that a correction fits the summary that was sent.
    fn check_compared(&self, push: &Push) -> Result<(), PushFault> {
        if push.mode != PushMode::Correction || push.part != 0 {
            if push.gone.runs().is_empty() {
                return Ok(());
            }
            return Err(PushFault::Mode {
                mode: name(push.mode),
                what: "remove entries of a summary",
            });
        }
        let Comparison::Summarized { entries: summarized } = self.comparison else {
            return Err(PushFault::NotCompared);
        };
        let corrected = push.gone.entries();
        if corrected > summarized {
            return Err(PushFault::Gone { corrected, summarized });
        }
        Ok(())
    }

    /// Adds a part to the staged push; checks that it is the next part. A push that begins the stream
    /// anew replaces one that the hub has abandoned.
    fn continue_staged(
        &self,
        push: &Push,
        assignment: Option<Assignment>,
    ) -> Result<StagedPush, PushFault> {
        let part = |expected, staged| PushFault::Part {
            expected,
            staged,
            part: push.part,
            to: push.to.seq,
        };
        let (next_part, changes, before) = match &self.staged {
            Some(staged) if !push.is_beginning() => {
                let same = staged.push.to == push.to
                    && staged.push.hash == push.hash
                    && staged.push.mode == push.mode
                    && staged.from == push.from;
                if !same || staged.next_part != push.part {
                    return Err(part(staged.next_part, staged.push.to.seq));
                }
                (staged.next_part, staged.changes, staged.push.assignment.clone())
            }
            _ if push.part != 0 => return Err(part(0, push.to.seq)),
            _ => (0, 0, None),
        };
        let changes = changes.saturating_add(push.changes.len() as u64);
        check_changes(push, changes)?;
        let next_part = next_part.checked_add(1).ok_or_else(|| part(next_part, push.to.seq))?;
        Ok(StagedPush {
            push: PendingPush {
                to: push.to,
                hash: push.hash,
                mode: push.mode,
                assignment: assignment.or(before),
            },
            from: push.from,
            next_part,
            changes,
        })
    }
}

/// The order in which a stream moves.
fn rank(checkpoint: &Checkpoint) -> (u64, WriterEpoch, Seq) {
    (checkpoint.log_id.number, checkpoint.epoch, checkpoint.seq)
}

/// Whether the hub's `end` is at `applied`. Its epoch may be higher: that of a claim under which
/// nothing was appended yet.
fn is_same_position(applied: &Checkpoint, end: &Checkpoint) -> bool {
    applied.log_id == end.log_id && applied.seq == end.seq && applied.epoch <= end.epoch
}

/// Checks the changes of a part against its mode; `count` includes those of earlier parts.
fn check_changes(push: &Push, count: u64) -> Result<(), PushFault> {
    let mode = name(push.mode);
    let events = push.to.seq.0.saturating_sub(push.from.0);
    if !push.mode.begins_anew() && count > events {
        return Err(PushFault::Mode { mode, what: "hold more changes than events" });
    }
    if push.mode == PushMode::Tail {
        return Ok(());
    }
    let mut keys = BTreeSet::new();
    for pushed in &push.changes {
        if push.mode.begins_anew() && matches!(pushed.change, Change::Removed(_)) {
            return Err(PushFault::Mode { mode, what: "remove entries" });
        }
        if !keys.insert(pushed.change.key()) {
            return Err(PushFault::Repeated { key: pushed.change.key().clone() });
        }
    }
    Ok(())
}

fn name(mode: PushMode) -> &'static str {
    match mode {
        PushMode::Tail => "tail",
        PushMode::Delta => "delta",
        PushMode::Snapshot => "snapshot",
        PushMode::Correction => "correction",
    }
}
