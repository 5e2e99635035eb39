//! What the picture says of an object, read for a comparison.

use bytes::Bytes;
use headwater_controller::{Picture, ReportedNode, ReportedPod};
use headwater_event::{NodeName, ResourceKey};
use headwater_telemetry::error_chain;
use serde_json::Value;

use super::memory::KnownReport;
use super::plan::{DesiredNode, DesiredPod};
use crate::cluster_view::{Deletion, PodView};
use crate::kubelet_address::KubeletAddress;
use crate::node_object::{OwnedNode, UnfitNode};
use crate::pod_status::{ReportedStatus, UnfitStatus};

/// The picture cannot be read: why, in words.
#[derive(Debug)]
pub(crate) struct Unreadable(pub(crate) String);

/// What the picture says of a pod.
#[derive(Debug)]
pub(crate) struct PodPicture {
    pub(crate) desired: DesiredPod,
    /// The report of its status; `None`: there is none, or it is unfit.
    pub(crate) report: Option<StatusReport>,
    /// Why its status is not written if it is not.
    pub(crate) unfit: Option<UnfitStatus>,
}

/// A report of the status of a pod. It is parsed where it is new, and where it is written: most comparisons find the
/// report that the last one found.
#[derive(Debug)]
pub(crate) struct StatusReport {
    pub(crate) known: KnownReport,
    bytes: Bytes,
    parsed: Option<ReportedStatus>,
}

impl StatusReport {
    /// Reads a report. `known` is the one that the last comparison found, if there was one.
    fn read(reported: ReportedPod, known: Option<KnownReport>) -> Result<Self, UnfitStatus> {
        let ReportedPod { id, status: bytes, .. } = reported;
        if let Some(known) = known.filter(|known| known.id == id) {
            return Ok(Self { known, bytes, parsed: None });
        }
        let parsed = ReportedStatus::parse(&bytes)?;
        let known = KnownReport { id, status: parsed.owned() };
        Ok(Self { known, bytes, parsed: Some(parsed) })
    }

    /// The patch that makes the pod of this UID show the status.
    pub(crate) fn into_patch(self, uid: &str) -> Result<Value, UnfitStatus> {
        let parsed = match self.parsed {
            Some(parsed) => parsed,
            None => ReportedStatus::parse(&self.bytes)?,
        };
        Ok(parsed.into_patch(uid))
    }
}

/// What the node of a pod reports of this very pod. What other nodes report of it does not count. `known` is the report
/// of it that the last comparison found.
pub(crate) fn picture_of_pod(
    picture: &Picture,
    pod: &ResourceKey,
    view: &PodView,
    known: Option<KnownReport>,
) -> Result<PodPicture, Unreadable> {
    let unreadable = |error: &dyn std::error::Error| Unreadable(error_chain(error));
    // In this order: the fold may go on in between.
    let is_current = picture.has_caught_up(&view.node).map_err(|error| unreadable(&error))?;
    let reported = picture.reported_pod(&view.node, pod).map_err(|error| unreadable(&error))?;
    let report = reported
        .filter(|reported| *reported.uid == *view.uid)
        .map(|reported| StatusReport::read(reported, known));
    // It counts for nothing else.
    let has_ended = view.deletion == Deletion::Requested && {
        let ended = picture.termination(&view.node, pod).map_err(|error| unreadable(&error))?;
        ended.is_some_and(|uid| *uid == *view.uid)
    };
    let (report, unfit) = match report {
        Some(Ok(report)) => (Some(report), None),
        Some(Err(unfit)) => (None, Some(unfit)),
        None => (None, None),
    };
    let status = report.as_ref().map(|report| report.known.status);
    Ok(PodPicture { desired: DesiredPod { status, has_ended, is_current }, report, unfit })
}

/// What a node reports of itself; `None`: it has not yet.
pub(crate) fn picture_of_node(
    picture: &Picture,
    node: &NodeName,
) -> Result<Option<ReportedNode>, Unreadable> {
    picture.reported_node(node).map_err(|error| Unreadable(error_chain(&error)))
}

/// What is to be shown of a node that reports this. `kubelet`: where API servers reach its kubelet's server, if not at
/// the node.
pub(crate) fn desired_node(
    reported: &ReportedNode,
    node: &NodeName,
    kubelet: Option<&KubeletAddress>,
) -> Result<DesiredNode, UnfitNode> {
    let mut owned = OwnedNode::parse(&reported.object, node.as_str())?;
    if let Some(kubelet) = kubelet {
        owned.status = owned.status.reached_at(kubelet, node);
    }
    Ok(DesiredNode { owned, start: reported.start })
}

#[cfg(test)]
mod tests {
    use headwater_event::ReportId;
    use serde_json::json;

    use super::*;
    use crate::pod_status::OwnedStatus;

    fn reported(seq: u64, status: &Value) -> ReportedPod {
        let id = ReportId { seq, ..ReportId::default() };
        ReportedPod { id, uid: "u".to_owned(), status: status.to_string().into() }
    }

    #[test]
    fn a_report_is_parsed_once_for_all_comparisons_and_once_more_where_it_is_written() {
        let (pending, running) = (json!({"phase": "Pending"}), json!({"phase": "Running"}));
        let first = StatusReport::read(reported(1, &pending), None).expect("fit");
        assert_eq!(first.known.status, OwnedStatus::of(&pending));
        assert!(first.parsed.is_some(), "a new report is parsed");
        let known = first.known;
        let again = StatusReport::read(reported(1, &pending), Some(known)).expect("fit");
        assert_eq!((again.known, &again.parsed), (known, &None));
        let patch = again.into_patch("u").expect("fit");
        assert_eq!(patch, first.into_patch("u").expect("fit"));
        assert_eq!(patch["status"]["phase"], "Pending");
        let next = StatusReport::read(reported(2, &running), Some(known)).expect("fit");
        assert_eq!(next.known.status, OwnedStatus::of(&running));
        assert!(next.parsed.is_some(), "another report");
    }
}
