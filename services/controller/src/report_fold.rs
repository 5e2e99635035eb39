//! The fold of reports: from the upstream log to the cloud's picture.
//!
//! One task reads the upstream log and commits pod statuses, Nodes and position records with the
//! cursor. A report counts only if its id is greater than the id of the last one that counted for
//! its key. A node whose reports do not match what was folded is asked for its whole pod status
//! snapshot ([`SharedSnapshotRequests`]), which never delays the fold.
//!
//! A partition that cannot be read when the log is opened is left out, and the others are folded. What it
//! has may be newer than anything that is known, so meanwhile no node is judged, no record is removed or
//! appended once more, and no node is forgotten.
//!
//! | module | what it owns |
//! |---|---|
//! | `record` | folding one record |
//! | `stale_keys` | keys whose last record is older than the report that counts |
//! | `key_repair` | appending the report that counts once more |
//! | `terminations` | terminations that the log has |
//! | `termination_removal` | removing those of pods that are gone |
//! | `events` | Events that the log has, and their removal |
//! | `registrations` | registrations of Nodes: appending and folding them |
//! | `departed_nodes` | forgetting nodes that are gone for long |
//! | `differences` | nodes whose own reports do not add up |

mod departed_nodes;
mod differences;
mod events;
mod key_repair;
mod record;
mod registrations;
mod stale_keys;
mod termination_removal;
mod terminations;

use std::collections::{BTreeMap, HashSet};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use futures::FutureExt as _;
use futures::future::{Fuse, FusedFuture as _};
use headwater_event::{NodeName, Partition};
use headwater_follow::{ResumePoint, discard_fold, must_refold, resume_point, until_readable};
use headwater_log::{Log, ReadError, is_of_positions, partition_name};
use headwater_store::position::CURSORS;
use headwater_store::{Engine, EngineError, Json};
use headwater_telemetry::error_chain;
use headwater_view::PodStatusFold;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use self::departed_nodes::DEPARTURES_INTERVAL;
use self::events::{EVENTS_INTERVAL, LoggedEvents};
use self::key_repair::AGAIN_AFTER;
use self::record::is_lost;
use self::registrations::{DueRegistrations, REGISTRATIONS_INTERVAL};
use self::stale_keys::StaleKeys;
use self::termination_removal::LOOK_INTERVAL;
use self::terminations::Terminations;
use crate::metrics::ReportFoldMetrics;
use crate::picture::PresenceReceiver;
use crate::picture::changes::ChangeFeed;
use crate::picture::node_event::EventDiscards;
use crate::picture::registrations::{RegistrationNotes, keep_logged_registrations};
use crate::picture::tables::{EARLIER_TERMINATIONS, LoggedProgress, NODE_PROGRESS};
use crate::publisher::{Progress, SharedConsumption, SharedSnapshotRequests};

/// The first and the longest wait before a lost log is read again; the wait doubles in between.
const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(5);

/// Why the fold stopped. It then begins again.
#[derive(Debug, thiserror::Error)]
enum FoldError {
    #[error("the upstream log cannot be read")]
    Read(#[from] ReadError),
    #[error("the cloud's picture cannot be stored")]
    Engine(#[from] EngineError),
    /// A fold that lost its tail, or did not read for long, may have missed removals that
    /// compaction has deleted since.
    #[error("the stored picture does not match the reports of its nodes")]
    Differs,
}

/// The state of the fold in memory.
struct Fold {
    /// Whether the log keeps positions apart. Those among the reports are then of earlier versions.
    keeps_positions_apart: bool,
    /// Whether every partition is read.
    is_whole: bool,
    /// Whether the log was read to the end that it had at the start. Before that, a later record may
    /// replace each.
    has_caught_up: bool,
    /// Nodes whose position in the picture was read among the reports, although others are apart.
    earlier_positions: HashSet<NodeName>,
    statuses: PodStatusFold,
    stale: StaleKeys,
    terminations: Terminations,
    events: LoggedEvents,
    registrations: DueRegistrations,
    /// The latest time of a record, in milliseconds since the Unix epoch.
    newest_ms: i64,
    /// The time of the last report of each node that was read in this run.
    reported_ms: BTreeMap<NodeName, i64>,
}

/// The task that folds reports, and what it needs from outside.
pub(crate) struct ReportFold {
    pub(crate) log: Arc<dyn Log>,
    pub(crate) engine: Arc<dyn Engine>,
    /// The publisher's fold of the downstream log.
    pub(crate) published: Arc<dyn Engine>,
    /// Gets the nodes that are to be asked for a snapshot.
    pub(crate) snapshot_requests: SharedSnapshotRequests,
    /// Gets which nodes have programs that read the shared stream.
    pub(crate) consumption: SharedConsumption,
    /// Gets the keys of the objects whose statuses change.
    pub(crate) changes: ChangeFeed,
    /// Gets the nodes whose positions were read.
    pub(crate) presence: PresenceReceiver,
    /// Events that are needed no longer.
    pub(crate) event_discards: EventDiscards,
    /// Registrations of Nodes that this controller notes.
    pub(crate) registrations: RegistrationNotes,
    /// Whether this controller is the writer.
    pub(crate) progress: watch::Receiver<Progress>,
    /// Gets a sentence for each partition that cannot be read.
    pub(crate) troubles: watch::Sender<Vec<String>>,
    pub(crate) metrics: ReportFoldMetrics,
}

impl ReportFold {
    /// Folds for as long as the controller runs.
    pub(crate) async fn run(self) {
        let mut waits = retry();
        let mut away = Vec::new();
        loop {
            let folded = self.fold(&mut waits, &away).await;
            let error = match folded {
                Ok(still_away) => {
                    tracing::info!("a partition of the upstream log can be read again");
                    away = still_away;
                    continue;
                }
                Err(error) => error,
            };
            away.clear();
            // Others may append more until the fold is at the end again.
            self.registrations.forget_read();
            match &error {
                FoldError::Read(_) | FoldError::Differs => self.metrics.cannot_read(),
                FoldError::Engine(_) => self.metrics.cannot_store(),
            }
            if let FoldError::Read(error) = &error {
                self.show_unreadable(error);
            }
            let refold = match &error {
                FoldError::Read(error) => must_refold(error),
                FoldError::Differs => true,
                FoldError::Engine(_) => false,
            };
            tracing::warn!(%error, refold, "the fold of reports stopped; trying again");
            let has_lost = matches!(error, FoldError::Read(_));
            if refold && let Err(error) = self.begin_anew(has_lost) {
                tracing::error!(%error, "the cloud's picture cannot be emptied");
            }
            sleep(waits.next().unwrap_or(RETRY_MAX)).await;
        }
    }

    /// Empties the picture. A log that has lost records, or was created again, may have lost
    /// reports that it had acknowledged, so every node is asked for a snapshot.
    fn begin_anew(&self, has_lost: bool) -> Result<(), EngineError> {
        if has_lost {
            let known: Result<Vec<_>, _> = NODE_PROGRESS.rows(&*self.engine).collect();
            for (node, _) in known? {
                self.snapshot_requests.add(node);
            }
        }
        self.registrations.forget_read();
        keep_logged_registrations(&*self.engine)?;
        let emptied = discard_fold(&*self.engine);
        self.changes.publish_everything();
        emptied
    }

    /// Folds until a partition can be read that was away, and returns those that still are. It does not ask those
    /// that are `known_away`.
    async fn fold(
        &self,
        waits: &mut ExponentialBackoff,
        known_away: &[Partition],
    ) -> Result<Vec<Partition>, FoldError> {
        let mut resume = self.resume(known_away).await?;
        // What a partition that is away has could not be folded again.
        if resume.away.is_empty() && self.is_of_earlier_version()? {
            tracing::info!("the picture is of an earlier version; folding the reports again");
            self.begin_anew(false)?;
            resume = self.resume(&[]).await?;
        }
        let ResumePoint { cursors, mut ends, away, is_resumed } = resume;
        self.show_away(&away);
        let read = cursors.iter().map(|cursor| cursor.partition);
        let partitions = self.log.describe().await?.partitions;
        let mut fold = Fold {
            keeps_positions_apart: read.chain(away.iter().copied()).any(is_of_positions),
            is_whole: away.is_empty(),
            has_caught_up: ends.is_reached(),
            earlier_positions: HashSet::new(),
            statuses: PodStatusFold::open(&*self.engine)?,
            stale: StaleKeys::open(&*self.engine)?,
            terminations: Terminations::open(&*self.engine)?,
            events: LoggedEvents::open(&*self.engine)?,
            registrations: DueRegistrations::open(&*self.engine, partitions)?,
            newest_ms: 0,
            reported_ms: BTreeMap::new(),
        };
        self.metrics.statuses(fold.statuses.pods());
        let mut reader = self.log.read(cursors).await?;
        if ends.is_reached() {
            self.check_nodes(&fold, is_resumed)?;
            self.note_caught_up(&fold, &away)?;
        }
        let mut returned = pin!(until_readable(&*self.log, &away));
        let (mut repairs_from, mut removals_from) = (Instant::now(), Instant::now());
        let (mut departures_from, mut events_from) = (Instant::now(), Instant::now());
        let mut registrations_from = Instant::now();
        let mut logging = pin!(Fuse::terminated());
        loop {
            // Before the end of the log, a later record may repair a stale key.
            let knows_all = fold.is_whole && ends.is_reached();
            let repairs = knows_all && fold.stale.is_due();
            let removes = knows_all && !fold.terminations.is_empty();
            let removes_events = knows_all && !fold.events.is_empty();
            let has_registrations = !fold.registrations.is_empty();
            let batch = tokio::select! {
                biased;
                // A log that always has records must not delay it.
                readable = &mut returned => {
                    let is_away = |partition: &Partition| !readable.contains(partition);
                    return Ok(away.iter().copied().filter(is_away).collect());
                }
                () = self.until_writer(repairs_from), if repairs => {
                    if !self.repair(&mut fold.stale, &fold.statuses).await? {
                        repairs_from = Instant::now() + AGAIN_AFTER;
                    }
                    continue;
                }
                () = self.until_writer(removals_from), if removes => {
                    self.remove_terminations(&mut fold.terminations).await?;
                    removals_from = Instant::now() + LOOK_INTERVAL;
                    continue;
                }
                () = self.until_writer(events_from), if removes_events => {
                    self.remove_events(&mut fold.events, fold.newest_ms).await;
                    events_from = Instant::now() + EVENTS_INTERVAL;
                    continue;
                }
                appended = &mut logging, if !logging.is_terminated() => {
                    if let Some(appended) = &appended {
                        fold.registrations.note_appended(appended);
                    }
                    registrations_from = Instant::now() + REGISTRATIONS_INTERVAL;
                    continue;
                }
                () = self.until_registration(has_registrations, registrations_from),
                    if knows_all && logging.is_terminated() =>
                {
                    if let Some(next) = self.next_registrations(&mut fold.registrations)? {
                        logging.set(self.append_registrations(next).fuse());
                    }
                    continue;
                }
                batch = reader.next() => batch?,
            };
            *waits = retry();
            let differing = self.fold_batch(&mut fold, &batch)?;
            self.metrics.read_to(&batch.cursor, batch.high);
            let had_caught_up = ends.is_reached();
            if knows_all
                && fold.newest_ms > 0
                && departures_from <= Instant::now()
                && self.forget_departed(&mut fold, &batch.cursor)?
            {
                departures_from = Instant::now() + DEPARTURES_INTERVAL;
            }
            if ends.pass(&batch.cursor) {
                fold.has_caught_up = true;
                self.check_nodes(&fold, is_resumed)?;
                self.note_caught_up(&fold, &away)?;
            }
            // Before the end of the log, a later record may make up a difference.
            if had_caught_up {
                // The fold has missed nothing meanwhile.
                self.note_differing(&differing)?;
                for node in differing {
                    self.snapshot_requests.add(node);
                }
            }
        }
    }

    async fn resume(&self, known_away: &[Partition]) -> Result<ResumePoint, FoldError> {
        let described = self.log.describe().await?;
        resume_point(&*self.log, &described, &*self.engine, Some(&CURSORS), known_away).await
    }

    /// Whether the picture has terminations without their nodes.
    fn is_of_earlier_version(&self) -> Result<bool, EngineError> {
        Ok(EARLIER_TERMINATIONS.rows(&*self.engine).next().transpose()?.is_some())
    }

    /// At the end of the log, asks each node whose statuses do not match for a snapshot, and notes which
    /// nodes have programs that read the shared stream. A picture that continued an earlier fold is
    /// folded anew first, unless the nodes alone are the cause.
    fn check_nodes(&self, fold: &Fold, is_resumed: bool) -> Result<(), FoldError> {
        if fold.is_whole {
            let differing: Vec<NodeName> = fold.statuses.differing().cloned().collect();
            if is_resumed && !self.differ_by_themselves(&differing)? {
                return Err(FoldError::Differs);
            }
            self.replace_differing(&differing)?;
            for node in differing {
                self.snapshot_requests.add(node);
            }
        }
        let known: Result<Vec<_>, _> = NODE_PROGRESS.rows(&*self.engine).collect();
        for (node, Json(LoggedProgress { progress, .. })) in known? {
            if let Some(consumes_cluster) = progress.consumes_cluster {
                self.consumption.note(node.clone(), consumes_cluster);
            }
            if fold.is_whole && is_lost(&node, &progress, &fold.statuses) {
                self.snapshot_requests.add(node);
            }
        }
        Ok(())
    }

    /// Shows that nothing of the log can be read. The next fold that begins shows what it cannot read.
    fn show_unreadable(&self, error: &ReadError) {
        let trouble = format!(
            "the upstream log cannot be read: what the nodes report is shown as it was known before, and no cluster gets \
             it, until the log is back: {}",
            error_chain(error)
        );
        self.troubles.send_replace(vec![trouble]);
    }

    /// Shows which partitions cannot be read.
    fn show_away(&self, away: &[Partition]) {
        let troubles: Vec<String> = away.iter().copied().map(trouble).collect();
        self.troubles.send_if_modified(|shown| {
            let is_other = *shown != troubles;
            if is_other {
                troubles.iter().for_each(|trouble| tracing::warn!("{trouble}"));
                shown.clone_from(&troubles);
            }
            is_other
        });
    }
}

/// The trouble of a partition that cannot be read.
fn trouble(partition: Partition) -> String {
    let name = partition_name(partition);
    format!(
        "{name} cannot be read: what its nodes report is shown as it was known before, and no cluster gets it, until it \
         is back"
    )
}

fn retry() -> ExponentialBackoff {
    let retry = ExponentialBuilder::default().with_min_delay(RETRY_MIN).with_max_delay(RETRY_MAX);
    retry.without_max_times().build()
}
