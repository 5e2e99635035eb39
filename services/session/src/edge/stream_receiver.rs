//! One stream at the edge: what is applied, what is on its way to be, and which push fits.
//!
//! A receiver only ever moves forward in (log number, writer epoch, seq). A push that begins anew,
//! a snapshot or a correction, may lower the seq, under a higher epoch or log number; nothing else
//! may.
//!
//! ```text
//!                 a push that fits                      Applied, hash equal
//!   applied ------------------------------> pending --------------------------> applied
//!      |                                       |
//!      | heartbeat with another hash           | Applied, hash differs
//!      v                                       v
//!   stopped (everything is passed over) <--- part 0 of one that begins anew leads out
//! ```

use std::collections::{BTreeSet, VecDeque};

use headwater_event::{
    AdvanceBase, AdvanceFault, Assignment, Change, Checkpoint, LogId, Seq, StateHash, WriterEpoch,
    check_advance,
};

use super::io::PushFault;
use crate::message::{Push, PushMode, ReplicaPosition};

/// One stream at the edge.
#[derive(Debug, Default)]
pub(super) struct StreamReceiver {
    /// What is applied and visible.
    pub(super) applied: Option<Checkpoint>,
    /// The state hash at `applied`.
    pub(super) hash: StateHash,
    /// What is synced.
    pub(super) durable: Option<Checkpoint>,
    /// The end of the stream at the hub, as last heard.
    pub(super) tail: Seq,
    /// Where the difference from the log was noticed; only what begins anew goes on from there.
    pub(super) stopped: Option<Seq>,
    /// The node no longer has the stream: it goes once the shell has answered every push.
    pub(super) leaving: bool,
    /// Where the last push that began anew ended: a durable position below it is of another
    /// history.
    history_from: Option<Checkpoint>,
    /// It stopped at a push that began anew: the hub counts in that history, which is not applied.
    left_behind: bool,
    /// Pushes received whole and given to the shell.
    pending: VecDeque<PendingPush>,
    /// The push whose last part is still to come.
    staged: Option<StagedPush>,
    comparing: Comparing,
}

/// What the hub asked of what is held, and was told.
#[derive(Clone, Copy, Debug, Default)]
enum Comparing {
    /// Nothing, or what it was told is not so any more.
    #[default]
    No,
    /// The shell has not answered. Where a push has come since, the answer is of the past.
    Asked { nonce: u64, is_past: bool },
    /// That there are so many entries, and nothing was pushed since.
    Told { entries: u64 },
}

/// A push that the shell has and has not answered.
#[derive(Debug)]
struct PendingPush {
    to: Checkpoint,
    hash: StateHash,
    mode: PushMode,
    assigned: Option<Assignment>,
}

/// A push of which some parts have come.
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
    /// It fits.
    Apply,
    /// The stream is leaving, or it is stopped and this does not begin anew.
    Discard,
}

/// What came of an answer of the shell.
#[derive(Debug)]
pub(super) enum ApplyOutcome {
    /// The push is visible; the private stream's may bring another assignment.
    Visible(Option<Assignment>),
    /// The hash did not come out, and a snapshot is already on its way.
    Superseded,
    /// The hash did not come out: the stream is stopped now.
    Stopped {
        /// What the log says.
        expected: StateHash,
        /// Whether parts were staged, which will not be completed.
        unstage: bool,
    },
    /// The hash of a snapshot did not come out: the stream is stopped now.
    BadSnapshot {
        /// What the log says.
        expected: StateHash,
    },
}

impl StreamReceiver {
    /// A stream as found on disk.
    pub(super) fn found(position: &ReplicaPosition) -> Self {
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

    /// How many pushes the shell has not answered.
    pub(super) fn unapplied(&self) -> usize {
        self.pending.len()
    }

    /// Whether all that is applied is synced.
    pub(super) fn is_durable(&self) -> bool {
        self.durable == self.applied
    }

    /// Whether positions are of the history that the hub is in too. They are not from the first
    /// part of a push that begins anew until such a push is visible, and are not told.
    pub(super) fn is_of_the_present(&self) -> bool {
        !self.left_behind && !self.is_resetting()
    }

    /// Whether a push that begins anew is on its way.
    fn is_resetting(&self) -> bool {
        let staged = self.staged.iter().map(|staged| &staged.push);
        self.pending.iter().chain(staged).any(|push| push.mode.begins_anew())
    }

    /// Whether nothing is on its way.
    pub(super) fn is_settled(&self) -> bool {
        self.pending.is_empty() && self.staged.is_none()
    }

    /// The durable seq in the history of `applied`: nothing, while its beginning is unsynced.
    pub(super) fn durable_seq(&self) -> Seq {
        match (self.durable, self.history_from) {
            (Some(durable), Some(from)) if rank(&durable) < rank(&from) => Seq::ZERO,
            (Some(durable), _) => durable.seq,
            (None, _) => Seq::ZERO,
        }
    }

    /// Checks a part against the position and takes note of it. On a fault nothing changes.
    ///
    /// `assigned` is what a `!streams` entry in the part says; `log_id` the life of the log that
    /// the hub serves.
    pub(super) fn receive(
        &mut self,
        push: &Push,
        log_id: &LogId,
        assigned: Option<Assignment>,
    ) -> Result<PushDecision, PushFault> {
        if self.leaving || self.stopped.is_some() && (!push.mode.begins_anew() || push.part != 0) {
            return Ok(PushDecision::Discard);
        }
        if self.staged.is_none() || self.stopped.is_some() {
            self.check_position(push, log_id)?;
        }
        let staged = self.continue_staged(push, assigned)?;
        self.check_compared(push)?;
        self.comparing = match self.comparing {
            Comparing::Asked { nonce, .. } => Comparing::Asked { nonce, is_past: true },
            Comparing::Told { .. } | Comparing::No => Comparing::No,
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

    /// The shell has applied everything up to `to`. `None`: it was not asked to.
    pub(super) fn answered(&mut self, to: Checkpoint, hash: StateHash) -> Option<ApplyOutcome> {
        let at = self.pending.iter().position(|pending| pending.to == to)?;
        let push = self.pending.drain(..=at).next_back()?;
        if push.hash == hash {
            self.applied = Some(push.to);
            self.hash = hash;
            if push.mode.begins_anew() {
                self.history_from = Some(push.to);
                self.left_behind = false;
            }
            return Some(ApplyOutcome::Visible(push.assigned));
        }
        let expected = push.hash;
        if push.mode == PushMode::Snapshot {
            self.stop(to.seq);
            return Some(ApplyOutcome::BadSnapshot { expected });
        }
        if self.is_resetting() {
            while self.pending.front().is_some_and(|push| !push.mode.begins_anew()) {
                self.pending.pop_front();
            }
            return Some(ApplyOutcome::Superseded);
        }
        let unstage = self.staged.is_some();
        self.left_behind |= push.mode.begins_anew();
        self.stop(to.seq);
        Some(ApplyOutcome::Stopped { expected, unstage })
    }

    /// The state at `checkpoint` is synced. One that is not applied is passed over: the sync
    /// began before the stream was dropped.
    pub(super) fn synced(&mut self, checkpoint: Checkpoint) {
        let is_applied = self.applied.is_some_and(|applied| rank(&checkpoint) <= rank(&applied));
        let is_news = self.durable.is_none_or(|durable| rank(&durable) < rank(&checkpoint));
        if is_applied && is_news {
            self.durable = Some(checkpoint);
        }
    }

    /// The hub says where the stream ends. Returns the hash there when it is where this receiver
    /// stands and differs: the receiver is stopped then.
    pub(super) fn check_end(&mut self, end: &ReplicaPosition) -> Option<StateHash> {
        if self.applied.is_some_and(|applied| applied.log_id == end.checkpoint.log_id) {
            let received = self.received().map_or(Seq::ZERO, |received| received.seq);
            self.tail = received.max(end.checkpoint.seq);
        }
        let differs = self.stopped.is_none()
            && self.is_settled()
            && self.applied.is_some_and(|applied| is_same_place(&applied, &end.checkpoint))
            && self.hash != end.hash;
        differs.then(|| {
            self.stop(end.checkpoint.seq);
            end.hash
        })
    }

    /// Whether there is something to say of what is held.
    pub(super) fn may_be_compared(&self) -> bool {
        self.applied.is_some() && !self.leaving
    }

    /// The hub asks what is held. False: it has asked already, and was not told.
    pub(super) fn ask(&mut self, nonce: u64) -> bool {
        let is_first = !matches!(self.comparing, Comparing::Asked { .. });
        self.comparing = Comparing::Asked { nonce, is_past: false };
        is_first
    }

    /// The shell says that it holds so many entries. False: that was asked on another connection.
    pub(super) fn told(&mut self, nonce: u64, entries: u64) -> bool {
        let Comparing::Asked { nonce: asked, is_past } = self.comparing else { return false };
        if asked == nonce {
            self.comparing = if is_past { Comparing::No } else { Comparing::Told { entries } };
        }
        asked == nonce
    }

    /// The connection is gone, and with it what was asked on it.
    pub(super) fn forget_comparing(&mut self) {
        self.comparing = Comparing::No;
    }

    /// Forgets a push that will not be completed. True: parts of it had come.
    pub(super) fn unstage(&mut self) -> bool {
        self.staged.take().is_some()
    }

    fn stop(&mut self, seq: Seq) {
        self.stopped = Some(seq);
        self.pending.clear();
        self.staged = None;
    }

    /// Whether the first part of a push fits where the stream stands.
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

    /// Whether what a push says is gone fits what was summarized.
    fn check_compared(&self, push: &Push) -> Result<(), PushFault> {
        if push.mode != PushMode::Correction || push.part != 0 {
            if push.gone.runs().is_empty() {
                return Ok(());
            }
            return Err(PushFault::Mode { mode: name(push.mode), what: "say here what is gone" });
        }
        let Comparing::Told { entries: summarized } = self.comparing else {
            return Err(PushFault::NotCompared);
        };
        let said = push.gone.entries();
        if said > summarized {
            return Err(PushFault::Gone { said, summarized });
        }
        Ok(())
    }

    /// What is staged with this part added; checks that the part is the one due.
    fn continue_staged(
        &self,
        push: &Push,
        assigned: Option<Assignment>,
    ) -> Result<StagedPush, PushFault> {
        let part = |expected, staged| PushFault::Part {
            expected,
            staged,
            part: push.part,
            to: push.to.seq,
        };
        let (next_part, changes, before) = match &self.staged {
            Some(staged) if self.stopped.is_none() => {
                let same = staged.push.to == push.to
                    && staged.push.hash == push.hash
                    && staged.push.mode == push.mode
                    && staged.from == push.from;
                if !same || staged.next_part != push.part {
                    return Err(part(staged.next_part, staged.push.to.seq));
                }
                (staged.next_part, staged.changes, staged.push.assigned.clone())
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
                assigned: assigned.or(before),
            },
            from: push.from,
            next_part,
            changes,
        })
    }
}

/// The order in which a receiver moves.
fn rank(checkpoint: &Checkpoint) -> (u64, WriterEpoch, Seq) {
    (checkpoint.log_id.number, checkpoint.epoch, checkpoint.seq)
}

/// Whether the hub's `end` is where `applied` is. Its epoch may be higher: that of a claim under
/// which nothing was appended yet.
fn is_same_place(applied: &Checkpoint, end: &Checkpoint) -> bool {
    applied.log_id == end.log_id && applied.seq == end.seq && applied.epoch <= end.epoch
}

/// What the changes of a part may be in its mode; `count` is theirs and those of earlier parts.
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
