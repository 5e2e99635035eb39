//! Pods of the node itself, as a kubelet's static pods: each file of a folder has one. They run without an edge and
//! without a cloud. A cloud shows a mirror of each, which decides nothing.
//!
//! ```text
//!  folder --look--> files that have settled --parse--> static pods --> desired state
//!                                                           |
//!                                                           +--> statement in the Node --> mirrors in the cloud
//! ```
//!
//! What cannot be looked at is never taken for gone: while the folder cannot be listed, or a file has no pod, the
//! pods of before stay, but for those whose files were seen to go.

mod folder;
mod pod_file;
pub(crate) mod statement;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use headwater_event::{NodeName, ResourceKey};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use self::folder::PodFolder;
use self::pod_file::PodFile;

/// The pods of the node's own files.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct StaticPods {
    /// The pods.
    pub(crate) pods: BTreeMap<ResourceKey, PodFile>,
    /// Whether a pod that is absent has no file any more.
    pub(crate) is_complete: bool,
    /// Where that is not known of all, the pods whose files were seen to go.
    pub(crate) removed: BTreeSet<ResourceKey>,
}

impl StaticPods {
    /// The pods of a node without a folder: there are none.
    pub(crate) fn none() -> Self {
        Self { is_complete: true, ..Self::default() }
    }
}

/// Follows the folder until cancelled, and sends its pods whenever they change.
pub(crate) async fn follow(
    path: PathBuf,
    node: NodeName,
    period: Duration,
    pods: watch::Sender<StaticPods>,
    cancel: CancellationToken,
) {
    let mut folder = PodFolder::new(path, node);
    let mut looks = interval(period);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = cancel.cancelled() => return,
            _ = looks.tick() => {}
        }
        let looking = tokio::task::spawn_blocking(move || {
            let found = folder.look();
            (folder, found)
        });
        let found = match looking.await {
            Ok((same, found)) => {
                folder = same;
                found
            }
            Err(error) => {
                tracing::error!(%error, "static pods are not followed any more; those of before stay");
                return;
            }
        };
        pods.send_if_modified(|sent| {
            let has_changed = *sent != found;
            *sent = found;
            has_changed
        });
    }
}
