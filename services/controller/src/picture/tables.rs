//! The tables of the picture's database.

use headwater_event::{NodeName, NodeProgress, ReportId, ResourceKey};
use headwater_store::{Folded, Json, Table, TableId};
use serde::{Deserialize, Serialize};

/// Per node: the Node object that it last reported.
pub(crate) const NODES: Table<NodeName, Json<NodeReport>, Folded> =
    Table::new(TableId::NodePictures);

/// Per node: its last position record, which its hub wrote.
pub(crate) const NODE_PROGRESS: Table<NodeName, Json<NodeProgress>, Folded> =
    Table::new(TableId::NodeProgress);

/// Pods under deletion whose containers have all stopped, and their UIDs, until their nodes no
/// longer have them.
pub(crate) const TERMINATIONS: Table<ResourceKey, String, Folded> =
    Table::new(TableId::Terminations);

/// The Node object that a node reported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NodeReport {
    pub(crate) id: ReportId,
    pub(crate) object: String,
    /// When the log accepted the node's first report, in milliseconds since the Unix epoch: the
    /// node's age.
    #[serde(default)]
    pub(crate) first_ms: i64,
}
