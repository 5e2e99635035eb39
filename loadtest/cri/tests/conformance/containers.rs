//! Containers from creation to end.

use headwater_cri::proto::*;
use headwater_cri_lab::{BUSYBOX_IMAGE, Life};
use tonic::Code;

use crate::bench::{Case, assert_fails, image};

const UNKNOWN: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// Too little for a program that takes all.
const MEMORY_BYTES: i64 = 32 << 20;

pub(crate) async fn a_container_is_created_runs_and_ends(case: &Case) {
    let sandbox = case.run_pod().await.expect("a sandbox");
    let config = case.container("main", Life::Exit { code: 3, tenths: 5 });
    let container = case.create(&sandbox, config.clone()).await.expect("a container");
    let status = case.status(&container).await.expect("a status");
    assert_eq!(status.state(), ContainerState::ContainerCreated);
    assert_eq!((status.started_at, status.finished_at), (0, 0));
    assert_eq!(status.metadata, config.metadata);
    assert_eq!(status.labels, config.labels);
    assert!(status.image_ref.starts_with("sha256:"), "{status:?}");
    assert!(status.log_path.ends_with("/main.log"), "{status:?}");
    case.start(&container).await.expect("it starts");
    let status = case.ended(&container).await;
    assert_eq!((status.exit_code, status.reason.as_str()), (3, "Error"));
    assert!(status.started_at >= status.created_at);
    assert!(status.finished_at > status.started_at);
    // One that ends by itself may have ended before it is looked at.
    let stays = case.create(&sandbox, case.container("stays", Life::Forever)).await;
    let stays = stays.expect("a container");
    case.start(&stays).await.expect("it starts");
    let status = case.status(&stays).await.expect("a status");
    assert_eq!(status.state(), ContainerState::ContainerRunning);
    assert!(status.started_at >= status.created_at);
    let config = ContainerConfig {
        metadata: Some(ContainerMetadata { name: "main".to_owned(), attempt: 1 }),
        ..case.container("main", Life::Exit { code: 0, tenths: 0 })
    };
    let container = case.create(&sandbox, config).await.expect("a container");
    case.start(&container).await.expect("it starts");
    let status = case.ended(&container).await;
    assert_eq!((status.exit_code, status.reason.as_str()), (0, "Completed"));
    case.clean(&sandbox).await;
}

pub(crate) async fn a_container_without_its_image_is_refused_and_its_name_is_free(case: &Case) {
    let sandbox = case.run_pod().await.expect("a sandbox");
    let mut config = case.container("main", Life::Forever);
    config.image = Some(image("localhost/headwater/absent:1"));
    assert_fails(case.create(&sandbox, config.clone()).await, Code::NotFound, "not found");
    config.image = Some(image(BUSYBOX_IMAGE));
    case.create(&sandbox, config).await.expect("a container");
    case.clean(&sandbox).await;
}

pub(crate) async fn an_unknown_container(case: &Case) {
    assert_fails(case.status(UNKNOWN).await, Code::NotFound, "not found");
    assert_fails(case.start(UNKNOWN).await, Code::NotFound, "not found");
    case.assert_stop_of_unknown(case.stop(UNKNOWN, 0).await);
    case.remove(UNKNOWN).await.expect("it is gone");
}

pub(crate) async fn a_container_starts_once(case: &Case) {
    let (sandbox, container) = case.running(Life::Forever).await;
    let running = "container is in CONTAINER_RUNNING state";
    assert_fails(case.start(&container).await, Code::Unknown, running);
    case.stop(&container, 0).await.expect("it stops");
    let exited = "container is in CONTAINER_EXITED state";
    assert_fails(case.start(&container).await, Code::Unknown, exited);
    case.clean(&sandbox).await;
}

pub(crate) async fn a_missing_program_ends_the_container_with_128(case: &Case) {
    let sandbox = case.run_pod().await.expect("a sandbox");
    let config = case.container("main", Life::Missing);
    let container = case.create(&sandbox, config).await.expect("a container");
    let words = "no such file or directory";
    assert_fails(case.start(&container).await, Code::Unknown, words);
    let status = case.status(&container).await.expect("a status");
    assert_eq!(status.state(), ContainerState::ContainerExited);
    assert_eq!((status.exit_code, status.reason.as_str()), (128, "StartError"));
    case.clean(&sandbox).await;
}

pub(crate) async fn a_container_killed_for_memory_says_so(case: &Case) {
    let (sandbox, container) = takes_memory(case).await;
    let status = case.ended(&container).await;
    assert_eq!((status.exit_code, status.reason.as_str()), (137, "OOMKilled"));
    case.clean(&sandbox).await;
}

/// A sandbox and a container in it that takes more memory than it may, from now on.
pub(crate) async fn takes_memory(case: &Case) -> (String, String) {
    let sandbox = case.run_pod().await.expect("a sandbox");
    let mut config = case.container("main", Life::Greedy);
    config.linux.as_mut().expect("Linux").resources =
        Some(LinuxContainerResources { memory_limit_in_bytes: MEMORY_BYTES, ..Default::default() });
    let container = case.create(&sandbox, config).await.expect("a container");
    case.start(&container).await.expect("it starts");
    assert_eq!(case.exec(&container, Life::greed(), 30).await.expect("it runs"), 0);
    (sandbox, container)
}

pub(crate) async fn containers_are_listed_by_sandbox_and_label(case: &Case) {
    let sandbox = case.run_pod().await.expect("a sandbox");
    for name in ["a", "b"] {
        let config = case.container(name, Life::Forever);
        case.create(&sandbox, config).await.expect("a container");
    }
    assert_eq!(case.containers_of(&sandbox).await.len(), 2);
    let filter = ContainerFilter {
        pod_sandbox_id: sandbox.clone(),
        label_selector: [("container".to_owned(), "a".to_owned())].into(),
        ..Default::default()
    };
    let listed = case.list(filter).await;
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].metadata.as_ref().expect("metadata").name, "a");
    assert_eq!(listed[0].state(), ContainerState::ContainerCreated);
    case.clean(&sandbox).await;
}
