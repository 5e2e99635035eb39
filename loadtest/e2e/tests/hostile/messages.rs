//! Well-formed messages that mean no good, at a node's local API and at the operator's socket:
//! absurd numbers and texts, values that no enum has, thousands of watches, endless questions,
//! clients that never read.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use headwater_e2e::chance::Chance;
use headwater_proto::local::meta_client::MetaClient;
use headwater_proto::local::operation_result::Outcome;
use headwater_proto::local::{Operation, StatusRequest, WatchRequest};
use headwater_proto::operator as asked;
use headwater_proto::operator::operator_client::OperatorClient;
use tokio::task::JoinSet;
use tokio_stream::StreamExt;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status, Streaming};

use crate::bench::Bench;

/// The variable that names a seed again.
const SEED: &str = "HEADWATER_HOSTILE_SEED";

/// Rounds of one of each question.
const ROUNDS: u64 = 60;

/// How long an answer may take while everything else is asked too.
const ANSWERED_WITHIN: Duration = Duration::from_secs(90);

/// How long a stream is listened to: it may have nothing to say.
const LISTENED: Duration = Duration::from_millis(20);

/// Watches that are asked for, over so many connections.
const WATCHES: usize = 2_000;
const CONNECTIONS: usize = 20;

/// The most watches of one API, as both have it.
const WATCHES_MAX: usize = 64;

/// Questions that are asked without waiting for an answer.
const QUESTIONS: usize = 4_000;

#[test]
fn any_message_is_answered_or_refused_in_words() {
    let bench = Bench::new();
    let mut chance = Chance::from_env(SEED);
    runtime().block_on(async {
        let [edge, operator] = bench.sockets();
        let mut edge = MetaClient::new(connected(&edge).await);
        let mut operator = OperatorClient::new(connected(&operator).await);
        for _ in 0..ROUNDS {
            of_the_node(&mut edge, &mut chance).await;
            of_the_operator(&mut operator, &mut chance).await;
        }
        // Whatever link was cut by chance.
        for node in ["node-1", "node-2"] {
            let whole = asked::SetLinkRequest { node: node.to_owned(), cut: false };
            operator.set_link(whole).await.expect("restored");
        }
    });
    bench.goes_on("messages that mean no good");
    bench.running.wait_until_in_step();
}

#[test]
fn thousands_of_unread_watches_leave_room_for_others() {
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

async fn of_the_node(edge: &mut MetaClient<Channel>, chance: &mut Chance) {
    let operation = Operation {
        id: text(chance),
        parent_id: text(chance),
        source: one(chance, &["edged", "function", "mesh", "metamanager", ""]),
        verb: verb(chance),
        resource: text(chance),
        content: Bytes::from(text(chance)),
    };
    let shown = short(&operation);
    // What only the cloud can answer is waited for as long as it takes; that is tested elsewhere.
    match tokio::time::timeout(ANSWERED_WITHIN, edge.operate(operation)).await {
        Ok(Ok(result)) => match result.into_inner().outcome {
            Some(Outcome::Failure(failure)) => {
                assert!(!failure.message.is_empty(), "{shown}: refused without a word");
            }
            Some(_) => {}
            None => panic!("{shown}: an answer without content"),
        },
        Ok(Err(status)) => assert_in_words(&status, &shown),
        Err(_) => panic!("{shown}: no answer"),
    }
    let types = (0..*chance.one_of(&[0, 0, 1, 3, 5_000])).map(|_| text_below(chance, 20)).collect();
    let subscriber = one(chance, &["edged", "mesh", "function"]);
    let watch = WatchRequest { subscriber, types, namespace: text(chance) };
    let shown = short(&watch);
    listen(in_time(edge.watch(watch)).await, &shown).await;
    let status = in_time(edge.status(StatusRequest {})).await.expect("a status").into_inner();
    assert_eq!(status.node, "node-1", "after {shown}");
}

async fn of_the_operator(operator: &mut OperatorClient<Channel>, chance: &mut Chance) {
    let get = asked::GetRequest {
        r#type: text(chance),
        name: text(chance),
        namespace: text(chance),
        node: text(chance),
        at: text(chance),
        show_secrets: chance.below(2) == 0,
    };
    listen(in_time(operator.get(get.clone())).await, &short(&get)).await;
    listen(in_time(operator.watch(get.clone())).await, &short(&get)).await;
    let state = asked::StateRequest {
        stream: text(chance),
        seq: number(chance),
        show_secrets: false,
        at: text(chance),
    };
    answered(in_time(operator.state(state.clone())).await, &short(&state));
    let history = asked::HistoryRequest {
        stream: text(chance),
        from: number(chance),
        to: number(chance),
        follow: chance.below(2) == 0,
        show_secrets: true,
        tail: number(chance),
    };
    listen(in_time(operator.history(history.clone())).await, &short(&history)).await;
    let verify = asked::VerifyRequest { node: text(chance) };
    answered(in_time(operator.verify(verify.clone())).await, &short(&verify));
    let link = asked::SetLinkRequest { node: text(chance), cut: chance.below(2) == 0 };
    answered(in_time(operator.set_link(link.clone())).await, &short(&link));
    let signed = |chance: &mut Chance| i64::from_le_bytes(number(chance).to_le_bytes());
    let logs = asked::LogsRequest {
        pod: text(chance),
        namespace: text(chance),
        container: text(chance),
        follow: chance.below(2) == 0,
        previous: chance.below(2) == 0,
        all_containers: chance.below(2) == 0,
        tail: (chance.below(2) == 0).then(|| number(chance)),
        since_ms: signed(chance),
        timestamps: true,
        prefix: true,
    };
    listen(in_time(operator.logs(logs.clone())).await, &short(&logs)).await;
    let story = asked::StoryRequest {
        r#type: text(chance),
        namespace: text(chance),
        name: text(chance),
        events_max: u32::try_from(number(chance)).unwrap_or(u32::MAX),
        node: text(chance),
    };
    answered(in_time(operator.story(story.clone())).await, &short(&story));
    answered(in_time(operator.status(asked::StatusRequest {})).await, "status");
}

fn answered<T>(answer: Result<tonic::Response<T>, Status>, shown: &str) {
    if let Err(status) = answer {
        assert_in_words(&status, shown);
    }
}

/// Receives the beginning of a stream.
async fn listen<T>(answer: Result<tonic::Response<Streaming<T>>, Status>, shown: &str) {
    let mut stream = match answer {
        Ok(stream) => stream.into_inner(),
        Err(status) => return assert_in_words(&status, shown),
    };
    for _ in 0..3 {
        match tokio::time::timeout(LISTENED, stream.next()).await {
            Ok(Some(Err(status))) => return assert_in_words(&status, shown),
            Ok(Some(Ok(_))) => {}
            Ok(None) | Err(_) => return,
        }
    }
}

/// An error has a message, and the message shows no internals.
fn assert_in_words(status: &Status, shown: &str) {
    let is_explained = !status.message().is_empty()
        && !matches!(status.code(), Code::Unknown | Code::Internal | Code::Cancelled);
    assert!(is_explained, "{shown}: {status:?}");
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

fn verb(chance: &mut Chance) -> i32 {
    match chance.below(4) {
        0 => *chance.one_of(&[i32::MIN, -1, 14, 255, i32::MAX]),
        _ => i32::try_from(chance.below(14)).unwrap_or_default(),
    }
}

fn number(chance: &mut Chance) -> u64 {
    match chance.below(2) {
        0 => chance.below(20),
        _ => *chance.one_of(&[
            u64::MAX,
            u64::MAX - 1,
            i64::MAX as u64,
            i64::MAX as u64 + 1,
            u64::from(u32::MAX) + 1,
        ]),
    }
}

fn one(chance: &mut Chance, usual: &[&str]) -> String {
    match chance.below(4) {
        0 => text(chance),
        _ => (*chance.one_of(usual)).to_owned(),
    }
}

fn text(chance: &mut Chance) -> String {
    text_below(chance, 50_000)
}

fn text_below(chance: &mut Chance, characters: u64) -> String {
    const USUAL: [&str; 32] = [
        "",
        "",
        "pod",
        "configmap",
        "node",
        "default",
        "good",
        "words",
        "c",
        "node-1",
        "node-2",
        "node/node-1",
        "cluster",
        "default/pod/good",
        "default/podstatus/good",
        "default/pod",
        "null/pod",
        "*/pod",
        "null/node/node-1",
        "default/secret/absent",
        "{\"uid\":\"u\",\"status\":{}}",
        "{\"connected\":true}",
        "18446744073709551615",
        "1",
        "9999-12-30T22:00:00Z",
        "-009999-01-02T01:59:59Z",
        "../../..",
        "/",
        "\0",
        "%s%n",
        "\u{202e}💥",
        "{",
    ];
    match chance.below(16) {
        0 => {
            let letter = *chance.one_of(&["x", "/", "\0", "💥", "[", "-"]);
            letter.repeat(
                usize::try_from(chance.below(characters)).unwrap_or_default() / letter.len(),
            )
        }
        1 => (0..chance.below(12))
            .filter_map(|_| char::from_u32(u32::try_from(chance.below(0x11_0000)).unwrap_or(0)))
            .collect(),
        _ => (*chance.one_of(&USUAL)).to_owned(),
    }
}

fn short(message: &impl std::fmt::Debug) -> String {
    format!("{message:?}").chars().take(400).collect()
}
