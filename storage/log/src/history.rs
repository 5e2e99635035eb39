//! Reads the past of one stream from the log: its state at a position, and its events.
//!
//! The log keeps every event for its replay window, and after that only the last event of each key.
//! So some past states are lost. The hash proves which states are complete: this module returns a
//! state only if its hash equals the hash that the writer recorded at that position.

mod fold;

use std::collections::{BTreeMap, VecDeque};

use headwater_event::record::LogMetadata;
use headwater_event::{Applied, EntryKey, Envelope, Offset, Seq, StateHash, StreamId, WriterEpoch};

use self::fold::StreamFold;
use crate::acceptance::{Acceptance, Hole, MalformedRecord, Outcome};
use crate::fold::begin_fold_of;
use crate::log::{Log, ReadError, Reader};

/// The position of a requested past state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// The state right after this event; [`Seq::ZERO`] is the empty one.
    Seq(Seq),
    /// The state after the last event that the log had appended by then, in milliseconds since
    /// the Unix epoch.
    Time(i64),
    /// The state after the last event.
    Tail,
}

/// An entry of a past state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastEntry {
    /// The seq of the event that wrote this entry.
    pub seq: Seq,
    /// When the log appended that event.
    pub time_ms: i64,
    /// The entry.
    pub applied: Applied,
}

/// The state of a stream at one position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastState {
    /// The last event in it; zero for the empty state before the first.
    pub seq: Seq,
    /// The epoch of that event's writer.
    pub epoch: WriterEpoch,
    /// When the log appended that event.
    pub time_ms: i64,
    /// The hash of the state, equal to the hash that the writer recorded.
    pub hash: StateHash,
    /// The entries.
    pub entries: BTreeMap<EntryKey, PastEntry>,
}

/// The states of a stream that the log has: each from the earliest to the newest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateWindow {
    /// The first event whose state is complete, and when the log appended it.
    pub earliest: (Seq, i64),
    /// The last event, and when the log appended it.
    pub newest: (Seq, i64),
}

/// The reason why a past state or past events are not available.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// Compaction has dropped events that the state needs.
    #[error(
        "{stream}: compaction dropped events up to {wanted}; {}", earliest_text(*.earliest)
    )]
    Compacted {
        /// The stream.
        stream: StreamId,
        /// The requested position: a seq, or a time.
        wanted: String,
        /// The first position whose state is available, with its append time.
        earliest: Option<(Seq, i64)>,
    },
    /// The requested position is above the stream's tail.
    #[error("{stream} has not reached seq {wanted}: its tail is {tail}")]
    NotReached {
        /// The stream.
        stream: StreamId,
        /// The requested seq.
        wanted: Seq,
        /// The last seq of the stream.
        tail: Seq,
    },
    /// The state folded from the log differs from the state that its writer recorded.
    #[error(
        "{stream} at seq {seq}: the state folded from the log has hash {folded}, and its \
         writer recorded {recorded}"
    )]
    Diverged {
        /// The stream.
        stream: StreamId,
        /// The position.
        seq: Seq,
        /// The hash of the folded state.
        folded: StateHash,
        /// The hash that the event carries.
        recorded: StateHash,
    },
    /// Events are missing that compaction cannot have dropped.
    #[error("{} has a hole: seq {} is missing before {}", .0.stream, .0.expected, .0.found)]
    Hole(Hole),
    /// An event cannot be read.
    #[error("an event of the stream cannot be read")]
    Malformed(#[from] MalformedRecord),
    /// The log cannot be read.
    #[error("the log cannot be read")]
    Read(#[from] ReadError),
    /// The request is for more events than one response holds.
    #[error("the range has more than {events_max} events: ask for fewer")]
    TooMany {
        /// The bound.
        events_max: usize,
    },
}

/// One step of reading a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HistoryItem {
    /// The next event.
    Event(Envelope),
    /// Events are missing before the next one. The next call returns the events after the hole.
    Hole(Hole),
    /// An event that cannot be read.
    Malformed(MalformedRecord),
    /// The reader reached the end that the log had when the reading began. The next call waits
    /// for further events.
    End,
}

/// Reads the events of one stream from the start of the log, `Head` events included.
pub struct StreamHistory {
    stream: StreamId,
    reader: Box<dyn Reader>,
    acceptance: Acceptance,
    high: Offset,
    read: VecDeque<HistoryItem>,
    ended: bool,
}

impl StreamHistory {
    /// Opens a reader at the start of the log. `now_ms` is the reader's clock.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub async fn open(
        log: &dyn Log,
        metadata: LogMetadata,
        stream: &StreamId,
        now_ms: i64,
    ) -> Result<Self, ReadError> {
        let partition = stream.partition(metadata.partitions);
        let high = log.bounds(partition).await?.high;
        let acceptance = begin_fold_of(log, metadata, [partition], now_ms).await?;
        let reader = log.read(acceptance.cursors()).await?;
        let (stream, read) = (stream.clone(), VecDeque::new());
        Ok(Self { stream, reader, acceptance, high, read, ended: false })
    }

    /// Returns the next item; after [`HistoryItem::End`] it waits for further appends.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub async fn next(&mut self) -> Result<HistoryItem, ReadError> {
        loop {
            if let Some(read) = self.read.pop_front() {
                return Ok(read);
            }
            let next = self.acceptance.cursors().first().map_or(self.high, |cursor| cursor.next);
            if !self.ended && next >= self.high {
                self.ended = true;
                return Ok(HistoryItem::End);
            }
            let batch = self.reader.next().await?;
            for outcome in self.acceptance.accept_batch(&batch, 0) {
                let read = match outcome {
                    Outcome::Accepted(envelope) if envelope.stream == self.stream => {
                        HistoryItem::Event(envelope)
                    }
                    Outcome::Hole(hole) if hole.stream == self.stream => HistoryItem::Hole(hole),
                    Outcome::Malformed(malformed)
                        if malformed.stream.as_ref() == Some(&self.stream) =>
                    {
                        HistoryItem::Malformed(malformed)
                    }
                    _ => continue,
                };
                self.read.push_back(read);
            }
        }
    }
}

/// Folds the state of `stream` from the log. `now_ms` is the reader's clock.
///
/// # Errors
/// See [`HistoryError`]; [`HistoryError::Compacted`] names the first position that is available.
pub async fn fold_stream(
    log: &dyn Log,
    metadata: LogMetadata,
    stream: &StreamId,
    until: Until,
    now_ms: i64,
) -> Result<PastState, HistoryError> {
    let mut history = StreamHistory::open(log, metadata, stream, now_ms).await?;
    let mut fold = StreamFold::new(stream.clone(), &metadata, until);
    loop {
        match history.next().await? {
            HistoryItem::Event(envelope) => {
                if let Some(answer) = fold.take(envelope) {
                    return answer;
                }
            }
            HistoryItem::Hole(hole) => fold.stop(HistoryError::Hole(hole)),
            HistoryItem::Malformed(malformed) => fold.stop(HistoryError::Malformed(malformed)),
            HistoryItem::End => return fold.end(),
        }
    }
}

/// Returns the states of `stream` that the log has; `None`: it has none. `now_ms` is the reader's
/// clock.
///
/// # Errors
/// See [`ReadError`].
pub async fn stream_window(
    log: &dyn Log,
    metadata: LogMetadata,
    stream: &StreamId,
    now_ms: i64,
) -> Result<Option<StateWindow>, ReadError> {
    let mut history = StreamHistory::open(log, metadata, stream, now_ms).await?;
    let mut fold = StreamFold::new(stream.clone(), &metadata, Until::Tail);
    let mut window: Option<StateWindow> = None;
    loop {
        let envelope = match history.next().await? {
            HistoryItem::Event(envelope) => envelope,
            HistoryItem::Hole(_) | HistoryItem::Malformed(_) => continue,
            HistoryItem::End => return Ok(window),
        };
        let newest = (envelope.seq, envelope.time_ms);
        fold.apply(envelope);
        window = match window {
            Some(StateWindow { earliest, .. }) => Some(StateWindow { earliest, newest }),
            None => fold.is_whole().then_some(StateWindow { earliest: newest, newest }),
        };
    }
}

/// Reads the events of `stream` from `from` to `to`, both inclusive, without a gap. Without `from`
/// the range begins at the first seq after which no event is missing; without `to` it ends at the
/// tail.
///
/// # Errors
/// See [`HistoryError`]; [`HistoryError::Compacted`] when compaction dropped `from`.
pub async fn stream_events(
    log: &dyn Log,
    metadata: LogMetadata,
    stream: &StreamId,
    (from, to): (Option<Seq>, Option<Seq>),
    events_max: usize,
    now_ms: i64,
) -> Result<Vec<Envelope>, HistoryError> {
    let mut history = StreamHistory::open(log, metadata, stream, now_ms).await?;
    let mut events: Vec<Envelope> = Vec::new();
    let mut last = Seq::ZERO;
    let wanted = |seq: Seq| from.is_none_or(|from| from <= seq) && to.is_none_or(|to| seq <= to);
    let mut first_dense = None;
    loop {
        let envelope = match history.next().await? {
            HistoryItem::Event(envelope) => envelope,
            // A later epoch supplies the events after a hole, from the same seq on.
            HistoryItem::Hole(_) | HistoryItem::Malformed(_) => continue,
            HistoryItem::End => break,
        };
        let dense = envelope.seq == last.next();
        last = envelope.seq;
        if !dense || first_dense.is_none() {
            events.clear();
            first_dense = Some((envelope.seq, envelope.time_ms));
        }
        if wanted(envelope.seq) {
            if events.len() >= events_max {
                return Err(HistoryError::TooMany { events_max });
            }
            events.push(envelope);
        }
    }
    match (from, first_dense) {
        (Some(from), Some(earliest)) if from.max(Seq(1)) < earliest.0 => {
            let (stream, wanted) = (stream.clone(), format!("seq {from}"));
            Err(HistoryError::Compacted { stream, wanted, earliest: Some(earliest) })
        }
        _ => Ok(events),
    }
}

fn earliest_text(earliest: Option<(Seq, i64)>) -> String {
    match earliest {
        Some((seq, _)) => format!("the earliest available state is at seq {seq}"),
        None => "no state is available".to_owned(),
    }
}

#[cfg(test)]
mod tests;
