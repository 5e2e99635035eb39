//! The tables of the picture's database.

use headwater_event::{EdgeStart, NodeName, NodeProgress, Partition, ReportId, ResourceKey};
use headwater_store::{Folded, Free, Json, Table, TableId};
use serde::{Deserialize, Serialize};

/// Per node: the Node object that it last reported.
pub(crate) const NODES: Table<NodeName, Json<NodeReport>, Folded> =
    Table::new(TableId::NodePictures);

/// Per node: its last position record, which its hub wrote.
pub(crate) const NODE_PROGRESS: Table<NodeName, Json<LoggedProgress>, Folded> =
    Table::new(TableId::NodeProgress);

/// Per node and pod under deletion whose containers have all stopped: the pod's UID, until the node
/// no longer has it. Any node may report any pod, so a report counts only for the node that sent it.
pub(crate) const TERMINATIONS: Table<(NodeName, ResourceKey), String, Folded> =
    Table::new(TableId::NodeTerminations);

/// The terminations of earlier versions, which did not keep the node. A fold that has rows of it
/// begins anew.
pub(crate) const EARLIER_TERMINATIONS: Table<ResourceKey, String, Folded> =
    Table::new(TableId::Terminations);

/// Per node: the latest start of its edge during which a cluster had its Node, as this controller noted it. Not
/// folded: it outlives the fold.
pub(crate) const NODE_REGISTRATIONS: Table<NodeName, Json<EdgeStart>, Free> =
    Table::new(TableId::NodeRegistrations);

/// Per node: the latest start of its edge during which a cluster had its Node, as the log has it of any controller.
pub(crate) const LOGGED_REGISTRATIONS: Table<NodeName, Json<EdgeStart>, Folded> =
    Table::new(TableId::LoggedRegistrations);

/// Nodes whose own reports do not add up, see `report_fold::differences`. Not folded: a fold from the start replaces it
/// when it has caught up.
pub(crate) const NODE_DIFFERENCES: Table<NodeName, (), Free> = Table::new(TableId::NodeDifferences);

/// Per Event: what its node reported of it. The first node that reports an Event of a name has the name.
pub(crate) const EVENTS: Table<ResourceKey, Json<EventReport>, Folded> =
    Table::new(TableId::NodeEvents);

/// The position record of a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct LoggedProgress {
    #[serde(flatten)]
    pub(crate) progress: NodeProgress,
    /// When the log accepted the record, in milliseconds since the Unix epoch. Earlier versions did not
    /// keep it.
    #[serde(default)]
    pub(crate) logged_ms: Option<i64>,
}

/// An Event that a node reported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EventReport {
    pub(crate) node: NodeName,
    pub(crate) id: ReportId,
    /// The partition of its record.
    pub(crate) partition: Partition,
    /// When the log accepted the record, in milliseconds since the Unix epoch.
    pub(crate) logged_ms: i64,
    /// The Event as JSON, see [`super::node_event`].
    pub(crate) object: String,
}

/// The Node object that a node reported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NodeReport {
    pub(crate) id: ReportId,
    pub(crate) object: String,
    /// When the log accepted the node's first report, in milliseconds since the Unix epoch: the
    /// node's age.
    #[serde(default)]
    pub(crate) first_ms: i64,
    /// The partition of the report. Earlier versions did not keep it.
    #[serde(default)]
    pub(crate) partition: Option<Partition>,
}
