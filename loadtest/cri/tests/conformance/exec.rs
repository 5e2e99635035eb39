//! Commands in containers.

use headwater_cri_lab::Life;
use tonic::{Code, Status};

use crate::bench::{Case, assert_fails};

async fn exec(case: &Case, id: &str, life: Life, seconds: i64) -> Result<i32, Status> {
    case.exec(id, life.command(), seconds).await
}

pub(crate) async fn an_exec_has_the_exit_code(case: &Case) {
    let (sandbox, container) = case.running(Life::Forever).await;
    for code in [0, 4] {
        let life = Life::Exit { code, tenths: 0 };
        assert_eq!(exec(case, &container, life, 30).await.expect("it runs"), code);
    }
    case.clean(&sandbox).await;
}

pub(crate) async fn an_exec_ends_at_its_timeout(case: &Case) {
    let (sandbox, container) = case.running(Life::Forever).await;
    let late = exec(case, &container, Life::Stubborn, 1).await;
    assert_fails(late, Code::DeadlineExceeded, "timeout 1s exceeded");
    case.clean(&sandbox).await;
}

pub(crate) async fn an_exec_of_a_missing_program_fails(case: &Case) {
    let (sandbox, container) = case.running(Life::Forever).await;
    let missing = exec(case, &container, Life::Missing, 30).await;
    assert_fails(missing, Code::Unknown, "no such file or directory");
    case.clean(&sandbox).await;
}

pub(crate) async fn an_exec_needs_a_running_container(case: &Case) {
    let (sandbox, container) = case.running(Life::Forever).await;
    case.stop(&container, 0).await.expect("it stops");
    let life = Life::Exit { code: 0, tenths: 0 };
    let words = "container is in CONTAINER_EXITED state";
    assert_fails(exec(case, &container, life, 30).await, Code::Unknown, words);
    case.clean(&sandbox).await;
}
