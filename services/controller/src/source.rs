//! Sources: where objects come from, behind one promise.
//!
//! A source tells everything it has, then what changes. `Init`, then `InitApply` for each object
//! of *every* kind, then `InitDone`: only there does absence mean that an object is gone. After it,
//! `Apply` and `Delete`. A source that loses its place starts over with `Init`.

pub(crate) mod identity;
pub mod manifest;
mod notice;
pub mod objects;
mod published;
mod set;

use std::ops::ControlFlow;
use std::sync::Arc;

use async_trait::async_trait;
use headwater_event::ResourceKey;
use headwater_object::Object;
use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

pub use notice::{Notice, NoticeKind};
pub use published::{PublishedObject, PublishedObjects};
pub use set::SourceSet;

/// How many events a source may be ahead of the controller: enough to hide a group append, few
/// enough that the objects in the queue stay small beside those in the interest.
pub const SOURCE_QUEUE_EVENTS: usize = 1024;

/// What a source says.
#[derive(Clone, Debug)]
pub enum SourceEvent {
    /// A complete list begins.
    Init,
    /// An object of the list.
    InitApply(Object),
    /// The list is complete: what was not in it is gone.
    InitDone,
    /// An object came or changed.
    Apply(Object, Cause),
    /// An object is gone.
    Delete {
        /// Which.
        key: ResourceKey,
        /// Its UID: another object of the same name is not meant.
        uid: String,
        /// Why.
        cause: Cause,
    },
    /// Something a person should be told, once.
    Notice(Notice),
}

/// Where a change came from, as far as the source knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cause {
    /// When the change was meant to happen. A load generator measures from here, so that its own
    /// delay counts too.
    pub intended_time: Option<Timestamp>,
    /// W3C trace context of the change.
    pub traceparent: Option<String>,
    /// Which source told it.
    pub source: SourceKind,
}

/// What a source is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SourceKind {
    /// The manifest folder.
    Manifests,
    /// The objects socket.
    Objects,
    /// Another.
    #[default]
    Other,
}

impl SourceKind {
    pub(crate) const ALL: [Self; 3] = [Self::Manifests, Self::Objects, Self::Other];

    /// Its name, as metrics and spans say it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Manifests => "manifests",
            Self::Objects => "objects",
            Self::Other => "other",
        }
    }
}

/// A source of objects.
#[async_trait]
pub trait Source: Send {
    /// Tells what there is and what changes, until `stop`, or until the receiver is gone.
    ///
    /// `published` is what an earlier run told: objects found there keep their UID and node, so
    /// that a restart changes nothing.
    ///
    /// When this returns `Ok`, it was asked to. When it fails, everything told so far stands, and
    /// nothing more is known: no object may be taken for gone.
    async fn run(
        self: Box<Self>,
        published: Arc<dyn PublishedObjects>,
        events: mpsc::Sender<SourceEvent>,
        stop: CancellationToken,
    ) -> Result<(), SourceError>;
}

/// Why a source stopped. The objects that it told stay as they are.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The folder cannot be read at all.
    #[error("the manifest folder {folder} cannot be read")]
    Folder {
        /// The folder.
        folder: String,
        /// What the system says.
        source: std::io::Error,
    },
    /// Every manifest is gone at once, which an unmounted or half-copied folder looks like.
    #[error(
        "every manifest under {folder} is gone, and {objects} objects with them: nothing was \
         removed. If that is meant, start with --allow-empty"
    )]
    Emptied {
        /// The folder.
        folder: String,
        /// How many objects would go.
        objects: usize,
    },
    /// The folder lies on another device than before: a mount came or went.
    #[error(
        "{folder} lies on another device than before, as when something is mounted over it or \
         unmounted: nothing was changed. Restart when the folder is the right one, or with \
         --allow-empty"
    )]
    OtherDevice {
        /// The folder.
        folder: String,
    },
    /// The socket cannot be listened on.
    #[error("the objects socket {socket} cannot be opened")]
    Socket {
        /// Its path.
        socket: String,
        /// What the system says.
        source: std::io::Error,
    },
    /// Something is listening on the socket already.
    #[error(
        "another process listens on the objects socket {socket}: stop it, or give another path"
    )]
    SocketInUse {
        /// Its path.
        socket: String,
    },
    /// A task of the source ended without a word.
    #[error("the source {what} ended by itself")]
    Ended {
        /// Which part.
        what: &'static str,
        /// How it ended.
        source: tokio::task::JoinError,
    },
}

impl SourceError {
    /// Which of them, as metrics say it.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Folder { .. } => "folder",
            Self::Emptied { .. } => "emptied",
            Self::OtherDevice { .. } => "other_device",
            Self::Socket { .. } => "socket",
            Self::SocketInUse { .. } => "socket_in_use",
            Self::Ended { .. } => "ended",
        }
    }
}

/// Sends what is to be told; breaks off when the source is to stop, or nobody listens any more.
async fn tell(
    events: &mpsc::Sender<SourceEvent>,
    stop: &CancellationToken,
    told: impl IntoIterator<Item = SourceEvent>,
) -> ControlFlow<()> {
    for event in told {
        tokio::select! {
            biased;
            () = stop.cancelled() => return ControlFlow::Break(()),
            sent = events.send(event) => if sent.is_err() { return ControlFlow::Break(()) },
        }
    }
    ControlFlow::Continue(())
}

/// An error and what caused it, in one line.
pub(crate) fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}
