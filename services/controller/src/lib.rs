//! Sources of objects, the interest of each node, and the fold of what the edges report.
//!
//! | module | what it owns |
//! |---|---|
//! | [`source`] | what every source of objects promises; the manifest folder and the objects socket |
//! | [`interest`] | which node needs which object, as objects come and go |

mod controller;
pub mod interest;
mod metrics;
mod picture;
mod publisher;
mod report_fold;
pub mod source;
mod spans;

pub use controller::{Controller, ControllerDependencies, ControllerError, ControllerHandle};
pub use interest::{EntryId, Interest};
pub use metrics::ControllerMetrics;
pub use picture::{ChangeSubscription, Filter, Picture, PictureChange, is_reachable};
pub use publisher::{
    HEARTBEAT_INTERVAL, HEARTBEATS_MISSED, OpenError, Progress, UuidGenerator, WriterTimings,
};
pub use source::{
    Cause, Notice, NoticeKind, PublishedObject, PublishedObjects, Source, SourceError, SourceEvent,
    SourceKind, SourceSet,
};
