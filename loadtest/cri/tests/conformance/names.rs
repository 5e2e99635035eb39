//! Names are reserved: a second call after an unknown outcome makes nothing twice.

use headwater_cri_lab::Life;

use crate::bench::{Case, assert_fails};

pub(crate) async fn a_name_of_a_sandbox_is_reserved(case: &Case) {
    let sandbox = case.run_pod().await.expect("a sandbox");
    let reserved = format!("is reserved for \"{sandbox}\"");
    assert_fails(case.run_pod().await, case.reserved_code(), &reserved);
    case.stop_pod(&sandbox).await.expect("it stops");
    assert_fails(case.run_pod().await, case.reserved_code(), &reserved);
    case.remove_pod(&sandbox).await.expect("it is removed");
    let sandbox = case.run_pod().await.expect("the name is free");
    case.clean(&sandbox).await;
}

pub(crate) async fn a_name_of_a_container_is_reserved(case: &Case) {
    let sandbox = case.run_pod().await.expect("a sandbox");
    let config = case.container("main", Life::Forever);
    let first = case.create(&sandbox, config.clone()).await.expect("a container");
    let reserved = format!("is reserved for \"{first}\"");
    assert_fails(case.create(&sandbox, config.clone()).await, case.reserved_code(), &reserved);
    case.remove(&first).await.expect("it is removed");
    let second = case.create(&sandbox, config).await.expect("the name is free");
    assert_ne!(first, second);
    case.clean(&sandbox).await;
}

pub(crate) async fn another_attempt_is_another_name(case: &Case) {
    let sandbox = case.run_pod().await.expect("a sandbox");
    let mut config = case.container("main", Life::Forever);
    case.create(&sandbox, config.clone()).await.expect("a container");
    config.metadata.as_mut().expect("metadata").attempt = 1;
    case.create(&sandbox, config).await.expect("another one");
    assert_eq!(case.containers_of(&sandbox).await.len(), 2);
    let mut pod = case.pod.clone();
    pod.metadata.as_mut().expect("metadata").attempt = 1;
    let other = case.run(pod, "runc").await.expect("another one");
    assert_eq!(case.pod_status(&other).await.expect("a status").runtime_handler, "runc");
    case.clean(&other).await;
    case.clean(&sandbox).await;
}
