//! The ends of containers that are asked to end.

use headwater_cri::proto::*;
use headwater_cri_lab::Life;
use tonic::Code;

use crate::bench::{Case, assert_fails};

/// Longer than any case takes.
const LONG_SECONDS: i64 = 600;

async fn exit_code(case: &Case, container: &str) -> i32 {
    let status = case.status(container).await.expect("a status");
    assert_eq!(status.state(), ContainerState::ContainerExited);
    status.exit_code
}

pub(crate) async fn a_stop_ends_what_takes_the_signal(case: &Case) {
    let (sandbox, container) = case.running(Life::Forever).await;
    case.stop(&container, LONG_SECONDS).await.expect("it stops");
    assert_eq!(exit_code(case, &container).await, 143);
    case.clean(&sandbox).await;
}

pub(crate) async fn a_stop_kills_at_its_deadline(case: &Case) {
    let (sandbox, container) = case.running(Life::Stubborn).await;
    case.stop(&container, 1).await.expect("it stops");
    assert_eq!(exit_code(case, &container).await, 137);
    case.clean(&sandbox).await;
}

pub(crate) async fn a_stop_without_time_kills(case: &Case) {
    let (sandbox, container) = case.running(Life::Forever).await;
    case.stop(&container, 0).await.expect("it stops");
    assert_eq!(exit_code(case, &container).await, 137);
    case.clean(&sandbox).await;
}

pub(crate) async fn a_stop_without_time_cuts_a_longer_one_short(case: &Case) {
    let (sandbox, container) = case.running(Life::Stubborn).await;
    let long = case.stop(&container, LONG_SECONDS);
    let short = case.stop(&container, 0);
    let (long, short) = tokio::join!(long, short);
    long.and(short).expect("it stops");
    assert_eq!(exit_code(case, &container).await, 137);
    case.clean(&sandbox).await;
}

pub(crate) async fn a_stop_of_what_does_not_run_is_done(case: &Case) {
    let sandbox = case.run_pod().await.expect("a sandbox");
    let config = case.container("main", Life::Forever);
    let container = case.create(&sandbox, config).await.expect("a container");
    case.stop(&container, LONG_SECONDS).await.expect("it does not run");
    let status = case.status(&container).await.expect("a status");
    assert_eq!(status.state(), ContainerState::ContainerCreated);
    case.start(&container).await.expect("it starts");
    case.stop(&container, 0).await.expect("it stops");
    case.stop(&container, LONG_SECONDS).await.expect("it has ended");
    case.clean(&sandbox).await;
}

pub(crate) async fn a_removal_kills(case: &Case) {
    let (sandbox, container) = case.running(Life::Stubborn).await;
    case.remove(&container).await.expect("it is removed");
    assert_fails(case.status(&container).await, Code::NotFound, "not found");
    assert!(case.containers_of(&sandbox).await.is_empty());
    case.remove(&container).await.expect("it is gone");
    case.clean(&sandbox).await;
}
