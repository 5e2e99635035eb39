//! The task that gives running containers the processors that they have now.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use headwater_telemetry::error_chain;
use tokio_util::sync::CancellationToken;

use super::CpuManager;
use crate::container::cpu_set::CpuSet;
use crate::pod::PodUid;
use crate::runtime::{NodeRuntime, RunHistory};

/// As a kubelet's cpuManagerReconcilePeriod. A change is applied at once; this finds one that failed.
const RECONCILE: Duration = Duration::from_secs(10);

/// The processors that each run of a container was given.
type Applied = BTreeMap<(PodUid, String, u32), CpuSet>;

/// Works until cancelled, at every change of the shared processors. With a policy that is off, until every container has all
/// processors back.
pub(crate) async fn keep(
    manager: Arc<CpuManager>,
    runtime: NodeRuntime,
    cancel: CancellationToken,
) {
    let mut shared = manager.shared();
    let mut applied = Applied::new();
    loop {
        shared.borrow_and_update();
        let is_complete = apply(&manager, &runtime, &mut applied).await;
        if is_complete && !manager.is_static {
            return manager.forget().await;
        }
        tokio::select! {
            () = cancel.cancelled() => return,
            changed = shared.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(RECONCILE) => {}
        }
    }
}

/// Gives every running container its processors. Returns whether all have them.
async fn apply(manager: &CpuManager, runtime: &NodeRuntime, applied: &mut Applied) -> bool {
    let (mut present, mut is_complete) = (Applied::new(), true);
    for pod in runtime.pods() {
        let runs = runtime.pod(&pod).containers.into_iter();
        for (name, run) in runs.filter(|(_, run)| RunHistory::is_running(run)) {
            let wanted = manager.of(&pod, &name).await.cpus;
            let key = (pod.clone(), name, run.attempt);
            if applied.get(&key) != Some(&wanted)
                && let Err(error) = runtime.confine(&pod, &key.1, &wanted).await
            {
                // It may just have ended.
                let message = error_chain(&error);
                tracing::debug!(%pod, container = key.1, message, "a container keeps its processors");
                is_complete = false;
                continue;
            }
            present.insert(key, wanted);
        }
    }
    *applied = present;
    is_complete
}
