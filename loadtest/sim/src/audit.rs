//! The auditor: reads the raw logs by the rules of the log, without the code that it judges, and
//! knows every position that any stream ever had.

use std::collections::{BTreeMap, BTreeSet};

use futures::FutureExt;
use headwater_check::State;
use headwater_check::fencing::{Fencing, ReaderOutcome};
use headwater_event::upstream::{ReportRecord, decode_report};
use headwater_event::{
    Change, Checkpoint, EntryKey, EventHeader, LogId, NodeName, ObjectHash, Offset, Partition,
    RecordKey, ReportId, Seq, StateHash, StreamId, WriterEpoch,
};
use headwater_log::{
    Log, MemoryLog, ReadError, Reader, StoredRecord, read_metadata, start_cursors,
};

use crate::bodies::{ChangeError, LoggedBodies};
use crate::disk::StreamOnDisk;
use crate::frame::Frame;

/// A position of a stream.
#[derive(Clone, Debug)]
pub(crate) struct Point {
    pub(crate) seq: Seq,
    epoch: WriterEpoch,
    pub(crate) hash: StateHash,
    pub(crate) state: State,
    is_removal: bool,
}

/// One history of the downstream log.
#[derive(Clone, Debug, Default)]
struct Branch {
    log_id: Option<LogId>,
    claimed: BTreeMap<Partition, WriterEpoch>,
    /// Where each partition's newest claim lies: truncation spares it.
    claims: BTreeMap<Partition, Offset>,
    /// I11: which writes count.
    fencing: BTreeMap<Partition, Fencing>,
    streams: BTreeMap<StreamId, Vec<(Offset, Point)>>,
    bodies: LoggedBodies,
    /// Streams that stand before a hole, and the epoch of what came instead.
    stopped: BTreeMap<StreamId, WriterEpoch>,
}

/// An object as it was put into a stream: its key, UID and hash.
pub(crate) type Put = (EntryKey, String, [u8; 32]);

/// See the module.
pub(crate) struct Auditor {
    frame: Frame,
    downstream: MemoryLog,
    upstream: MemoryLog,
    readers: [Option<Box<dyn Reader>>; 2],
    branch: Branch,
    former: Vec<Branch>,
    logged: BTreeMap<NodeName, BTreeSet<ReportId>>,
    /// Where each object was put into a stream.
    put: BTreeMap<Put, Vec<Checkpoint>>,
    /// Whether compaction ever ran.
    pub(crate) compacted: bool,
}

impl Auditor {
    pub(crate) fn new(frame: &Frame, downstream: &MemoryLog, upstream: &MemoryLog) -> Self {
        Self {
            frame: frame.clone(),
            downstream: downstream.handle(),
            upstream: upstream.handle(),
            readers: [None, None],
            branch: Branch::default(),
            former: Vec::new(),
            logged: BTreeMap::new(),
            put: BTreeMap::new(),
            compacted: false,
        }
    }

    /// Reads what is there by now. The logs must be reachable.
    pub(crate) fn read(&mut self) {
        for which in [0, 1] {
            loop {
                if self.readers[which].is_none() {
                    let log = if which == 0 { &self.downstream } else { &self.upstream };
                    let opened = async { log.read(start_cursors(log).await?).await };
                    self.readers[which] = opened.now_or_never().and_then(Result::ok);
                }
                let Some(reader) = &mut self.readers[which] else { break };
                match reader.next().now_or_never() {
                    None => break,
                    Some(Ok(batch)) => {
                        if which == 0 && self.branch.log_id.is_none() {
                            // Its metadata is in another partition than most of its events.
                            let log_metadata = read_metadata(&self.downstream).now_or_never();
                            let log_metadata = log_metadata.and_then(Result::ok).flatten();
                            self.branch.log_id =
                                log_metadata.map(|log_metadata| log_metadata.log_id);
                        }
                        for record in &batch.records {
                            match which {
                                0 => self.downstream(record),
                                _ => self.upstream(record),
                            }
                        }
                    }
                    Some(Err(ReadError::Unavailable { .. })) => break,
                    Some(Err(error)) => {
                        self.frame.broken(format_args!("the auditor was passed by: {error}"));
                        break;
                    }
                }
            }
        }
    }

    /// The downstream log is made anew.
    pub(crate) fn recreated(&mut self) {
        let former = std::mem::take(&mut self.branch);
        self.former.push(former);
        self.readers[0] = None;
    }

    /// The end of a partition is gone: another history goes on from there. Once a run.
    pub(crate) fn truncated(&mut self, partition: Partition, high: Offset, partitions: u32) {
        self.former.push(self.branch.clone());
        for (stream, points) in &mut self.branch.streams {
            if stream.partition(partitions) == partition {
                points.retain(|(offset, _)| *offset < high);
                self.branch.stopped.remove(stream);
            }
        }
        if high == Offset(0) {
            // The metadata is gone too, and the next part that opens the log appends its own.
            self.branch.log_id = None;
        }
        self.branch.bodies.truncate(|at, offset| at.partition == partition && offset >= high);
        let log = &self.downstream;
        let opened = async {
            let mut cursors = start_cursors(log).await?;
            for cursor in &mut cursors {
                cursor.next = log.bounds(cursor.partition).await?.high;
            }
            log.read(cursors).await
        };
        self.readers[0] = opened.now_or_never().and_then(Result::ok);
    }

    /// Where the newest claim of a partition lies.
    pub(crate) fn claim(&self, partition: Partition) -> Option<Offset> {
        self.branch.claims.get(&partition).copied()
    }

    /// The log's present life.
    pub(crate) fn log_id(&self) -> Option<LogId> {
        self.branch.log_id
    }

    /// Where a stream ends.
    pub(crate) fn end(&self, stream: &StreamId) -> Option<&Point> {
        self.branch.streams.get(stream)?.last().map(|(_, point)| point)
    }

    /// Whether a stream ends with a removal: a writer that lives appends a head to it.
    pub(crate) fn is_head_due(&self) -> bool {
        let mut ends = self.branch.streams.values().filter_map(|points| points.last());
        ends.any(|(_, end)| end.is_removal)
    }

    /// Whether a stream may be taken to end at `seq`, whose state is that of its end: events behind
    /// it that came to nothing are lost to compaction where no head was behind them.
    pub(crate) fn may_end_at(&self, stream: &StreamId, seq: Seq) -> bool {
        self.compacted && left(&self.downstream, stream, Offset(u64::MAX), Seq(u64::MAX)).1 == seq
    }

    /// Which reports of a node are in the upstream log.
    pub(crate) fn logged(&self, node: &NodeName) -> &BTreeSet<ReportId> {
        static NONE: BTreeSet<ReportId> = BTreeSet::new();
        self.logged.get(node).unwrap_or(&NONE)
    }

    /// Whether an object was put somewhere at or below one of these positions, or in an earlier
    /// log.
    pub(crate) fn was_put(&self, put: &Put, durable: &[Checkpoint]) -> bool {
        let places = self.put.get(put).into_iter().flatten();
        places.into_iter().any(|place| {
            durable.iter().any(|at| {
                at.log_id.number > place.log_id.number
                    || (at.log_id == place.log_id && at.seq >= place.seq)
            })
        })
    }

    /// I1: what is shown at a checkpoint is what the log makes of the stream there.
    pub(crate) fn check_prefix(
        &self,
        stream: &StreamId,
        held: &StreamOnDisk,
    ) -> Result<(), String> {
        let Some(at) = held.at else { return Ok(()) };
        if at.seq == Seq::ZERO {
            return if held.state.entries.is_empty() {
                Ok(())
            } else {
                Err(format!("I1 {stream}: holds entries at seq 0"))
            };
        }
        let Some(point) = self.point(stream, &at) else {
            return Err(format!("I1 {stream}: {at:?} was never logged"));
        };
        match point.state.difference(&held.state) {
            None => Ok(()),
            Some((key, expected, found)) => Err(format!(
                "I1 {stream} at {at:?}: {key} is {found:?}, the log makes it {expected:?}"
            )),
        }
    }

    /// The position that a checkpoint means, in the newest history that has it.
    fn point(&self, stream: &StreamId, at: &Checkpoint) -> Option<&Point> {
        let branches = [&self.branch].into_iter().chain(self.former.iter().rev());
        let of_log = branches.filter(|branch| branch.log_id == Some(at.log_id));
        let mut points = of_log.filter_map(|branch| {
            let points = branch.streams.get(stream)?;
            let index = usize::try_from(at.seq.0.checked_sub(1)?).ok()?;
            points.get(index).map(|(_, point)| point)
        });
        points.find(|point| point.seq == at.seq && point.epoch <= at.epoch)
    }

    fn downstream(&mut self, recorded: &StoredRecord) {
        let StoredRecord { partition, offset, record, .. } = recorded;
        let branch = &mut self.branch;
        let Ok(key) = RecordKey::decode(&record.key) else {
            return self.frame.broken("a downstream record has no key of ours");
        };
        let (stream, entry) = match key {
            RecordKey::Claim(epoch, _) => {
                let claimed = branch.claimed.entry(*partition).or_default();
                if epoch > *claimed {
                    *claimed = epoch;
                    branch.claims.insert(*partition, *offset);
                    let fencing = branch.fencing.entry(*partition).or_default();
                    self.frame.check(fencing.observe(
                        *partition,
                        *offset,
                        ReaderOutcome::Claim(epoch),
                    ));
                }
                return;
            }
            RecordKey::Log(_) | RecordKey::Heartbeat(_) | RecordKey::Reconciled(_) => return,
            RecordKey::Body(id) => {
                if let Err(error) = branch.bodies.observe(recorded, id) {
                    self.frame.broken(error);
                }
                self.frame.count("body");
                return;
            }
            RecordKey::Head(stream) => (stream, None),
            RecordKey::Entry(stream, entry) => (stream, Some(entry)),
        };
        let Ok(header) = EventHeader::decode(&record.header) else {
            return self.frame.broken("a downstream record has no header");
        };
        let claimed = branch.claimed.get(partition).copied().unwrap_or_default();
        if header.epoch != claimed {
            let fencing = branch.fencing.entry(*partition).or_default();
            let seen = ReaderOutcome::PassedOver(header.epoch);
            self.frame.check(fencing.observe(*partition, *offset, seen));
            self.frame.count("record of a fenced writer");
            return;
        }
        // The end of a stream that was removals alone, and no head behind them before a writer
        // was away for weeks, is lost to compaction: a higher epoch goes on from what is left.
        let goes_back = branch.streams.get(&stream).and_then(|points| points.last()).is_some_and(
            |(_, last)| header.epoch > last.epoch && header.epoch_first_seq <= last.seq,
        );
        if goes_back && self.compacted {
            self.frame.count("stream's end lost to compaction");
            self.former.push(branch.clone());
            let points = branch.streams.entry(stream.clone()).or_default();
            points.retain(|(_, point)| point.seq < header.epoch_first_seq);
        }
        let points = branch.streams.entry(stream.clone()).or_default();
        let last = points.last().map_or(Seq::ZERO, |(_, point)| point.seq);
        if header.seq <= last {
            return;
        }
        let change = entry.map(|key| branch.bodies.change(key, &header, recorded)).transpose();
        let lacks_body = matches!(change, Err(ChangeError::NoBody(_)));
        let fills = header.seq == last.next()
            && branch.stopped.get(&stream).is_none_or(|stopped| header.epoch > *stopped);
        if !fills {
            self.frame.count("hole in a stream");
            branch.stopped.entry(stream).or_insert(header.epoch);
            return;
        }
        if lacks_body {
            self.frame.count("reference without a body");
            branch.stopped.insert(stream, header.epoch);
            return;
        }
        let change = match change {
            Ok(change) => change,
            Err(error) => return self.frame.broken(error),
        };
        branch.stopped.remove(&stream);
        let fencing = branch.fencing.entry(*partition).or_default();
        self.frame.check(fencing.observe(
            *partition,
            *offset,
            ReaderOutcome::Visible(header.epoch),
        ));
        let state = points.last().map(|(_, point)| point.state.clone()).unwrap_or_default();
        if let (Some(Change::Applied(applied)), Some(log_id)) = (&change, branch.log_id) {
            let hash = ObjectHash::of(&applied.object).0;
            let at = Checkpoint { log_id, epoch: header.epoch, seq: header.seq };
            let put = (applied.key.clone(), applied.uid.clone(), hash);
            self.put.entry(put).or_default().push(at);
        }
        let is_removal = matches!(change, Some(Change::Removed(_)));
        let log_id = branch.log_id;
        let folded = |mut state: State| {
            change.iter().for_each(|change| state.apply(change));
            let hash = log_id.map_or(StateHash::EMPTY, |log_id| state.hash(&log_id));
            (state, hash)
        };
        let (mut state, mut hash) = folded(state);
        if hash != header.hash && self.compacted && header.seq == header.epoch_first_seq {
            // No reader can know what compaction removed wrongly: a new writer continues from the
            // present records.
            (state, hash) = folded(left(&self.downstream, &stream, *offset, header.seq).0);
            self.frame.count("stream goes on from what compaction left");
        }
        if hash != header.hash {
            let (seq, found) = (header.seq, header.hash);
            self.frame.broken(format_args!("I1 {stream} seq {seq}: logged {found}, is {hash}"));
        }
        points.push((
            *offset,
            Point { seq: header.seq, epoch: header.epoch, hash, state, is_removal },
        ));
    }

    fn upstream(&mut self, recorded: &StoredRecord) {
        let record = &recorded.record;
        let record = ReportRecord {
            key: record.key.clone(),
            value: record.value.clone(),
            header: record.header.clone(),
        };
        if let Ok(Some((node, report))) = decode_report(&record, None) {
            self.logged.entry(node).or_default().insert(report.id);
        }
    }
}

/// What the events of `stream` below `seq` come to whose records lie before `end`, are still there
/// and count; and the last seq among them.
fn left(log: &MemoryLog, stream: &StreamId, end: Offset, seq: Seq) -> (State, Seq) {
    let (mut state, mut last) = (State::default(), Seq::ZERO);
    let mut claimed = WriterEpoch::default();
    let mut bodies = LoggedBodies::default();
    let opened = async {
        let cursors = start_cursors(log).await?.into_iter();
        let count = log.describe().await?.partitions;
        log.read(cursors.filter(|at| at.partition == stream.partition(count)).collect()).await
    };
    let Some(Ok(mut reader)) = opened.now_or_never() else { return (state, last) };
    while let Some(Ok(batch)) = reader.next().now_or_never() {
        for recorded in batch.records.iter().filter(|at| at.offset < end) {
            let record = &recorded.record;
            let key = match RecordKey::decode(&record.key) {
                Ok(RecordKey::Claim(epoch, _)) => {
                    claimed = claimed.max(epoch);
                    continue;
                }
                Ok(RecordKey::Body(id)) => {
                    // A body that cannot be read was reported when it was appended.
                    let _ = bodies.observe(recorded, id);
                    continue;
                }
                Ok(RecordKey::Head(of)) if of == *stream => None,
                Ok(RecordKey::Entry(of, key)) if of == *stream => Some(key),
                _ => continue,
            };
            let Ok(header) = EventHeader::decode(&record.header) else { continue };
            if header.epoch != claimed || header.seq >= seq {
                continue;
            }
            last = header.seq;
            // A later event supersedes one whose body compaction has dropped.
            if let Some(Ok(change)) = key.map(|key| bodies.change(key, &header, recorded)) {
                state.apply(&change);
            }
        }
    }
    (state, last)
}
