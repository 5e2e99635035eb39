//! The one writer of a log: gives events their seq, epoch and state hash, and appends them.
//!
//! A process that wins a claim ([`mod@crate::claim`]) gets a writer. A stream is in one partition, so
//! each partition has calls of its own, and no partition waits for another one. It may have several
//! appends in flight; the log keeps their order. The first append that fails suspends its partition:
//! in this epoch the writer appends no more to it, and continues in the others. The owner claims again
//! once the partition takes appends, and continues from what the log contains. The owner reads the
//! events back and passes them to [`Writer::observe`]. Until then the writer remembers the last object
//! that it appended under each key.
//!
//! | module | what it owns |
//! |---|---|
//! | `pending` | append calls whose outcome is not known yet |
//! | `error` | why events were not appended |
//! | `in_flight` | what was appended under each key and not read back yet |
//! | `heartbeats` | heartbeats, which do not wait for the writer's appends |
//! | `shared_bodies` | objects that several events refer to |

mod error;
mod heartbeats;
mod in_flight;
mod pending;
mod shared_bodies;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;

use bytes::Bytes;
use headwater_event::record::{Claim, Heartbeat, LogMetadata};
use headwater_event::{
    Applied, BodyAddress, EntryKey, Event, EventHeader, HashKey, ObjectHash, Partition, RecordKey,
    Removed, Seq, StateHash, StreamId, WriterEpoch,
};

pub use self::error::WriterError;
use self::error::failure;
pub use self::heartbeats::Heartbeats;
use self::heartbeats::heartbeat;
pub use self::in_flight::InFlightUsage;
use self::in_flight::{InFlight, KeysInFlight};
use self::pending::PendingAppends;
pub use self::shared_bodies::SHARED_BYTES_MIN;
use self::shared_bodies::{ObjectHashes, SharedBodies, StagedBodies};
use crate::acceptance::{Acceptance, Outcome, RepairKey};
use crate::log::{Append, AppendError, Description, Log, Record};
use crate::value::{OBJECT_BYTES_MAX, ValueEncoder, encode_reference};

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
    /// Whether other streams of the partition are likely to have the same object. The log then has it
    /// once, in a body to which the events refer, unless it is smaller than [`SHARED_BYTES_MIN`].
    pub is_shared: bool,
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

/// The one writer of a log, until another process claims a higher epoch.
pub struct Writer {
    log: Arc<dyn Log>,
    claim: Claim,
    metadata: LogMetadata,
    hash_key: HashKey,
    description: Description,
    encoder: ValueEncoder,
    bodies: SharedBodies,
    streams: HashMap<StreamId, WritePosition>,
    heads_due: BTreeSet<StreamId>,
    pending: PendingAppends,
    in_flight: KeysInFlight,
    /// The partitions to which this writer may append no more, and why.
    suspended: BTreeMap<Partition, String>,
    dead: Option<String>,
}

/// A call to the log that has begun: all of it in one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BegunAppend {
    /// The partition.
    pub partition: Partition,
    /// How many events it has; none if it has records without a position.
    pub events: usize,
}

/// What became of a call that had begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FinishedAppend {
    /// The oldest call of its partition: its events are durable and readable.
    Appended {
        /// The partition.
        partition: Partition,
        /// The events.
        positions: Vec<EventPosition>,
    },
    /// A call failed. The outcome of all calls of this partition that have begun is unknown, and the
    /// writer appends no more to it.
    Suspended {
        /// The partition.
        partition: Partition,
        /// Why.
        reason: String,
    },
}

/// The position from which the next event of a stream continues.
#[derive(Clone, Copy, Debug, Default)]
struct WritePosition {
    seq: Seq,
    epoch: WriterEpoch,
    epoch_first_seq: Seq,
    hash: StateHash,
}

/// What the last append under a key, not read back yet, makes of its entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InFlightEntry {
    /// The entry is there.
    Applied {
        /// The position of its event.
        seq: Seq,
        /// The hash of its object.
        object_hash: ObjectHash,
        /// Its content.
        applied: Applied,
    },
    /// The entry is removed.
    Removed,
}

/// An append in preparation: events with their positions, and the writer's state after the append.
#[derive(Default)]
struct StagedAppend {
    calls: BTreeMap<Partition, StagedCall>,
    streams: HashMap<StreamId, WritePosition>,
    heads_due: HashMap<StreamId, bool>,
    in_flight: HashMap<(StreamId, RepairKey), InFlight>,
    bodies: StagedBodies,
}

/// The records of one partition, and the positions of those that are events.
#[derive(Default)]
struct StagedCall {
    appends: Vec<Append>,
    positions: Vec<EventPosition>,
}

impl Writer {
    /// The writer that `claim` made; `acceptance` has read the claim back in every partition except
    /// those that are `suspended`.
    pub(crate) fn new(
        log: Arc<dyn Log>,
        description: Description,
        claim: Claim,
        acceptance: &Acceptance,
        suspended: BTreeMap<Partition, String>,
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
            description,
            encoder: ValueEncoder::new(),
            bodies: SharedBodies::default(),
            streams,
            heads_due,
            pending: PendingAppends::default(),
            in_flight: KeysInFlight::default(),
            suspended,
            dead: None,
        }
    }

    /// The epoch that this writer claimed.
    pub fn epoch(&self) -> WriterEpoch {
        self.claim.epoch
    }

    /// The log as it was before the claim.
    pub fn description(&self) -> &Description {
        &self.description
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

    /// The partitions to which this writer may append no more, and why.
    pub fn suspended(&self) -> &BTreeMap<Partition, String> {
        &self.suspended
    }

    /// How many keys it appended to that have not come back through [`Writer::observe`]. The
    /// owner keeps this small by reading.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// What of one partition has not come back.
    pub fn in_flight_of(&self, partition: Partition) -> InFlightUsage {
        self.in_flight.usage(partition)
    }

    /// What an append that has not come back makes of the entry `key` of `stream`. `None`: the
    /// owner's fold has the entry as the log will have it.
    pub fn in_flight_entry(&self, stream: &StreamId, key: &EntryKey) -> Option<InFlightEntry> {
        if self.in_flight.is_empty() {
            return None;
        }
        let at = (stream.clone(), RepairKey::Entry(key.clone()));
        let InFlight { seq, applied, .. } = self.in_flight.get(&at)?;
        Some(match applied.clone() {
            Some((object_hash, applied)) => {
                InFlightEntry::Applied { seq: *seq, object_hash, applied }
            }
            None => InFlightEntry::Removed,
        })
    }

    /// How many appends have begun and not finished. The owner keeps this small by
    /// [`Writer::finished`].
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// How many appends to one partition have begun and not finished.
    pub fn pending_of(&self, partition: Partition) -> usize {
        self.pending.len_of(partition)
    }

    /// Begins to append events, of any streams, in the order given and behind all appends to their
    /// partition before them; each stream's seqs go on densely. One call to the log for each
    /// partition, so that many events share one sync. Nothing is durable before
    /// [`Writer::finished`]. Events of suspended partitions are left out.
    ///
    /// # Errors
    /// See [`WriterError`]: nothing was appended.
    pub fn begin(&mut self, drafts: Vec<Draft>) -> Result<Vec<BegunAppend>, WriterError> {
        self.check_alive()?;
        let mut staged = StagedAppend::default();
        let mut hashes = ObjectHashes::default();
        for draft in drafts {
            self.stage(&mut staged, &mut hashes, draft)?;
        }
        let StagedAppend { calls, streams, heads_due, in_flight, bodies } = staged;
        self.bodies.begun(bodies);
        self.streams.extend(streams);
        for (at, sent) in in_flight {
            self.in_flight.insert(at, sent);
        }
        for (stream, due) in heads_due {
            match due {
                true => self.heads_due.insert(stream),
                false => self.heads_due.remove(&stream),
            };
        }
        Ok(self.start(calls))
    }

    /// A head record for every stream whose last event is a removal, so that its position outlives
    /// the tombstone. To be appended well within the log's tombstone retention.
    pub fn heads(&self) -> Vec<Draft> {
        self.heads_due.iter().map(|stream| head(stream.clone())).collect()
    }

    /// Begins to append the tombstones of bodies to which, in the owner's fold of everything that
    /// this writer was shown, no latest event refers. A body to which an append in flight refers
    /// stays, and so do those of suspended partitions.
    ///
    /// # Errors
    /// As [`Writer::begin`].
    pub fn begin_retiring(
        &mut self,
        unreferenced: impl IntoIterator<Item = BodyAddress>,
    ) -> Result<Vec<BegunAppend>, WriterError> {
        self.check_alive()?;
        let suspended = &self.suspended;
        let bodies = unreferenced.into_iter().filter(|at| !suspended.contains_key(&at.partition));
        let tombstones = self.bodies.retire(bodies);
        Ok(self.start_records(tombstones))
    }

    /// Begins to mark in every partition that all differences of the sources are in the log. From
    /// here on an absent entry is a removed entry, so all appends before it must have finished, and no
    /// partition may be suspended.
    ///
    /// # Errors
    /// [`WriterError::Suspended`], and [`WriterError::Dead`].
    pub fn begin_reconciled(&mut self) -> Result<Vec<BegunAppend>, WriterError> {
        self.check_alive()?;
        self.check_whole()?;
        let key = RecordKey::Reconciled(self.claim.epoch);
        let partitions = (0..self.metadata.partitions).map(Partition);
        Ok(self.start_records(partitions.map(|partition| sign(&key, partition))))
    }

    /// Waits for the next append that finishes: of each partition the oldest one first. Waits for ever
    /// if none has begun. Cancel safe.
    ///
    /// # Errors
    /// [`WriterError::Rejected`] and [`WriterError::Dead`]: the writer may append to no partition any
    /// more. The outcome of everything that has begun is unknown.
    pub async fn finished(&mut self) -> Result<FinishedAppend, WriterError> {
        self.check_alive()?;
        let (partition, result) = poll_fn(|cx| self.pending.poll_next(cx)).await;
        let error = match result {
            Ok(positions) => return Ok(FinishedAppend::Appended { partition, positions }),
            Err(error) => error,
        };
        let reason = error.to_string();
        self.pending.discard(partition);
        self.in_flight.discard(partition);
        self.suspended.insert(partition, reason.clone());
        let is_of_partition =
            matches!(error, AppendError::Unknown { .. } | AppendError::Rejected { .. });
        if is_of_partition && self.suspended.len() < self.metadata.partitions as usize {
            return Ok(FinishedAppend::Suspended { partition, reason });
        }
        self.dead = Some(reason);
        self.pending.discard_all();
        Err(failure(self.claim.epoch, error))
    }

    /// Appends events as [`Writer::begin`] does, and waits for them and for all appends before
    /// them. When this returns `Ok`, all are durable and readable. The positions are in the order of
    /// the partitions.
    ///
    /// # Errors
    /// See [`WriterError`].
    pub async fn append(&mut self, drafts: Vec<Draft>) -> Result<Vec<EventPosition>, WriterError> {
        let partitions = self.metadata.partitions;
        for partition in drafts.iter().map(|draft| draft.stream.partition(partitions)) {
            self.check_partition(partition)?;
        }
        let begun = self.begin(drafts)?;
        let mut last: BTreeMap<Partition, Vec<EventPosition>> = BTreeMap::new();
        self.finish_all(|partition, positions| {
            last.insert(partition, positions);
        })
        .await?;
        Ok(begun.iter().filter_map(|call| last.remove(&call.partition)).flatten().collect())
    }

    /// Appends the [`Writer::heads`], and waits for them and for all appends before them. Returns
    /// how many. When this returns `Ok`, all are durable and readable.
    ///
    /// # Errors
    /// As [`Writer::append`].
    pub async fn append_heads(&mut self) -> Result<usize, WriterError> {
        Ok(self.append(self.heads()).await?.len())
    }

    /// As [`Writer::begin_reconciled`]: waits for all appends before it, and for the marks.
    ///
    /// # Errors
    /// As [`Writer::append`].
    pub async fn reconciled(&mut self) -> Result<(), WriterError> {
        self.finish_all(|_, _| {}).await?;
        self.begin_reconciled()?;
        self.finish_all(|_, _| {}).await
    }

    /// The heartbeats of this writer. They do not wait for its appends.
    pub fn heartbeats(&self) -> Heartbeats {
        let (log, epoch) = (self.log.clone(), self.claim.epoch);
        Heartbeats { log, epoch, partitions: self.metadata.partitions }
    }

    /// Appends the last heartbeat: this writer has stopped in order, and a standby may claim at
    /// once. Claims alone decide which records are valid. Without this heartbeat, a standby waits
    /// until the heartbeats have been absent for long enough. The outcome of appends that have not
    /// finished is unknown.
    ///
    /// # Errors
    /// As [`Writer::append`].
    pub async fn release(mut self) -> Result<(), WriterError> {
        self.check_alive()?;
        // Nothing polls them any more, and one that waits for its turn would keep it.
        self.pending.discard_all();
        let partition = Partition(0);
        self.check_partition(partition)?;
        let last = Heartbeat { released: true, ..Heartbeat::default() };
        let released = self.log.append(vec![heartbeat(self.claim.epoch, partition, last)]).await;
        released.map(drop).map_err(|error| failure(self.claim.epoch, error))
    }

    /// Takes note of what its owner read from the log after the claim: what came back is no
    /// longer in flight, and a higher claim ends this writer.
    pub fn observe(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Accepted(envelope) if envelope.epoch == self.claim.epoch => {
                let at = (envelope.stream.clone(), RepairKey::of(&envelope.event));
                self.in_flight.came_back(&at, envelope.seq);
                if let Some(shared) = &envelope.shared {
                    self.bodies.read_back(&shared.body);
                }
            }
            Outcome::BodyRetired(body) => self.bodies.retired(body),
            Outcome::Claimed { claim, .. } if claim.epoch > self.claim.epoch => {
                let by = format!("{} claimed epoch {}", claim.writer, claim.epoch);
                self.dead.get_or_insert(by);
            }
            _ => {}
        }
    }

    /// The keys that records which do not count have touched and that this writer has to append
    /// again, see [`repair`]. Keys in flight are left out: what is on its way lies behind. Keys of
    /// suspended partitions are left to the next writer.
    pub fn repairs(&self, acceptance: &Acceptance) -> Vec<(StreamId, RepairKey)> {
        let touched = acceptance.repairs();
        let touched = touched.map(|(stream, repair)| (stream.clone(), repair.clone()));
        let is_suspended = |stream: &StreamId| {
            let partition = stream.partition(self.metadata.partitions);
            self.suspended.contains_key(&partition)
        };
        touched.filter(|at| !self.in_flight.contains(at) && !is_suspended(&at.0)).collect()
    }

    /// Gives one draft its position.
    fn stage(
        &mut self,
        staged: &mut StagedAppend,
        hashes: &mut ObjectHashes,
        draft: Draft,
    ) -> Result<(), WriterError> {
        let Draft { stream, event, replaces, traceparent, is_shared } = draft;
        let partition = stream.partition(self.metadata.partitions);
        if self.suspended.contains_key(&partition) {
            return Ok(());
        }
        let object_hash = match &event {
            Event::Applied(applied) => Some(hashes.of(&applied.object)),
            Event::Removed(_) | Event::Head => None,
        };
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
        let shared = match (&event, object_hash) {
            (Event::Applied(applied), Some(hash)) if is_shared => self.bodies.body_of(
                &mut staged.bodies,
                &mut self.encoder,
                (partition, position.epoch),
                (applied, hash),
            ),
            _ => None,
        };
        let body = shared.as_ref().map(|shared| shared.at);
        let (key, value) = match &event {
            Event::Head => {
                (RecordKey::Head(stream.clone()), Some(Bytes::from_static(EMPTY_OBJECT)))
            }
            Event::Applied(applied) => {
                let value = match body {
                    Some(body) => encode_reference(body.id.number),
                    None => self.encoder.encode(&applied.object),
                };
                (RecordKey::Entry(stream.clone(), applied.key.clone()), Some(value))
            }
            Event::Removed(removed) => {
                (RecordKey::Entry(stream.clone(), removed.key.clone()), None)
            }
        };
        let at = (stream.clone(), RepairKey::of(&event));
        let mut sent = InFlight { partition, seq: position.seq, applied: None, object_bytes: 0 };
        if let Some(key) = event.key() {
            let before = staged.in_flight.get(&at).or_else(|| self.in_flight.get(&at));
            if let Some(before) = before.map_or(replaces, InFlight::object_hash) {
                position.hash.subtract(&self.hash_key, key, &before);
            }
            if let (Event::Applied(applied), Some(object)) = (&event, object_hash) {
                position.hash.add(&self.hash_key, key, &object);
                sent.applied = Some((object, applied.clone()));
                let is_in_memory = shared.as_ref().is_some_and(|shared| shared.record.is_none());
                sent.object_bytes = if is_in_memory { 0 } else { applied.object.len() };
            }
        }
        staged.in_flight.insert(at, sent);
        // A reference has the UID and the resource version of its body.
        let text = |text: &str| if body.is_some() { String::new() } else { text.to_owned() };
        let header = EventHeader {
            seq: position.seq,
            epoch: position.epoch,
            epoch_first_seq: position.epoch_first_seq,
            uid: text(event.uid()),
            resource_version: text(event.resource_version()),
            hash: position.hash,
        };
        let header = Bytes::from(header.encode());
        let record = Record { key: key.to_string().into(), value, header, traceparent };
        let new_body = shared.and_then(|shared| shared.record);
        let records = new_body.iter().chain([&record]);
        if let Some((bytes, bytes_max)) = self.too_large(&event, records) {
            let key = event.key().map_or_else(|| event.kind(), ToString::to_string);
            return Err(WriterError::TooLarge { stream, key, bytes, bytes_max });
        }
        let records = new_body.into_iter().chain([record]);
        let call = staged.calls.entry(partition).or_default();
        call.appends.extend(records.map(|record| Append { partition, record }));
        let (seq, hash) = (position.seq, position.hash);
        staged.streams.insert(stream.clone(), position);
        staged.heads_due.insert(stream.clone(), matches!(event, Event::Removed(_)));
        call.positions.push(EventPosition { stream, seq, hash });
        Ok(())
    }

    /// The size and the limit that it breaks: the log's for a record, or every reader's for the
    /// object, which compression may have made small.
    fn too_large<'r>(
        &self,
        event: &Event,
        records: impl Iterator<Item = &'r Record>,
    ) -> Option<(usize, usize)> {
        let object = match event {
            Event::Applied(applied) => applied.object.len(),
            Event::Removed(_) | Event::Head => 0,
        };
        let records = records.map(|record| (record.bytes(), self.description.record_bytes_max));
        records.chain([(object, OBJECT_BYTES_MAX)]).find(|(bytes, bytes_max)| bytes > bytes_max)
    }

    /// Starts one call to the log for each partition.
    fn start(&mut self, calls: BTreeMap<Partition, StagedCall>) -> Vec<BegunAppend> {
        let mut begun = Vec::with_capacity(calls.len());
        for (partition, StagedCall { appends, positions }) in calls {
            begun.push(BegunAppend { partition, events: positions.len() });
            self.pending.start(self.log.clone(), partition, appends, positions);
        }
        begun
    }

    /// Starts to append records that have no position.
    fn start_records(&mut self, records: impl IntoIterator<Item = Append>) -> Vec<BegunAppend> {
        let mut calls: BTreeMap<Partition, StagedCall> = BTreeMap::new();
        for append in records {
            calls.entry(append.partition).or_default().appends.push(append);
        }
        self.start(calls)
    }

    /// Waits for all appends that have begun. `each` gets the events of each call. A failure is an
    /// error, also of one partition alone.
    async fn finish_all(
        &mut self,
        mut each: impl FnMut(Partition, Vec<EventPosition>),
    ) -> Result<(), WriterError> {
        self.check_alive()?;
        while self.pending.len() > 0 {
            match self.finished().await? {
                FinishedAppend::Appended { partition, positions } => each(partition, positions),
                FinishedAppend::Suspended { partition, reason } => {
                    return Err(WriterError::Suspended { partition, reason });
                }
            }
        }
        Ok(())
    }

    /// Checks that this writer may append to `partition`.
    fn check_partition(&self, partition: Partition) -> Result<(), WriterError> {
        match self.suspended.get(&partition) {
            Some(reason) => Err(WriterError::Suspended { partition, reason: reason.clone() }),
            None => Ok(()),
        }
    }

    /// Checks that this writer may append to every partition.
    fn check_whole(&self) -> Result<(), WriterError> {
        self.suspended.keys().next().map_or(Ok(()), |partition| self.check_partition(*partition))
    }

    fn check_alive(&self) -> Result<(), WriterError> {
        let epoch = self.claim.epoch;
        match &self.dead {
            Some(reason) => Err(WriterError::Dead { epoch, reason: reason.clone() }),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer")
            .field("claim", &self.claim)
            .field("streams", &self.streams.len())
            .field("pending", &self.pending)
            .field("in_flight", &self.in_flight.len())
            .field("suspended", &self.suspended)
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
            Draft {
                stream,
                event: Event::Applied(applied),
                replaces,
                traceparent: None,
                is_shared: false,
            }
        }
        (RepairKey::Entry(key), None) => {
            let event = Event::Removed(Removed { key, uid: String::new() });
            Draft { stream, event, replaces: None, traceparent: None, is_shared: false }
        }
    }
}

fn head(stream: StreamId) -> Draft {
    Draft { stream, event: Event::Head, replaces: None, traceparent: None, is_shared: false }
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
