//! What the picture says of an object, read for a comparison.

use headwater_controller::Picture;
use headwater_event::{NodeName, ResourceKey};
use headwater_telemetry::error_chain;

use super::plan::{DesiredNode, DesiredPod};
use crate::cluster_view::PodView;
use crate::kubelet_address::KubeletAddress;
use crate::node_object::{OwnedNode, UnfitNode};
use crate::pod_status::{OwnedStatus, UnfitStatus};

/// The picture cannot be read: why, in words.
#[derive(Debug)]
pub(crate) struct Unreadable(pub(crate) String);

/// What the node of a pod reports of this very pod, and why its status is not written if it is not. What
/// other nodes report of it does not count.
pub(crate) fn desired_pod(
    picture: &Picture,
    pod: &ResourceKey,
    view: &PodView,
) -> Result<(DesiredPod, Option<UnfitStatus>), Unreadable> {
    let unreadable = |error: &dyn std::error::Error| Unreadable(error_chain(error));
    let reported = picture.reported_pod(&view.node, pod).map_err(|error| unreadable(&error))?;
    let status = reported
        .filter(|reported| *reported.uid == *view.uid)
        .map(|reported| OwnedStatus::parse(&reported.status));
    let ended = picture.termination(&view.node, pod).map_err(|error| unreadable(&error))?;
    let has_ended = ended.is_some_and(|uid| *uid == *view.uid);
    let (status, unfit) = match status {
        Some(Ok(status)) => (Some(status), None),
        Some(Err(unfit)) => (None, Some(unfit)),
        None => (None, None),
    };
    Ok((DesiredPod { status, has_ended }, unfit))
}

/// What a node reports of itself; `None`: it has not yet. `kubelet`: where API servers reach its kubelet's
/// server, if not at the node.
pub(crate) fn desired_node(
    picture: &Picture,
    node: &NodeName,
    kubelet: Option<&KubeletAddress>,
) -> Result<Option<Result<DesiredNode, UnfitNode>>, Unreadable> {
    let reported = picture.reported_node(node).map_err(|error| Unreadable(error_chain(&error)))?;
    Ok(reported.map(|reported| {
        let mut owned = OwnedNode::parse(&reported.object, node.as_str())?;
        if let Some(kubelet) = kubelet {
            owned.status = owned.status.reached_at(kubelet, node);
        }
        Ok(DesiredNode { owned, start: reported.start })
    }))
}
