//! The decisions of the sink: what the next request for an object is. No request is sent here, and no
//! clock is read.
//!
//! An object is compared again whenever anything about it may have changed. A lost request, a restart and
//! another writer are therefore one case.
//!
//! | difference | request | only if |
//! |---|---|---|
//! | a Node is not there | create | present; the Nodes were listed; the edge has started since any controller saw the Node |
//! | labels, annotations, status of a Node | patch | present |
//! | only times of it | patch, every 5 min | present |
//! | the storage drivers of a Node | see `csi_plan` | present |
//! | the mirror of a static pod | see `mirror_plan` | present |
//! | status of a pod | patch | present; its report is current; no terminal phase is taken back; the first one waits for the next one, see `first_status_due_ms` |
//! | a pod under deletion whose node stopped it | delete | |
//! | the first toleration of an absence has a limit, or there is none | patch | the policy is to keep |
//!
//! A report is current once the picture has all that the node had reported when the fold of reports began. Before that, as
//! after a start on an empty disk, it may be older than what the API shows. A Node is not compared before that, so
//! the plan of one does not ask.
//!
//! What the API shows may differ although nothing new was reported: others wrote over it. That is put
//! right at most every 10 s, and only once the outbox of the node was empty: until then a newer report
//! may be on its way.

use std::sync::LazyLock;

use headwater_controller::NodePresence;
use headwater_event::{EdgeStart, ReportId};
use serde_json::Value;

use super::csi_plan::plan_csi_node;
use super::memory::{ObjectMemory, Purpose};
use crate::cluster_view::{Deletion, NodeView, PodView};
use crate::digest::{Digest, digest};
use crate::node_object::OwnedNode;
use crate::offline::OfflinePolicy;
use crate::pod_status::{OwnedStatus, Phase};

/// The least time between two writes of one content, where others overwrite it: the period of a kubelet.
pub(super) const PUT_RIGHT_MS: u64 = 10_000;

/// How often a Node's status is written of which only times change: the period of a kubelet.
const TIMES_MS: u64 = 300_000;

/// How long a new pod may be Pending before its first status is written. Most pods run by then, also those of a burst, or
/// their images are being pulled: one write instead of two. A kubelet needs 0.3 s for a pod whose image is there.
const START_MS: u64 = 500;

/// How long the first status of a pod waits until its node reports the generation to which the pod's tolerations raised it:
/// one write instead of two. That takes some 10 ms, and longer in a burst.
const GENERATION_MS: u64 = 2_000;

/// The content of a request that has none.
pub(crate) static NO_CONTENT: LazyLock<Digest> = LazyLock::new(|| digest(&Value::Null));

/// What the picture says of a pod.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DesiredPod {
    /// What its node reports.
    pub(crate) status: Option<OwnedStatus>,
    /// Whether its node reported that all its containers stopped, of a pod under deletion that waits for that. This
    /// stays true, whatever is read later.
    pub(crate) has_ended: bool,
    /// Whether the picture has every report of its node, so that the status is no older than one that the API has shown.
    pub(crate) is_current: bool,
}

/// What the picture says of a node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DesiredNode {
    pub(crate) owned: OwnedNode,
    /// The latest start of its edge.
    pub(crate) start: EdgeStart,
}

/// What else decides.
pub(crate) struct Facts<'a> {
    pub(crate) presence: NodePresence,
    pub(crate) memory: &'a ObjectMemory,
    pub(crate) now_ms: u64,
}

/// What decides about a Node that is there, beside the memory and the time. A node is marked for each record of its
/// position, with which none of this changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeInputs {
    /// The report of the node.
    pub(crate) report: ReportId,
    pub(crate) start: EdgeStart,
    /// The order of the version that the API shows, in its history.
    pub(crate) order: u64,
    pub(crate) history: u32,
    pub(crate) presence: NodePresence,
}

/// What comes next for an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing, until something changes.
    Rest,
    /// Nothing before this time.
    Wait { until_ms: u64 },
    /// A request.
    Call(Purpose),
}

/// What is known of the registration of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Registration {
    /// Whether the Nodes were listed.
    pub(crate) is_listed: bool,
    /// The latest start of the edge during which its Node was there.
    pub(crate) last: Option<EdgeStart>,
}

/// The next request for a pod.
pub(crate) fn plan_pod(
    desired: &DesiredPod,
    view: &PodView,
    policy: OfflinePolicy,
    facts: &Facts<'_>,
) -> Step {
    if facts.now_ms < facts.memory.not_before_ms {
        return Step::Wait { until_ms: facts.memory.not_before_ms };
    }
    let is_open = |purpose| !facts.memory.is_settled(purpose, *NO_CONTENT, view.order);
    let stays = policy == OfflinePolicy::Keep
        && view.deletion == Deletion::None
        && view.phase == Phase::Open;
    let lacks_tolerations =
        stays && !view.toleration_changes.is_empty() && is_open(Purpose::Tolerations);
    let mut next = Step::Rest;
    if let Some(status) = &desired.status
        && desired.is_current
        && view.phase.may_become(status.phase)
    {
        let is_shown = status.digest == view.status;
        next =
            compare(Purpose::PodStatus, status.digest, (is_shown, view.status), view.order, facts);
        if matches!(next, Step::Call(_)) {
            let due_ms = first_status_due_ms(status, view, lacks_tolerations, facts.memory);
            if facts.now_ms >= due_ms {
                return next;
            }
            next = Step::Wait { until_ms: due_ms };
        }
    }
    if desired.has_ended && view.deletion == Deletion::Requested && is_open(Purpose::DeletePod) {
        return Step::Call(Purpose::DeletePod);
    }
    if lacks_tolerations {
        // Another writer may set the limits again and again.
        let written = facts.memory.written(Purpose::Tolerations);
        let due_ms = written.map_or(0, |written| written.at_ms + PUT_RIGHT_MS);
        if facts.now_ms >= due_ms {
            return Step::Call(Purpose::Tolerations);
        }
        next = earlier(next, Step::Wait { until_ms: due_ms });
    }
    next
}

/// When a status may be written. A first one waits while the containers start, while the tolerations of the pod are to be
/// written, which raises its generation, and then until its node reports that generation.
fn first_status_due_ms(
    status: &OwnedStatus,
    view: &PodView,
    lacks_tolerations: bool,
    memory: &ObjectMemory,
) -> u64 {
    if memory.written(Purpose::PodStatus).is_some() {
        return 0;
    }
    if status.is_pending {
        return memory.since_ms + START_MS;
    }
    let Some((reported, shown)) = status.generation.zip(view.generation) else { return 0 };
    let is_latest = reported > shown || (reported == shown && !lacks_tolerations);
    if status.phase != Phase::Open || is_latest {
        return 0;
    }
    match memory.written(Purpose::Tolerations) {
        Some(written) => written.at_ms + GENERATION_MS,
        // They are the next request, unless the API server does not take them.
        None if lacks_tolerations && memory.failures() == 0 => u64::MAX,
        None => memory.since_ms + GENERATION_MS,
    }
}

/// The next request for a Node.
pub(crate) fn plan_node(
    desired: &DesiredNode,
    view: Option<&NodeView>,
    registration: Registration,
    facts: &Facts<'_>,
) -> Step {
    if facts.now_ms < facts.memory.not_before_ms {
        return Step::Wait { until_ms: facts.memory.not_before_ms };
    }
    let Some(view) = view else {
        let is_new = registration.last.is_none_or(|last| desired.start > last);
        let is_due = facts.presence.is_present && registration.is_listed && is_new;
        let content = desired.owned.metadata_digest();
        let is_settled = facts.memory.is_settled(Purpose::CreateNode, content, None);
        return if is_due && !is_settled { Step::Call(Purpose::CreateNode) } else { Step::Rest };
    };
    let metadata = desired.owned.metadata_digest();
    let is_shown = view.has_metadata_of(&desired.owned);
    // What else the API shows beside it is not compared.
    let shown = if is_shown { metadata } else { *NO_CONTENT };
    let of_metadata =
        compare(Purpose::NodeMetadata, metadata, (is_shown, shown), view.order, facts);
    if matches!(of_metadata, Step::Call(_)) {
        return of_metadata;
    }
    let status = &desired.owned.status;
    let is_shown = status.digest == view.status;
    let of_status =
        compare(Purpose::NodeStatus, status.digest, (is_shown, view.status), view.order, facts);
    let times = || times_due(desired, view, facts);
    let of_status = if of_status == Step::Rest { times() } else { of_status };
    if matches!(of_status, Step::Call(_)) {
        return of_status;
    }
    let drivers = desired.owned.drivers.as_ref();
    let of_drivers = drivers.map_or(Step::Rest, |drivers| plan_csi_node(drivers, facts));
    earlier(earlier(of_metadata, of_status), of_drivers)
}

/// The next write of a status of which only times differ.
fn times_due(desired: &DesiredNode, view: &NodeView, facts: &Facts<'_>) -> Step {
    let status = &desired.owned.status;
    let written = facts.memory.written(Purpose::NodeStatus);
    if !facts.presence.is_present
        || status.timed == view.timed_status
        || facts.memory.is_settled(Purpose::NodeStatus, status.digest, view.order)
    {
        return Step::Rest;
    }
    // The first time counts from when this controller began to write.
    let due_ms = written.map_or(0, |written| written.at_ms) + TIMES_MS;
    if facts.now_ms < due_ms {
        Step::Wait { until_ms: due_ms }
    } else {
        Step::Call(Purpose::NodeStatus)
    }
}

/// Compares what is to be shown with what the API shows.
fn compare(
    purpose: Purpose,
    desired: Digest,
    (is_shown, shown): (bool, Digest),
    order: Option<u64>,
    facts: &Facts<'_>,
) -> Step {
    let NodePresence { is_present, has_drained } = facts.presence;
    if is_shown || !is_present || facts.memory.is_settled(purpose, desired, order) {
        return Step::Rest;
    }
    match facts.memory.written(purpose) {
        // A new report.
        Some(written) if written.desired != desired => Step::Call(purpose),
        // It was written, and this is how the API shows it.
        Some(written) if written.shown == shown => Step::Rest,
        // Others wrote over it, or it is not known whether.
        _ if !has_drained => Step::Rest,
        Some(written) if facts.now_ms < written.at_ms + PUT_RIGHT_MS => {
            Step::Wait { until_ms: written.at_ms + PUT_RIGHT_MS }
        }
        _ => Step::Call(purpose),
    }
}

/// The step that comes first.
fn earlier(a: Step, b: Step) -> Step {
    match (a, b) {
        (Step::Wait { until_ms: a }, Step::Wait { until_ms: b }) => {
            Step::Wait { until_ms: a.min(b) }
        }
        (Step::Rest, other) | (other, Step::Rest) => other,
        (call @ Step::Call(_), _) | (_, call @ Step::Call(_)) => call,
    }
}

#[cfg(test)]
mod tests;
