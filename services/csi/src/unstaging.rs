//! The task that takes staged volumes back from the node once no pod uses them, also those that a killed pod worker has left.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::client::CallError;
use crate::ledger::VolumeId;
use crate::proto::NodeUnstageVolumeRequest;
use crate::records;
use crate::sockets::wait_after;
use crate::volumes::{Inner, on_disk};

/// A volume that is being taken back.
struct Attempt {
    failures: u32,
    /// `None`: it is under way.
    retry_at: Option<Instant>,
}

/// Works until cancelled. A driver that hangs delays no other volume.
pub(crate) async fn run(inner: Arc<Inner>, cancel: CancellationToken) {
    let mut attempts: BTreeMap<VolumeId, Attempt> = BTreeMap::new();
    let mut tasks: JoinSet<(VolumeId, Result<(), String>)> = JoinSet::new();
    loop {
        let now = Instant::now();
        for id in inner.ledger().unused() {
            let attempt =
                attempts.entry(id.clone()).or_insert(Attempt { failures: 0, retry_at: Some(now) });
            if attempt.retry_at.is_some_and(|at| at <= now) {
                attempt.retry_at = None;
                let inner = inner.clone();
                tasks.spawn(async move {
                    let result = unstage(&inner, &id).await;
                    (id, result)
                });
            }
        }
        let next = attempts.values().filter_map(|attempt| attempt.retry_at).min();
        let wake = async {
            match next {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = cancel.cancelled() => return,
            () = inner.unused.notified() => {
                // A driver may have come.
                let waits = attempts.values_mut().filter(|attempt| attempt.retry_at.is_some());
                waits.for_each(|attempt| attempt.retry_at = Some(Instant::now()));
            }
            Some(ended) = tasks.join_next() => {
                let Ok((id, result)) = ended else { continue };
                match result {
                    Ok(()) => drop(attempts.remove(&id)),
                    Err(error) => {
                        let VolumeId { driver, handle } = &id;
                        tracing::warn!(driver, handle, error, "a volume is not unstaged yet");
                        if let Some(attempt) = attempts.get_mut(&id) {
                            attempt.retry_at = Some(Instant::now() + wait_after(attempt.failures));
                            attempt.failures = attempt.failures.saturating_add(1);
                        }
                    }
                }
            }
            () = wake => {}
        }
        // A pod uses the volume again.
        let unused = inner.ledger().unused();
        attempts.retain(|id, attempt| attempt.retry_at.is_none() || unused.contains(id));
    }
}

async fn unstage(inner: &Inner, id: &VolumeId) -> Result<(), String> {
    let turn = inner.volumes.take(id.clone(), std::time::Duration::from_mins(2)).await;
    let turn = turn.ok_or("another operation on the volume is under way")?;
    // A pod may have come meanwhile.
    if inner.ledger().is_used(id) || inner.ledger().stage_of(id).is_none() {
        return Ok(());
    }
    let client = inner.client(&id.driver)?;
    let staging = inner.layout.staging_target(&id.driver, &id.handle);
    let request = NodeUnstageVolumeRequest {
        volume_id: id.handle.clone(),
        staging_target_path: staging.to_string_lossy().into_owned(),
    };
    let unstaged = client.unstage(request).await.or_else(CallError::done_if_absent);
    unstaged.map_err(|error| error.to_string())?;
    let (layout, staged) = (inner.layout.clone(), id.clone());
    let removed = on_disk([&turn], move || records::remove_stage(&layout, &staged)).await;
    removed.map_err(|error| error.to_string())?;
    inner.ledger().end_stage(id);
    Ok(())
}
