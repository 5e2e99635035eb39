//! The supervisor's part in changes of resources: a pod keeps what it has until the node has room for what its spec asks
//! for. The decision is that of [`resize`](super::super::resize).

use k8s_openapi::api::core::v1::{Pod, PodStatus};

use super::super::admission::Load;
use super::super::resize::{admit_resize, check_exclusive_cpus};
use super::Supervisor;
use crate::container::compute_resources::{
    is_resized, with_resources_of, with_resources_of_status,
};
use crate::desired::compressed_object::CompressedObject;
use crate::pod::PodUid;

impl Supervisor {
    /// Gives pods the resources that their specs ask for, as far as the node has them.
    pub(super) fn admit_resizes(&mut self) {
        let resized = self.workers.iter().filter(|(_, worker)| worker.resized.is_some());
        let resized: Vec<PodUid> = resized.map(|(uid, _)| uid.clone()).collect();
        for uid in resized {
            let others =
                self.workers.iter().filter(|(other, it)| **other != uid && it.takes_room());
            let mut load = Load::default();
            others.for_each(|(_, other)| load.add(other.requests));
            let room = self.room();
            let has_static_cpus = self.shared.cpus.is_some();
            let Some(worker) = self.workers.get(&uid) else { continue };
            let (desired, Some(kept)) = (worker.desired.clone(), worker.resized.clone()) else {
                continue;
            };
            let (before, after) = (worker.assignments.borrow().pod.decode(), desired.decode());
            let requests = self.requests(&after);
            let admitted = match has_static_cpus {
                true => check_exclusive_cpus(&before, &after),
                false => Ok(()),
            };
            let admitted =
                admitted.and_then(|()| admit_resize(worker.requests, requests, &load, &room));
            let Some(worker) = self.workers.get_mut(&uid) else { continue };
            if admitted.is_ok() {
                (worker.requests, worker.resized) = (requests, None);
            }
            worker.assignments.send_if_modified(|assignment| {
                let pod = if admitted.is_ok() { desired } else { kept };
                let resize = admitted.err();
                let is_new = !assignment.pod.same(&pod) || assignment.resize != resize;
                (assignment.pod, assignment.resize) = (pod, resize);
                is_new
            });
        }
    }
}

/// The pod with the resources that it has, if its new spec asks for others.
pub(super) fn kept_resources(
    before: &CompressedObject<Pod>,
    after: &CompressedObject<Pod>,
) -> Option<CompressedObject<Pod>> {
    let (before, after) = (before.decode(), after.decode());
    is_resized(&before, &after).then(|| encode(&with_resources_of(after, &before)))?
}

/// The pod with the resources that its status states, if its spec asks for others.
pub(super) fn stated_resources(
    pod: &CompressedObject<Pod>,
    status: &PodStatus,
) -> Option<CompressedObject<Pod>> {
    let pod = pod.decode();
    let stated = with_resources_of_status(pod.clone(), status);
    is_resized(&stated, &pod).then(|| encode(&stated))?
}

/// Both objects could be encoded before, and so can this one.
fn encode(pod: &Pod) -> Option<CompressedObject<Pod>> {
    CompressedObject::encode(pod).ok()
}
