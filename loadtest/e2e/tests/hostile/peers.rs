//! Well-formed messages that lie about the sender, its position, and what it received.

use std::net::SocketAddr;
use std::time::Duration;

use headwater_proto::replication as wire;
use headwater_proto::replication::replication_client::ReplicationClient;
use tokio::time::timeout;
use wire::edge_message::Message;
use wire::hub_message::Message as HubSays;

use crate::bench::Bench;

/// How long a hub may take to answer or to close.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// The outcome of a conversation: the last message.
#[derive(Debug)]
enum End {
    Refused(String),
    Status(tonic::Status),
    Closed,
    /// The hub sent a welcome and then nothing in time.
    Welcomed,
}

#[tokio::test]
async fn a_peer_that_lies_is_refused_with_the_reason_and_the_others_continue() {
    let bench = Bench::new();
    let hub = hub(&bench).await;
    let wrong = |hello| vec![Message::Hello(hello)];
    let cases: Vec<(&str, Vec<Message>, &str)> = vec![
        ("another protocol", wrong(wire::Hello { protocol: 9, ..hello("node-2", 1) }), "protocol"),
        ("no identity", wrong(wire::Hello { identity: None, ..hello("node-2", 1) }), "identity"),
        ("no node name", wrong(hello("No Such_Node", 1)), "node"),
        ("no hello at all", vec![Message::Ack(wire::Ack::default())], "hello"),
        ("a boot beyond counting", wrong(hello("node-2", u64::MAX)), "boot"),
        ("a stream of another node", wrong(at("node/node-1", 1, 16)), "node/node-1"),
        ("no stream", wrong(at("nonsense", 1, 16)), "stream"),
        ("a log id that is short", wrong(at("node/node-2", 1, 3)), "16"),
        (
            "far too many positions",
            wrong(wire::Hello {
                positions: vec![position("node/node-2", 1, 16); 5_000],
                ..hello("node-2", 1)
            }),
            "5000",
        ),
    ];
    for (what, messages, named) in cases {
        let end = exchange(hub, messages).await;
        let text = match &end {
            End::Refused(text) => text.clone(),
            End::Status(status) => status.message().to_owned(),
            End::Closed | End::Welcomed => panic!("{what}: {end:?}"),
        };
        assert!(text.contains(named), "{what}: {text:?} does not name {named:?}");
    }
    bench.goes_on("hellos that lie");
}

#[tokio::test]
async fn a_peer_with_the_name_of_a_node_that_breaks_the_protocol_is_disconnected_and_the_node_reconnects()
 {
    let bench = Bench::new();
    let hub = hub(&bench).await;
    let progress = |applied, durable| wire::StreamProgress {
        stream: "node/node-2".to_owned(),
        applied,
        durable,
    };
    let report = |incarnation, seq| wire::Report {
        id: Some(wire::ReportId { incarnation, boot: 1, seq }),
        body: Some(wire::report::Body::Node(bytes::Bytes::from_static(b"{}"))),
        ..wire::Report::default()
    };
    let request = || {
        let key = "default/configmap/words".to_owned();
        let request =
            wire::Request { id: 7, timeout_ms: u64::MAX, key, ..wire::Request::default() };
        Message::Request(request)
    };
    let reports = |reports, after| {
        Message::Reports(wire::Reports { reports, after, ..wire::Reports::default() })
    };
    let short = |body, keep| wire::Report { body: Some(body), keep, ..report(0, 1) };
    let breaches: Vec<(&str, Vec<Message>)> = vec![
        (
            "bytes acknowledged beyond what was sent",
            vec![Message::Ack(wire::Ack { received_bytes: u64::MAX, progress: Vec::new() })],
        ),
        (
            "events applied beyond what was sent",
            vec![Message::Ack(wire::Ack {
                received_bytes: 0,
                progress: vec![progress(u64::MAX, u64::MAX)],
            })],
        ),
        (
            "durable beyond applied",
            vec![Message::Ack(wire::Ack { received_bytes: 0, progress: vec![progress(0, 1)] })],
        ),
        ("a report of another incarnation", vec![reports(vec![report(u64::MAX, 1)], None)]),
        ("reports that go back", vec![reports(vec![report(0, 2), report(0, 1)], None)]),
        (
            "reports behind others that never came",
            vec![reports(Vec::new(), Some(wire::ReportId { incarnation: 1, boot: 1, seq: 9 }))],
        ),
        (
            "reports behind others that never came, in short",
            vec![Message::Reports(wire::Reports { before: 9, ..wire::Reports::default() })],
        ),
        (
            "a report without an id behind none",
            vec![reports(vec![wire::Report { id: None, ..report(0, 1) }], None)],
        ),
        (
            "a patch of a report that was never sent",
            vec![reports(vec![short(wire::report::Body::Patch(vec![9; 99].into()), 1)], None)],
        ),
        (
            "a frame that unpacks to megabytes",
            vec![reports(vec![short(wire::report::Body::Packed(bomb()), 1)], None)],
        ),
        (
            "what is no frame",
            vec![reports(vec![short(wire::report::Body::Packed(vec![9; 99].into()), 1)], None)],
        ),
        ("two requests of one id", vec![request(), request()]),
        ("a second hello", vec![Message::Hello(hello("node-2", 999))]),
    ];
    for (number, (what, breach)) in breaches.into_iter().enumerate() {
        // Later than the node's own start, so that it is not itself the older one.
        let boot = 1_000 * (number as u64 + 1);
        let mut messages = vec![Message::Hello(hello("node-2", boot))];
        messages.extend(breach);
        let end = exchange(hub, messages).await;
        // Asking twice is no breach: one answer does for both.
        let is_put_out = match &end {
            End::Refused(text) => !text.is_empty(),
            End::Status(status) => status.code() == tonic::Code::InvalidArgument,
            End::Closed | End::Welcomed => false,
        };
        assert!(is_put_out || what.contains("one id"), "{what}: {end:?}");
    }
    bench.goes_on("a stranger with a node's name");
    bench.running.wait_until_in_step();
}

/// Of all addresses the one that speaks the protocol.
async fn hub(bench: &Bench) -> SocketAddr {
    for address in bench.listens() {
        let end = exchange(address, vec![Message::Ack(wire::Ack::default())]).await;
        if matches!(&end, End::Status(status) if status.message().contains("hello")) {
            return address;
        }
    }
    panic!("no hub listens");
}

/// Says all of it, and listens until the end.
async fn exchange(hub: SocketAddr, messages: Vec<Message>) -> End {
    // A client that sends requests closes its side: the hub must not wait for more.
    let is_all = messages.iter().any(|message| matches!(message, Message::Request(_)));
    let client = ReplicationClient::connect(format!("http://{hub}")).await;
    let mut client = match client {
        Ok(client) => client,
        Err(error) => return End::Status(tonic::Status::unavailable(error.to_string())),
    };
    let messages = messages.into_iter().map(|message| wire::EdgeMessage { message: Some(message) });
    let (sender, outgoing) = tokio::sync::mpsc::channel(64);
    for message in messages {
        sender.send(message).await.expect("there is room");
    }
    let stream = tokio_stream::wrappers::ReceiverStream::new(outgoing);
    let mut responses = match timeout(ANSWER_WITHIN, client.session(stream)).await {
        Ok(Ok(response)) => response.into_inner(),
        Ok(Err(status)) => return End::Status(status),
        Err(_) => return End::Closed,
    };
    let mut end = End::Closed;
    if is_all {
        drop(sender);
    }
    loop {
        match timeout(ANSWER_WITHIN, responses.message()).await {
            Ok(Ok(Some(message))) => match message.message {
                Some(HubSays::Refusal(refusal)) => end = End::Refused(refusal.message),
                Some(HubSays::Welcome(_)) => end = End::Welcomed,
                _ => {}
            },
            Ok(Ok(None)) | Err(_) => return end,
            Ok(Err(status)) => {
                return if matches!(end, End::Refused(_)) { end } else { End::Status(status) };
            }
        }
    }
}

fn hello(node: &str, boot: u64) -> wire::Hello {
    let identity = wire::Identity { node: node.to_owned(), incarnation: 1, boot, nonce: 1 };
    let positions = Vec::new();
    wire::Hello {
        protocol: 1,
        identity: Some(identity),
        positions,
        window_bytes: u64::MAX,
        log_id: None,
        connection: 1,
        takes_dials: false,
        confirms_dials: false,
    }
}

/// A zstd frame of 16 MiB, as reports have them: without its magic number.
fn bomb() -> bytes::Bytes {
    let frame = zstd::bulk::compress(&vec![0; 16 << 20], 1).expect("it packs");
    bytes::Bytes::from(frame).slice(4..)
}

fn at(stream: &str, seq: u64, uuid_bytes: usize) -> wire::Hello {
    wire::Hello { positions: vec![position(stream, seq, uuid_bytes)], ..hello("node-2", 1) }
}

fn position(stream: &str, seq: u64, uuid_bytes: usize) -> wire::StreamPosition {
    let log_id = Some(wire::LogId { number: 1, uuid: vec![0; uuid_bytes].into() });
    let checkpoint = Some(wire::Checkpoint { log_id, epoch: 1, seq });
    wire::StreamPosition { stream: stream.to_owned(), checkpoint, hash: vec![0; 32].into() }
}
