//! Well-formed messages that mean no good, at a node's local API and at the operator's socket:
//! thousands of watches, endless questions, clients that never read.

use std::path::Path;
use std::time::Duration;

use headwater_proto::local::meta_client::MetaClient;
use headwater_proto::local::{Operation, WatchRequest};
use headwater_proto::operator as asked;
use headwater_proto::operator::operator_client::OperatorClient;
use tokio::task::JoinSet;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status, Streaming};

use crate::bench::Bench;

/// How long an answer may take while everything else is asked too.
const ANSWERED_WITHIN: Duration = Duration::from_secs(90);

/// Watches that are asked for, over so many connections.
const WATCHES: usize = 2_000;
const CONNECTIONS: usize = 20;

/// The most watches of one API, as both have it.
const WATCHES_MAX: usize = 64;

/// Questions that are asked without waiting for an answer.
const QUESTIONS: usize = 4_000;

#[test]
fn thousands_of_watches_that_nobody_reads_leave_room_for_others() {
    let bench = Bench::new();
    runtime().block_on(async {
        let [edge, operator] = bench.sockets();
        let (mut of_edge, mut of_operator) = (JoinSet::new(), JoinSet::new());
        for number in 0..WATCHES {
            if number % (WATCHES / CONNECTIONS) == 0 {
                let edge = MetaClient::new(connected(&edge).await);
                let operator = OperatorClient::new(connected(&operator).await);
                for _ in 0..WATCHES / CONNECTIONS {
                    let mut edge = edge.clone();
                    of_edge.spawn(async move { edge.watch(all("edged")).await });
                    let mut operator = operator.clone();
                    let every = asked::GetRequest::default();
                    of_operator.spawn(async move { operator.watch(every).await });
                }
            }
        }
        let (of_edge, of_operator) = (opened(of_edge).await, opened(of_operator).await);
        // The pod worker of the node has one.
        assert!((1..WATCHES_MAX).contains(&of_edge.len()), "{} watches", of_edge.len());
        assert_eq!(of_operator.len(), WATCHES_MAX);
        bench.goes_on("thousands of watches that nobody reads");
        drop((of_edge, of_operator));
        let mut operator = OperatorClient::new(connected(&operator).await);
        let mut edge = MetaClient::new(connected(&edge).await);
        in_time(async {
            while edge.watch(all("edged")).await.is_err() {}
            while operator.watch(asked::GetRequest::default()).await.is_err() {}
        })
        .await;
    });
    bench.goes_on("watches that ended");
}

#[test]
fn endless_questions_leave_room_for_others() {
    let bench = Bench::new();
    runtime().block_on(async {
        let [edge, operator] = bench.sockets();
        let edge = MetaClient::new(connected(&edge).await);
        let operator = OperatorClient::new(connected(&operator).await);
        let (mut of_edge, mut of_operator) = (JoinSet::new(), JoinSet::new());
        for number in 0..QUESTIONS {
            let mut edge = edge.clone();
            let operation = Operation {
                id: number.to_string(),
                source: "metamanager".to_owned(),
                verb: 4,
                resource: "default/pod".to_owned(),
                ..Operation::default()
            };
            of_edge.spawn(async move { edge.operate(operation).await.map(drop) });
            if number % 8 == 0 {
                let mut operator = operator.clone();
                let state = asked::StateRequest {
                    stream: "node/node-1".to_owned(),
                    ..asked::StateRequest::default()
                };
                of_operator.spawn(async move { operator.state(state).await.map(drop) });
            }
        }
        // Before they are answered.
        bench.goes_on("endless questions");
        for mut all in [of_edge, of_operator] {
            while let Some(answer) = in_time(all.join_next()).await {
                if let Err(status) = answer.expect("no panic") {
                    assert_in_words(&status, "one of many questions");
                }
            }
        }
    });
    bench.goes_on("questions that were answered");
}

/// Those that were opened; the others were refused in words.
async fn opened<T: 'static>(
    mut all: JoinSet<Result<tonic::Response<Streaming<T>>, Status>>,
) -> Vec<Streaming<T>> {
    let mut open = Vec::new();
    while let Some(watch) = in_time(all.join_next()).await {
        match watch.expect("no panic") {
            Ok(watch) => open.push(watch.into_inner()),
            Err(status) => {
                assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
                assert!(status.message().contains("end one first"), "{status}");
            }
        }
    }
    open
}

/// Nobody is to read of what goes on inside, or of nothing.
fn assert_in_words(status: &Status, shown: &str) {
    let is_said = !status.message().is_empty()
        && !matches!(status.code(), Code::Unknown | Code::Internal | Code::Cancelled);
    assert!(is_said, "{shown}: {status:?}");
}

async fn in_time<T>(answer: impl Future<Output = T>) -> T {
    tokio::time::timeout(ANSWERED_WITHIN, answer).await.expect("it is answered")
}

fn all(subscriber: &str) -> WatchRequest {
    WatchRequest { subscriber: subscriber.to_owned(), ..WatchRequest::default() }
}

async fn connected(socket: &Path) -> Channel {
    let endpoint = Endpoint::from_shared(format!("unix:{}", socket.display())).expect("a path");
    endpoint.connect().await.expect("it listens")
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime")
}
