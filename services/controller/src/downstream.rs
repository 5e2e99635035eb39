//! Downstream: from sources to the log.
//!
//! ```text
//!  source ──► interest ──► affected entries ──► differences ──► writer ──► log
//!                               ▲                                           │
//!                               └───────────── fold of what is published ◄──┘
//! ```
//!
//! One task owns the fold of the controller's own topic and the writer. It appends, reads back
//! what it appended, and only then goes on, so that it always compares with what the log really
//! holds. Nothing is appended before the source has listed everything; what was appended then,
//! missing deletes included, is closed by `Reconciled`. A writer whose append has an unknown
//! outcome is dropped; the next one claims a higher epoch and compares everything again.

mod stand_by;

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};
use std::time::Duration;

use headwater_event::{Applied, EntryKey, Event, NodeName, ResourceKey, StreamId, WriterEpoch};
use headwater_follow::{FollowError, Follower, Step, TakeOverError, WallClock};
use headwater_log::acceptance::RepairKey;
use headwater_log::{
    BirthError, BirthWish, ClaimError, Claimant, Draft, Ends, Log, Writer, WriterError,
    read_or_create_birth, repair,
};
use headwater_store::{Engine, EngineError};
use headwater_view::{Entry, Selection, StreamReader};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, sleep};
use tracing::Span;
use uuid::Uuid;

use crate::interest::{Affected, Interest};
use crate::lives::last_life;
use crate::metrics::{ChangeKind, DownstreamMetrics, Setback};
use crate::publish::{difference, rank, snapshot_request};
use crate::source::{Cause, SourceEvent, with_sources};
use crate::spans;

/// Source events taken in before their differences are appended: long enough a group that one
/// sync serves many, short enough that the first does not wait for the last.
const GROUP_EVENTS: usize = 512;

/// Events, and bytes of objects, in one append: half of what an engine takes as one batch.
const APPEND_EVENTS_MAX: usize = 1024;
const APPEND_BYTES_MAX: usize = 4 << 20;

/// Entries of the fold looked at between two appends of a comparison of everything.
const COMPARE_CHUNK: usize = 256;

/// How often heads are appended behind removals: far within the retention of tombstones, rare
/// enough to cost nothing.
const HEADS_INTERVAL: Duration = Duration::from_secs(600);

/// How often the writer says that it lives.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(10);

/// Waits before a lost log or writer is tried again: doubling from the first to the last.
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_LAST: Duration = Duration::from_secs(5);

/// Something that the upstream side wants appended.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Demand {
    /// The node is to say its whole pod status snapshot.
    Snapshot(NodeName),
    /// Every container of a pod under deletion has stopped: it may go.
    Terminated {
        /// The pod.
        pod: ResourceKey,
        /// Its UID.
        uid: String,
    },
}

/// How the downstream side stands, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The writer's epoch; zero while there is none.
    pub epoch: WriterEpoch,
    /// Whether the source has listed and everything it lists is in the log.
    pub reconciled: bool,
    /// Events appended by this process.
    pub appended: u64,
    /// Whether another controller writes the log, and this one waits for its silence.
    pub stands_by: bool,
    /// Why nothing is appended just now, where something is wrong.
    pub trouble: Option<String>,
}

/// Why the downstream side lost its log or its writer; it begins again.
#[derive(Debug, thiserror::Error)]
enum Lost {
    #[error("the log cannot be followed")]
    Follow(#[from] FollowError),
    #[error("the log cannot be claimed")]
    Claim(#[from] ClaimError),
    #[error("another controller has claimed the log")]
    Fenced,
    #[error("the log has no birth")]
    Birth(#[from] BirthError),
    #[error("the log cannot be written")]
    Write(#[from] WriterError),
    #[error("what is published cannot be read")]
    Engine(#[from] EngineError),
}

impl Lost {
    fn setback(&self) -> Setback {
        match self {
            Self::Follow(_) => Setback::Follow,
            Self::Claim(_) => Setback::Claim,
            Self::Fenced => Setback::Fenced,
            Self::Birth(_) => Setback::Birth,
            Self::Write(_) => Setback::Write,
            Self::Engine(_) => Setback::Engine,
        }
    }

    /// Whether another controller writes the log.
    fn to_another(&self) -> bool {
        matches!(self, Self::Fenced | Self::Claim(ClaimError::Lost { .. }))
    }
}

impl From<TakeOverError> for Lost {
    fn from(error: TakeOverError) -> Self {
        match error {
            TakeOverError::Follow(error) => error.into(),
            TakeOverError::Claim(error) => error.into(),
        }
    }
}

/// Why the loop ended.
enum Ended {
    /// The source is gone and so is everyone who demands.
    Stopped,
}

/// The objects and what nodes need of them, shared with those who show them.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedInterest(Arc<RwLock<Interest>>);

impl SharedInterest {
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Interest> {
        // Interest is whole between two calls, and none of them panics by itself.
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn downgrade(&self) -> WeakInterest {
        WeakInterest(Arc::downgrade(&self.0))
    }

    fn write(&self) -> RwLockWriteGuard<'_, Interest> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Draws UUIDs at random: of claims, and of a log that is to be born.
pub type DrawUuid = Arc<dyn Fn() -> Uuid + Send + Sync>;

/// The same, without keeping it.
#[derive(Clone, Debug)]
pub(crate) struct WeakInterest(Weak<RwLock<Interest>>);

impl WeakInterest {
    pub(crate) fn upgrade(&self) -> Option<SharedInterest> {
        self.0.upgrade().map(SharedInterest)
    }
}

/// The downstream side.
pub(crate) struct Downstream {
    pub(crate) log: Arc<dyn Log>,
    /// Tells of the lives that the log has had.
    pub(crate) upstream: Arc<dyn Log>,
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) clock: WallClock,
    pub(crate) draw: DrawUuid,
    pub(crate) interest: SharedInterest,
    pub(crate) nodes: Vec<NodeName>,
    pub(crate) source: mpsc::Receiver<SourceEvent>,
    /// Keeps the channel open when every source has stopped: what they told still stands.
    pub(crate) _source_open: mpsc::Sender<SourceEvent>,
    pub(crate) notices: mpsc::Sender<crate::source::Notice>,
    pub(crate) demands: mpsc::Receiver<Demand>,
    /// What was demanded while another wrote.
    pub(crate) waiting: BTreeSet<Demand>,
    pub(crate) progress: watch::Sender<Progress>,
    pub(crate) metrics: DownstreamMetrics,
    pub(crate) listing: Option<BTreeSet<ResourceKey>>,
    pub(crate) listed: bool,
}

/// The log while it is ours to write.
struct Writing {
    follower: Follower<()>,
    writer: Writer,
}

impl Downstream {
    /// Publishes until the source ends.
    pub(crate) async fn run(mut self, mut follower: Option<Follower<()>>) {
        for node in self.nodes.clone() {
            self.interest.write().declare(&node);
        }
        let mut wait = RETRY_FIRST;
        let (mut rebuild, mut stands_by) = (false, false);
        loop {
            match self.write(follower.take(), rebuild, &mut stands_by, &mut wait).await {
                Ok(Ended::Stopped) => return,
                Err(error) => {
                    // Until it was silent for long enough, whatever else happens meanwhile.
                    stands_by |= error.to_another();
                    rebuild = matches!(&error, Lost::Follow(error) if error.asks_for_rebuild());
                    let trouble = with_sources(&error);
                    tracing::warn!(error = %trouble, "publishing stopped; trying again");
                    self.metrics.lost(error.setback());
                    self.progress.send_modify(|progress| {
                        progress.reconciled = false;
                        progress.trouble = Some(trouble);
                    });
                }
            }
            sleep(wait).await;
            wait = (wait * 2).min(RETRY_LAST);
        }
    }

    async fn write(
        &mut self,
        follower: Option<Follower<()>>,
        rebuild: bool,
        stands_by: &mut bool,
        wait: &mut Duration,
    ) -> Result<Ended, Lost> {
        let mut follower = match follower {
            Some(follower) => follower,
            None => {
                let (log, upstream) = (&*self.log, &*self.upstream);
                follow(log, upstream, &self.engine, &self.clock, &self.draw, rebuild).await?
            }
        };
        if *stands_by {
            self.progress.send_modify(|progress| {
                progress.stands_by = true;
                progress.trouble = None;
            });
            self.stand_by(&mut follower).await?;
            *stands_by = false;
        }
        let claimant = Claimant { writer: (self.draw)(), address: None };
        let writer = follower.take_over(&self.log, &claimant).await?;
        let mut writing = Writing { follower, writer };
        let epoch = writing.writer.epoch();
        *wait = RETRY_FIRST;
        self.metrics.claimed(epoch);
        self.progress.send_modify(|progress| {
            progress.epoch = epoch;
            progress.stands_by = false;
            progress.trouble = None;
        });
        // What it compares with the log is what the source has by now: the other writer knew.
        let mut waiting = Vec::new();
        while let Ok(event) = self.source.try_recv() {
            waiting.push(event);
        }
        self.take_in_unpublished(waiting.into_iter());
        if self.listed {
            self.compare_everything(&mut writing).await?;
        }
        self.publish_as_it_comes(&mut writing).await
    }

    /// Takes in what the source says, while there is no writer or before it compares everything.
    fn take_in_unpublished(&mut self, events: impl Iterator<Item = SourceEvent>) {
        if matches!(self.take_in(events), Taken::Listed) {
            self.listed = true;
        }
    }

    async fn publish_as_it_comes(&mut self, writing: &mut Writing) -> Result<Ended, Lost> {
        let mut heads = tokio::time::interval(HEADS_INTERVAL);
        heads.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The claim was a sign of life.
        let first = Instant::now() + HEARTBEAT_INTERVAL;
        let mut heartbeats = tokio::time::interval_at(first, HEARTBEAT_INTERVAL);
        heartbeats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut events = Vec::new();
        loop {
            // What comes rarely goes first: a source that never rests must not hold up a
            // heartbeat, nor what others wrote.
            tokio::select! {
                biased;
                _ = heartbeats.tick() => writing.writer.heartbeat().await?,
                _ = heads.tick() => {
                    let began = Instant::now();
                    let heads = writing.writer.append_heads().await?;
                    let events = heads.iter().map(|_| &Event::Head);
                    self.metrics.appended(events, 0, began.elapsed());
                    self.read_back(writing, heads.len()).await?;
                }
                step = writing.follower.next() => {
                    let step = step?;
                    self.observe(writing, &step).await?;
                }
                // Before everything is listed, nobody knows which pods there are.
                Some(demand) = self.demands.recv(), if self.listed => {
                    self.meet(writing, demand).await?;
                }
                received = self.source.recv_many(&mut events, GROUP_EVENTS) => {
                    if received == 0 {
                        return Ok(Ended::Stopped);
                    }
                    match self.take_in(events.drain(..)) {
                        Taken::Changes { changes, spans } if self.listed => {
                            self.publish(writing, changes).await?;
                            // Each ends when what it led to is in the log.
                            drop(spans);
                        }
                        Taken::Changes { .. } => {}
                        Taken::Listed => {
                            self.listed = true;
                            self.compare_everything(writing).await?;
                        }
                    }
                }
            }
        }
    }

    /// Takes in what the source says, in order, and gives the entries that may have changed.
    fn take_in(&mut self, events: impl Iterator<Item = SourceEvent>) -> Taken {
        let mut changes = Vec::new();
        let mut spans = Vec::new();
        let mut listed = false;
        for event in events {
            let (affected, cause) = match event {
                SourceEvent::Init => {
                    self.listing = Some(BTreeSet::new());
                    continue;
                }
                SourceEvent::InitApply(object) => {
                    if let Some(listing) = &mut self.listing {
                        listing.insert(object.key().clone());
                    }
                    self.metrics.listed();
                    (self.interest.write().apply(object), Cause::default())
                }
                SourceEvent::InitDone => {
                    self.remove_unlisted();
                    listed = true;
                    continue;
                }
                SourceEvent::Apply(object, mut cause) => {
                    spans.extend(self.begin(&mut cause, object.key(), ChangeKind::Applied));
                    (self.interest.write().apply(object), cause)
                }
                SourceEvent::Delete { key, uid, mut cause } => {
                    spans.extend(self.begin(&mut cause, &key, ChangeKind::Removed));
                    (self.interest.write().remove(&key, &uid), cause)
                }
                SourceEvent::Notice(notice) => {
                    self.metrics.noticed(notice.concern);
                    // Whoever shows notices may be gone or slow; the objects matter more.
                    if let Err(error) = self.notices.try_send(notice) {
                        tracing::warn!(notice = %error.into_inner(), "a notice nobody took");
                    }
                    continue;
                }
            };
            changes.extend(affected.into_iter().map(|affected| {
                let traceparent = cause.traceparent.clone();
                Change { affected, traceparent }
            }));
        }
        if listed { Taken::Listed } else { Taken::Changes { changes, spans } }
    }

    /// Counts a change of a source and begins its span.
    fn begin(&self, cause: &mut Cause, key: &ResourceKey, kind: ChangeKind) -> Option<Span> {
        self.metrics.changed(cause.source, kind);
        spans::source_change(cause, key, kind.name())
    }

    /// What was known and not listed is gone.
    fn remove_unlisted(&mut self) {
        let Some(listing) = self.listing.take() else { return };
        let mut interest = self.interest.write();
        let gone: Vec<_> = interest
            .objects()
            .filter(|object| !listing.contains(object.key()))
            .map(|object| (object.key().clone(), object.uid().to_owned()))
            .collect();
        for (key, uid) in gone {
            interest.remove(&key, &uid);
        }
    }

    /// Compares every entry that is published or wanted, appends the differences, and says so.
    async fn compare_everything(&mut self, writing: &mut Writing) -> Result<(), Lost> {
        // What is wanted first, so that nothing vanishes before its replacement is there.
        let wanted = self.interest.read().entries();
        for chunk in wanted.chunks(COMPARE_CHUNK) {
            self.publish(writing, chunk.iter().cloned().map(Change::from).collect()).await?;
        }
        let published: Vec<StreamId> =
            writing.follower.acceptance().streams().map(|(stream, _)| stream.clone()).collect();
        for stream in published {
            // Pods leave first, then what they named.
            for selection in [Selection::Kind("pod"), Selection::All] {
                self.compare_published(writing, &stream, selection).await?;
            }
        }
        while let Some(demand) = self.waiting.first().cloned() {
            self.meet(writing, demand.clone()).await?;
            self.waiting.remove(&demand);
        }
        self.repair(writing).await?;
        writing.writer.reconciled().await?;
        self.metrics.reconciled();
        self.progress.send_modify(|progress| progress.reconciled = true);
        Ok(())
    }

    /// Compares the selected entries of a stream as it is published.
    async fn compare_published(
        &mut self,
        writing: &mut Writing,
        stream: &StreamId,
        selection: Selection<'_>,
    ) -> Result<(), Lost> {
        let mut after = None;
        loop {
            let chunk = StreamReader::new(&*self.engine).entries(
                stream,
                selection,
                after.as_ref(),
                COMPARE_CHUNK,
            )?;
            let last = chunk.len() < COMPARE_CHUNK;
            after = chunk.last().map(|(key, _)| key.clone());
            let affected =
                chunk.into_iter().map(|(key, _)| Affected { stream: stream.clone(), key });
            self.publish(writing, affected.map(Change::from).collect()).await?;
            if last {
                return Ok(());
            }
        }
    }

    /// Appends what differs of `changes`, each entry once, and reads it back.
    async fn publish(&mut self, writing: &mut Writing, changes: Vec<Change>) -> Result<(), Lost> {
        // The last cause made the entry what it is now.
        let mut causes = HashMap::new();
        for Change { affected: Affected { stream, key }, traceparent } in &changes {
            causes.insert((stream.clone(), key.clone()), traceparent.clone());
        }
        let mut drafts = Vec::new();
        for Change { affected: Affected { stream, key }, .. } in changes {
            let entry = (stream, key);
            let Some(traceparent) = causes.remove(&entry) else { continue };
            let (stream, key) = entry;
            let published = self.published(&stream, &key)?;
            let desired = self.interest.read().desired(&stream, &key);
            let draft = difference(&stream, &key, desired, published.as_ref());
            drafts.extend(draft.map(|draft| Draft { traceparent, ..draft }));
        }
        // Many causes in one group: what comes and goes with a pod keeps its side of it.
        drafts.sort_by_key(|draft| rank(&draft.event));
        self.append(writing, drafts).await
    }

    async fn append(&mut self, writing: &mut Writing, drafts: Vec<Draft>) -> Result<(), Lost> {
        let mut rest = drafts.into_iter().peekable();
        while rest.peek().is_some() {
            let mut group = Vec::new();
            let mut bytes = 0;
            while let Some(draft) =
                rest.next_if(|_| group.len() < APPEND_EVENTS_MAX && bytes < APPEND_BYTES_MAX)
            {
                bytes += object_bytes(&draft.event);
                group.push(draft);
            }
            self.append_group(writing, group).await?;
        }
        Ok(())
    }

    /// Appends one group; an event that no log can take is left out by name.
    async fn append_group(
        &mut self,
        writing: &mut Writing,
        mut group: Vec<Draft>,
    ) -> Result<(), Lost> {
        let partitions = writing.follower.acceptance().birth().partitions;
        loop {
            let mut drafts = group.clone();
            let spans = spans::appends(&mut drafts, partitions);
            let began = Instant::now();
            let outcome = writing.writer.append(drafts).await;
            if let Err(error) = &outcome {
                self.metrics.append_failed(error);
            }
            match outcome {
                Ok(written) => {
                    let events = group.iter().map(|draft| &draft.event);
                    let bytes = events.clone().map(object_bytes).sum();
                    self.metrics.appended(events, bytes, began.elapsed());
                    spans::appended(spans, &written);
                    return self.read_back(writing, written.len()).await;
                }
                Err(WriterError::TooLarge { stream, key, bytes, bytes_max }) => {
                    tracing::error!(
                        %stream, %key, bytes, bytes_max,
                        "the object is too large for the log and is left out; make it smaller"
                    );
                    group.retain(|draft| {
                        draft.stream != stream
                            || draft.event.key().is_none_or(|entry| entry.as_str() != key)
                    });
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Reads until everything that was appended has come back.
    async fn read_back(&mut self, writing: &mut Writing, appended: usize) -> Result<(), Lost> {
        self.progress.send_modify(|progress| progress.appended += appended as u64);
        while writing.writer.in_flight() > 0 {
            let step = writing.follower.next().await?;
            for outcome in &step.outcomes {
                writing.writer.observe(outcome);
            }
            // What was appended behind another's claim never comes back as an event.
            if !writing.writer.is_alive() {
                return Err(Lost::Fenced);
            }
        }
        Ok(())
    }

    /// Looks at what others wrote: a higher claim ends this writer, a fenced record is mended.
    async fn observe(&mut self, writing: &mut Writing, step: &Step) -> Result<(), Lost> {
        for outcome in &step.outcomes {
            writing.writer.observe(outcome);
        }
        if !writing.writer.is_alive() {
            return Err(Lost::Fenced);
        }
        self.repair(writing).await
    }

    /// Appends the truth again for each key that a record which does not count has touched.
    async fn repair(&mut self, writing: &mut Writing) -> Result<(), Lost> {
        let mut drafts = Vec::new();
        for (stream, touched) in writing.writer.repairs(writing.follower.acceptance()) {
            let present = match &touched {
                RepairKey::Head => None,
                RepairKey::Entry(key) => {
                    self.published(&stream, key)?.map(|entry| applied(key.clone(), entry))
                }
            };
            drafts.push(repair(stream, touched, present));
        }
        self.append(writing, drafts).await
    }

    /// Does what the upstream side asks for.
    async fn meet(&mut self, writing: &mut Writing, demand: Demand) -> Result<(), Lost> {
        match demand {
            Demand::Snapshot(node) => {
                let stream = StreamId::node(&node);
                let published = self.published(&stream, &EntryKey::SnapshotRequest)?;
                let draft = snapshot_request(stream, published.as_ref());
                self.metrics.snapshot_requested();
                tracing::info!(%node, "the node's statuses do not add up; asking for all of them");
                self.append(writing, vec![draft]).await
            }
            Demand::Terminated { pod, uid } => {
                let deleted = self.interest.read().object(&pod).is_some_and(|object| {
                    object.uid() == uid && is_under_deletion(&object.value())
                });
                if !deleted {
                    return Ok(());
                }
                let affected = self.interest.write().remove(&pod, &uid);
                self.publish(writing, affected.into_iter().map(Change::from).collect()).await
            }
        }
    }

    fn published(&self, stream: &StreamId, key: &EntryKey) -> Result<Option<Entry>, EngineError> {
        StreamReader::new(&*self.engine).entry(stream, key)
    }
}

/// What came of a group of source events.
enum Taken {
    /// These entries may have changed; the spans are of what changed them.
    Changes { changes: Vec<Change>, spans: Vec<Span> },
    /// A list came to its end: everything is to be compared.
    Listed,
}

/// An entry that may have changed, and by what.
struct Change {
    affected: Affected,
    traceparent: Option<String>,
}

impl From<Affected> for Change {
    fn from(affected: Affected) -> Self {
        Self { affected, traceparent: None }
    }
}

/// Opens the fold of what is published and reads to the end of the log; an empty log is born.
pub(crate) async fn open(
    log: &dyn Log,
    upstream: &dyn Log,
    engine: &Arc<dyn Engine>,
    clock: &WallClock,
    draw: &DrawUuid,
) -> Result<Follower<()>, OpenError> {
    follow(log, upstream, engine, clock, draw, false).await.map_err(OpenError)
}

/// Why what is published cannot be known.
#[derive(Debug, thiserror::Error)]
#[error("what was published before cannot be read")]
pub struct OpenError(#[source] Lost);

async fn follow(
    log: &dyn Log,
    upstream: &dyn Log,
    engine: &Arc<dyn Engine>,
    clock: &WallClock,
    draw: &DrawUuid,
    rebuild: bool,
) -> Result<Follower<()>, Lost> {
    let previous = last_life(log, upstream, &**engine).await?;
    let wish = BirthWish { previous, uuid: draw() };
    read_or_create_birth(log, wish).await?;
    let (engine, clock) = (engine.clone(), clock.clone());
    let mut follower = if rebuild {
        Follower::rebuild(log, engine, (), clock).await?
    } else {
        Follower::open(log, engine, (), clock).await?
    };
    // A fold that was complete in an earlier life may stand anywhere before the end: what a loss
    // of power took from it is still in the log.
    let mut ends =
        Ends::ahead_of(log, &follower.acceptance().cursors()).await.map_err(FollowError::from)?;
    while !follower.is_folded() || !ends.are_reached() {
        if let Some((cursor, _)) = follower.next().await?.read {
            ends.pass(&cursor);
        }
    }
    Ok(follower)
}

fn object_bytes(event: &Event) -> usize {
    match event {
        Event::Applied(applied) => applied.object.len(),
        Event::Removed(_) | Event::Head => 0,
    }
}

fn applied(key: EntryKey, entry: Entry) -> Applied {
    let Entry { uid, resource_version, object, .. } = entry;
    Applied { key, uid, resource_version, object }
}

fn is_under_deletion(object: &serde_json::Value) -> bool {
    object.pointer("/metadata/deletionTimestamp").is_some_and(|at| !at.is_null())
}
