//! Pods that the runtime has, and of which the pod worker has no record: its write was lost, or a call that made the
//! sandbox acted after the pod was removed. They get a record of what the runtime itself keeps of them, and are then as any
//! other pod that was here before: they go on if the node should run them, and end otherwise. A record that cannot be read is
//! written anew likewise, with what it had: the origin of the pod, its grace period and its start.

use std::collections::BTreeSet;
use std::time::Duration;

use headwater_telemetry::error_chain;
use tokio::time::{Instant, sleep};

use super::EdgedError;
use crate::disk::pod_store::PodStore;
use crate::pod::PodUid;
use crate::runtime::NodeRuntime;

/// At the start of the pod worker the pods of the view wait so long for a runtime that does not name what it runs. A runtime
/// that is away starts no pods either.
const START_WITHIN: Duration = Duration::from_secs(30);

/// The wait between two attempts until then.
const START_PAUSE: Duration = Duration::from_millis(500);

/// Writes a record for every pod of the runtime that has none, or whose record could not be read. A pod of which the runtime
/// keeps no name is left alone.
///
/// A pod that begins or ends meanwhile gets none twice: its record is there before its sandbox, and goes after it, and the
/// runtime is asked after the records.
///
/// # Errors
/// The runtime does not name its pods, or a record cannot be written. It can be repeated.
pub(super) async fn recover(runtime: &NodeRuntime, store: &PodStore) -> Result<(), EdgedError> {
    // Pods that end with the pod worker have no record on the disk.
    if !runtime.features().persistent {
        return Ok(());
    }
    let unread = store.unread();
    let pods = runtime.pods().into_iter();
    let unknown = pods.filter(|pod| !store.contains(pod));
    let wanted: BTreeSet<PodUid> = unknown.chain(unread.iter().cloned()).collect();
    if wanted.is_empty() {
        return Ok(());
    }
    let records = runtime.recover(&wanted).await.map_err(EdgedError::Strays)?;
    let mut failed = None;
    for record in records {
        tracing::warn!(pod = %record.key, uid = %record.uid, "a pod of the runtime had no record");
        if let Err(error) = store.insert_recovered(&record).await {
            let message = error_chain(&error);
            tracing::warn!(pod = %record.key, message, "a pod of the runtime gets no record");
            failed = Some(error);
        }
    }
    match failed {
        Some(error) => Err(error.into()),
        None => {
            store.settle(&unread);
            Ok(())
        }
    }
}

/// [Recovers](recover) what was lost before the pods of the view are judged: a pod that runs is no new one. A runtime that does
/// not answer is asked again. The attempts end after a time, because a node starts also with a runtime that is away.
pub(super) async fn recover_at_start(runtime: &NodeRuntime, store: &PodStore) {
    attempt_for_a_time(|| recover(runtime, store)).await;
}

/// Makes attempts until the runtime has answered, or the time is over.
async fn attempt_for_a_time<F: Future<Output = Result<(), EdgedError>>>(attempt: impl Fn() -> F) {
    let deadline = Instant::now() + START_WITHIN;
    let mut error = None;
    // An attempt is never cut off: it may write records, and its calls of the runtime end by themselves.
    while Instant::now() < deadline {
        match attempt().await {
            Err(failed @ EdgedError::Strays(_)) => {
                tracing::debug!(
                    message = error_chain(&failed),
                    "an attempt to recover pods failed"
                );
                error = Some(failed);
            }
            // A disk that takes no record holds back no pod. The attempt has logged it, and the next list repeats it.
            Ok(()) | Err(_) => return,
        }
        sleep(START_PAUSE).await;
    }
    let message = error.map(|error| error_chain(&error)).unwrap_or_default();
    tracing::warn!(message, "pods that run without a record are not known yet");
}

/// [Recovers](recover) what was lost meanwhile.
pub(super) async fn recover_again(runtime: &NodeRuntime, store: &PodStore) {
    if let Err(error) = recover(runtime, store).await {
        let message = error_chain(&error);
        tracing::warn!(message, "pods of the runtime may have no record");
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::io;

    use super::*;
    use crate::disk::file_error::FileError;
    use crate::runtime::RuntimeError;

    #[tokio::test(start_paused = true)]
    async fn a_runtime_that_names_no_pods_is_asked_again_and_a_disk_that_is_full_is_not() {
        let attempts = Cell::new(0);
        let write = || {
            attempts.set(attempts.get() + 1);
            let full = FileError::new("write", "/pods")(io::Error::other("it is full"));
            async move { Err::<(), EdgedError>(full.into()) }
        };
        attempt_for_a_time(write).await;
        assert_eq!(attempts.get(), 1);

        let (began, ended) = (Cell::new(0), Cell::new(0));
        let slow = || async {
            began.set(began.get() + 1);
            sleep(START_WITHIN * 2 / 3).await;
            ended.set(ended.get() + 1);
            Err(EdgedError::Strays(RuntimeError::Absent("it is away".to_owned())))
        };
        attempt_for_a_time(slow).await;
        assert_eq!((began.get(), ended.get()), (2, 2), "the last one is not cut off");
    }
}
