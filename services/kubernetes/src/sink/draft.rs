//! The requests that follow from a plan, and what the API shows after them.

use headwater_event::{EdgeStart, NodeName, ResourceKey};

use super::desired::StatusReport;
use super::memory::Purpose;
use super::plan::{DesiredNode, NO_CONTENT};
use super::request::WriteRequest;
use crate::cluster_view::{NodeView, PodView};
use crate::csi_node::OwnedDrivers;
use crate::digest::Digest;
use crate::mirror_pod::StaticPod;

/// A request for an object, and what it writes.
pub(super) struct RequestDraft {
    pub(super) request: WriteRequest,
    pub(super) content: Digest,
    /// The order of the version of the object that it was planned for.
    pub(super) order: Option<u64>,
    /// Where it creates a Node: the start of the edge.
    pub(super) start: EdgeStart,
}

/// The request of a purpose for a pod whose status has this report.
pub(super) fn pod_request(
    purpose: Purpose,
    pod: &ResourceKey,
    report: Option<StatusReport>,
    view: &PodView,
) -> Option<RequestDraft> {
    let (request, content) = match purpose {
        Purpose::PodStatus => {
            let report = report?;
            let content = report.known.status.digest;
            // It was fit when it was compared.
            let patch = report.into_patch(&view.uid).ok()?;
            (WriteRequest::pod_status(pod, patch), content)
        }
        Purpose::DeletePod => (WriteRequest::delete_pod(pod, &view.uid), *NO_CONTENT),
        Purpose::Tolerations => (WriteRequest::tolerations(pod, view), *NO_CONTENT),
        _ => return None,
    };
    Some(RequestDraft { request, content, order: view.order, start: EdgeStart::default() })
}

/// The request of a purpose for the mirror of a static pod. The node is that of the mirror, with the UID of its Node.
pub(super) fn mirror_request(
    purpose: Purpose,
    key: &ResourceKey,
    stated: Option<&StaticPod>,
    view: Option<&PodView>,
    (node, node_uid): (&NodeName, &str),
) -> Option<RequestDraft> {
    let (request, content) = match purpose {
        Purpose::CreateMirror => {
            let pod = stated?;
            (WriteRequest::create_pod(key, pod.mirror(node, node_uid)), pod.digest())
        }
        Purpose::DeleteMirror => (WriteRequest::delete_pod(key, &view?.uid), *NO_CONTENT),
        _ => return None,
    };
    let order = view.and_then(|view| view.order);
    Some(RequestDraft { request, content, order, start: EdgeStart::default() })
}

/// The request of a purpose for a Node, `now_s` seconds after the Unix epoch.
pub(super) fn node_request(
    purpose: Purpose,
    node: &NodeName,
    desired: &DesiredNode,
    view: Option<&NodeView>,
    selector: &str,
    now_s: i64,
) -> Option<RequestDraft> {
    let owned = &desired.owned;
    let (request, content) = match (purpose, view) {
        (Purpose::CreateNode, _) => {
            let object = owned.new_object(node, selector);
            (WriteRequest::create_node(object), owned.metadata_digest())
        }
        (Purpose::NodeMetadata, Some(view)) => {
            let patch = owned.metadata_patch(&view.uid);
            (WriteRequest::node_metadata(node, patch), owned.metadata_digest())
        }
        (Purpose::NodeStatus, Some(view)) => {
            let patch = owned.status.patch(view, now_s);
            (WriteRequest::node_status(node, patch), owned.status.digest)
        }
        (Purpose::CsiNode | Purpose::CreateCsiNode | Purpose::ClearCsiNode, Some(view)) => {
            let drivers = owned.drivers.as_ref()?;
            return Some(driver_request(purpose, node, drivers, view));
        }
        _ => return None,
    };
    let order = view.and_then(|view| view.order);
    Some(RequestDraft { request, content, order, start: desired.start })
}

/// The request of a purpose for the CSINode of a node.
fn driver_request(
    purpose: Purpose,
    node: &NodeName,
    drivers: &OwnedDrivers,
    view: &NodeView,
) -> RequestDraft {
    let (name, uid) = (node.as_str(), &*view.uid);
    let request = match purpose {
        Purpose::CreateCsiNode => WriteRequest::create_csi_node(drivers.object(name, uid)),
        Purpose::ClearCsiNode => WriteRequest::csi_node(node, OwnedDrivers::cleared(name, uid)),
        _ => WriteRequest::csi_node(node, drivers.patch(name, uid)),
    };
    // Its versions are not followed.
    RequestDraft { request, content: drivers.digest(), order: None, start: EdgeStart::default() }
}

/// What the API shows after a write, as `compare` takes it. `status` is the digest of the status in the answer.
pub(super) fn shown(purpose: Purpose, content: Digest, status: Digest) -> Digest {
    match purpose {
        Purpose::PodStatus | Purpose::NodeStatus => status,
        _ => content,
    }
}
