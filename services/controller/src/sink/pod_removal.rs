//! The sink of a controller without a Kubernetes API.
//!
//! In Kubernetes a kubelet deletes a pod object once the containers of a pod under deletion have
//! stopped. Without an API server the object comes from a source that does not know when that is,
//! so this sink removes it from the streams.

use std::collections::BTreeSet;
use std::time::Duration;

use async_trait::async_trait;
use headwater_event::{NodeName, ResourceKey};
use headwater_object::Object;
use headwater_store::EngineError;
use headwater_telemetry::error_chain;
use tokio::time::sleep;

use super::{Sink, SinkContext};
use crate::picture::{Picture, PictureChange};

/// The wait before a picture that could not be read is read again.
const RETRY: Duration = Duration::from_secs(1);

/// Removes each pod under deletion whose node reported that all its containers have stopped.
#[derive(Clone, Copy, Debug, Default)]
pub struct PodRemoval;

#[async_trait]
impl Sink for PodRemoval {
    async fn run(self: Box<Self>, context: SinkContext) {
        let SinkContext { picture, mut progress, removals, .. } = context;
        let Some(removals) = removals else { return };
        loop {
            let epoch = match progress.wait_for(|now| now.reconciled).await {
                Ok(now) => now.epoch,
                Err(_) => return,
            };
            let mut changes = picture.changes();
            let mut change = PictureChange::Everything;
            loop {
                match ended(&picture, &change) {
                    Ok(pods) => {
                        for (pod, uid) in pods {
                            removals.remove(pod, uid).await;
                        }
                    }
                    Err(error) => {
                        let error = error_chain(&error);
                        tracing::warn!(error, "the picture cannot be read; trying again");
                        sleep(RETRY).await;
                        change = PictureChange::Everything;
                        continue;
                    }
                }
                let is_over = progress.wait_for(|now| !now.reconciled || now.epoch != epoch);
                change = tokio::select! {
                    biased;
                    _ = is_over => break,
                    next = changes.next() => match next {
                        Some(next) => next,
                        None => return,
                    },
                };
            }
        }
    }
}

/// The pods among `change` that have ended, and their UIDs. The report of a node counts only for pods
/// that are bound to it: a UID is no secret.
fn ended(
    picture: &Picture,
    change: &PictureChange,
) -> Result<Vec<(ResourceKey, String)>, EngineError> {
    let pods: BTreeSet<ResourceKey> = match change {
        PictureChange::Everything => {
            picture.terminations()?.into_iter().map(|ended| ended.pod).collect()
        }
        PictureChange::Keys(keys) => {
            keys.iter().filter(|key| key.kind() == "pod").cloned().collect()
        }
    };
    let mut ended = Vec::new();
    for pod in pods {
        let Some(object) = picture.object(&pod) else { continue };
        let Some(node) = node_under_deletion(&object) else { continue };
        if picture.termination(&node, &pod)?.is_some_and(|uid| uid == object.uid()) {
            ended.push((pod, object.uid().to_owned()));
        }
    }
    Ok(ended)
}

/// The node that a pod under deletion is bound to.
fn node_under_deletion(pod: &Object) -> Option<NodeName> {
    let value = pod.value();
    value.pointer("/metadata/deletionTimestamp").filter(|time| !time.is_null())?;
    value.pointer("/spec/nodeName")?.as_str()?.parse().ok()
}
