//! Publisher: from sources to the log.
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

mod append;
pub(crate) mod backup;
mod difference;
mod error;
mod identity;
mod log_fold;
mod log_generation;
mod standby;
mod timings;

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};
use std::time::Duration;

use headwater_event::{EntryKey, Event, NodeName, ResourceKey, StreamId, WriterEpoch};
use headwater_follow::{FollowError, Follower, WallClock};
use headwater_log::{Claimant, Draft, Log, Writer};
use headwater_store::{Engine, EngineError};
use headwater_view::{Entry, Selection, StreamReader};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, sleep};
use tokio_util::sync::CancellationToken;
use tracing::Span;
use uuid::Uuid;

use self::difference::{difference, rank, snapshot_request};
use crate::interest::{EntryId, Interest};
use crate::metrics::{ChangeKind, PublisherMetrics};
use crate::picture::changes::ChangeFeed;
use crate::source::{Cause, SourceEvent, with_sources};
use crate::spans;

use self::error::PublishError;
pub(crate) use self::identity::IdentityMap;
pub use self::log_fold::OpenError;
use self::log_fold::follow;
pub(crate) use self::log_fold::open;
use self::timings::heads_interval;
pub use self::timings::{HEARTBEAT_INTERVAL, HEARTBEATS_MISSED, WriterTimings};

/// Source events taken in before their differences are appended: long enough a group that one
/// sync serves many, short enough that the first does not wait for the last.
const GROUP_EVENTS: usize = 512;

/// Entries of the fold looked at between two appends of a comparison of everything.
const COMPARE_CHUNK: usize = 256;

/// Waits before a lost log or writer is tried again: doubling from the first to the last.
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_LAST: Duration = Duration::from_secs(5);

/// Something that the upstream side wants appended.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Command {
    /// The node is to say its whole pod status snapshot.
    RequestSnapshot(NodeName),
    /// Every container of a pod under deletion has stopped: it may go.
    RemoveTerminated {
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
    pub is_standby: bool,
    /// Why nothing is appended just now, where something is wrong.
    pub trouble: Option<String>,
}

/// Why the loop ended.
enum Ended {
    /// It was told to stop, or the source is gone and so is everyone who commands.
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
pub type UuidGenerator = Arc<dyn Fn() -> Uuid + Send + Sync>;

/// The same, without keeping it.
#[derive(Clone, Debug)]
pub(crate) struct WeakInterest(Weak<RwLock<Interest>>);

impl WeakInterest {
    pub(crate) fn upgrade(&self) -> Option<SharedInterest> {
        self.0.upgrade().map(SharedInterest)
    }
}

/// The downstream side.
pub(crate) struct Publisher {
    pub(crate) log: Arc<dyn Log>,
    /// Tells of the lives that the log has had.
    pub(crate) upstream: Arc<dyn Log>,
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) clock: WallClock,
    pub(crate) draw: UuidGenerator,
    pub(crate) interest: SharedInterest,
    /// Told what changes of the objects.
    pub(crate) changes: ChangeFeed,
    pub(crate) nodes: Vec<NodeName>,
    pub(crate) source: mpsc::Receiver<SourceEvent>,
    /// Keeps the channel open when every source has stopped: what they told still stands.
    pub(crate) _source_open: mpsc::Sender<SourceEvent>,
    pub(crate) notices: mpsc::Sender<crate::source::Notice>,
    pub(crate) commands: mpsc::Receiver<Command>,
    /// What was demanded while another wrote.
    pub(crate) waiting: BTreeSet<Command>,
    pub(crate) progress: watch::Sender<Progress>,
    pub(crate) metrics: PublisherMetrics,
    pub(crate) timings: WriterTimings,
    pub(crate) sole_writer: bool,
    /// Told to stop in order: a writer then says so. Whoever drops the task instead kills it.
    pub(crate) stop: CancellationToken,
    pub(crate) listing: Option<BTreeSet<ResourceKey>>,
    pub(crate) listed: bool,
    /// Whose identity is another than the source says.
    pub(crate) identities: IdentityMap,
}

/// The log while it is ours to write.
struct WritableLog {
    follower: Follower<()>,
    writer: Writer,
}

impl Publisher {
    /// Publishes until the source ends.
    pub(crate) async fn run(mut self, mut follower: Option<Follower<()>>) {
        for node in self.nodes.clone() {
            self.interest.write().declare(&node);
        }
        self.changes.publish_everything();
        let newest = follower.as_ref().and_then(|follower| follower.acceptance().writer());
        self.identities.agree_with(newest.map(|claim| claim.writer));
        let mut wait = RETRY_FIRST;
        let mut rebuild = false;
        // Whoever starts beside a writer that works must not take the log from it.
        let found = follower.as_ref().map(|follower| self.may_be_anothers(follower)).transpose();
        let mut stands_by = match found {
            Ok(found) => found.unwrap_or(false),
            Err(error) => {
                tracing::warn!(error = %with_sources(&error), "standing by to be safe");
                true
            }
        };
        let stop = self.stop.clone();
        loop {
            let claim = self.claim(follower.take(), rebuild, &mut stands_by);
            let written = match stop.run_until_cancelled(claim).await {
                // It has nothing that another might wait for.
                None => return,
                Some(Ok(writing)) => {
                    wait = RETRY_FIRST;
                    self.write(writing).await
                }
                Some(Err(error)) => Err(error),
            };
            match written {
                Ok(Ended::Stopped) => return,
                Err(error) => {
                    // Until it was silent for long enough, whatever else happens meanwhile.
                    stands_by |= error.to_another();
                    rebuild =
                        matches!(&error, PublishError::Follow(error) if error.needs_rebuild());
                    let trouble = with_sources(&error);
                    tracing::warn!(error = %trouble, "publishing stopped; trying again");
                    self.metrics.lost(error.setback());
                    self.progress.send_modify(|progress| {
                        progress.reconciled = false;
                        progress.trouble = Some(trouble);
                    });
                }
            }
            if stop.run_until_cancelled(sleep(wait)).await.is_none() {
                return;
            }
            wait = (wait * 2).min(RETRY_LAST);
        }
    }

    /// Becomes the writer, once there is no other.
    async fn claim(
        &mut self,
        follower: Option<Follower<()>>,
        rebuild: bool,
        stands_by: &mut bool,
    ) -> Result<WritableLog, PublishError> {
        let mut follower = match follower {
            Some(follower) => follower,
            None => {
                let (log, upstream) = (&*self.log, &*self.upstream);
                follow(log, upstream, &self.engine, &self.clock, &self.draw, rebuild).await?
            }
        };
        if *stands_by {
            self.progress.send_modify(|progress| {
                progress.is_standby = true;
                progress.trouble = None;
            });
            self.stand_by(&mut follower).await?;
            *stands_by = false;
            self.identities.other_wrote();
        }
        let newest = follower.acceptance().writer().map(|claim| (claim.writer, claim.epoch.0));
        let above = backup::epoch(&*self.engine)?;
        let claimant = Claimant { above, ..Claimant::new((self.draw)()) };
        let writer = follower.take_over(&self.log, &claimant).await?;
        // One that claimed in between may have written too.
        let between = writer.epoch().0 - 1 != newest.map_or(0, |(_, epoch)| epoch);
        self.identities.follow(newest.map(|(writer, _)| writer), claimant.writer, between);
        self.remember_claim(claimant.writer, writer.epoch())?;
        Ok(WritableLog { follower, writer })
    }

    /// Writes until it is told to stop, and says that it has.
    async fn write(&mut self, mut writing: WritableLog) -> Result<Ended, PublishError> {
        let epoch = writing.writer.epoch();
        self.metrics.claimed(epoch);
        self.progress.send_modify(|progress| {
            progress.epoch = epoch;
            progress.is_standby = false;
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
        let ended = self.publish_as_it_comes(&mut writing).await?;
        // Nobody need wait for the silence of a writer that stops in order.
        if let Err(error) = writing.writer.release().await {
            let error = with_sources(&error);
            tracing::warn!(%error, "nobody is told that this writer has stopped");
        }
        Ok(ended)
    }

    /// Takes in what the source says, while there is no writer or before it compares everything.
    fn take_in_unpublished(&mut self, events: impl Iterator<Item = SourceEvent>) {
        if matches!(self.take_in(events), Taken::Listed) {
            self.listed = true;
        }
    }

    async fn publish_as_it_comes(
        &mut self,
        writing: &mut WritableLog,
    ) -> Result<Ended, PublishError> {
        let log = self.log.describe().await.map_err(FollowError::from)?;
        let replay_window = Duration::from_millis(log.replay_window_ms);
        let mut heads = tokio::time::interval(heads_interval(replay_window));
        heads.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The claim was a sign of life.
        let interval = self.timings.heartbeat_interval;
        let mut heartbeats = tokio::time::interval_at(Instant::now() + interval, interval);
        heartbeats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut events = Vec::new();
        loop {
            // What comes rarely goes first: a source that never rests must not hold up a
            // heartbeat, nor what others wrote.
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return Ok(Ended::Stopped),
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
                Some(command) = self.commands.recv(), if self.listed => {
                    self.meet(writing, command).await?;
                }
                received = self.source.recv_many(&mut events, GROUP_EVENTS) => {
                    if received == 0 {
                        return Ok(Ended::Stopped);
                    }
                    match self.take_in(events.drain(..)) {
                        Taken::ChangeSubscription { changes, spans } if self.listed => {
                            self.publish(writing, changes).await?;
                            // Each ends when what it led to is in the log.
                            drop(spans);
                        }
                        Taken::ChangeSubscription { .. } => {}
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
        let mut changed = self.changes.begin();
        for event in events {
            let (affected, cause) = match event {
                SourceEvent::Init => {
                    self.listing = Some(BTreeSet::new());
                    continue;
                }
                SourceEvent::InitApply(object) => {
                    let object = self.identities.object(object);
                    if let Some(listing) = &mut self.listing {
                        listing.insert(object.key().clone());
                    }
                    self.metrics.listed();
                    changed.object(object.key());
                    (self.interest.write().apply(object), Cause::default())
                }
                SourceEvent::InitDone => {
                    self.remove_unlisted();
                    listed = true;
                    continue;
                }
                SourceEvent::Apply(object, mut cause) => {
                    let object = self.identities.object(object);
                    spans.extend(self.begin(&mut cause, object.key(), ChangeKind::Applied));
                    changed.object(object.key());
                    (self.interest.write().apply(object), cause)
                }
                SourceEvent::Delete { key, uid, mut cause } => {
                    let uid = self.identities.end(&key, uid);
                    spans.extend(self.begin(&mut cause, &key, ChangeKind::Removed));
                    changed.object(&key);
                    (self.interest.write().remove(&key, &uid), cause)
                }
                SourceEvent::Notice(notice) => {
                    self.metrics.noticed(notice.kind);
                    // Whoever shows notices may be gone or slow; the objects matter more.
                    if let Err(error) = self.notices.try_send(notice) {
                        tracing::warn!(notice = %error.into_inner(), "a notice nobody took");
                    }
                    continue;
                }
            };
            changed.nodes_of(&affected);
            changes.extend(affected.into_iter().map(|affected| {
                let traceparent = cause.traceparent.clone();
                Change { affected, traceparent }
            }));
        }
        self.changes.publish(changed);
        if listed { Taken::Listed } else { Taken::ChangeSubscription { changes, spans } }
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
        drop(interest);
        self.changes.publish_everything();
    }

    /// Compares every entry that is published or wanted, appends the differences, and says so.
    async fn compare_everything(&mut self, writing: &mut WritableLog) -> Result<(), PublishError> {
        self.adopt(&writing.follower)?;
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
        while let Some(command) = self.waiting.first().cloned() {
            self.meet(writing, command.clone()).await?;
            self.waiting.remove(&command);
        }
        self.repair(writing).await?;
        writing.writer.reconciled().await?;
        backup::forget(&*self.engine)?;
        self.metrics.reconciled();
        self.progress.send_modify(|progress| progress.reconciled = true);
        Ok(())
    }

    /// Compares the selected entries of a stream as it is published.
    async fn compare_published(
        &mut self,
        writing: &mut WritableLog,
        stream: &StreamId,
        selection: Selection<'_>,
    ) -> Result<(), PublishError> {
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
                chunk.into_iter().map(|(key, _)| EntryId { stream: stream.clone(), key });
            self.publish(writing, affected.map(Change::from).collect()).await?;
            if last {
                return Ok(());
            }
        }
    }

    /// Appends what differs of `changes`, each entry once, and reads it back.
    async fn publish(
        &mut self,
        writing: &mut WritableLog,
        changes: Vec<Change>,
    ) -> Result<(), PublishError> {
        // The last cause made the entry what it is now.
        let mut causes = HashMap::new();
        for Change { affected: EntryId { stream, key }, traceparent } in &changes {
            causes.insert((stream.clone(), key.clone()), traceparent.clone());
        }
        let mut drafts = Vec::new();
        for Change { affected: EntryId { stream, key }, .. } in changes {
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

    /// Does what the upstream side asks for.
    async fn meet(
        &mut self,
        writing: &mut WritableLog,
        command: Command,
    ) -> Result<(), PublishError> {
        match command {
            Command::RequestSnapshot(node) => {
                let stream = StreamId::node(&node);
                let published = self.published(&stream, &EntryKey::SnapshotRequest)?;
                let draft = snapshot_request(stream, published.as_ref(), (self.draw)());
                self.metrics.snapshot_requested();
                tracing::info!(%node, "the node's statuses do not add up; asking for all of them");
                self.append(writing, vec![draft]).await
            }
            Command::RemoveTerminated { pod, uid } => {
                let deleted = self.interest.read().object(&pod).is_some_and(|object| {
                    object.uid() == uid && is_under_deletion(&object.value())
                });
                if !deleted {
                    return Ok(());
                }
                let mut changed = self.changes.begin();
                let affected = self.interest.write().remove(&pod, &uid);
                changed.object(&pod);
                changed.nodes_of(&affected);
                self.changes.publish(changed);
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
    ChangeSubscription { changes: Vec<Change>, spans: Vec<Span> },
    /// A list came to its end: everything is to be compared.
    Listed,
}

/// An entry that may have changed, and by what.
struct Change {
    affected: EntryId,
    traceparent: Option<String>,
}

impl From<EntryId> for Change {
    fn from(affected: EntryId) -> Self {
        Self { affected, traceparent: None }
    }
}

fn is_under_deletion(object: &serde_json::Value) -> bool {
    object.pointer("/metadata/deletionTimestamp").is_some_and(|at| !at.is_null())
}
