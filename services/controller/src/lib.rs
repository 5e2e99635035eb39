//! Sources of objects, the interest of each node, and the fold of what the edges report.
//!
//! | module | what it owns |
//! |---|---|
//! | [`source`] | what every source of objects promises; the manifest folder and the objects socket |
//! | [`interest`] | which node needs which object, as objects come and go |

mod changes;
mod controller;
mod downstream;
mod inherited;
pub mod interest;
mod lives;
mod metrics;
mod picture;
mod publish;
pub mod source;
mod spans;
mod upstream;

pub use changes::{Changed, Changes};
pub use controller::{Controller, ControllerError, ControllerHandle, ControllerSeams};
pub use downstream::{
    DrawUuid, HEARTBEAT_INTERVAL, HEARTBEATS_MISSED, OpenError, Progress, WriterTimings,
};
pub use interest::{Affected, Interest};
pub use metrics::ControllerMetrics;
pub use picture::{Filter, Picture, is_heard};
pub use source::{
    Cause, Concern, Notice, Published, PublishedObject, Several, Source, SourceError, SourceEvent,
    SourceKind,
};
