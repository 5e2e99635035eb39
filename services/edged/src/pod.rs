//! A pod's identity, and the few facts of its spec that several parts ask for.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use headwater_event::ResourceKey;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};
use serde::{Deserialize, Serialize};

/// What Kubernetes gives a pod that names no grace period.
pub const GRACE_DEFAULT: Duration = Duration::from_secs(30);

/// A pod's UID, safe as the name of a directory. Shared, for much is kept by it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PodUid(Arc<str>);

/// The text cannot name a directory.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is no usable UID: want 1 to 128 letters, digits, '-', '_' or '.', no '.' in front")]
pub struct InvalidPodUid(String);

impl PodUid {
    /// The UID as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for PodUid {
    type Error = InvalidPodUid;

    fn try_from(text: String) -> Result<Self, InvalidPodUid> {
        if is_plain_name(&text) { Ok(Self(text.into())) } else { Err(InvalidPodUid(text)) }
    }
}

impl From<PodUid> for String {
    fn from(uid: PodUid) -> Self {
        uid.as_str().to_owned()
    }
}

impl fmt::Display for PodUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The longest grace period that means anything: a manifest may ask for more seconds than a clock
/// can count.
pub const GRACE_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

/// What is remembered of a pod even when its object is gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodRecord {
    /// The pod's UID.
    pub uid: PodUid,
    /// `<namespace>/pod/<name>`.
    pub key: ResourceKey,
    /// How long it may take to stop, in seconds.
    pub grace_seconds: u64,
    /// When this node first saw the pod.
    pub seen_at: Timestamp,
}

impl PodRecord {
    /// The record of a pod that is first seen at `seen_at`.
    pub fn of(key: &ResourceKey, uid: &PodUid, pod: &Pod, seen_at: Timestamp) -> Self {
        let grace_seconds = grace(pod).as_secs();
        Self { uid: uid.clone(), key: key.clone(), grace_seconds, seen_at }
    }

    /// How long the pod may take to stop.
    pub fn grace(&self) -> Duration {
        Duration::from_secs(self.grace_seconds).min(GRACE_MAX)
    }
}

/// True for a name that cannot leave the directory it is put in.
pub fn is_plain_name(text: &str) -> bool {
    (1..=128).contains(&text.len())
        && !text.starts_with('.')
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

/// What happens to a container that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestartPolicy {
    /// It starts again.
    Always,
    /// It starts again if it failed.
    OnFailure,
    /// It stays as it is.
    Never,
}

impl RestartPolicy {
    /// The pod's policy; `Always` unless it says otherwise.
    pub fn of(pod: &Pod) -> Self {
        match pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref()) {
            Some("Never") => Self::Never,
            Some("OnFailure") => Self::OnFailure,
            _ => Self::Always,
        }
    }

    /// Whether a container that ended so starts again.
    pub fn restarts(self, succeeded: bool) -> bool {
        match self {
            Self::Always => true,
            Self::OnFailure => !succeeded,
            Self::Never => false,
        }
    }
}

/// The pod's grace period: the deletion's, else the spec's, else Kubernetes' default.
pub fn grace(pod: &Pod) -> Duration {
    let deletion = pod.metadata.deletion_grace_period_seconds;
    let spec = pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
    deletion.or(spec).and_then(grace_of).unwrap_or(GRACE_DEFAULT)
}

/// A grace period as a manifest says it, in seconds; `None` for a negative one.
pub(crate) fn grace_of(seconds: i64) -> Option<Duration> {
    u64::try_from(seconds).ok().map(|seconds| Duration::from_secs(seconds).min(GRACE_MAX))
}

/// Whether the cloud has asked for the pod's end.
pub fn is_deleting(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

/// The pod's namespace.
pub(crate) fn namespace(pod: &Pod) -> &str {
    pod.metadata.namespace.as_deref().unwrap_or("default")
}

/// The containers that run side by side.
pub fn main_containers(pod: &Pod) -> &[Container] {
    pod.spec.as_ref().map_or(&[], |spec| &spec.containers)
}

/// The containers that run before them, in order; sidecars among them stay.
pub fn init_containers(pod: &Pod) -> &[Container] {
    pod.spec.as_ref().and_then(|spec| spec.init_containers.as_deref()).unwrap_or_default()
}

/// Init containers first, as they start.
pub fn all_containers(pod: &Pod) -> impl Iterator<Item = &Container> {
    init_containers(pod).iter().chain(main_containers(pod))
}

/// Whether the pod's volumes or environments name a ConfigMap, Secret or claim.
pub fn names(pod: &Pod, kind: &str, name: &str) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let is = |of: &str, found: Option<&str>| kind == of && found == Some(name);
    let in_volumes = spec.volumes.iter().flatten().any(|volume| {
        let projected = volume.projected.iter().flat_map(|projected| &projected.sources);
        is("configmap", volume.config_map.as_ref().map(|map| map.name.as_str()))
            || is("secret", volume.secret.as_ref().and_then(|secret| secret.secret_name.as_deref()))
            || is(
                "persistentvolumeclaim",
                volume.persistent_volume_claim.as_ref().map(|claim| claim.claim_name.as_str()),
            )
            || projected.flatten().any(|part| {
                is("configmap", part.config_map.as_ref().map(|map| map.name.as_str()))
                    || is("secret", part.secret.as_ref().map(|secret| secret.name.as_str()))
            })
    });
    in_volumes
        || all_containers(pod).any(|container| {
            let whole = container.env_from.iter().flatten().any(|from| {
                is("configmap", from.config_map_ref.as_ref().map(|map| map.name.as_str()))
                    || is("secret", from.secret_ref.as_ref().map(|secret| secret.name.as_str()))
            });
            let values = container.env.iter().flatten().filter_map(|env| env.value_from.as_ref());
            whole
                || values.into_iter().any(|from| {
                    let map = from.config_map_key_ref.as_ref().map(|map| map.name.as_str());
                    let secret = from.secret_key_ref.as_ref().map(|key| key.name.as_str());
                    is("configmap", map) || is("secret", secret)
                })
        })
}

/// An init container that stays while the pod runs.
pub fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::time::Instant;

    use super::*;

    #[test]
    fn no_grace_period_is_longer_than_a_clock_can_count() {
        for (seconds, grace_period) in [
            (0, Duration::ZERO),
            (7, Duration::from_secs(7)),
            (-1, GRACE_DEFAULT),
            (i64::MAX, GRACE_MAX),
        ] {
            let spec = json!({"terminationGracePeriodSeconds": seconds, "containers": []});
            let pod: Pod = serde_json::from_value(json!({"spec": spec})).expect("a pod");
            assert_eq!(grace(&pod), grace_period);
            assert!(Instant::now().checked_add(grace(&pod)).is_some());
        }
        let record = json!({
            "uid": "u", "key": "ns/pod/p", "grace_seconds": u64::MAX, "seen_at": Timestamp::UNIX_EPOCH,
        });
        let record: PodRecord = serde_json::from_value(record).expect("a record");
        assert_eq!(record.grace(), GRACE_MAX);
    }
}
