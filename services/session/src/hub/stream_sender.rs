//! One stream of one session at the hub: what is sent, and the edge's progress.

use std::collections::VecDeque;

use headwater_event::{Checkpoint, LogId, RemovalRuns, Seq, StateHash, StreamId};

use super::io::Violation;
use crate::comparison::Comparison;
use crate::message::{Compare, Push, PushMode, ReplicaPosition, StreamProgress, Summary};
use crate::source::{FoldStatus, SourceError, StreamSource, TransferPart, TransferReader};

/// Sends one stream in one session.
pub(super) struct StreamSender {
    stream: StreamId,
    /// Whether the node has the stream by the fold. Otherwise nothing is sent.
    pub(super) is_served: bool,
    /// The edge's position once it has received everything sent; `None`: it holds nothing.
    pub(super) held: Option<ReplicaPosition>,
    /// The edge's state differs from the log, so a snapshot is due.
    pub(super) reset: bool,
    /// The window was full while events were left.
    pub(super) overflowed: bool,
    /// The source no longer has the next event: a delta is due.
    pub(super) lacks_events: bool,
    /// Nothing can be sent until the fold advances.
    pub(super) is_idle: bool,
    /// Why the stream is parked.
    pub(super) parked: Option<&'static str>,
    /// A snapshot is due. The edge's position may then be above the end of the fold.
    pub(super) snapshot_due: bool,
    /// The end of the stream in the fold when it was last read.
    pub(super) tail: Seq,
    /// The end of the stream in the last heartbeat that found the edge there. The edge has
    /// compared its hash with it.
    compared: Option<ReplicaPosition>,
    /// The comparison without a summary yet.
    comparison: Option<PendingSummary>,
    /// The summary that arrived; until the end of the step.
    summary: Option<Summary>,
    /// Boxed: an idle stream has none.
    transfer: Option<Box<Transfer>>,
    /// Pushes sent whole and not acknowledged as received: the bytes of the session sent with each,
    /// and its last event.
    unreceived: VecDeque<(u64, Seq)>,
    progress: Progress,
    history: History,
}

/// The edge's progress in the current history of the stream.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Progress {
    pub(super) received: Seq,
    pub(super) applied: Seq,
    pub(super) durable: Seq,
    pub(super) acked: Seq,
}

/// A snapshot or correction begins a new history, whose seqs may be lower. Progress that the edge
/// reports before it has received the first part is of the previous history.
#[derive(Clone, Copy, Debug)]
struct History {
    /// Bytes of the session sent with that first part; the maximum before it is sent.
    from_bytes: u64,
    /// The highest seq of previous histories, if known.
    ceiling: Seq,
    /// Whether the edge has received the first part.
    begun: bool,
}

/// A comparison whose summary has not arrived.
struct PendingSummary {
    nonce: u64,
    since_ms: u64,
    /// The edge has reported a divergence since, so the summary is ignored.
    is_void: bool,
}

/// A delta, snapshot or correction that is being sent.
struct Transfer {
    reader: Box<dyn TransferReader>,
    mode: PushMode,
    /// Sent with the first part.
    gone: RemovalRuns,
    from: Seq,
    to: Checkpoint,
    hash: StateHash,
    next_part: u32,
    began_ms: u64,
}

impl StreamSender {
    /// Creates the sender of a stream that the edge holds up to `held`; `None`: it begins with a
    /// snapshot. It is not served yet.
    pub(super) fn new(stream: StreamId, held: Option<ReplicaPosition>) -> Self {
        let seq = held.as_ref().map_or(Seq::ZERO, |held| held.checkpoint.seq);
        let history = match held {
            Some(_) => History { from_bytes: 0, ceiling: seq, begun: true },
            None => History { from_bytes: u64::MAX, ceiling: Seq(u64::MAX), begun: false },
        };
        Self {
            stream,
            is_served: false,
            held,
            reset: false,
            overflowed: false,
            lacks_events: false,
            is_idle: false,
            parked: None,
            snapshot_due: false,
            tail: Seq::ZERO,
            compared: None,
            comparison: None,
            summary: None,
            transfer: None,
            unreceived: VecDeque::new(),
            progress: Progress { received: seq, applied: seq, durable: seq, acked: seq },
            history,
        }
    }

    /// The edge's progress.
    pub(super) fn progress(&self) -> Progress {
        self.progress
    }

    /// The stream.
    pub(super) fn stream(&self) -> &StreamId {
        &self.stream
    }

    /// The last event sent.
    pub(super) fn sent(&self) -> Seq {
        self.held.as_ref().map_or(Seq::ZERO, |held| held.checkpoint.seq)
    }

    /// The log of the events sent.
    pub(super) fn log_id(&self) -> Option<LogId> {
        self.held.as_ref().map(|held| held.checkpoint.log_id)
    }

    /// Whether a snapshot is due, or a snapshot or correction is partly sent. Positions are of two
    /// histories until it is sent.
    pub(super) fn is_resetting(&self) -> bool {
        self.snapshot_due
            || self.transfer.as_ref().is_some_and(|transfer| transfer.mode.begins_anew())
    }

    /// Whether a heartbeat must carry this end, and takes note of it: an idle edge compares its
    /// hash with one end once.
    pub(super) fn must_compare_hash(&mut self, end: &ReplicaPosition) -> bool {
        if self.compared.as_ref() == Some(end) {
            return false;
        }
        let is_there = self.progress.applied == end.checkpoint.seq;
        self.compared = is_there.then(|| end.clone());
        true
    }

    /// When the current transfer began, or the comparison before it.
    pub(super) fn transfer_since(&self) -> Option<u64> {
        let comparison = self.comparison.as_ref().filter(|comparison| !comparison.is_void);
        let compared_ms = comparison.map(|comparison| comparison.since_ms);
        self.transfer.as_ref().map(|transfer| transfer.began_ms).or(compared_ms)
    }

    /// The session has ended: discards what was not sent and keeps the edge's last position.
    pub(super) fn end(&mut self) {
        self.comparison = None;
        self.transfer = None;
        self.unreceived.clear();
    }

    /// Whether a comparison comes before a snapshot: the edge holds something, has reported no
    /// divergence, and has no comparison to answer.
    pub(super) fn may_compare(&self) -> bool {
        let holds = self.held.as_ref().is_some_and(|held| held.checkpoint.seq > Seq::ZERO);
        holds && !self.reset && self.comparison.is_none()
    }

    /// Begins a comparison; nothing is sent until its summary arrives. The nonce comes from the
    /// hash of the hub's own state, so that no edge can choose it.
    pub(super) fn compare(&mut self, hash: &StateHash, now_ms: u64) -> Compare {
        let [a, b, c, d, e, f, g, h, ..] = hash.to_bytes();
        let nonce = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
        self.comparison = Some(PendingSummary { nonce, since_ms: now_ms, is_void: false });
        Compare { stream: self.stream.clone(), nonce }
    }

    /// A summary arrived. It is ignored when its comparison is void or unknown: the messages may
    /// have crossed.
    pub(super) fn summarized(&mut self, summary: Summary) {
        let pending = self.comparison.take_if(|pending| pending.nonce == summary.nonce);
        if pending.is_some_and(|pending| !pending.is_void) {
            self.is_idle = false;
            self.summary = Some(summary);
        }
    }

    /// The summary that arrived, once.
    pub(super) fn take_summary(&mut self) -> Option<Summary> {
        self.summary.take()
    }

    /// The edge reports a divergence. False: a snapshot or correction was due or in flight before
    /// the edge noticed it.
    pub(super) fn diverged(&mut self, received_bytes: u64) -> bool {
        let is_unsent = self
            .transfer
            .as_ref()
            .is_some_and(|transfer| transfer.mode.begins_anew() && transfer.next_part == 0);
        if self.reset || is_unsent || received_bytes < self.history.from_bytes {
            return false;
        }
        self.require_snapshot();
        true
    }

    /// The node no longer has the stream by the fold. The edge drops a stream that was served, so
    /// the stream begins with a snapshot when the node has it again. The sender keeps its position:
    /// an edge that has read further than the fold drops nothing, and must not be set back.
    pub(super) fn withdraw(&mut self) {
        if std::mem::take(&mut self.is_served) {
            self.require_snapshot();
        }
    }

    /// Abandons the transfer and the comparison: a snapshot is due.
    fn require_snapshot(&mut self) {
        if let Some(comparison) = &mut self.comparison {
            comparison.is_void = true;
        }
        self.transfer = None;
        self.reset = true;
        self.is_idle = false;
    }

    /// Begins a delta, snapshot or correction up to the end of the fold.
    pub(super) fn begin(
        &mut self,
        mode: PushMode,
        reader: Box<dyn TransferReader>,
        status: &FoldStatus,
        now_ms: u64,
    ) {
        let from = if mode.begins_anew() { Seq::ZERO } else { self.sent() };
        if mode.begins_anew() {
            self.reset = false;
        }
        self.overflowed = false;
        self.lacks_events = false;
        self.transfer = Some(Box::new(Transfer {
            reader,
            mode,
            gone: RemovalRuns::default(),
            from,
            to: status.checkpoint,
            hash: status.hash,
            next_part: 0,
            began_ms: now_ms,
        }));
    }

    /// Begins the correction that leads from the edge's summary to the end of the fold. An empty
    /// summary needs a snapshot.
    pub(super) fn begin_correction(
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
        if let Some(transfer) = &mut self.transfer {
            transfer.gone = comparison.gone();
        }
        Ok(())
    }

    /// The next part of the current transfer; `None`: there is none.
    pub(super) fn next_part(&mut self, bytes_max: u64) -> Result<Option<Push>, SourceError> {
        let Some(transfer) = &mut self.transfer else { return Ok(None) };
        let TransferPart { changes, last } = transfer.reader.next(bytes_max)?;
        if changes.is_empty() && !last {
            let reason =
                format!("the transfer of {} has an empty part before its end", self.stream);
            return Err(SourceError { reason });
        }
        let push = Push {
            stream: self.stream.clone(),
            mode: transfer.mode,
            from: transfer.from,
            to: transfer.to,
            gone: std::mem::take(&mut transfer.gone),
            changes,
            hash: transfer.hash,
            part: transfer.next_part,
            last_part: last,
        };
        transfer.next_part += 1;
        if last {
            self.transfer = None;
        }
        Ok(Some(push))
    }

    /// Takes note of a push; `sent_bytes` are those of the session with it.
    pub(super) fn sending(&mut self, push: &Push, sent_bytes: u64) {
        if push.is_beginning() {
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

    /// The edge has received `received_bytes` of the session.
    pub(super) fn received(&mut self, received_bytes: u64) {
        self.history.begun |= received_bytes >= self.history.from_bytes;
        while let Some((_, to)) =
            self.unreceived.front().copied().filter(|(bytes, _)| *bytes <= received_bytes)
        {
            self.unreceived.pop_front();
            self.progress.received = to;
        }
    }

    /// The edge reports its progress. True: `durable` rose.
    pub(super) fn progressed(&mut self, reported: &StreamProgress) -> Result<bool, Violation> {
        let before = self.progress;
        let is_present = self.history.begun;
        let received = if is_present { before.received } else { self.history.ceiling };
        // The edge may be ahead of the fold while the stream is parked or is in another history.
        let has_tail =
            is_present && self.is_served && self.parked.is_none() && !self.is_resetting();
        let chain = [
            is_present.then_some(("acked", before.acked)),
            Some(("durable", reported.durable)),
            Some(("applied", reported.applied)),
            Some(("received", received)),
            is_present.then(|| ("sent", self.sent())),
            has_tail.then_some(("tail", self.tail)),
        ];
        self.check_order(chain.into_iter().flatten())?;
        if !is_present {
            return Ok(false);
        }
        let applied = [("applied before", before.applied), ("applied", reported.applied)];
        self.check_order(applied.into_iter())?;
        self.progress.applied = reported.applied;
        self.progress.durable = reported.durable;
        self.progress.acked = reported.durable;
        Ok(reported.durable > before.durable)
    }

    /// Checks that no position is above the next one.
    fn check_order(
        &self,
        mut chain: impl Iterator<Item = (&'static str, Seq)>,
    ) -> Result<(), Violation> {
        let Some((mut lower_name, mut lower)) = chain.next() else { return Ok(()) };
        for (upper_name, upper) in chain {
            if lower > upper {
                let stream = self.stream.clone();
                return Err(Violation::Position { stream, lower_name, lower, upper_name, upper });
            }
            (lower_name, lower) = (upper_name, upper);
        }
        Ok(())
    }
}
