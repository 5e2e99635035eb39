//! A runtime that answers too much, garbage, or not at all.

use std::time::Duration;

use headwater_cri::client::{CallError, CriClient};
use headwater_cri::proto::{
    ExecSyncRequest, ListContainersRequest, ListImagesRequest, PullImageRequest,
    RunPodSandboxRequest, StopContainerRequest,
};
use headwater_cri_lab::Twin;
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixListener;

/// The largest answer that is read.
const ANSWER_BYTES_MAX: usize = 16 << 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_is_too_large_is_an_error_and_the_next_call_is_answered() {
    let dir = tempfile::tempdir().expect("a folder");
    let twin = Twin::start(&dir.path().join("cri.sock")).expect("a twin");
    let client = CriClient::new(twin.socket());
    let list = || client.list_images(ListImagesRequest::default());
    twin.add_image(&"x".repeat(ANSWER_BYTES_MAX / 2));
    assert_eq!(list().await.expect("half of it is read").images.len(), 1);
    twin.add_image(&"y".repeat(ANSWER_BYTES_MAX / 2));
    let error = list().await.expect_err("it is too large");
    assert!(matches!(error, CallError::Failed { .. }), "{error:?}");
    client.list_containers(ListContainersRequest::default()).await.expect("an answer");
}

#[tokio::test]
async fn an_answer_that_is_no_answer_is_that_of_a_runtime_that_is_away() {
    let dir = tempfile::tempdir().expect("a folder");
    let socket = dir.path().join("cri.sock");
    let listener = UnixListener::bind(&socket).expect("a socket");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            // The client may have gone away.
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        }
    });
    let client = CriClient::new(&socket);
    let error = client.list_containers(ListContainersRequest::default()).await;
    let error = error.expect_err("garbage");
    assert!(error.is_away(), "{error:?}");
}

/// The clock goes on by itself while nothing else happens.
#[tokio::test(start_paused = true)]
async fn a_call_without_an_answer_ends_in_its_time() {
    let dir = tempfile::tempdir().expect("a folder");
    let socket = dir.path().join("cri.sock");
    // It takes connections and reads nothing.
    let _listener = UnixListener::bind(&socket).expect("a socket");
    let client = CriClient::new(&socket);
    let command = ExecSyncRequest { timeout: 5, ..ExecSyncRequest::default() };
    let stop = StopContainerRequest { timeout: 30, ..StopContainerRequest::default() };
    let errors = [
        (20, client.list_containers(ListContainersRequest::default()).await.map(drop)),
        (25, client.exec_sync(command).await.map(drop)),
        (120, client.run_pod_sandbox(RunPodSandboxRequest::default()).await.map(drop)),
        (150, client.stop_container(stop).await.map(drop)),
        (7200, client.pull_image(PullImageRequest::default()).await.map(drop)),
    ];
    for (seconds, result) in errors {
        let Err(CallError::TimedOut { within, .. }) = result else {
            panic!("it ends after {seconds} s: {result:?}")
        };
        assert_eq!(within, Duration::from_secs(seconds));
    }
}
