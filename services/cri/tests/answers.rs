//! A runtime that answers too much, garbage, messages of another type, or not at all.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::io;
use std::time::Duration;

use headwater_cri::client::{CallError, CriClient};
use headwater_cri::proto::{
    ExecSyncRequest, ListContainersRequest, ListImagesRequest, PullImageRequest,
    RunPodSandboxRequest, StopContainerRequest, VersionRequest,
};
use headwater_cri_lab::Twin;
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixListener;
use tonic::body::Body;
use tonic::codegen::tokio_stream::{self, StreamExt as _};
use tonic::codegen::{BoxFuture, Context, Poll, Service, http};
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::transport::Server;
use tonic::{Code, Request, Response, Status};
use tonic_prost::ProstCodec;

/// The largest answer that is read.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// A runtime whose answer to every call is a message of another type.
#[derive(Clone)]
struct OtherRuntime;

/// The message: its first field has bytes that are neither a text nor a message.
struct OtherAnswer;

impl NamedService for OtherRuntime {
    const NAME: &'static str = "runtime.v1.RuntimeService";
}

impl Service<http::Request<Body>> for OtherRuntime {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async move {
            let mut grpc = Grpc::new(ProstCodec::<Vec<u8>, ()>::default());
            Ok(grpc.unary(OtherAnswer, request).await)
        })
    }
}

impl UnaryService<()> for OtherAnswer {
    type Response = Vec<u8>;
    type Future = Ready<Result<Response<Vec<u8>>, Status>>;

    fn call(&mut self, _: Request<()>) -> Self::Future {
        ready(Ok(Response::new(vec![0xff; 4])))
    }
}

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

#[tokio::test]
async fn an_answer_of_another_type_fails_its_call_and_the_connection_stays() {
    let dir = tempfile::tempdir().expect("a folder");
    let socket = dir.path().join("cri.sock");
    let listener = UnixListener::bind(&socket).expect("a socket");
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.expect("a connection");
        // There is no other one: the second call is answered on the connection of the first.
        let only = tokio_stream::once(Ok::<_, io::Error>(stream)).chain(tokio_stream::pending());
        // It ends with the test.
        let _ = Server::builder().add_service(OtherRuntime).serve_with_incoming(only).await;
    });
    let client = CriClient::new(&socket);
    let version = client.version(VersionRequest::default()).await.map(drop);
    let containers = client.list_containers(ListContainersRequest::default()).await.map(drop);
    for answer in [version, containers] {
        let error = answer.expect_err("a message of another type");
        assert!(matches!(error, CallError::Failed { code: Code::Internal, .. }), "{error:?}");
    }
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
