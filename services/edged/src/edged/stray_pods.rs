//! Pods that the runtime has, and of which the pod worker has no record: its write was lost, or a call that made the
//! sandbox acted after the pod was removed. They get a record of what the runtime itself keeps of them, and end as any other
//! pod does that the node should not run.

use std::collections::BTreeSet;

use headwater_telemetry::error_chain;

use crate::disk::pod_store::PodStore;
use crate::pod::PodUid;
use crate::runtime::NodeRuntime;

/// Writes a record for every pod of the runtime that has none. A pod of which the runtime keeps no name is left alone.
///
/// A pod that begins or ends meanwhile gets none twice: its record is there before its sandbox, and goes after it, and the
/// runtime is asked after the records.
pub(super) async fn recover(runtime: &NodeRuntime, store: &PodStore) {
    // Pods that end with the pod worker have no record on the disk.
    if !runtime.features().persistent {
        return;
    }
    let pods = runtime.pods().into_iter();
    let unknown: BTreeSet<PodUid> = pods.filter(|pod| !store.contains(pod)).collect();
    if unknown.is_empty() {
        return;
    }
    let records = match runtime.recover(&unknown).await {
        Ok(records) => records,
        Err(error) => {
            let message = error_chain(&error);
            tracing::warn!(message, "the runtime does not name the pods that have no record");
            return;
        }
    };
    for record in records {
        tracing::warn!(pod = %record.key, uid = %record.uid, "a pod of the runtime had no record");
        if let Err(error) = store.insert(&record).await {
            let message = error_chain(&error);
            tracing::warn!(pod = %record.key, message, "a pod of the runtime gets no record");
        }
    }
}
