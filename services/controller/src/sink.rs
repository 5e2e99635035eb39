//! Sinks: where the cloud's picture goes.
//!
//! A sink makes something outside of Headwater agree with the picture: the statuses that a
//! Kubernetes API shows, or, without such an API, the objects of pods that have ended. A sink is
//! level-triggered. It compares what the picture says now with what it sees outside, so a lost
//! notification, a restart and another controller are one case: it compares again.
//!
//! | module | what it owns |
//! |---|---|
//! | `pod_removal` | the sink of a controller without a Kubernetes API |

mod pod_removal;
#[cfg(test)]
pub(crate) mod recording;

use async_trait::async_trait;
use headwater_event::ResourceKey;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::picture::Picture;
use crate::publisher::{Command, Progress};

pub use self::pod_removal::PodRemoval;

/// A sink of the cloud's picture.
#[async_trait]
pub trait Sink: Send {
    /// Acts on the picture until `context.stop`, or until it is dropped.
    ///
    /// A sink acts only while this controller is the writer (`context.progress` is reconciled). When
    /// it becomes the writer, it subscribes to [`Picture::changes`], or to [`Picture::report_changes`]
    /// if it reads no objects of the picture. It looks at everything, then at what the subscription
    /// names. A subscription has a cost for each change, so a sink holds one only while it acts. A sink
    /// that is slow gets [`PictureChange::Everything`](crate::PictureChange::Everything) instead of a
    /// long list; it never delays the fold of reports or the publisher.
    async fn run(self: Box<Self>, context: SinkContext);
}

/// What a sink gets from the controller.
pub struct SinkContext {
    /// The picture.
    pub picture: Picture,
    /// Whether this controller is the writer.
    pub progress: watch::Receiver<Progress>,
    /// Removes objects that have ended; `None` where no source wants that.
    pub removals: Option<ObjectRemovals>,
    /// Cancelled when the sink is to stop.
    pub stop: CancellationToken,
}

/// Removes objects that have ended and that their source still has.
#[derive(Clone, Debug)]
pub struct ObjectRemovals(mpsc::Sender<Command>);

impl ObjectRemovals {
    pub(crate) fn new(commands: mpsc::Sender<Command>) -> Self {
        Self(commands)
    }

    /// Removes the object at `key` from the streams, if its UID is `uid`. Returns before the log
    /// has the removal. A sink repeats a removal that did not happen, as when this controller stops
    /// being the writer.
    pub async fn remove(&self, key: ResourceKey, uid: String) {
        // The publisher ends with the controller.
        let _ = self.0.send(Command::RemoveObject { key, uid }).await;
    }
}
