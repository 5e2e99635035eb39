//! Sessions of a hub: the memory of an idle one, and the allocations of a push that all sessions send.
//!
//! The sessions have no sockets: what HTTP/2 and TLS take comes on top of it.

use std::future::ready;

use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt};
use headwater_event::{Applied, Boot, Identity, Incarnation, NodeName, StreamId};
use headwater_hub::HubHandle;
use headwater_proto::replication::HubMessage;
use headwater_proto::replication::hub_message::Message;
use headwater_session::message::{DialSupport, EdgeMessage, Hello, PROTOCOL};
use headwater_session::settings::WINDOW_BYTES;
use tonic::Status;

use crate::cloud::Cloud;
use crate::edge::{rest, runtime};
use crate::figure::{Figure, witness};

const EDGES: usize = 100;
const CHANGES: u64 = 20;

/// So many sessions and fewer have each change of a shared stream at once.
const MANY: usize = 49;
const FEW: usize = 10;

/// Rounds of rest until every session has its streams: far more than it takes.
const ROUNDS_MAX: usize = 10_000;

/// The task of the session, its streams, its position, and its rows in the tables of the hub.
const IDLE: Figure = Figure { what: "bytes of an idle session", is: 9_630.0, within: 0.05 };
/// The step of the session, and the bytes that it shares with the others.
const SHARED: Figure =
    Figure { what: "allocations of a session that sends a shared push", is: 6.15, within: 0.05 };

type FromHub = BoxStream<'static, Result<HubMessage, Status>>;

/// A session of an edge that holds nothing, and says nothing after its hello.
fn connect(hub: &HubHandle, node: &NodeName) -> FromHub {
    let identity = Identity {
        node: node.clone(),
        incarnation: Incarnation(1),
        boot: Boot { number: 1, nonce: 1 },
    };
    let hello = EdgeMessage::Hello(Hello {
        protocol: PROTOCOL,
        identity,
        positions: Vec::new(),
        window_bytes: WINDOW_BYTES,
        connection: 1,
        dials: DialSupport::None,
    });
    hub.open_session(stream::once(ready(Ok(hello.into()))).chain(stream::pending()).boxed())
}

/// Takes the messages that are there; returns the shared stream's pushes among them.
fn pushes(from_hub: &mut FromHub) -> usize {
    let mut count = 0;
    while let Some(message) = from_hub.next().now_or_never() {
        let message = message.expect("the session goes on").expect("the session goes on").message;
        let of_cluster = |push: &str| push == StreamId::Cluster.to_string();
        count +=
            usize::from(matches!(message, Some(Message::Push(push)) if of_cluster(&push.stream)));
    }
    count
}

/// Receives until the sessions have sent so many pushes of the shared stream. Only some begin a
/// transfer at a time.
async fn receive_all(sessions: &mut [FromHub], mut count: usize) {
    for _ in 0..ROUNDS_MAX {
        rest().await;
        count -= sessions.iter_mut().map(pushes).sum::<usize>();
        if count == 0 {
            return;
        }
    }
    panic!("{count} pushes are missing");
}

fn service(turn: u64) -> Applied {
    let filler = "x".repeat(2_000);
    Applied {
        key: "shop/service/web".parse().expect("a key"),
        uid: "u".to_owned(),
        resource_version: turn.to_string(),
        object: Bytes::from(format!(
            r#"{{"metadata":{{"name":"web","annotations":{{"turn":"{turn}","filler":"{filler}"}}}}}}"#
        )),
    }
}

fn nodes() -> Vec<NodeName> {
    (0..EDGES).map(|n| format!("gw-{n:03}").parse().expect("a name")).collect()
}

#[test]
fn an_idle_session_takes_so_much_memory() {
    let runtime = runtime();
    let (cloud, nodes) = (runtime.block_on(Cloud::of_fleet(&nodes(), service(0))), nodes());
    let mut sessions = Vec::with_capacity(EDGES);
    let taken = allocation_counter::measure(|| {
        runtime.block_on(async {
            sessions.extend(nodes.iter().map(|node| connect(&cloud.hub, node)));
            receive_all(&mut sessions, EDGES).await;
        });
    });
    witness([(IDLE, taken.bytes_current as f64 / EDGES as f64)]);
}

#[test]
fn a_push_that_all_sessions_send_is_made_once() {
    let runtime = runtime();
    // Of a few sessions and of many: what is left of the difference is each session's own.
    let allocated = [FEW, MANY].map(|count| {
        let nodes = &nodes()[..count];
        let mut cloud = runtime.block_on(Cloud::of_fleet(nodes, service(0)));
        let mut sessions = runtime.block_on(async {
            let mut sessions: Vec<_> = nodes.iter().map(|node| connect(&cloud.hub, node)).collect();
            receive_all(&mut sessions, count).await;
            sessions
        });
        let taken = allocation_counter::measure(|| {
            runtime.block_on(async {
                for turn in 1..=CHANGES {
                    cloud.append_shared(service(turn)).await;
                    rest().await;
                }
            });
        });
        for session in &mut sessions {
            assert_eq!(pushes(session) as u64, CHANGES);
        }
        taken.count_total
    });
    let sent = CHANGES * (MANY - FEW) as u64;
    witness([(SHARED, (allocated[1] - allocated[0]) as f64 / sent as f64)]);
}
