//! The one writer of a log: gives events their seq, epoch and state hash, and appends them.
//!
//! A process that wins a claim ([`mod@crate::claim`]) gets a writer. The first append of unknown
//! outcome ends the writer: its owner claims again and continues from what the log contains. The
//! owner reads the events back and passes them to [`Writer::observe`]. Until then the writer
//! remembers the last object that it appended under each key.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use headwater_event::record::{Claim, Heartbeat, LogMetadata};
use headwater_event::{
    Applied, Event, EventHeader, HashKey, ObjectHash, Partition, RecordKey, Removed, Seq,
    StateHash, StreamId, WriterEpoch,
};

use crate::acceptance::{Acceptance, Outcome, RepairKey};
use crate::log::{Append, AppendError, Description, Log, Record};
use crate::value::{OBJECT_BYTES_MAX, ValueEncoder};

/// The value of records whose key is their whole content.
const EMPTY_OBJECT: &[u8] = b"{}";

/// An event to be appended: it has no position yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    /// The stream.
    pub stream: StreamId,
    /// What happened.
    pub event: Event,
    /// The hash of the object that the owner's fold holds under the event's key, if it holds
    /// one. What the writer appended since, it knows by itself.
    pub replaces: Option<ObjectHash>,
    /// W3C trace context of the change, where the source had one.
    pub traceparent: Option<String>,
}

/// The position of an appended event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventPosition {
    /// The stream.
    pub stream: StreamId,
    /// The event's position.
    pub seq: Seq,
    /// The stream's state hash after it.
    pub hash: StateHash,
}

/// Why events were not appended.
#[derive(Debug, thiserror::Error)]
pub enum WriterError {
    /// One event is too large. None of the call was appended; leave it out.
    #[error("{stream}: {key} has {bytes} bytes in the log, at most {bytes_max} are taken")]
    TooLarge {
        /// The stream.
        stream: StreamId,
        /// The entry.
        key: String,
        /// The size of its record, or of its object.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
    /// Certainly nothing of the call was appended. The writer lives.
    #[error("the log refused the append: {reason}")]
    Rejected {
        /// What was wrong with it.
        reason: String,
    },
    /// This writer may append no more: the outcome of an append is unknown, or another writer
    /// claimed. Read the log to its end and claim again.
    #[error("the writer of epoch {epoch} is dead: {reason}")]
    Dead {
        /// Its epoch.
        epoch: WriterEpoch,
        /// What ended it.
        reason: String,
    },
}

/// The one writer of a log, until another process claims a higher epoch.
pub struct Writer {
    log: Arc<dyn Log>,
    claim: Claim,
    metadata: LogMetadata,
    hash_key: HashKey,
    record_bytes_max: usize,
    encoder: ValueEncoder,
    streams: HashMap<StreamId, WritePosition>,
    heads_due: BTreeSet<StreamId>,
    /// The last append under each key that the owner has not read back yet.
    in_flight: HashMap<(StreamId, RepairKey), InFlight>,
    dead: Option<String>,
}

/// The position from which the next event of a stream continues.
#[derive(Clone, Copy, Debug, Default)]
struct WritePosition {
    seq: Seq,
    epoch: WriterEpoch,
    epoch_first_seq: Seq,
    hash: StateHash,
}

#[derive(Clone, Copy, Debug)]
struct InFlight {
    seq: Seq,
    object: Option<ObjectHash>,
}

/// An append in preparation: events with their positions, and the writer's state after the append.
#[derive(Default)]
struct StagedAppend {
    appends: Vec<Append>,
    written: Vec<EventPosition>,
    streams: HashMap<StreamId, WritePosition>,
    heads_due: HashMap<StreamId, bool>,
    in_flight: HashMap<(StreamId, RepairKey), InFlight>,
}

impl Writer {
    /// The writer that `claim` made; `acceptance` has read the claim back in every partition.
    pub(crate) fn new(
        log: Arc<dyn Log>,
        description: &Description,
        claim: Claim,
        acceptance: &Acceptance,
    ) -> Self {
        let metadata = *acceptance.metadata();
        let mut streams = HashMap::new();
        let mut heads_due = BTreeSet::new();
        for (stream, at) in acceptance.streams() {
            let (seq, epoch, hash) = (at.seq, at.epoch, at.hash);
            let position = WritePosition { seq, epoch, epoch_first_seq: at.epoch_first_seq, hash };
            streams.insert(stream.clone(), position);
            if at.head_due {
                heads_due.insert(stream.clone());
            }
        }
        Self {
            log,
            claim,
            metadata,
            hash_key: HashKey::new(&metadata.log_id),
            record_bytes_max: description.record_bytes_max,
            encoder: ValueEncoder::new(),
            streams,
            heads_due,
            in_flight: HashMap::new(),
            dead: None,
        }
    }

    /// The epoch that this writer claimed.
    pub fn epoch(&self) -> WriterEpoch {
        self.claim.epoch
    }

    /// Whether it may still append.
    pub fn is_alive(&self) -> bool {
        self.dead.is_none()
    }

    /// The last event of `stream` that this writer knows to be in the log, its own included.
    pub fn position(&self, stream: &StreamId) -> (Seq, StateHash) {
        let position = self.streams.get(stream).copied().unwrap_or_default();
        (position.seq, position.hash)
    }

    /// Continues `stream` from `hash`, the hash of the owner's fold. After compaction has dropped
    /// the end of a stream, or the valid value of a key, no reader can fold the state of the logged
    /// hash any more. The writer then owes a head with the new hash.
    pub fn rebase(&mut self, stream: &StreamId, hash: StateHash) {
        self.streams.entry(stream.clone()).or_default().hash = hash;
        self.heads_due.insert(stream.clone());
    }

    /// How many keys it appended to that have not come back through [`Writer::observe`]. The
    /// owner keeps this small by reading.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Appends events, of any streams, in the order given; each stream's seqs go on densely.
    /// One call to the log, so that many events share one sync. When this returns `Ok`, all are
    /// durable and readable.
    ///
    /// # Errors
    /// See [`WriterError`]. A call that is dropped before it returns leaves the writer dead.
    pub async fn append(&mut self, drafts: Vec<Draft>) -> Result<Vec<EventPosition>, WriterError> {
        let mut staged = StagedAppend::default();
        for draft in drafts {
            self.stage(&mut staged, draft)?;
        }
        self.send(std::mem::take(&mut staged.appends)).await?;
        self.streams.extend(staged.streams);
        self.in_flight.extend(staged.in_flight);
        for (stream, due) in staged.heads_due {
            match due {
                true => self.heads_due.insert(stream),
                false => self.heads_due.remove(&stream),
            };
        }
        Ok(staged.written)
    }

    /// Appends a head record to every stream whose last event is a removal, so that its position
    /// outlives the tombstone. To be called well within the log's tombstone retention.
    ///
    /// # Errors
    /// As [`Writer::append`].
    pub async fn append_heads(&mut self) -> Result<Vec<EventPosition>, WriterError> {
        let drafts = self.heads_due.iter().map(|stream| head(stream.clone())).collect();
        self.append(drafts).await
    }

    /// Marks in every partition that all differences of the sources are in the log. From here on an
    /// absent entry is a removed entry.
    ///
    /// # Errors
    /// As [`Writer::append`].
    pub async fn reconciled(&mut self) -> Result<(), WriterError> {
        let key = RecordKey::Reconciled(self.claim.epoch);
        let partitions = (0..self.metadata.partitions).map(Partition);
        self.send(partitions.map(|partition| sign(&key, partition)).collect()).await
    }

    /// Appends a heartbeat.
    ///
    /// # Errors
    /// As [`Writer::append`].
    pub async fn heartbeat(&mut self) -> Result<(), WriterError> {
        let key = RecordKey::Heartbeat(self.claim.epoch);
        self.send(vec![sign(&key, Partition(0))]).await
    }

    /// Appends the last heartbeat: this writer has stopped in order, and a standby may claim at
    /// once. Claims alone decide which records are valid. Without this heartbeat, a standby waits
    /// until the heartbeats have been absent for long enough.
    ///
    /// # Errors
    /// As [`Writer::append`].
    pub async fn release(mut self) -> Result<(), WriterError> {
        let mut last = sign(&RecordKey::Heartbeat(self.claim.epoch), Partition(0));
        let heartbeat = serde_json::to_vec(&Heartbeat { released: true });
        last.record.value = heartbeat.ok().map(Bytes::from);
        self.send(vec![last]).await
    }

    /// Takes note of what its owner read from the log after the claim: what came back is no
    /// longer in flight, and a higher claim ends this writer.
    pub fn observe(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Accepted(envelope) if envelope.epoch == self.claim.epoch => {
                let at = (envelope.stream.clone(), RepairKey::of(&envelope.event));
                if self.in_flight.get(&at).is_some_and(|sent| sent.seq <= envelope.seq) {
                    self.in_flight.remove(&at);
                }
            }
            Outcome::Claimed { claim, .. } if claim.epoch > self.claim.epoch => {
                let by = format!("{} claimed epoch {}", claim.writer, claim.epoch);
                self.dead.get_or_insert(by);
            }
            _ => {}
        }
    }

    /// The keys that records which do not count have touched and that this writer has to append
    /// again, see [`repair`]. Keys in flight are left out: what is on its way lies behind.
    pub fn repairs(&self, acceptance: &Acceptance) -> Vec<(StreamId, RepairKey)> {
        let touched = acceptance.repairs();
        let touched = touched.map(|(stream, repair)| (stream.clone(), repair.clone()));
        touched.filter(|at| !self.in_flight.contains_key(at)).collect()
    }

    /// Gives one draft its position.
    fn stage(&mut self, staged: &mut StagedAppend, draft: Draft) -> Result<(), WriterError> {
        let Draft { stream, event, replaces, traceparent } = draft;
        let mut position = staged
            .streams
            .get(&stream)
            .or_else(|| self.streams.get(&stream))
            .copied()
            .unwrap_or_default();
        position.seq = position.seq.next();
        if position.epoch != self.claim.epoch {
            position.epoch = self.claim.epoch;
            position.epoch_first_seq = position.seq;
        }
        let (key, value) = match &event {
            Event::Head => {
                (RecordKey::Head(stream.clone()), Some(Bytes::from_static(EMPTY_OBJECT)))
            }
            Event::Applied(applied) => {
                let value = self.encoder.encode(&applied.object);
                (RecordKey::Entry(stream.clone(), applied.key.clone()), Some(value))
            }
            Event::Removed(removed) => {
                (RecordKey::Entry(stream.clone(), removed.key.clone()), None)
            }
        };
        let at = (stream.clone(), RepairKey::of(&event));
        let mut object = None;
        if let Some(key) = event.key() {
            let sent = staged.in_flight.get(&at).or_else(|| self.in_flight.get(&at));
            let before = sent.map_or(replaces, |sent| sent.object);
            if let Event::Applied(applied) = &event {
                object = Some(ObjectHash::of(&applied.object));
            }
            if let Some(before) = before {
                position.hash.subtract(&self.hash_key, key, &before);
            }
            if let Some(object) = object {
                position.hash.add(&self.hash_key, key, &object);
            }
        }
        staged.in_flight.insert(at, InFlight { seq: position.seq, object });
        let header = EventHeader {
            seq: position.seq,
            epoch: position.epoch,
            epoch_first_seq: position.epoch_first_seq,
            uid: event.uid().to_owned(),
            resource_version: event.resource_version().to_owned(),
            hash: position.hash,
        };
        let header = Bytes::from(header.encode());
        let record = Record { key: key.to_string().into(), value, header, traceparent };
        if let Some((bytes, bytes_max)) = self.too_large(&event, &record) {
            let key = event.key().map_or_else(|| event.kind(), ToString::to_string);
            return Err(WriterError::TooLarge { stream, key, bytes, bytes_max });
        }
        let partition = stream.partition(self.metadata.partitions);
        staged.appends.push(Append { partition, record });
        let (seq, hash) = (position.seq, position.hash);
        staged.streams.insert(stream.clone(), position);
        staged.heads_due.insert(stream.clone(), matches!(event, Event::Removed(_)));
        staged.written.push(EventPosition { stream, seq, hash });
        Ok(())
    }

    /// The size and the limit that it breaks: the log's for the record, or every reader's for the
    /// object, which compression may have made small.
    fn too_large(&self, event: &Event, record: &Record) -> Option<(usize, usize)> {
        let object = match event {
            Event::Applied(applied) => applied.object.len(),
            Event::Removed(_) | Event::Head => 0,
        };
        let limits = [(record.bytes(), self.record_bytes_max), (object, OBJECT_BYTES_MAX)];
        limits.into_iter().find(|(bytes, bytes_max)| bytes > bytes_max)
    }

    /// Appends, and dies unless the outcome is known.
    async fn send(&mut self, appends: Vec<Append>) -> Result<(), WriterError> {
        if let Some(reason) = &self.dead {
            let (epoch, reason) = (self.claim.epoch, reason.clone());
            return Err(WriterError::Dead { epoch, reason });
        }
        if appends.is_empty() {
            return Ok(());
        }
        // Should this future be dropped at the next line, the outcome is as unknown as any.
        self.dead = Some("an append was given up before its outcome was known".to_owned());
        match self.log.append(appends).await {
            Ok(_) => {
                self.dead = None;
                Ok(())
            }
            Err(AppendError::Rejected { reason }) => {
                self.dead = None;
                Err(WriterError::Rejected { reason })
            }
            Err(error @ (AppendError::Unknown { .. } | AppendError::Fatal { .. })) => {
                let (epoch, reason) = (self.claim.epoch, error.to_string());
                self.dead = Some(reason.clone());
                Err(WriterError::Dead { epoch, reason })
            }
        }
    }
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer")
            .field("claim", &self.claim)
            .field("streams", &self.streams.len())
            .field("in_flight", &self.in_flight.len())
            .field("dead", &self.dead)
            .finish_non_exhaustive()
    }
}

/// Drafts the event that makes the last record of a key valid again. `present` is the entry of the
/// key in the caller's fold of the accepted events.
pub fn repair(stream: StreamId, touched: RepairKey, present: Option<Applied>) -> Draft {
    match (touched, present) {
        (RepairKey::Head, _) => head(stream),
        (RepairKey::Entry(_), Some(applied)) => {
            let replaces = Some(ObjectHash::of(&applied.object));
            Draft { stream, event: Event::Applied(applied), replaces, traceparent: None }
        }
        (RepairKey::Entry(key), None) => {
            let event = Event::Removed(Removed { key, uid: String::new() });
            Draft { stream, event, replaces: None, traceparent: None }
        }
    }
}

fn head(stream: StreamId) -> Draft {
    Draft { stream, event: Event::Head, replaces: None, traceparent: None }
}

/// A record whose key is its whole content.
fn sign(key: &RecordKey, partition: Partition) -> Append {
    let record = Record {
        key: key.to_string().into(),
        value: Some(Bytes::from_static(EMPTY_OBJECT)),
        header: Bytes::new(),
        traceparent: None,
    };
    Append { partition, record }
}
