//! A pod's identity, and the few facts of its spec that several parts ask for.

use std::fmt;
use std::time::Duration;

use headwater_event::ResourceKey;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};
use serde::{Deserialize, Serialize};

/// What Kubernetes gives a pod that names no grace period.
pub const GRACE_DEFAULT: Duration = Duration::from_secs(30);

/// A pod's UID, safe as the name of a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PodUid(String);

/// The text cannot name a directory.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is no usable UID: want 1 to 128 letters, digits, '-', '_' or '.', no '.' in front")]
pub struct BadUid(String);

impl PodUid {
    /// The UID as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for PodUid {
    type Error = BadUid;

    fn try_from(text: String) -> Result<Self, BadUid> {
        if is_plain_name(&text) { Ok(Self(text)) } else { Err(BadUid(text)) }
    }
}

impl From<PodUid> for String {
    fn from(uid: PodUid) -> Self {
        uid.0
    }
}

impl fmt::Display for PodUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

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
        Duration::from_secs(self.grace_seconds)
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
    deletion
        .or(spec)
        .and_then(|seconds| u64::try_from(seconds).ok())
        .map_or(GRACE_DEFAULT, Duration::from_secs)
}

/// Whether the cloud has asked for the pod's end.
pub fn is_deleting(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
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

/// An init container that stays while the pod runs.
pub fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}
