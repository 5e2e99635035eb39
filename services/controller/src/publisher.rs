//! The publisher: from source events to the log.
//!
//! ```text
//!  sources ──► intake ──► changed entries ──► comparison ──► writable log ──► log
//!                │                              ▲    ▲            │            │
//!             interest ─── desired entries ─────┘    └── fold ◄───┴────────────┘
//! ```
//!
//! One task owns everything here. While another controller writes the log it is a standby;
//! otherwise it claims the log, compares everything, and appends what changes, also while it compares.
//! A few appends to each partition are in flight at a time while it compares and in bursts; a
//! comparison takes the log as it will be after them. Otherwise a group of changes waits for the
//! append before it. A controller claims only when its sources have listed. A failed append suspends
//! its partition; when the partition takes appends again, the controller claims a higher epoch and
//! compares everything.
//!
//! | module | what it owns |
//! |---|---|
//! | `leadership` | when this controller claims the log |
//! | `own_claims` | the claims of this controller, also those of unknown outcome |
//! | `standby` | the wait for a claim: following another writer |
//! | `takeover` | the new decisions of sources after another writer |
//! | `source_events` | the queue of the sources' events |
//! | `source_health` | whether the sources follow |
//! | `log_fold` | opening the log and its fold |
//! | `intake` | source events into the interest |
//! | `identity` | UIDs where one controller writes after another |
//! | `unadopted_keys` | the objects whose published UIDs are still to be adopted |
//! | `comparison` | differences between interest and fold |
//! | `difference` | the one event that makes an entry what it should be |
//! | `entry_differences` | the events of a group of changes |
//! | `writable_log` | appending, reading back, repairing, each partition by itself |
//! | `refused_entries` | the entries that are too large for the log |
//! | `partition_lags` | which partitions lag, so that the others do not wait for them |
//! | `partition_probes` | whether a suspended partition takes records again |
//! | `heartbeat` | the heartbeats of the writer |
//! | `snapshot_requests` | which nodes are to be asked for a snapshot, and when |
//! | `backup` | published objects that the log may have lost |
//! | `log_generation` | the number of a log that is created again |
//! | `consumption` | which nodes have programs that read the shared stream |
//! | `command` | what other tasks of the controller ask for |
//! | `progress`, `error`, `timings` | values |

mod backup;
mod command;
mod comparison;
mod consumption;
mod difference;
mod entry_differences;
mod error;
mod heartbeat;
mod identity;
mod intake;
mod leadership;
mod log_fold;
mod log_generation;
mod own_claims;
mod partition_lags;
mod partition_probes;
mod progress;
mod refused_entries;
mod snapshot_requests;
mod source_events;
mod source_health;
mod standby;
mod takeover;
mod timings;
mod unadopted_keys;
mod writable_log;

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use headwater_event::NodeName;
use headwater_follow::end_notes_interval;
use headwater_store::Engine;
use headwater_telemetry::error_chain;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use self::comparison::Comparison;
use self::heartbeat::HeartbeatTask;
use self::identity::IdentityMap;
use self::intake::{Intake, IntakeChanges};
use self::leadership::{Leadership, WonClaim};
use self::partition_probes::PartitionProbes;
use self::source_events::SourceEvents;
use self::source_health::SourceHealth;
use self::timings::heads_interval;
use self::writable_log::WritableLog;
use crate::interest::SharedInterest;
use crate::metrics::PublisherMetrics;
use crate::picture::changes::ChangeFeed;
use crate::source::{Notice, SourceEvent, SourceStates, UidAssignment, WriterRole};

pub(crate) use self::backup::PublishedFold;
pub(crate) use self::command::Command;
pub(crate) use self::consumption::SharedConsumption;
use self::error::PublishError;
pub use self::log_fold::OpenError;
pub(crate) use self::log_fold::{DownstreamLog, LogFollower};
pub use self::progress::Progress;
pub(crate) use self::snapshot_requests::SharedSnapshotRequests;
pub use self::timings::{HEARTBEAT_INTERVAL, HEARTBEATS_MISSED, SOURCE_LOSS_MAX, WriterTimings};
pub(crate) use self::unadopted_keys::UnadoptedKeys;

/// Source events applied before their differences are appended: enough that one sync serves many,
/// few enough that the first does not wait for the last.
pub const GROUP_EVENTS: usize = 512;

/// Commands executed before their differences are appended.
const COMMANDS_AT_ONCE: usize = 512;

/// The first and the longest wait before a lost log is opened again; the wait doubles in between.
const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(5);

/// Generates random UUIDs: of claims, of a log that is created, and of objects.
pub type UuidGenerator = Arc<dyn Fn() -> Uuid + Send + Sync>;

/// What a publisher needs from outside.
pub(crate) struct PublisherDependencies {
    /// The log that it writes.
    pub(crate) downstream: DownstreamLog,
    /// The fold of that log, read to its end.
    pub(crate) follower: LogFollower,
    /// Where hubs reach this controller.
    pub(crate) address: Option<String>,
    /// The objects, which the publisher alone writes.
    pub(crate) interest: SharedInterest,
    /// Gets the keys of the objects that change.
    pub(crate) changes: ChangeFeed,
    /// Gets the version of the set of missing objects.
    pub(crate) missing: watch::Sender<u64>,
    /// Nodes that exist before they have a pod.
    pub(crate) nodes: Vec<NodeName>,
    /// The events of the sources.
    pub(crate) source: mpsc::Receiver<SourceEvent>,
    /// How many source events are applied before their differences are appended.
    pub(crate) group_events: usize,
    /// The states of the sources.
    pub(crate) source_states: watch::Receiver<SourceStates>,
    /// Keeps the channel open after the sources stopped: their objects stay published.
    pub(crate) source_open: mpsc::Sender<SourceEvent>,
    /// How the sources assign UIDs.
    pub(crate) uid_assignments: Vec<Arc<dyn UidAssignment>>,
    /// How many sources decide by what is published.
    pub(crate) answering_sources: usize,
    /// Gets the role of this controller.
    pub(crate) role: watch::Sender<WriterRole>,
    /// Gets the notices of the sources.
    pub(crate) notices: mpsc::Sender<Notice>,
    /// The commands of other tasks.
    pub(crate) commands: mpsc::Receiver<Command>,
    /// The nodes that the fold of reports wants to be asked.
    pub(crate) snapshot_requests: SharedSnapshotRequests,
    /// Which nodes have programs that read the shared stream.
    pub(crate) consumption: SharedConsumption,
    /// Gets the progress.
    pub(crate) progress: watch::Sender<Progress>,
    /// What it counts.
    pub(crate) metrics: PublisherMetrics,
    /// How it shares the log with other controllers.
    pub(crate) timings: WriterTimings,
    /// Whether no other process can write the log.
    pub(crate) sole_writer: bool,
    /// Whether events of one partition may share an object.
    pub(crate) shares_objects: bool,
    /// Cancelled when it is to release the log. A task that is dropped instead is a killed one.
    pub(crate) stop: CancellationToken,
}

/// See the module.
pub(crate) struct Publisher {
    leadership: Leadership,
    intake: Intake,
    /// What the present epoch has still to compare.
    comparison: Comparison,
    /// The history of suspended partitions, between two epochs.
    probes: PartitionProbes,
    engine: Arc<dyn Engine>,
    new_uuid: UuidGenerator,
    source: SourceEvents,
    shares_objects: bool,
    sources: SourceHealth,
    answering_sources: usize,
    /// Whether another controller may have written since the sources listed.
    heard_another: bool,
    role: watch::Sender<WriterRole>,
    commands: mpsc::Receiver<Command>,
    snapshot_requests: SharedSnapshotRequests,
    consumption: SharedConsumption,
    progress: watch::Sender<Progress>,
    metrics: PublisherMetrics,
    timings: WriterTimings,
    stop: CancellationToken,
}

impl Publisher {
    /// A publisher, to be run.
    pub(crate) fn new(dependencies: PublisherDependencies) -> Self {
        let PublisherDependencies { downstream, follower, address, metrics, .. } = dependencies;
        let new_uuid = downstream.new_uuid.clone();
        let engine = downstream.engine.clone();
        let (unadopted, departed) = (downstream.unadopted.clone(), downstream.departed.clone());
        let leadership = Leadership::new(downstream, follower, address, dependencies.sole_writer);
        let identities =
            IdentityMap::new(dependencies.uid_assignments, unadopted, new_uuid.clone());
        let mut intake = Intake::new(
            dependencies.interest,
            dependencies.changes,
            dependencies.missing,
            dependencies.notices,
            identities,
            departed,
            metrics.clone(),
        );
        intake.declare(&dependencies.nodes);
        intake.started_from(leadership.newest_claim());
        let source = SourceEvents::new(
            dependencies.source,
            dependencies.source_open,
            dependencies.group_events,
        );
        if leadership.is_standby() {
            dependencies.role.send_replace(WriterRole::Standby);
        }
        Self {
            leadership,
            intake,
            comparison: Comparison::default(),
            probes: PartitionProbes::default(),
            engine,
            new_uuid,
            source,
            shares_objects: dependencies.shares_objects,
            sources: SourceHealth::new(dependencies.source_states),
            answering_sources: dependencies.answering_sources,
            heard_another: false,
            role: dependencies.role,
            commands: dependencies.commands,
            snapshot_requests: dependencies.snapshot_requests,
            consumption: dependencies.consumption,
            progress: dependencies.progress,
            metrics,
            timings: dependencies.timings,
            stop: dependencies.stop,
        }
    }

    /// Publishes until it is stopped.
    pub(crate) async fn run(mut self) {
        let stop = self.stop.clone();
        let retry = ExponentialBuilder::default()
            .with_min_delay(RETRY_MIN)
            .with_max_delay(RETRY_MAX)
            .without_max_times();
        let mut waits = retry.build();
        loop {
            let result = match stop.run_until_cancelled(self.acquire()).await {
                // No standby waits for this controller: it is not the writer.
                None => return,
                Some(Ok(log)) => {
                    waits = retry.build();
                    self.write(log).await
                }
                Some(Err(error)) => Err(error),
            };
            let Err(error) = result else { return };
            self.intake.ended();
            self.leadership.note_failure(&error);
            let is_standby = self.leadership.is_standby();
            let role = if is_standby { WriterRole::Standby } else { WriterRole::Candidate };
            self.role.send_replace(role);
            if let PublishError::PartitionReturned { partition } = error {
                tracing::info!(%partition, "the partition takes appends again; the next epoch begins");
                self.metrics.lost(error.kind());
                self.progress.send_modify(|progress| progress.reconciled = false);
                continue;
            }
            let trouble = error_chain(&error);
            tracing::warn!(error = %trouble, "publishing stopped; trying again");
            self.metrics.lost(error.kind());
            self.progress.send_modify(|progress| {
                progress.reconciled = false;
                progress.writes_until = None;
                progress.trouble = Some(trouble);
                progress.left_out.clear();
            });
            let wait = sleep(waits.next().unwrap_or(RETRY_MAX));
            let wait = self.source.apply_until(wait, &mut self.intake);
            if stop.run_until_cancelled(wait).await.is_none() {
                return;
            }
        }
    }

    /// Becomes the writer, once the sources have listed and no other controller keeps the log.
    async fn acquire(&mut self) -> Result<WritableLog, PublishError> {
        let opening = self.leadership.follower();
        let mut follower = self.source.apply_until(opening, &mut self.intake).await?;
        // Another controller may have written since the sources listed, and the fold may have read that now.
        self.heard_another = self.intake.has_listed();
        self.wait_to_claim(&mut follower).await?;
        if self.leadership.is_standby() {
            self.leadership.end_standby();
            self.intake.another_wrote();
        }
        // A standby counts the silence from when it reads the claim, so no earlier than this.
        let sent = Instant::now();
        let claiming = self.leadership.claim(follower, self.timings.marks_within());
        let WonClaim { follower, writer, another, has_gap } =
            self.source.apply_until(claiming, &mut self.intake).await?;
        let writes_until = sent + self.timings.writes_for();
        self.progress.send_modify(|progress| progress.writes_until = Some(writes_until));
        self.intake.claimed(another, writer.epoch(), has_gap);
        let (progress, metrics) = (self.progress.clone(), self.metrics.clone());
        let (engine, probes) = (self.engine.clone(), std::mem::take(&mut self.probes));
        Ok(WritableLog::new(follower, writer, probes, engine, progress, metrics))
    }

    /// Writes the log until it is stopped, then releases it.
    async fn write(&mut self, mut log: WritableLog) -> Result<(), PublishError> {
        let epoch = log.epoch();
        self.metrics.claimed(epoch);
        self.progress.send_modify(|progress| {
            progress.epoch = epoch;
            progress.is_standby = false;
            progress.is_prepared = false;
        });
        // The former writer may have published everything that is in the queue, so all of it is
        // applied before the comparison.
        let _ = self.intake.apply(self.source.waiting().into_iter());
        let _ = self.intake.note_consumption(self.consumption.take());
        let mut heartbeats = HeartbeatTask::start(
            log.heartbeats(),
            self.timings,
            self.sources.clone(),
            self.progress.clone(),
        );
        let result = self.publish_all(&mut log, &mut heartbeats).await;
        if let Err(PublishError::PartitionReturned { .. }) = result {
            // Nothing of the healthy partitions is left to the next epoch.
            log.flush_whatever_returns().await?;
            heartbeats.stop().await;
            let (follower, probes) = log.into_parts();
            self.leadership.keep(follower);
            self.probes = probes;
            self.probes.clear();
        } else if result.is_ok() {
            // What a source takes from now on is never published.
            self.role.send_replace(WriterRole::Standby);
            heartbeats.stop().await;
            self.progress.send_modify(|progress| progress.writes_until = None);
            if let Err(error) = log.release().await {
                let error = error_chain(&error);
                tracing::warn!(
                    error,
                    "the log could not be released; a standby waits for a silence"
                );
            }
        }
        result
    }

    /// Lets the sources decide anew after a takeover, then publishes until it is stopped.
    async fn publish_all(
        &mut self,
        log: &mut WritableLog,
        heartbeats: &mut HeartbeatTask,
    ) -> Result<(), PublishError> {
        self.take_over(log, heartbeats).await?;
        self.begin_comparison(log)?;
        self.publish_changes(log, heartbeats).await
    }

    /// Compares everything, and appends changes as they come, heads and requests for snapshots, until
    /// it is stopped.
    async fn publish_changes(
        &mut self,
        log: &mut WritableLog,
        heartbeats: &mut HeartbeatTask,
    ) -> Result<(), PublishError> {
        let mut heads = interval(heads_interval(log.replay_window()));
        heads.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut end_notes = end_notes_interval();
        let mut events = Vec::new();
        let mut commands = Vec::new();
        let mut was_full = false;
        // Whether requests for snapshots were appended since the last group of events.
        let mut has_requested = false;
        loop {
            self.compare_recovered(log);
            // Behind a full group more events wait, and the next append begins at once. Otherwise a
            // change waits for the append before it, and those that come meanwhile go with it: small
            // appends in flight cost a busy machine more than they save. No change waits for those of
            // a comparison. It ends once nothing is in flight, so new changes wait for that.
            let is_ending = self.comparison.awaits_appends() && log.is_whole();
            let takes_commands = log.has_room() && !is_ending;
            let is_comparing = self.is_comparing(log);
            let goes_on = was_full || is_comparing;
            let takes_events = takes_commands && (goes_on || log.is_idle());
            let can_compare = self.can_compare(log);
            // After requests it is the turn of the sources: all nodes may be due at once.
            let may_request = takes_commands && (!has_requested || self.source.is_empty());
            let next_request = self.snapshot_requests.next_due().filter(|_| may_request);
            let request_at = next_request.unwrap_or_else(Instant::now);
            // The rare branches come first: a source that always has events must not delay the
            // records of other writers. Each group of events is followed by the commands that
            // wait, so neither delays the other for longer than one append.
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return Ok(()),
                error = heartbeats.failed() => return Err(error),
                _ = end_notes.tick() => log.note_ends(self.leadership.log()).await?,
                // Until then differences may make them needless.
                _ = heads.tick(), if !is_comparing => {
                    log.append_heads().await?;
                    log.retire_bodies().await?;
                }
                result = log.advance() => {
                    result?;
                    if !self.is_comparing(log) {
                        log.repair().await?;
                    }
                }
                () = sleep_until(request_at), if next_request.is_some() => {
                    self.request_snapshots(log).await?;
                    has_requested = true;
                }
                () = self.consumption.noted(), if takes_commands => {
                    let changes = self.intake.note_consumption(self.consumption.take());
                    self.publish(log, changes, Vec::new()).await?;
                }
                // It may be due before the others.
                () = self.snapshot_requests.added(), if takes_commands => {}
                received = self.source.next_group(&mut events), if takes_events => {
                    if received == 0 {
                        return Ok(());
                    }
                    was_full = self.source.is_full(received);
                    has_requested = false;
                    self.publish_events(log, &mut events).await?;
                    while commands.len() < COMMANDS_AT_ONCE
                        && let Ok(command) = self.commands.try_recv()
                    {
                        commands.push(command);
                    }
                    self.execute(log, &mut commands).await?;
                    // A source that always has events must not end the comparison.
                    if self.can_compare(log) {
                        self.compare(log).await?;
                    }
                }
                1.. = self.commands.recv_many(&mut commands, COMMANDS_AT_ONCE), if takes_commands => {
                    self.execute(log, &mut commands).await?;
                }
                () = ready(()), if can_compare => self.compare(log).await?,
            }
        }
    }

    /// Applies events of the sources and begins to append what they change.
    async fn publish_events(
        &mut self,
        log: &mut WritableLog,
        events: &mut Vec<SourceEvent>,
    ) -> Result<(), PublishError> {
        let IntakeChanges { entries, spans } = self.intake.apply(events.drain(..));
        self.publish(log, entries, spans).await
    }

    /// Executes commands.
    async fn execute(
        &mut self,
        log: &mut WritableLog,
        commands: &mut Vec<Command>,
    ) -> Result<(), PublishError> {
        let mut changes = Vec::new();
        for command in commands.drain(..) {
            match command {
                Command::RemoveObject { key, uid } => {
                    changes.extend(self.intake.remove(&key, &uid));
                }
            }
        }
        self.publish(log, changes, Vec::new()).await
    }
}
