//! The manifest folder: a source that takes the YAML and JSON of Kubernetes objects as people
//! have them.
//!
//! ```text
//! scan -> entries of each file -> description of all -> difference to the last -> events
//! (I/O)   (parse)                  (expand, place)      (UIDs)
//! ```
//!
//! Everything after the scan is pure and tested without a file system. The folder is watched, and
//! looked at once in a while anyway: a watch can miss things, a look cannot.
//!
//! - **Files**: `.yaml`, `.yml`, `.json`, nested folders, several documents a file, `List` kinds.
//!   Data directories of Headwater are left alone.
//! - **Kinds**: workloads unfold to pods as their controllers do, step by step, replicated kinds are taken as they are, others are
//!   counted and named once.
//! - **Nodes**: pods are spread over the nodes the source is given; where it is given none, over
//!   the Node objects in the folder. A Node object's labels, taints and cordon count in either
//!   case.
//! - **What a cluster would not accept** (unknown fields, a selector that does not match its template,
//!   a mistyped kind, a key twice) has a notice, or is refused under `strict`.
//! - **What is wrong** is named once, by file and line, is in `status` until it is repaired, and never
//!   takes anything away: a document that does not read leaves what its file described before in
//!   place.
//! - **An accident** (every manifest gone at once, another device, no folder) changes nothing. The
//!   source reports it and follows again when the files are back and have settled.

mod blocking_job;
mod data_directory;
mod description;
mod distinct_keys;
mod document;
mod entry;
mod field_line;
mod fit;
mod folder;
pub(crate) mod origin;
mod parse;
mod placement;
mod pod_name;
mod recovery;
pub(crate) mod rollout;
mod rollout_watch;
mod scan;
mod selector;
mod unfolding;
mod validation;
mod watch;
mod workload;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use headwater_event::NodeName;
use headwater_telemetry::error_chain;
use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::{OnceCell, watch as value_watch};
use tokio::time::{Instant, MissedTickBehavior, timeout};
use uuid::Uuid;

use self::blocking_job::{BlockingJob, JobError};
use self::folder::Surroundings;
use self::origin::is_from_manifest;
use self::recovery::{RETRY_INTERVAL, Recovery, SETTLED_AFTER};
use self::rollout_watch::{Decision, RolloutWatch};
use self::watch::FolderWatch;
use super::{
    Notice, NoticeKind, PublishedMap, PublishedReader, Source, SourceContext, SourceError,
    SourceEvent, SourceKind, SourceState, SourceStateSender, Takeover, UidAssignment,
    read_published,
};

pub use self::data_directory::data_directory_of;
pub use self::folder::{Folder, ObjectIdentity};
pub use self::origin::MANIFEST_ANNOTATION;
pub use self::scan::{Scan, ScanLimits, scan};

/// How long nothing may change before a change is looked at: longer than an editor takes from
/// emptying a file to having written it, shorter than a person notices.
pub const QUIET_DEFAULT: Duration = Duration::from_millis(200);

/// How long a folder that never falls quiet may go without a look.
pub const QUIET_MAX: Duration = Duration::from_secs(2);

/// The interval of scans without a notification: it bounds how long a missed change stays unseen.
pub const RESCAN_DEFAULT: Duration = Duration::from_secs(30);

/// The time limit of a look at the files. The largest folder takes minutes on a slow network; a network file system whose
/// server is away does not respond at all.
const LOOK_WITHIN: Duration = Duration::from_mins(10);

/// A look that takes longer, and twice as long as the look before, leaves the source lost until it ends: its folder may
/// be on a network file system whose server is away, and a standby may see it. The largest folder of a local disk takes
/// seconds.
const LOOK_USUAL: Duration = Duration::from_mins(1);

/// What a manifest folder needs to know.
#[derive(Clone, Debug)]
pub struct ManifestSettings {
    /// The folder.
    pub folder: PathBuf,
    /// Go on when every manifest is gone at once, or the folder is on another device. What lies in a folder that
    /// cannot be looked into stays all the same: nothing says that it is gone.
    pub allow_empty: bool,
    /// Refuse documents that a cluster would not accept: unknown fields, a selector that does not
    /// match its template, an unknown kind with the name of a replicated one, a key twice. Otherwise
    /// they only have a notice.
    pub strict: bool,
    /// How long nothing may change before a change is looked at.
    pub quiet: Duration,
    /// The interval of scans without a notification.
    pub rescan: Duration,
    /// How much there may be to look at.
    pub limits: ScanLimits,
}

impl ManifestSettings {
    /// The defaults for `folder`.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
            allow_empty: false,
            strict: false,
            quiet: QUIET_DEFAULT,
            rescan: RESCAN_DEFAULT,
            limits: ScanLimits::default(),
        }
    }
}

/// A source that reads a manifest folder.
#[derive(Debug)]
pub struct ManifestFolder {
    settings: ManifestSettings,
    nodes: value_watch::Receiver<BTreeSet<NodeName>>,
}

impl ManifestFolder {
    /// A source for a folder, its pods to be spread over `nodes`.
    ///
    /// A node that leaves the set loses its pods to the others: it has to hold every node from the
    /// start, those that are just not connected too.
    pub fn new(
        settings: ManifestSettings,
        nodes: value_watch::Receiver<BTreeSet<NodeName>>,
    ) -> Self {
        Self { settings, nodes }
    }

    /// Looks at the files, after the start of another watch if `renews_watch`.
    async fn look(
        &self,
        looks: &mut BlockingJob<FolderLook>,
        renews_watch: bool,
    ) -> (Result<Scan, SourceError>, Option<WatchedFolder>) {
        let (folder, limits) = (self.settings.folder.clone(), self.settings.limits);
        let look = looks.run(move || FolderLook {
            // The watch starts before the scan, so that no change falls between the two.
            watch: renews_watch.then(|| FolderWatch::start(&folder)),
            scan: scan(&folder, &limits),
        });
        let folder = || self.name();
        match look.await {
            Ok(FolderLook { watch, scan }) => (
                scan.map_err(|source| ManifestError::Folder { folder: folder(), source }.into()),
                watch.map(|started| self.watched(started)),
            ),
            Err(JobError::Overdue) => {
                let error = ManifestError::Overdue { folder: folder(), within: LOOK_WITHIN };
                (Err(error.into()), None)
            }
            Err(JobError::Ended(error)) => (Err(SourceError::task_ended("scan", error)), None),
        }
    }

    /// Waits for a look, and reports the source as failed to `states` while it takes longer than `usual`. Returns
    /// whether it did.
    async fn report_late<T>(
        &self,
        look: impl Future<Output = T>,
        usual: Duration,
        states: Option<&SourceStateSender>,
    ) -> (T, bool) {
        let mut look = pin!(look);
        let Some(states) = states else { return (look.await, false) };
        if let Ok(ended) = timeout(usual, &mut look).await {
            return (ended, false);
        }
        let error = ManifestError::Overdue { folder: self.name(), within: usual }.into();
        states.count_failure(&error);
        states.fail_for_now(&error, RETRY_INTERVAL);
        (look.await, true)
    }

    /// A watch that was started. Where that was not possible, it sees nothing.
    fn watched(&self, started: Result<FolderWatch, String>) -> WatchedFolder {
        match started {
            Ok(watch) => WatchedFolder { watch, trouble: None },
            Err(reason) => {
                let every = self.settings.rescan.as_secs_f32();
                let text = format!(
                    "{} cannot be watched ({reason}): changes are seen every {every} s",
                    self.name()
                );
                let trouble = Some(Self::notice(NoticeKind::Source, text));
                WatchedFolder { watch: FolderWatch::none(), trouble }
            }
        }
    }

    fn notice(kind: NoticeKind, text: String) -> Notice {
        Notice { file: None, line: None, kind, text }
    }

    fn name(&self) -> String {
        self.settings.folder.display().to_string()
    }
}

#[async_trait]
impl Source for ManifestFolder {
    fn kind(&self) -> SourceKind {
        SourceKind::MANIFESTS
    }

    fn uid_assignment(&self) -> Option<Arc<dyn UidAssignment>> {
        Some(Arc::new(ManifestUids))
    }

    fn wants_removals(&self) -> bool {
        true
    }

    fn answers_takeover(&self) -> bool {
        true
    }

    async fn run(mut self: Box<Self>, mut context: SourceContext) -> Result<(), SourceError> {
        let mut folder =
            Folder::new(self.name(), self.settings.allow_empty).with_strict(self.settings.strict);
        let mut looks = BlockingJob::new(LOOK_WITHIN);
        let mut watched = WatchedFolder { watch: FolderWatch::none(), trouble: None };
        let mut rescan = tokio::time::interval(self.settings.rescan);
        rescan.set_missed_tick_behavior(MissedTickBehavior::Delay);
        rescan.reset();
        let mut rollouts = RolloutWatch::new(&context.workloads);
        let mut has_listed = false;
        let mut look_before = Duration::ZERO;
        // What an earlier run published, from the first look until one is in order.
        let mut earlier = OnceCell::new();
        let mut recovery: Option<Recovery> = None;
        let mut is_scan = true;
        loop {
            // After an accident the folder may be another one under the same name.
            let renews_watch = !has_listed || recovery.is_some();
            let mut was_late = false;
            let scan = if is_scan {
                let began = Instant::now();
                let look = self.look(&mut looks, renews_watch);
                let usual = LOOK_USUAL.max(2 * look_before);
                let look = self.report_late(look, usual, has_listed.then_some(&context.states));
                let Some(((scan, renewed), is_late)) = context.stop.run_until_cancelled(look).await
                else {
                    return Ok(());
                };
                (was_late, look_before) = (is_late, began.elapsed());
                if let Some(renewed) = renewed {
                    let before = std::mem::replace(&mut watched, renewed).trouble;
                    let new = watched.trouble.iter().filter(|now| before.as_ref() != Some(now));
                    context
                        .events
                        .send_all(new.cloned().map(SourceEvent::Notice).collect())
                        .await?;
                }
                Some(scan)
            } else {
                None
            };
            let look = match scan {
                None => Look::Settled(None),
                Some(Ok(scan)) => {
                    watched.watch.ignore(&scan.data_directories);
                    let is_settled = recovery.as_mut().is_none_or(|past| past.is_settled(&scan));
                    if is_settled { Look::Settled(Some(scan)) } else { Look::Unsettled }
                }
                // A folder that was never read may be a wrong name.
                Some(Err(error)) if error.is_end_of_task() => return Err(error),
                Some(Err(error)) if !has_listed && !is_overdue(&error) => return Err(error),
                Some(Err(error)) => Look::Accident(error),
            };
            let look = match look {
                Look::Settled(scan) => {
                    let nodes = self.nodes.borrow_and_update().clone();
                    let Decision { reports, takeover } = rollouts.decision(scan.is_some());
                    let is_takeover = takeover.is_some();
                    let published = match &takeover {
                        Some(takeover) => published_map(takeover.published.clone()).await?,
                        None if has_listed => Arc::default(),
                        None => {
                            let read = || published_map(context.published.clone());
                            earlier.get_or_try_init(read).await?.clone()
                        }
                    };
                    // Parsing thousands of files takes a while.
                    let update = tokio::task::spawn_blocking(move || {
                        let around = Surroundings {
                            nodes: &nodes,
                            published: &*published,
                            is_takeover,
                            reports: &*reports,
                            now: Timestamp::now(),
                        };
                        let events = match scan {
                            Some(scan) => folder.look(scan, &around, &mut new_identity),
                            None => Ok(folder.describe(&around, &mut new_identity)),
                        };
                        (folder, events)
                    });
                    let (returned, events) =
                        update.await.map_err(|error| SourceError::task_ended("update", error))?;
                    folder = returned;
                    match events {
                        Ok(events) => {
                            // Only the first look compares with what an earlier run published.
                            earlier.take();
                            has_listed = true;
                            context.workloads.workloads.replace(folder.workloads());
                            context.events.send_all(events).await?;
                            if let Some(Takeover { epoch, .. }) = takeover {
                                context.events.send(SourceEvent::TakenOver { epoch }).await?;
                            }
                            Look::Taken
                        }
                        Err(error) => {
                            rollouts.restore(takeover);
                            Look::Accident(error.into())
                        }
                    }
                }
                other => other,
            };
            match look {
                Look::Accident(error) => {
                    match &mut recovery {
                        Some(recovery) => recovery.reset(),
                        None => {
                            context.states.count_failure(&error);
                            let notice = Self::notice(NoticeKind::Source, error_chain(&error));
                            context.events.send(SourceEvent::Notice(notice)).await?;
                            recovery = Some(Recovery::default());
                        }
                    }
                    context.states.fail_for_now(&error, RETRY_INTERVAL);
                }
                Look::Taken => {
                    let is_recovered = recovery.take().is_some();
                    if is_recovered || was_late {
                        context.states.set("", SourceState::Following);
                    }
                    if is_recovered {
                        let text = format!("{} is in order and followed again", self.name());
                        let notice = Self::notice(NoticeKind::Repaired, text);
                        context.events.send(SourceEvent::Notice(notice)).await?;
                    }
                    context.states.set_documents(folder.notices().chain(&watched.trouble));
                }
                Look::Settled(_) | Look::Unsettled => {
                    tokio::select! {
                        () = tokio::time::sleep(SETTLED_AFTER) => continue,
                        () = context.stop.cancelled() => return Ok(()),
                    }
                }
            }
            is_scan = tokio::select! {
                () = watched.watch.changed(self.settings.quiet, QUIET_MAX) => true,
                () = changed(&mut self.nodes) => true,
                _ = rescan.tick() => true,
                () = rollouts.due(&folder), if recovery.is_none() => rollouts.has_takeover(),
                () = tokio::time::sleep(RETRY_INTERVAL), if recovery.is_some() => true,
                () = context.stop.cancelled() => return Ok(()),
            };
        }
    }
}

/// A watch on the folder.
struct WatchedFolder {
    watch: FolderWatch,
    /// Why it sees nothing.
    trouble: Option<Notice>,
}

/// A look at the files.
struct FolderLook {
    /// The watch that was started before it; the reason if that is not possible.
    watch: Option<Result<FolderWatch, String>>,
    scan: std::io::Result<Scan>,
}

/// What came of a look at the folder.
enum Look {
    /// The files are in order, and are to be taken in.
    Settled(Option<Scan>),
    /// The files are taken in.
    Taken,
    /// After an accident files have come back, and more may follow.
    Unsettled,
    /// Nothing can be taken in: what was described stays in place.
    Accident(SourceError),
}

/// The UIDs that this source assigns to objects of manifests, which have none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ManifestUids;

impl UidAssignment for ManifestUids {
    fn is_assigned(&self, object: &Value) -> bool {
        is_from_manifest(object)
    }
}

/// Why nothing of the manifest folder can be taken in.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// The folder cannot be read at all.
    #[error("the manifest folder {folder} cannot be read")]
    Folder {
        /// The folder.
        folder: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// Every manifest that could be seen is gone at once, as in an unmounted or half-copied folder.
    #[error(
        "every manifest under {folder} is gone, and {objects} objects with them: nothing was \
         removed. They are followed again when the files are back. If the removal is meant, start \
         with --allow-empty"
    )]
    Emptied {
        /// The folder.
        folder: String,
        /// How many objects would be removed.
        objects: usize,
    },
    /// The file system does not respond.
    #[error(
        "a look at the manifest folder {folder} has not ended within {} s, as on a network file \
         system whose server is away: nothing is changed. It is followed again when a look ends",
        within.as_secs()
    )]
    Overdue {
        /// The folder.
        folder: String,
        /// The time limit.
        within: Duration,
    },
    /// The folder is on another device than before: a mount came or went.
    #[error(
        "{folder} lies on another device than before, as when something is mounted over it or \
         unmounted: nothing was changed. It is followed again when the former one is back. If this \
         one is meant, start with --allow-empty"
    )]
    OtherDevice {
        /// The folder.
        folder: String,
    },
    /// The folder was a mount in an earlier run and is none now, and files of that run are not in it.
    #[error(
        "{folder} was a mount when its manifests were published and is none now: nothing is \
         changed. It is followed when it is mounted again. If what lies there now is meant, start \
         with --allow-empty"
    )]
    Unmounted {
        /// The folder.
        folder: String,
    },
}

impl From<ManifestError> for SourceError {
    fn from(error: ManifestError) -> Self {
        let reason = match &error {
            ManifestError::Folder { .. } => "folder",
            ManifestError::Emptied { .. } => "emptied",
            ManifestError::Overdue { .. } => "overdue",
            ManifestError::OtherDevice { .. } => "other_device",
            ManifestError::Unmounted { .. } => "unmounted",
        };
        Self::new(reason, error)
    }
}

fn is_overdue(error: &SourceError) -> bool {
    matches!(error.downcast_ref(), Some(ManifestError::Overdue { .. }))
}

/// All that is published, in memory.
async fn published_map(
    published: Arc<dyn PublishedReader>,
) -> Result<Arc<PublishedMap>, SourceError> {
    read_published(published, PublishedMap::read).await.map(Arc::new)
}

/// Returns when the set of nodes has changed; never, if it will not.
async fn changed(nodes: &mut value_watch::Receiver<BTreeSet<NodeName>>) {
    if nodes.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

fn new_identity() -> ObjectIdentity {
    ObjectIdentity { uid: Uuid::new_v4().to_string(), time: Timestamp::now() }
}

#[cfg(test)]
mod tests;
