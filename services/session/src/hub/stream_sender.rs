//! One stream of one session at the hub: what was sent, and how far the edge came.

use std::collections::VecDeque;

use headwater_event::{Checkpoint, LogId, RemovalRuns, Seq, StateHash, StreamId};

use super::io::Violation;
use crate::comparison::Comparison;
use crate::message::{Compare, Push, PushMode, ReplicaPosition, StreamProgress, Summary};
use crate::source::{CatchUp, CatchUpPart, FoldStatus, SourceError, StreamSource};

/// One stream of one session.
pub(super) struct StreamSender {
    stream: StreamId,
    /// What the edge has once it has everything sent whole; `None`: nothing.
    pub(super) held: Option<ReplicaPosition>,
    /// The edge's state differs from the log: a snapshot is due.
    pub(super) reset: bool,
    /// The window was closed with events left.
    pub(super) overflowed: bool,
    /// Nothing to do until the fold moves.
    pub(super) resting: bool,
    /// Why it is not served.
    pub(super) parked: Option<&'static str>,
    /// A snapshot is due: what the edge has may lie above the fold's end.
    pub(super) snapshot_due: bool,
    /// The end of the stream in the fold, as last read.
    pub(super) tail: Seq,
    /// The end that the edge was told when it stood there: it has compared hashes.
    compared: Option<ReplicaPosition>,
    /// The edge was asked what it holds.
    asked: Option<PendingSummary>,
    /// What it answered; until the end of the step.
    summary: Option<Summary>,
    catching_up: Option<CatchUpTransfer>,
    /// Pushes sent whole and not known to be received: bytes of the session sent by then, and
    /// where the push ends.
    unreceived: VecDeque<(u64, Seq)>,
    progress: Progress,
    history: History,
}

/// How far the edge came in the present history of the stream.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Progress {
    pub(super) received: Seq,
    pub(super) applied: Seq,
    pub(super) durable: Seq,
    pub(super) acked: Seq,
}

/// A snapshot or correction begins a new history, whose seqs may be lower. What the edge says
/// before it has received the first part is about the one before.
#[derive(Clone, Copy, Debug)]
struct History {
    /// Bytes of the session that are sent up to and with that first part; never, before it is.
    from_bytes: u64,
    /// The highest seq of histories before, where known.
    ceiling: Seq,
    begun: bool,
}

/// A question that has no answer yet.
struct PendingSummary {
    nonce: u64,
    since_ms: u64,
    /// The edge said meanwhile that its state differs: nothing is made of the answer.
    is_void: bool,
}

/// A delta, snapshot or correction on its way.
struct CatchUpTransfer {
    reader: Box<dyn CatchUp>,
    mode: PushMode,
    /// To be said with the first part.
    gone: RemovalRuns,
    from: Seq,
    to: Checkpoint,
    hash: StateHash,
    next_part: u32,
    began_ms: u64,
}

impl StreamSender {
    /// A stream as the edge's hello describes it; `None`: unknown, a snapshot begins it.
    pub(super) fn new(stream: StreamId, held: Option<ReplicaPosition>) -> Self {
        let seq = held.as_ref().map_or(Seq::ZERO, |held| held.checkpoint.seq);
        let history = match held {
            Some(_) => History { from_bytes: 0, ceiling: seq, begun: true },
            None => History { from_bytes: u64::MAX, ceiling: Seq(u64::MAX), begun: false },
        };
        Self {
            stream,
            held,
            reset: false,
            overflowed: false,
            resting: false,
            parked: None,
            snapshot_due: false,
            tail: Seq::ZERO,
            compared: None,
            asked: None,
            summary: None,
            catching_up: None,
            unreceived: VecDeque::new(),
            progress: Progress { received: seq, applied: seq, durable: seq, acked: seq },
            history,
        }
    }

    /// How far the edge came.
    pub(super) fn progress(&self) -> Progress {
        self.progress
    }

    /// The last event sent.
    pub(super) fn sent(&self) -> Seq {
        self.held.as_ref().map_or(Seq::ZERO, |held| held.checkpoint.seq)
    }

    /// The log that the stream is sent from.
    pub(super) fn log_id(&self) -> Option<LogId> {
        self.held.as_ref().map(|held| held.checkpoint.log_id)
    }

    /// Whether a snapshot or a correction is due or on its way: positions are of two histories
    /// until it is sent.
    pub(super) fn is_resetting(&self) -> bool {
        self.snapshot_due || self.catching_up.as_ref().is_some_and(|up| up.mode.begins_anew())
    }

    /// Whether this end is told, which is noted: an edge that rests compares its hash with it once.
    pub(super) fn tells(&mut self, end: &ReplicaPosition) -> bool {
        if self.compared.as_ref() == Some(end) {
            return false;
        }
        let stands_there = self.progress.applied == end.checkpoint.seq;
        self.compared = stands_there.then(|| end.clone());
        true
    }

    /// Since when a catch-up is on its way, or waits for a summary.
    pub(super) fn catching_up_since(&self) -> Option<u64> {
        let asked = self.asked.as_ref().filter(|asked| !asked.is_void);
        let asked = asked.map(|asked| asked.since_ms);
        self.catching_up.as_ref().map(|catching_up| catching_up.began_ms).or(asked)
    }

    /// The session is over: what was not sent is let go, where the edge stood stays.
    pub(super) fn end(&mut self) {
        self.asked = None;
        self.catching_up = None;
        self.unreceived.clear();
    }

    /// Whether the edge is asked what it holds before a snapshot goes out: it holds something,
    /// it has not said that this differs from what it takes it for, and it is not asked already.
    pub(super) fn may_ask(&self) -> bool {
        let holds = self.held.as_ref().is_some_and(|held| held.checkpoint.seq > Seq::ZERO);
        holds && !self.reset && self.asked.is_none()
    }

    /// Asks; nothing is sent until the answer is there. The nonce is made of what the hub's own
    /// state hashes to, so that nobody else chooses it.
    pub(super) fn ask(&mut self, hash: &StateHash, now_ms: u64) -> Compare {
        let [a, b, c, d, e, f, g, h, ..] = hash.to_bytes();
        let nonce = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
        self.asked = Some(PendingSummary { nonce, since_ms: now_ms, is_void: false });
        Compare { stream: self.stream.clone(), nonce }
    }

    /// The edge says what it holds. An answer to no question, or to one that is void, is passed
    /// over: the two may have crossed.
    pub(super) fn summarized(&mut self, summary: Summary) {
        let Some(asked) = self.asked.take_if(|asked| asked.nonce == summary.nonce) else { return };
        if !asked.is_void {
            self.resting = false;
            self.summary = Some(summary);
        }
    }

    /// The answer, once.
    pub(super) fn take_summary(&mut self) -> Option<Summary> {
        self.summary.take()
    }

    /// The edge says that its state differs. False: a snapshot or a correction is on its way
    /// already, from before the edge said so.
    pub(super) fn diverged(&mut self, received_bytes: u64) -> bool {
        let snapshot_under_way = received_bytes < self.history.from_bytes
            || self.catching_up.as_ref().is_some_and(|up| up.mode.begins_anew());
        if snapshot_under_way {
            return false;
        }
        if let Some(asked) = &mut self.asked {
            asked.is_void = true;
        }
        self.catching_up = None;
        self.reset = true;
        self.resting = false;
        true
    }

    /// Begins a delta or a snapshot that ends where the fold stands.
    pub(super) fn begin(
        &mut self,
        mode: PushMode,
        reader: Box<dyn CatchUp>,
        status: &FoldStatus,
        now_ms: u64,
    ) {
        let from = if mode.begins_anew() { Seq::ZERO } else { self.sent() };
        if mode.begins_anew() {
            self.reset = false;
        }
        self.overflowed = false;
        self.catching_up = Some(CatchUpTransfer {
            reader,
            mode,
            gone: RemovalRuns::default(),
            from,
            to: status.checkpoint,
            hash: status.hash,
            next_part: 0,
            began_ms: now_ms,
        });
    }

    /// Begins what leads the edge from what it says that it holds to where the fold stands.
    pub(super) fn answer(
        &mut self,
        source: &dyn StreamSource,
        summary: &Summary,
        status: &FoldStatus,
        now_ms: u64,
    ) -> Result<(), SourceError> {
        if summary.digests.is_empty() {
            let reader = source.snapshot(&self.stream)?;
            self.begin(PushMode::Snapshot, reader, status, now_ms);
            return Ok(());
        }
        let mut comparison = Comparison::new(summary.nonce, &summary.digests);
        let reader = source.correction(&self.stream, &mut comparison)?;
        self.begin(PushMode::Correction, reader, status, now_ms);
        if let Some(up) = &mut self.catching_up {
            up.gone = comparison.gone();
        }
        Ok(())
    }

    /// The next part of the catch-up on its way; `None`: there is none.
    pub(super) fn next_part(&mut self, bytes_max: u64) -> Result<Option<Push>, SourceError> {
        let Some(up) = &mut self.catching_up else { return Ok(None) };
        let CatchUpPart { changes, last } = up.reader.next(bytes_max)?;
        if changes.is_empty() && !last {
            let reason = format!("a catch-up of {} ends before its end", self.stream);
            return Err(SourceError { reason });
        }
        let push = Push {
            stream: self.stream.clone(),
            mode: up.mode,
            from: up.from,
            to: up.to,
            gone: std::mem::take(&mut up.gone),
            changes,
            hash: up.hash,
            part: up.next_part,
            last_part: last,
        };
        up.next_part += 1;
        if last {
            self.catching_up = None;
        }
        Ok(Some(push))
    }

    /// A push goes out; `sent_bytes` are the session's with it.
    pub(super) fn sending(&mut self, push: &Push, sent_bytes: u64) {
        if push.mode.begins_anew() && push.part == 0 {
            let ceiling = self.history.ceiling.max(self.sent());
            self.history = History { from_bytes: sent_bytes, ceiling, begun: false };
            self.progress = Progress::default();
            self.unreceived.clear();
        }
        if push.last_part {
            self.unreceived.push_back((sent_bytes, push.to.seq));
            self.held = Some(ReplicaPosition {
                stream: self.stream.clone(),
                checkpoint: push.to,
                hash: push.hash,
            });
        }
    }

    /// The edge has received this many bytes of the session.
    pub(super) fn received(&mut self, received_bytes: u64) {
        self.history.begun |= received_bytes >= self.history.from_bytes;
        while let Some((_, to)) =
            self.unreceived.front().copied().filter(|(bytes, _)| *bytes <= received_bytes)
        {
            self.unreceived.pop_front();
            self.progress.received = to;
        }
    }

    /// The edge says how far it came. True: `durable` rose.
    pub(super) fn progressed(&mut self, said: &StreamProgress) -> Result<bool, Violation> {
        let before = self.progress;
        let is_present = self.history.begun;
        let received = if is_present { before.received } else { self.history.ceiling };
        let mut chain =
            vec![("durable", said.durable), ("applied", said.applied), ("received", received)];
        if is_present {
            chain.insert(0, ("acked", before.acked));
            chain.push(("sent", self.sent()));
            // A parked edge, or one in another history, may be ahead of the fold.
            if self.parked.is_none() && !self.is_resetting() {
                chain.push(("tail", self.tail));
            }
        }
        self.rises(&chain)?;
        if !is_present {
            return Ok(false);
        }
        self.rises(&[("applied before", before.applied), ("applied", said.applied)])?;
        self.progress.applied = said.applied;
        self.progress.durable = said.durable;
        self.progress.acked = said.durable;
        Ok(said.durable > before.durable)
    }

    /// Asserts that the positions do not fall from left to right.
    fn rises(&self, chain: &[(&'static str, Seq)]) -> Result<(), Violation> {
        for pair in chain.windows(2) {
            let [(lower_name, lower), (upper_name, upper)] = pair else { continue };
            if lower > upper {
                return Err(Violation::Position {
                    stream: self.stream.clone(),
                    lower_name,
                    lower: *lower,
                    upper_name,
                    upper: *upper,
                });
            }
        }
        Ok(())
    }
}
