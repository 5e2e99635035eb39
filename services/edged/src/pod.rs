//! A pod's identity, its record, and the facts of its spec that several modules need.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use headwater_event::ResourceKey;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, ContainerRestartRuleOnExitCodes, ContainerStatus, EphemeralContainer,
    LocalObjectReference, Pod, PodSpec, PodStatus, Volume,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

use crate::boot_time::BootTime;

/// Kubernetes' grace period of a pod that states none.
pub const GRACE_DEFAULT: Duration = Duration::from_secs(30);

/// A pod's UID, safe as the name of a directory. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PodUid(Arc<str>);

/// The text is not a usable UID.
#[derive(Debug, thiserror::Error)]
#[error("UID {0:?} is invalid: use 1 to 128 letters, digits, '-', '_' or '.', and no leading '.'")]
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

/// The longest grace period: a manifest may state more seconds than a clock can count.
pub const GRACE_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

/// The facts of a pod that outlive its object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodRecord {
    /// The pod's UID.
    pub uid: PodUid,
    /// `<namespace>/pod/<name>`.
    pub key: ResourceKey,
    /// Its grace period in seconds.
    pub grace_seconds: u64,
    /// When this node first saw the pod, by the clock of the wall.
    pub seen_at: Timestamp,
    /// The same by the clock of the boot; `None` in records of earlier versions, and in those that were recovered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen_in_boot: Option<BootTime>,
    /// Whether it comes from a file of the node. The cloud receives its status for the pod that mirrors it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_static: bool,
}

impl PodRecord {
    /// The record of a pod that is first seen at `seen_at`.
    pub fn of(key: &ResourceKey, uid: &PodUid, pod: &Pod, seen_at: Timestamp) -> Self {
        let grace_seconds = grace(pod).as_secs();
        let (uid, key) = (uid.clone(), key.clone());
        Self { uid, key, grace_seconds, seen_at, seen_in_boot: None, is_static: false }
    }

    /// A pod object with the facts of the record, for a pod whose object is gone.
    pub(crate) fn object(&self) -> Pod {
        let grace = i64::try_from(self.grace_seconds).unwrap_or(i64::MAX);
        Pod {
            metadata: ObjectMeta {
                name: Some(self.key.name().to_owned()),
                namespace: self.key.namespace().map(str::to_owned),
                uid: Some(self.uid.as_str().to_owned()),
                ..ObjectMeta::default()
            },
            spec: Some(PodSpec {
                termination_grace_period_seconds: Some(grace),
                ..PodSpec::default()
            }),
            status: None,
        }
    }

    /// The pod's grace period.
    pub fn grace(&self) -> Duration {
        Duration::from_secs(self.grace_seconds).min(GRACE_MAX)
    }
}

/// True for a name that stays inside its directory.
pub fn is_plain_name(text: &str) -> bool {
    (1..=128).contains(&text.len())
        && !text.starts_with('.')
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

/// Whether a container that ended starts again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestartPolicy {
    /// It starts again.
    Always,
    /// It starts again if it failed.
    OnFailure,
    /// It does not start again.
    Never,
}

impl RestartPolicy {
    /// The pod's policy; `Always` if it states none.
    pub fn of(pod: &Pod) -> Self {
        let name = pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref());
        Self::named(name).unwrap_or(Self::Always)
    }

    /// The policy of a name; `None` for none, and for one that there is not.
    fn named(name: Option<&str>) -> Option<Self> {
        match name {
            Some("Always") => Some(Self::Always),
            Some("OnFailure") => Some(Self::OnFailure),
            Some("Never") => Some(Self::Never),
            _ => None,
        }
    }

    fn restarts(self, code: i32) -> bool {
        match self {
            Self::Always => true,
            Self::OnFailure => code != 0,
            Self::Never => false,
        }
    }
}

/// Whether a container that ended with this code starts again: by the first of its rules that names the code, else by its
/// own policy, else by the pod's (KEP-5307).
pub fn restarts(pod: &Pod, container: &Container, code: i32) -> bool {
    let Some(own) = RestartPolicy::named(container.restart_policy.as_deref()) else {
        return RestartPolicy::of(pod).restarts(code);
    };
    matches!(rule_action(container, code), Some(RESTART | RESTART_ALL)) || own.restarts(code)
}

/// Whether every container of the pod starts again after this one has ended with this code (KEP-5532).
pub fn restarts_all(container: &Container, code: i32) -> bool {
    rule_action(container, code) == Some(RESTART_ALL)
}

/// Whether the end of a container can have every container of the pod start again.
pub fn can_restart_all(pod: &Pod) -> bool {
    let mut rules = all_containers(pod).flat_map(|it| it.restart_policy_rules.iter().flatten());
    rules.any(|rule| rule.action == RESTART_ALL)
}

/// The action of a rule by which a container starts again.
const RESTART: &str = "Restart";

/// The action of a rule by which all containers of the pod start again.
const RESTART_ALL: &str = "RestartAllContainers";

/// The action of the first rule that names the code. Rules count beside a policy of the container's own only.
fn rule_action(container: &Container, code: i32) -> Option<&str> {
    RestartPolicy::named(container.restart_policy.as_deref())?;
    let mut rules = container.restart_policy_rules.iter().flatten();
    let rule = rules.find(|rule| rule.exit_codes.as_ref().is_some_and(|of| names_code(of, code)));
    rule.map(|rule| rule.action.as_str())
}

fn names_code(codes: &ContainerRestartRuleOnExitCodes, code: i32) -> bool {
    let has = codes.values.iter().flatten().any(|value| *value == code);
    match codes.operator.as_str() {
        "In" => has,
        "NotIn" => !has,
        _ => false,
    }
}

/// When the image of a container is pulled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImagePullPolicy {
    /// Before every start.
    Always,
    /// If it is not on the node.
    IfNotPresent,
    /// Not at all.
    Never,
}

impl ImagePullPolicy {
    /// The container's policy. As in Kubernetes, the default is `Always` for an image without tag
    /// or with the tag `latest`, else `IfNotPresent`.
    pub fn of(container: &Container) -> Self {
        match container.image_pull_policy.as_deref() {
            Some("Always") => return Self::Always,
            Some("IfNotPresent") => return Self::IfNotPresent,
            Some("Never") => return Self::Never,
            _ => {}
        }
        let image = container.image.as_deref().unwrap_or_default();
        let name = image.rsplit('/').next().unwrap_or_default();
        match name.rsplit_once(':') {
            // A digest names one image forever.
            _ if name.contains('@') => Self::IfNotPresent,
            None | Some((_, "latest")) => Self::Always,
            Some(_) => Self::IfNotPresent,
        }
    }
}

/// The pod's grace period: the deletion's, else the spec's, else Kubernetes' default.
pub fn grace(pod: &Pod) -> Duration {
    let deletion = pod.metadata.deletion_grace_period_seconds;
    let spec = pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
    deletion.or(spec).and_then(grace_of).unwrap_or(GRACE_DEFAULT)
}

/// A grace period of so many seconds, as in a manifest; `None` for a negative one.
pub(crate) fn grace_of(seconds: i64) -> Option<Duration> {
    u64::try_from(seconds).ok().map(|seconds| Duration::from_secs(seconds).min(GRACE_MAX))
}

/// The time that the pod may be active on its node, from its start; `None` for any time.
pub fn active_deadline(pod: &Pod) -> Option<Duration> {
    let seconds = pod.spec.as_ref()?.active_deadline_seconds?;
    u64::try_from(seconds).ok().map(Duration::from_secs)
}

/// The part of the pod's status that is input of the node: the conditions that its readiness gates
/// name. Others own them.
pub(crate) fn gate_conditions(pod: &Pod) -> Option<PodStatus> {
    let gates = pod.spec.as_ref()?.readiness_gates.as_deref()?;
    let conditions = pod.status.as_ref()?.conditions.as_deref()?;
    let is_gate = |kind: &str| gates.iter().any(|gate| gate.condition_type == kind);
    let kept: Vec<_> = conditions.iter().filter(|c| is_gate(&c.type_)).cloned().collect();
    let status = PodStatus { conditions: Some(kept), ..PodStatus::default() };
    status.conditions.as_ref().is_some_and(|kept| !kept.is_empty()).then_some(status)
}

/// Whether the cloud deletes the pod.
pub fn is_deleting(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

/// The least priority of pods without which a cluster does not work, which the system alone gives.
pub const CRITICAL_PRIORITY: i32 = 2_000_000_000;

/// The annotation of a pod in the cloud that mirrors one of a file of the node.
pub(crate) const MIRROR: &str = "kubernetes.io/config.mirror";

/// The annotation with the origin of a pod: `file` for one of a file of the node.
const SOURCE: &str = "kubernetes.io/config.source";

/// The annotations of pods that come from a file of the node, or mirror one.
const STATIC_ANNOTATIONS: [&str; 2] = [MIRROR, SOURCE];

/// The account of a pod that names none.
const ACCOUNT_DEFAULT: &str = "default";

/// The pod's priority; zero if it states none.
pub fn priority(pod: &Pod) -> i32 {
    pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or(0)
}

/// Whether the node does not work without the pod: its priority says so, or it comes from a file of the node
/// (`pkg/kubelet/types/pod_update.go`, `IsCriticalPod`).
pub fn is_critical(pod: &Pod) -> bool {
    let annotations = pod.metadata.annotations.as_ref();
    let is_static = STATIC_ANNOTATIONS.iter().any(|name| {
        let source = annotations.and_then(|all| all.get(*name));
        source.is_some_and(|source| source != "api")
    });
    is_static || priority(pod) >= CRITICAL_PRIORITY
}

/// Whether the pod comes from a file of the node. No other pod has such an annotation by then.
pub(crate) fn is_of_file(pod: &Pod) -> bool {
    let source = pod.metadata.annotations.as_ref().and_then(|all| all.get(SOURCE));
    source.is_some_and(|source| source == "file")
}

/// The pod's namespace.
pub(crate) fn namespace(pod: &Pod) -> &str {
    pod.metadata.namespace.as_deref().unwrap_or("default")
}

/// The containers that run at the same time.
pub fn main_containers(pod: &Pod) -> &[Container] {
    pod.spec.as_ref().map_or(&[], |spec| &spec.containers)
}

/// The init containers, which run before the others, in order. Sidecars among them keep running.
pub fn init_containers(pod: &Pod) -> &[Container] {
    pod.spec.as_ref().and_then(|spec| spec.init_containers.as_deref()).unwrap_or_default()
}

/// All containers, in the order of their starts.
pub fn all_containers(pod: &Pod) -> impl Iterator<Item = &Container> {
    init_containers(pod).iter().chain(main_containers(pod))
}

/// The ephemeral containers, which a person adds to a pod that runs: each starts once. They count
/// neither for the pod's outcome nor for its quality of service.
pub fn ephemeral_containers(pod: &Pod) -> impl Iterator<Item = Container> {
    let containers = pod.spec.iter().flat_map(|spec| spec.ephemeral_containers.iter().flatten());
    containers.map(as_container)
}

/// The statuses of all containers, ephemeral ones included.
pub fn container_statuses(status: &PodStatus) -> impl Iterator<Item = &ContainerStatus> {
    let lists = [
        &status.init_container_statuses,
        &status.container_statuses,
        &status.ephemeral_container_statuses,
    ];
    lists.into_iter().flatten().flatten()
}

/// All containers and the ephemeral ones.
pub fn every_container(pod: &Pod) -> impl Iterator<Item = Cow<'_, Container>> {
    all_containers(pod).map(Cow::Borrowed).chain(ephemeral_containers(pod).map(Cow::Owned))
}

/// An ephemeral container has the fields of another one, and those that would let it run again mean
/// nothing.
fn as_container(ephemeral: &EphemeralContainer) -> Container {
    let of = ephemeral.clone();
    Container {
        args: of.args,
        command: of.command,
        env: of.env,
        env_from: of.env_from,
        image: of.image,
        image_pull_policy: of.image_pull_policy,
        name: of.name,
        resources: of.resources,
        security_context: of.security_context,
        stdin: of.stdin,
        stdin_once: of.stdin_once,
        termination_message_path: of.termination_message_path,
        termination_message_policy: of.termination_message_policy,
        tty: of.tty,
        volume_devices: of.volume_devices,
        volume_mounts: of.volume_mounts,
        working_dir: of.working_dir,
        ..Container::default()
    }
}

/// Whether the pod's volumes, environments or pull secrets name a ConfigMap, Secret or claim.
pub fn names(pod: &Pod, kind: &str, name: &str) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let is = |of: &str, found: Option<&str>| kind == of && found == Some(name);
    let in_volumes = spec.volumes.iter().flatten().any(|volume| {
        let projected = volume.projected.iter().flat_map(|projected| &projected.sources);
        is("configmap", volume.config_map.as_ref().map(|map| map.name.as_str()))
            || is("secret", volume.secret.as_ref().and_then(|secret| secret.secret_name.as_deref()))
            || is("persistentvolumeclaim", claim_name(pod, volume).as_deref())
            || projected.flatten().any(|part| {
                is("configmap", part.config_map.as_ref().map(|map| map.name.as_str()))
                    || is("secret", part.secret.as_ref().map(|secret| secret.name.as_str()))
            })
    });
    in_volumes
        || pull_secrets(spec).any(|secret| is("secret", Some(secret)))
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

/// The Secrets with credentials for its images that the pod itself names.
pub(crate) fn pull_secrets(spec: &PodSpec) -> impl Iterator<Item = &str> {
    named(spec.image_pull_secrets.as_deref())
}

/// The names of objects of the pod's namespace. An empty one names none.
pub(crate) fn named(references: Option<&[LocalObjectReference]>) -> impl Iterator<Item = &str> {
    let names = references.unwrap_or_default().iter().map(|reference| reference.name.as_str());
    names.filter(|name| !name.is_empty())
}

/// The pod's ServiceAccount.
pub(crate) fn account(pod: &Pod) -> &str {
    let names =
        pod.spec.iter().flat_map(|spec| [&spec.service_account_name, &spec.service_account]);
    let mut names = names.filter_map(|name| name.as_deref());
    names.find(|name| !name.is_empty()).unwrap_or(ACCOUNT_DEFAULT)
}

/// The claims that the pod's volumes name.
pub(crate) fn claims(pod: &Pod) -> impl Iterator<Item = Cow<'_, str>> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter_map(|volume| claim_name(pod, volume))
}

/// The claim of a volume. That of an ephemeral volume, which the cluster makes, has the names of pod and volume.
pub fn claim_name<'a>(pod: &Pod, volume: &'a Volume) -> Option<Cow<'a, str>> {
    if let Some(claim) = &volume.persistent_volume_claim {
        return Some(Cow::Borrowed(&claim.claim_name));
    }
    volume.ephemeral.as_ref()?;
    Some(Cow::Owned(format!("{}-{}", pod.metadata.name.as_deref()?, volume.name)))
}

/// Whether the pod worker writes the volume's files, and containers cannot.
pub(crate) fn is_written_here(volume: &Volume) -> bool {
    volume.secret.is_some()
        || volume.config_map.is_some()
        || volume.projected.is_some()
        || volume.downward_api.is_some()
}

/// Whether an init container is a sidecar, which runs as long as the pod.
pub fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::time::Instant;

    use super::*;

    #[test]
    fn the_default_pull_policy_follows_the_tag() {
        for (image, policy) in [
            ("busybox", ImagePullPolicy::Always),
            ("localhost:5000/busybox", ImagePullPolicy::Always),
            ("busybox:latest", ImagePullPolicy::Always),
            ("localhost:5000/team/busybox:1.2", ImagePullPolicy::IfNotPresent),
            ("busybox@sha256:00", ImagePullPolicy::IfNotPresent),
        ] {
            let container = Container { image: Some(image.to_owned()), ..Container::default() };
            assert_eq!(ImagePullPolicy::of(&container), policy, "{image}");
            let policy = Some("Never".to_owned());
            let container = Container { image_pull_policy: policy, ..container };
            assert_eq!(ImagePullPolicy::of(&container), ImagePullPolicy::Never);
        }
    }

    #[test]
    fn a_container_restarts_by_its_rules_then_by_its_own_policy_then_by_the_pods() {
        let pod: Pod = serde_json::from_value(
            json!({"spec": {"restartPolicy": "OnFailure", "containers": []}}),
        )
        .expect("a pod");
        let rule = |action: &str, operator: &str, values: &[i32]| {
            let codes = json!({"operator": operator, "values": values});
            json!({"action": action, "exitCodes": codes})
        };
        let own = |policy: Option<&str>, rules: &[serde_json::Value]| -> Container {
            let value = json!({"name": "a", "restartPolicy": policy, "restartPolicyRules": rules});
            serde_json::from_value(value).expect("a container")
        };
        let restart = [rule("Restart", "In", &[42])];
        for (container, restarting, staying) in [
            (own(None, &[]), &[1, 42][..], &[0][..]),
            // Rules count beside a policy of the container's own only.
            (own(None, &[rule("Restart", "In", &[0])]), &[1], &[0]),
            (own(Some("Always"), &[]), &[0, 1], &[]),
            (own(Some("Never"), &[]), &[], &[0, 1]),
            (own(Some("Never"), &restart), &[42], &[0, 1]),
            (own(Some("OnFailure"), &[rule("Restart", "NotIn", &[1, 2])]), &[0, 1, 3], &[]),
            (own(Some("Never"), &[rule("Restart", "NotIn", &[1, 2])]), &[0, 3], &[1, 2]),
            (own(Some("Never"), &[rule("RestartAllContainers", "In", &[42])]), &[42], &[0, 1]),
            // The first rule that names the code decides, and an action that there is not decides nothing.
            (own(Some("Never"), &[rule("Other", "In", &[42]), restart[0].clone()]), &[], &[42]),
        ] {
            for code in restarting {
                assert!(restarts(&pod, &container, *code), "{code}: {container:?}");
            }
            for code in staying {
                assert!(!restarts(&pod, &container, *code), "{code}: {container:?}");
            }
        }
    }

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

    #[test]
    fn a_record_is_read_as_it_was_written_and_one_of_an_earlier_version_has_no_time_of_a_boot() {
        let seen_in_boot = Some(BootTime { boot_id: "b".to_owned(), since_boot_ms: 7 });
        let earlier = json!({
            "uid": "u", "key": "ns/pod/p", "grace_seconds": 3, "seen_at": Timestamp::UNIX_EPOCH,
        });
        let read = |record| serde_json::from_value::<PodRecord>(record).expect("a record");
        let written = |record: &PodRecord| serde_json::to_value(record).expect("JSON");
        let record = read(earlier.clone());
        assert_eq!((&record.seen_in_boot, written(&record)), (&None, earlier));
        let record = PodRecord { seen_in_boot, ..record };
        assert_eq!(read(written(&record)), record);
    }
}
