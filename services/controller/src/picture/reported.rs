//! What the nodes themselves report, without what the sources have.

use bytes::Bytes;
use headwater_event::{EdgeStart, NodeName, ReportId, ResourceKey};
use headwater_store::{EngineError, Json};
use headwater_view::{PodStatusFold, ReportedStatus};

use super::Picture;
use super::tables::{NODE_PROGRESS, NODES};

/// What a node reports of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportedNode {
    /// The position of its report. No other report of the node has it.
    pub id: ReportId,
    /// The Node object as JSON, as the node sent it.
    pub object: String,
    /// The latest start of its edge.
    pub start: EdgeStart,
}

/// What a node reports of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportedPod {
    /// The position of its report. No other report of the node has it.
    pub id: ReportId,
    /// The UID of the pod. Another pod of the same name has another UID.
    pub uid: String,
    /// The status as JSON, as the node sent it.
    pub status: Bytes,
}

impl Picture {
    /// The first `limit` nodes after `after` that have reported their Node objects. Fewer: there are no
    /// more.
    ///
    /// # Errors
    /// When the picture cannot be read.
    pub fn reported_nodes(
        &self,
        after: Option<&NodeName>,
        limit: usize,
    ) -> Result<Vec<NodeName>, EngineError> {
        let rows = NODES.chunk(&*self.engine, after, limit)?;
        Ok(rows.into_iter().map(|(node, _)| node).collect())
    }

    /// What `node` last reported of itself.
    ///
    /// # Errors
    /// When the picture cannot be read.
    pub fn reported_node(&self, node: &NodeName) -> Result<Option<ReportedNode>, EngineError> {
        let from = self.engine.snapshot();
        let Some(Json(report)) = NODES.get(&*from, node)? else { return Ok(None) };
        let reported = EdgeStart { incarnation: report.id.incarnation, boot: report.id.boot };
        let connected = NODE_PROGRESS.get(&*from, node)?.map(|Json(logged)| EdgeStart {
            incarnation: logged.progress.incarnation,
            boot: logged.progress.boot.number,
        });
        let start = connected.map_or(reported, |connected| connected.max(reported));
        Ok(Some(ReportedNode { id: report.id, object: report.object, start }))
    }

    /// The first `limit` pods after `after` of which `node` reports a status, each with the UID in the report. Fewer: there
    /// are no more. A pod may be bound to another node.
    ///
    /// # Errors
    /// When the picture cannot be read.
    pub fn reported_pods(
        &self,
        node: &NodeName,
        after: Option<&ResourceKey>,
        limit: usize,
    ) -> Result<Vec<(ResourceKey, String)>, EngineError> {
        let reported = PodStatusFold::statuses(&*self.engine, node, after, limit)?;
        Ok(reported.into_iter().map(|(pod, status)| (pod, status.uid)).collect())
    }

    /// What `node` last reported of `pod`. The pod may be bound to another node.
    ///
    /// # Errors
    /// When the picture cannot be read.
    pub fn reported_pod(
        &self,
        node: &NodeName,
        pod: &ResourceKey,
    ) -> Result<Option<ReportedPod>, EngineError> {
        let reported = PodStatusFold::status(&*self.engine, node, pod)?;
        Ok(reported.map(|ReportedStatus { id, uid, status }| ReportedPod { id, uid, status }))
    }
}
