//! What a runtime's messages say, as facts.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::PathBuf;

use headwater_edged::pod::PodUid;
use jiff::{SignedDuration, Timestamp};
use prost::Message as _;

use crate::knowledge::{End, Fact, OUT_OF_MEMORY, Phase, Run, Sandbox, UNSEEN};
use crate::pod_names;
use crate::proto::containerd::{Envelope, TaskExit, TaskOom};
use crate::proto::{
    Container, ContainerState, ContainerStatus, NamespaceMode, PodSandbox, PodSandboxState,
    PodSandboxStatus,
};
use crate::spec::{
    BOOT, CONTAINER_NAME, MESSAGE_POLICY, NodeFacts, POD_UID, container_log_path, log_directory,
};

/// A status of a run that is read this long after its end has everything that the runtime learns of the end. The
/// kernel's word of a kill for memory may come after the end itself.
const SETTLED: SignedDuration = SignedDuration::from_secs(1);

/// The reason of a run whose start failed, and the words in its message if the call was cut off: the runtime kills
/// what it has started when the pod worker goes away during the call. The last words are those of a shim that it was
/// starting.
pub(crate) const START_ERROR: &str = "StartError";
const CUT_OFF: [&str; 3] =
    ["context canceled", "context deadline exceeded", "start failed: : signal: killed"];

/// A sandbox by its status; `None` if its labels are not those of a pod. One in the network of the node has no address of its
/// own, whether the runtime states the node's or none.
pub(crate) fn sandbox(status: PodSandboxStatus) -> Option<(String, Sandbox)> {
    let is_ready = status.state() == PodSandboxState::SandboxReady;
    let namespaces = status.linux.as_ref().and_then(|linux| linux.namespaces.as_ref());
    let options = namespaces.and_then(|namespaces| namespaces.options.as_ref());
    let is_on_node = options.is_some_and(|options| options.network() == NamespaceMode::Node);
    let network = status.network.filter(|_| !is_on_node).unwrap_or_default();
    let more = network.additional_ips.into_iter().map(|address| address.ip);
    let addresses = std::iter::once(network.ip).chain(more);
    let sandbox = Sandbox {
        pod: pod_uid(status.labels.get(POD_UID)?)?,
        attempt: status.metadata?.attempt,
        is_ready,
        is_closed: false,
        addresses: addresses.filter_map(|address| address.parse::<IpAddr>().ok()).collect(),
    };
    Some((status.id, sandbox))
}

/// A run by its status, read at `now`; `None` if its labels are not those of a container.
pub(crate) fn run(
    status: ContainerStatus,
    sandbox: &str,
    node: &NodeFacts,
    now: Timestamp,
) -> Option<(String, Run)> {
    let is_of_boot = is_of_boot(&status.annotations, node);
    let started_at = time(status.started_at);
    let phase = match status.state() {
        ContainerState::ContainerCreated => Phase::Created,
        // What a runtime knows nothing of may run: it is ended before anything takes its place.
        ContainerState::ContainerRunning | ContainerState::ContainerUnknown => {
            Phase::Running { started_at: started_at.or_else(|| time(status.created_at))? }
        }
        ContainerState::ContainerExited => {
            let finished_at = time(status.finished_at).or(started_at);
            let finished_at = finished_at.or_else(|| time(status.created_at))?;
            Phase::Exited(End {
                code: status.exit_code,
                started_at,
                finished_at,
                reason: status.reason.clone(),
                message: status.message.clone(),
                is_status: now.duration_since(finished_at) > SETTLED,
                is_interrupted: is_interrupted(&status, is_of_boot),
            })
        }
    };
    let policy = status.annotations.get(MESSAGE_POLICY);
    let image = if status.image_id.is_empty() { &status.image_ref } else { &status.image_id };
    let run = Run {
        pod: pod_uid(status.labels.get(POD_UID)?)?,
        container: status.labels.get(CONTAINER_NAME)?.clone(),
        attempt: status.metadata?.attempt,
        sandbox: sandbox.to_owned(),
        image_id: (!image.is_empty()).then(|| image.as_str().into()),
        log: PathBuf::from(status.log_path),
        falls_back_to_logs: policy.is_some_and(|policy| policy == "FallbackToLogsOnError"),
        is_oom: status.reason == OUT_OF_MEMORY,
        process_end: None,
        phase,
    };
    Some((status.id, run))
}

/// A sandbox as a list has it, which does not say its addresses; `None` if its labels are not those of a pod.
pub(crate) fn listed_sandbox(listed: &PodSandbox) -> Option<Sandbox> {
    Some(Sandbox {
        pod: pod_uid(listed.labels.get(POD_UID)?)?,
        attempt: listed.metadata.as_ref()?.attempt,
        is_ready: listed.state() == PodSandboxState::SandboxReady,
        is_closed: false,
        addresses: Vec::new(),
    })
}

/// A run as a list has it, which does not say how it ended; `None` if its labels are not those of a container.
pub(crate) fn listed_run(listed: &Container, node: &NodeFacts) -> Option<Run> {
    let created_at = time(listed.created_at)?;
    let phase = match listed.state() {
        ContainerState::ContainerCreated => Phase::Created,
        ContainerState::ContainerRunning | ContainerState::ContainerUnknown => {
            Phase::Running { started_at: created_at }
        }
        ContainerState::ContainerExited => Phase::EndPending { started_at: None },
    };
    let pod = pod_names::record(&listed.labels, &listed.annotations, listed.created_at)?;
    let container = listed.labels.get(CONTAINER_NAME)?.clone();
    let attempt = listed.metadata.as_ref()?.attempt;
    let log = log_directory(&pod, node).join(container_log_path(&container, attempt));
    Some(Run {
        pod: pod.uid,
        container,
        attempt,
        sandbox: listed.pod_sandbox_id.clone(),
        image_id: None,
        log,
        falls_back_to_logs: false,
        is_oom: false,
        process_end: None,
        phase,
    })
}

/// Whether what has these annotations was made since the machine went up.
pub(crate) fn is_of_boot(annotations: &HashMap<String, String>, node: &NodeFacts) -> bool {
    annotations.get(BOOT).is_some_and(|boot| *boot == node.boot_id)
}

/// Whether an ended run is no failure of its container: the machine went down under it, or its start was cut off by
/// the end of the pod worker or of the runtime, which kills it then. A runtime that was killed in between has an end
/// without a start.
fn is_interrupted(status: &ContainerStatus, is_of_boot: bool) -> bool {
    match status.reason.as_str() {
        START_ERROR => CUT_OFF.iter().any(|words| status.message.contains(words)),
        _ if time(status.started_at).is_none() => true,
        UNSEEN => !is_of_boot,
        _ => false,
    }
}

/// An event of containerd; `None` if it is about a process that was run in a container, or unknown.
pub(crate) fn task_event(event: &Envelope) -> Option<Fact> {
    let body = event.event.as_ref()?.value.as_slice();
    match event.topic.as_str() {
        "/tasks/exit" => {
            let exit = TaskExit::decode(body).ok()?;
            // The first process of a container has the container's id.
            let is_own = exit.id == exit.container_id;
            let at = exit.exited_at.and_then(|at| Timestamp::new(at.seconds, at.nanos).ok());
            let code = i32::try_from(exit.exit_status).unwrap_or(i32::MAX);
            is_own.then(|| Fact::Exit { id: exit.id, code, at: at.unwrap_or_else(Timestamp::now) })
        }
        "/tasks/oom" => Some(Fact::OutOfMemory { id: TaskOom::decode(body).ok()?.container_id }),
        _ => None,
    }
}

pub(crate) fn pod_uid(uid: &str) -> Option<PodUid> {
    PodUid::try_from(uid.to_owned()).ok()
}

/// A time of the CRI: nanoseconds, and 0 for none.
pub(crate) fn time(nanoseconds: i64) -> Option<Timestamp> {
    (nanoseconds > 0).then(|| Timestamp::from_nanosecond(nanoseconds.into()).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::{
        ContainerMetadata, LinuxPodSandboxStatus, Namespace, NamespaceOption, PodSandboxMetadata,
        PodSandboxNetworkStatus,
    };
    use crate::spec::{POD_NAME, POD_NAMESPACE};

    #[test]
    fn a_sandbox_in_the_network_of_the_node_has_no_address_of_its_own() {
        let addresses = |network: NamespaceMode| {
            let options = NamespaceOption { network: network.into(), ..Default::default() };
            let namespaces = Some(Namespace { options: Some(options) });
            let status = PodSandboxStatus {
                metadata: Some(PodSandboxMetadata::default()),
                labels: [(POD_UID.to_owned(), "u1".to_owned())].into(),
                linux: Some(LinuxPodSandboxStatus { namespaces }),
                network: Some(PodSandboxNetworkStatus {
                    ip: "10.0.0.7".to_owned(),
                    additional_ips: Vec::new(),
                }),
                ..PodSandboxStatus::default()
            };
            let (_, sandbox) = sandbox(status).expect("a pod's");
            sandbox.addresses.len()
        };
        assert_eq!([NamespaceMode::Pod, NamespaceMode::Node].map(addresses), [1, 0]);
    }

    #[test]
    fn a_list_says_what_a_run_is_but_not_how_it_ended() {
        let labels =
            [(POD_NAME, "web"), (POD_NAMESPACE, "shop"), (POD_UID, "u1"), (CONTAINER_NAME, "app")];
        let labels = labels.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let node = NodeFacts { logs: "/logs".into(), ..NodeFacts::default() };
        let listed = |state: ContainerState| Container {
            pod_sandbox_id: "s1".to_owned(),
            metadata: Some(ContainerMetadata { name: "app".to_owned(), attempt: 3 }),
            state: state.into(),
            created_at: 7,
            labels: labels.clone().into(),
            ..Container::default()
        };
        let run = |state| listed_run(&listed(state), &node).expect("a run");
        let created_at = time(7).expect("a time");
        let running = run(ContainerState::ContainerRunning);
        assert_eq!((running.pod.as_str(), running.container.as_str()), ("u1", "app"));
        assert_eq!((running.attempt, running.sandbox.as_str()), (3, "s1"));
        assert_eq!(running.log, PathBuf::from("/logs/shop_web_u1/app/3.log"));
        assert_eq!(running.phase, Phase::Running { started_at: created_at });
        assert_eq!(run(ContainerState::ContainerUnknown).phase, running.phase);
        assert_eq!(run(ContainerState::ContainerCreated).phase, Phase::Created);
        let pending = Phase::EndPending { started_at: None };
        assert_eq!(run(ContainerState::ContainerExited).phase, pending);
        assert_eq!(listed_run(&Container::default(), &node), None, "it is no pod's");
    }

    #[test]
    fn a_start_that_was_cut_off_is_no_failure_of_its_container() {
        for (reason, message, started_at, is_of_boot, expected) in [
            ("Error", "", 7, true, false),
            ("Completed", "", 7, true, false),
            ("StartError", "exec: \"nope\": executable file not found in $PATH", 0, true, false),
            ("StartError", "failed to start containerd task: context canceled", 0, true, true),
            (
                "StartError",
                "failed to create containerd task: failed to start shim: start failed: : signal: killed: unknown",
                0,
                true,
                true,
            ),
            // The runtime was killed between the start and its own record of it.
            ("Error", "", 0, true, true),
            ("Unknown", "", 0, true, true),
            // The runtime was killed between the end and its own record of it.
            ("Unknown", "", 7, true, false),
            ("Unknown", "", 7, false, true),
        ] {
            let status = ContainerStatus {
                reason: reason.to_owned(),
                message: message.to_owned(),
                started_at,
                ..ContainerStatus::default()
            };
            assert_eq!(is_interrupted(&status, is_of_boot), expected, "{status:?}");
        }
    }
}
