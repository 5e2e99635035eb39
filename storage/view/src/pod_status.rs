//! Pod statuses: what an edge reports, and the cloud's fold of it.
//!
//! | module | what it owns |
//! |---|---|
//! | `snapshot` | [`PodStatusSnapshot`]: digests of the statuses of one node, and their hash |
//! | [`metasync`] | the difference of two snapshots, as reports |
//! | `node_statuses` | [`NodeStatuses`]: which reports of one node are accepted; pure |
//! | `fold` | [`PodStatusFold`]: the statuses of all nodes, stored |

mod fold;
pub mod metasync;
mod node_statuses;
mod snapshot;

pub use fold::{PodStatusFold, ReportedStatus};
pub use node_statuses::{Closing, NODE_PODS_MAX, NodeStatuses, ReportOutcome};
pub use snapshot::{PodStatusSnapshot, StatusDigest};
