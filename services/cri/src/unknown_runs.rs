//! Containers that the runtime has in an unknown state. They are ended, as by a kubelet, each in a task of its own: a call that
//! hangs keeps no list waiting.

use std::sync::Arc;

use jiff::Timestamp;
use tokio::sync::Semaphore;

use crate::client::CallError;
use crate::id_claims::IdClaims;
use crate::inner::Inner;
use crate::knowledge::{Phase, Run};
use crate::proto::{Container, ContainerState, ContainerStatusRequest, StopContainerRequest};

/// Containers that are ended at the same time: after a crash of the runtime there may be as many as it has.
const ENDS_MAX: usize = 4;

/// The containers that are being ended.
#[derive(Debug)]
pub(crate) struct UnknownRuns {
    ids: IdClaims,
    places: Semaphore,
}

impl Default for UnknownRuns {
    fn default() -> Self {
        Self { ids: IdClaims::default(), places: Semaphore::new(ENDS_MAX) }
    }
}

/// Begins to end a container that the runtime has in an unknown state, unless that has begun. The next list tries again what
/// failed.
pub(crate) fn end(inner: &Arc<Inner>, listed: &Container) {
    let (id, sandbox) = (listed.id.clone(), listed.pod_sandbox_id.clone());
    let Some(claim) = inner.unknown.ids.claim(&id) else { return };
    let inner = inner.clone();
    tokio::spawn(async move {
        let ended = {
            // The semaphore is never closed.
            let _place = inner.unknown.places.acquire().await;
            end_run(&inner, &id, &sandbox).await
        };
        drop(claim);
        match ended {
            Ok(()) => inner.relist_soon.notify_one(),
            Err(error) => tracing::warn!(%error, id, "a container in an unknown state stays"),
        }
    });
}

/// Ends the container, unless the runtime has found its state again meanwhile. That is no failure of the container, unless
/// its end had been seen before the runtime lost its state, or the runtime finds an earlier end when it ends the container.
async fn end_run(inner: &Inner, id: &str, sandbox: &str) -> Result<(), CallError> {
    let request = ContainerStatusRequest { container_id: id.to_owned(), verbose: false };
    let status = match inner.client.container_status(request).await {
        Ok(response) => response.status.unwrap_or_default(),
        Err(error) => return error.done_if_absent(),
    };
    if status.state() != ContainerState::ContainerUnknown {
        return Ok(());
    }
    tracing::warn!(id, "the runtime has lost the state of a container, which is ended");
    if let Some((_, run)) = inner.run_of(status, sandbox)
        && !has_seen_end(inner, id, &run)
    {
        let Run { pod, container, attempt, .. } = &run;
        let marked = inner.files.mark_interrupted_from(pod, container, *attempt, Timestamp::now());
        if let Err(error) = marked.await {
            tracing::warn!(%error, id, "a run in an unknown state counts as a failure");
        }
    }
    let request = StopContainerRequest { container_id: id.to_owned(), timeout: 0 };
    inner.client.stop_container(request).await.map(drop).or_else(CallError::done_if_absent)
}

/// Whether it was known before the runtime lost its state that the run had ended.
fn has_seen_end(inner: &Inner, id: &str, run: &Run) -> bool {
    let is_known = |run: &Run| matches!(run.phase, Phase::Exited(_) | Phase::EndPending { .. });
    inner.with(|knowledge| knowledge.run(id).is_some_and(is_known))
        || inner.files.end(&run.pod, &run.container, run.attempt).is_some()
}
