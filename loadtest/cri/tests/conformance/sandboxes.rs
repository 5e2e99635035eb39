//! Sandboxes.

use headwater_cri::proto::*;
use headwater_cri_lab::Life;
use tonic::Code;

use crate::bench::{Case, assert_fails};

const UNKNOWN: &str = "0000000000000000000000000000000000000000000000000000000000000000";

async fn list(case: &Case, state: Option<PodSandboxState>) -> Vec<PodSandbox> {
    let filter = PodSandboxFilter {
        state: state.map(|state| PodSandboxStateValue { state: state.into() }),
        label_selector: case.pod.labels.clone(),
        ..Default::default()
    };
    case.sandboxes(filter).await
}

pub(crate) async fn a_sandbox_is_listed_by_label_and_has_its_metadata(case: &Case) {
    let sandbox = case.run_pod().await.expect("a sandbox");
    let listed = list(case, Some(PodSandboxState::SandboxReady)).await;
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].id, sandbox);
    assert_eq!(listed[0].metadata, case.pod.metadata);
    assert_eq!(listed[0].labels, case.pod.labels);
    assert_eq!(listed[0].annotations, case.pod.annotations);
    let status = case.pod_status(&sandbox).await.expect("a status");
    assert_eq!(status.metadata, case.pod.metadata);
    assert_eq!(status.state(), PodSandboxState::SandboxReady);
    assert!(status.created_at > 0);
    // A pod in the machine's network has no address of its own.
    assert_eq!(status.network.unwrap_or_default().ip, "");
    case.stop_pod(&sandbox).await.expect("it stops");
    assert!(list(case, Some(PodSandboxState::SandboxReady)).await.is_empty());
    assert_eq!(list(case, None).await[0].state(), PodSandboxState::SandboxNotready);
    case.stop_pod(&sandbox).await.expect("it is stopped already");
    case.remove_pod(&sandbox).await.expect("it is removed");
    assert!(list(case, None).await.is_empty());
}

pub(crate) async fn an_unknown_sandbox(case: &Case) {
    assert_fails(case.pod_status(UNKNOWN).await, Code::NotFound, "not found");
    case.assert_stop_of_unknown(case.stop_pod(UNKNOWN).await);
    case.remove_pod(UNKNOWN).await.expect("it is gone");
    let container = case.container("main", Life::Forever);
    assert_fails(case.create(UNKNOWN, container).await, Code::NotFound, "not found");
}

pub(crate) async fn a_stopped_sandbox_takes_no_container(case: &Case) {
    let sandbox = case.run_pod().await.expect("a sandbox");
    case.stop_pod(&sandbox).await.expect("it stops");
    let container = case.container("main", Life::Forever);
    let (code, words) = match case.is_two() {
        true => (Code::Unknown, "is not running"),
        false => (Code::NotFound, "not found"),
    };
    assert_fails(case.create(&sandbox, container).await, code, words);
    case.remove_pod(&sandbox).await.expect("it is removed");
}

pub(crate) async fn a_stopped_sandbox_ends_its_containers(case: &Case) {
    let (sandbox, container) = case.running(Life::Stubborn).await;
    case.stop_pod(&sandbox).await.expect("it stops");
    let status = case.status(&container).await.expect("a status");
    assert_eq!((status.state(), status.exit_code), (ContainerState::ContainerExited, 137));
    case.remove_pod(&sandbox).await.expect("it is removed");
}

pub(crate) async fn a_removed_sandbox_takes_its_containers_along(case: &Case) {
    let (sandbox, container) = case.running(Life::Forever).await;
    case.remove_pod(&sandbox).await.expect("it is removed");
    assert_fails(case.status(&container).await, Code::NotFound, "not found");
    assert_fails(case.pod_status(&sandbox).await, Code::NotFound, "not found");
}

pub(crate) async fn a_pod_network_gives_an_address(case: &Case) {
    let mut pod = case.pod.clone();
    "pod".clone_into(&mut pod.hostname);
    pod.linux.as_mut().expect("Linux").security_context = None;
    let sandbox = case.run(pod, "").await.expect("a sandbox");
    let status = case.pod_status(&sandbox).await.expect("a status");
    let address = status.network.expect("a network").ip;
    assert!(address.starts_with("10.244."), "{address:?}");
    case.stop_pod(&sandbox).await.expect("it stops");
    let status = case.pod_status(&sandbox).await.expect("a status");
    assert_eq!(status.network.unwrap_or_default().ip, "");
    case.remove_pod(&sandbox).await.expect("it is removed");
}

pub(crate) async fn an_unknown_handler_is_refused(case: &Case) {
    let refused = case.run(case.pod.clone(), "kata").await;
    assert_fails(refused, Code::Unknown, "no runtime for \"kata\" is configured");
}
