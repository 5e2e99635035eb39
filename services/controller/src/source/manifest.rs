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
//! - **Kinds**: workloads expand to their pods, replicated kinds are taken as they are, others are
//!   counted and named once.
//! - **Nodes**: pods are spread over the nodes the source is given; where it is given none, over
//!   the Node objects in the folder. A Node object's labels, taints and cordon count in either
//!   case.
//! - **What is wrong** is named once, by file and line, and never takes anything away: a document
//!   that does not read leaves what its file described before in place.

mod description;
mod document;
mod entry;
mod fit;
mod folder;
mod parse;
mod placement;
mod pod_name;
mod scan;
mod watch;
mod workload;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use headwater_event::NodeName;
use jiff::Timestamp;
use tokio::sync::{mpsc, watch as value_watch};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use self::watch::FolderWatch;
use super::{Notice, NoticeKind, PublishedObjects, Source, SourceError, SourceEvent, tell};

pub use self::folder::{Folder, MANIFEST_ANNOTATION, ObjectIdentity};
pub use self::scan::{Scan, ScanLimits, scan};

/// How long nothing may change before a change is looked at: longer than an editor takes from
/// emptying a file to having written it, shorter than a person notices.
pub const QUIET_DEFAULT: Duration = Duration::from_millis(200);

/// How long a folder that never falls quiet may go without a look.
pub const QUIET_MAX: Duration = Duration::from_secs(2);

/// How often to look without having been told: bounds how long a missed change stays unseen.
pub const RESCAN_DEFAULT: Duration = Duration::from_secs(30);

/// What a manifest folder needs to know.
#[derive(Clone, Debug)]
pub struct ManifestSettings {
    /// The folder.
    pub folder: PathBuf,
    /// Go on when every manifest is gone at once, or the folder is on another device.
    pub allow_empty: bool,
    /// How long nothing may change before a change is looked at.
    pub quiet: Duration,
    /// How often to look without having been told of a change.
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

    async fn scan(&self) -> Result<Scan, SourceError> {
        let (folder, limits) = (self.settings.folder.clone(), self.settings.limits);
        let looked = tokio::task::spawn_blocking(move || scan(&folder, &limits)).await;
        let scanned = looked.map_err(|source| SourceError::Ended { what: "scan", source })?;
        scanned.map_err(|source| SourceError::Folder { folder: self.name(), source })
    }

    fn name(&self) -> String {
        self.settings.folder.display().to_string()
    }
}

#[async_trait]
impl Source for ManifestFolder {
    async fn run(
        mut self: Box<Self>,
        published: Arc<dyn PublishedObjects>,
        events: mpsc::Sender<SourceEvent>,
        stop: CancellationToken,
    ) -> Result<(), SourceError> {
        let mut folder = Folder::new(self.name(), self.settings.allow_empty);
        // Watching begins before the first look, so that nothing falls between.
        let mut watch = match FolderWatch::start(&self.settings.folder) {
            Ok(watch) => watch,
            Err(reason) => {
                let every = self.settings.rescan.as_secs_f32();
                let text = format!(
                    "{} cannot be watched ({reason}): changes are seen every {every} s",
                    self.name()
                );
                let notice = Notice { file: None, line: None, kind: NoticeKind::Source, text };
                if tell(&events, &stop, [SourceEvent::Notice(notice)]).await.is_break() {
                    return Ok(());
                }
                FolderWatch::none()
            }
        };
        let mut rescan = tokio::time::interval(self.settings.rescan);
        rescan.set_missed_tick_behavior(MissedTickBehavior::Delay);
        rescan.reset();
        loop {
            let scan = self.scan().await?;
            let nodes = self.nodes.borrow_and_update().clone();
            let oracle = published.clone();
            // Parsing thousands of files takes a while.
            let look = tokio::task::spawn_blocking(move || {
                let events = folder.look(scan, &nodes, &*oracle, &mut birth);
                (folder, events)
            });
            let (returned, told) =
                look.await.map_err(|source| SourceError::Ended { what: "look", source })?;
            folder = returned;
            if tell(&events, &stop, told?).await.is_break() {
                return Ok(());
            }
            tokio::select! {
                () = watch.changed(self.settings.quiet, QUIET_MAX) => {}
                () = changed(&mut self.nodes) => {}
                _ = rescan.tick() => {}
                () = stop.cancelled() => return Ok(()),
            }
        }
    }
}

/// Returns when another set of nodes is there; never, if there will be none.
async fn changed(nodes: &mut value_watch::Receiver<BTreeSet<NodeName>>) {
    if nodes.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

fn birth() -> ObjectIdentity {
    ObjectIdentity { uid: Uuid::new_v4().to_string(), time: Timestamp::now() }
}

#[cfg(test)]
mod tests;
