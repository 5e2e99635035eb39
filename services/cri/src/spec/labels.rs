//! The labels and annotations by which sandboxes and containers are found, and the names of logs.
//!
//! Those of `io.kubernetes.*` are a kubelet's (`labels.go`): log agents, `crictl` and metrics know them.
//! A kubelet's hash of a container is not among them: nothing but a kubelet can read it.

use std::path::PathBuf;

use headwater_edged::pod::{PodRecord, init_containers, main_containers};
use k8s_openapi::api::core::v1::{Container, Pod};

use super::StringMap;
use super::{NodeFacts, spec};

/// The node that runs it.
pub const NODE_LABEL: &str = "headwater/node";

/// The directory of the pod worker that runs it.
pub const DIR_LABEL: &str = "headwater/dir";

/// The boot of the machine in which a container was made.
pub const BOOT: &str = "headwater/boot";

/// The name of the pod.
pub const POD_NAME: &str = "io.kubernetes.pod.name";
/// Its namespace.
pub const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
/// The UID of the pod.
pub const POD_UID: &str = "io.kubernetes.pod.uid";
/// The name of the container.
pub const CONTAINER_NAME: &str = "io.kubernetes.container.name";
const RESTART_COUNT: &str = "io.kubernetes.container.restartCount";
const MESSAGE_PATH: &str = "io.kubernetes.container.terminationMessagePath";
/// What becomes of a log without a termination message.
pub const MESSAGE_POLICY: &str = "io.kubernetes.container.terminationMessagePolicy";
const CONTAINER_TYPE: &str = "io.kubernetes.container.type";
const PORTS: &str = "io.kubernetes.container.ports";
const PRE_STOP: &str = "io.kubernetes.container.preStopHandler";
/// The grace period of the pod's spec, in seconds.
pub const GRACE: &str = "io.kubernetes.pod.terminationGracePeriod";
const DELETION_GRACE: &str = "io.kubernetes.pod.deletionGracePeriod";

/// The pod's own labels, and those that identify it. The latter come before the former: a pod cannot
/// pass for another one.
pub(super) fn sandbox_labels(pod: &Pod, record: &PodRecord, node: &NodeFacts) -> StringMap {
    let own = pod.metadata.labels.iter().flatten();
    let own = own.map(|(name, value)| (name.clone(), value.clone()));
    own.chain(identity(record, node)).collect()
}

/// The pod's own annotations.
pub(super) fn sandbox_annotations(pod: &Pod) -> StringMap {
    let own = pod.metadata.annotations.iter().flatten();
    own.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// What identifies a container.
pub(super) fn container_labels(record: &PodRecord, name: &str, node: &NodeFacts) -> StringMap {
    identity(record, node).chain([(CONTAINER_NAME.to_owned(), name.to_owned())]).collect()
}

/// What a pod worker needs of a container whose pod it does not know any more.
pub(super) fn container_annotations(
    pod: &Pod,
    container: &Container,
    attempt: u32,
    node: &NodeFacts,
) -> StringMap {
    let has = |containers: &[Container]| containers.iter().any(|it| it.name == container.name);
    let kind = if has(init_containers(pod)) {
        "init"
    } else if has(main_containers(pod)) {
        "container"
    } else {
        "ephemeral"
    };
    let pre_stop = container.lifecycle.as_ref().and_then(|hooks| hooks.pre_stop.as_ref());
    let ports = container.ports.as_ref().filter(|ports| !ports.is_empty());
    let some = |text: &Option<String>| Some(text.clone().unwrap_or_default());
    let seconds = |seconds: Option<i64>| seconds.map(|seconds| seconds.to_string());
    let annotations = [
        (BOOT, Some(node.boot_id.clone()).filter(|id| !id.is_empty())),
        (RESTART_COUNT, Some(attempt.to_string())),
        (MESSAGE_PATH, some(&container.termination_message_path)),
        (MESSAGE_POLICY, some(&container.termination_message_policy)),
        (CONTAINER_TYPE, Some(kind.to_owned())),
        (PORTS, ports.and_then(|ports| serde_json::to_string(ports).ok())),
        (PRE_STOP, pre_stop.and_then(|hook| serde_json::to_string(hook).ok())),
        (GRACE, seconds(spec(pod).termination_grace_period_seconds)),
        (DELETION_GRACE, seconds(pod.metadata.deletion_grace_period_seconds)),
    ];
    let present = annotations.into_iter().filter_map(|(name, value)| Some((name, value?)));
    present.map(|(name, value)| (name.to_owned(), value)).collect()
}

/// The directory of a pod's logs: `<logs>/<namespace>_<name>_<uid>`.
pub fn log_directory(record: &PodRecord, node: &NodeFacts) -> PathBuf {
    let namespace = record.key.namespace().unwrap_or_default();
    node.logs.join(format!("{namespace}_{}_{}", record.key.name(), record.uid))
}

/// The log of a container's run, below the directory of its pod.
pub fn container_log_path(container: &str, attempt: u32) -> String {
    format!("{container}/{attempt}.log")
}

fn identity(
    record: &PodRecord,
    node: &NodeFacts,
) -> impl Iterator<Item = (String, String)> + use<> {
    [
        (POD_NAME, record.key.name().to_owned()),
        (POD_NAMESPACE, record.key.namespace().unwrap_or_default().to_owned()),
        (POD_UID, record.uid.as_str().to_owned()),
        (NODE_LABEL, node.node.clone()),
        (DIR_LABEL, node.dir.to_string_lossy().into_owned()),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value))
}
