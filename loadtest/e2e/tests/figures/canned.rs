//! A hub that says what was prepared, as fast as the edge takes it.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use headwater_event::{
    Applied, Assignment, Change, Checkpoint, EntryKey, HashKey, LogId, NodeName, ObjectHash, Seq,
    StateHash, StreamId, WriterEpoch,
};
use headwater_proto::replication as wire;
use headwater_proto::replication::replication_server::{Replication, ReplicationServer};
use headwater_session::message::{
    EdgeMessage, HubMessage, PROTOCOL, Push, PushMode, PushedChange, Welcome,
};
use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc, watch};
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{Request, Response, Status, Streaming};
use uuid::Uuid;

/// Messages on their way to the socket.
const OUTBOUND_MAX: usize = 4;

/// Different objects: more than one commit gathers, so that none is written over in its batch.
const OBJECTS: u64 = 4_096;

/// What a hub has to say of a node's stream.
pub(crate) struct Course {
    node: NodeName,
    first: Push,
    pushes: Vec<Push>,
    /// Where it ends.
    pub(crate) end: Seq,
}

/// How far an edge has acknowledged a course.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Acked {
    pub(crate) applied: u64,
    pub(crate) durable: u64,
    received_bytes: u64,
}

/// The hub, for one session of one edge.
#[derive(Clone)]
pub(crate) struct Canned {
    course: Arc<Course>,
    go: Arc<Notify>,
    acked: watch::Sender<Acked>,
}

impl Course {
    /// `events` events with objects of `object_bytes`, `per_push` in each push.
    pub(crate) fn new(node: &NodeName, events: u64, object_bytes: usize, per_push: u64) -> Self {
        let stream = StreamId::node(node);
        let log_id = LogId { number: 1, uuid: Uuid::from_u128(7) };
        let hash_key = HashKey::new(&log_id);
        let mut hash = StateHash::EMPTY;
        let mut held: Vec<Option<ObjectHash>> = vec![None; OBJECTS as usize];
        let at = |seq| Checkpoint { log_id, epoch: WriterEpoch(1), seq: Seq(seq) };

        let assignment = Assignment::new(node, []).encode();
        hash.add(&hash_key, &EntryKey::Streams, &ObjectHash::of(&assignment));
        let streams = Applied {
            key: EntryKey::Streams,
            uid: String::new(),
            resource_version: "1".to_owned(),
            object: assignment,
        };
        let push = |mode, from, to, changes: Vec<Applied>, hash| Push {
            stream: stream.clone(),
            mode,
            from: Seq(from),
            to: at(to),
            changes: changes
                .into_iter()
                .map(|applied| PushedChange {
                    change: Change::Applied(applied),
                    traceparent: None,
                    appended_ms: None,
                })
                .collect(),
            hash,
            part: 0,
            last_part: true,
        };
        let first = push(PushMode::Snapshot, 0, 1, vec![streams], hash);
        let (mut pushes, mut seq) = (Vec::new(), 1);
        while seq < 1 + events {
            let from = seq;
            let mut changes = Vec::new();
            while seq < 1 + events && seq - from < per_push {
                seq += 1;
                let applied = pod(seq, object_bytes);
                let object_hash = ObjectHash::of(&applied.object);
                let before = &mut held[(seq % OBJECTS) as usize];
                if let Some(before) = before.replace(object_hash) {
                    hash.subtract(&hash_key, &applied.key, &before);
                }
                hash.add(&hash_key, &applied.key, &object_hash);
                changes.push(applied);
            }
            pushes.push(push(PushMode::Tail, from, seq, changes, hash));
        }
        Self { node: node.clone(), first, pushes, end: Seq(seq) }
    }
}

/// The pod that event `seq` is about: half template, half what differs from event to event.
fn pod(seq: u64, bytes: usize) -> Applied {
    let name = format!("web-{:05}", seq % OBJECTS);
    let uid = Uuid::from_u128(u128::from(seq % OBJECTS)).to_string();
    let mut object = format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"{name}","namespace":"shop","uid":"{uid}","resourceVersion":"{seq}"}},"spec":{{"containers":[{{"name":"web","image":"registry.example/shop/web:1.27","ports":[{{"containerPort":8080}}],"resources":{{"limits":{{"memory":"64Mi"}}}}}}]}},"status":""#,
    );
    let mut state = seq;
    while object.len() < bytes / 2 {
        object.push_str("x-template ");
    }
    while object.len() < bytes - 2 {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        object.push(char::from(b'a' + (state >> 59) as u8 % 26));
    }
    object.push_str("\"}");
    Applied {
        key: format!("shop/pod/{name}").parse().expect("a key"),
        uid,
        resource_version: seq.to_string(),
        object: Bytes::from(object),
    }
}

impl Canned {
    /// Serves `course` on a free port.
    pub(crate) async fn start(course: Arc<Course>) -> (Self, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let acked = watch::channel(Acked::default()).0;
        let hub = Self { course, go: Arc::default(), acked };
        let service = ReplicationServer::new(hub.clone()).max_encoding_message_size(8 << 20);
        tokio::spawn(
            tonic::transport::Server::builder()
                .add_service(service)
                .serve_with_incoming(TcpListenerStream::new(listener)),
        );
        (hub, address)
    }

    /// Says all there is.
    pub(crate) fn go(&self) {
        self.go.notify_one();
    }

    /// Waits for an acknowledgement.
    pub(crate) async fn until(&self, is_so: impl FnMut(&Acked) -> bool) {
        self.acked.subscribe().wait_for(is_so).await.expect("the hub is there");
    }

    async fn speak(self, window_bytes: u64, outbound: Outbound) {
        let Course { node, first, pushes, .. } = &*self.course;
        let welcome = Welcome {
            protocol: PROTOCOL,
            log_id: first.to.log_id,
            streams: vec![StreamId::node(node)],
            known: None,
        };
        let send = async |message: HubMessage| outbound.send(Ok(message.into())).await.is_ok();
        if !send(HubMessage::Welcome(welcome)).await {
            return;
        }
        let mut sent = first.bytes();
        if !send(HubMessage::Push(first.clone())).await {
            return;
        }
        self.go.notified().await;
        let mut acked = self.acked.subscribe();
        for push in pushes {
            sent += push.bytes();
            let has_room = |acked: &Acked| sent <= acked.received_bytes + window_bytes;
            if acked.wait_for(has_room).await.is_err()
                || !send(HubMessage::Push(push.clone())).await
            {
                return;
            }
        }
        std::future::pending::<()>().await;
    }
}

type Outbound = mpsc::Sender<Result<wire::HubMessage, Status>>;

#[tonic::async_trait]
impl Replication for Canned {
    type SessionStream = ReceiverStream<Result<wire::HubMessage, Status>>;

    async fn session(
        &self,
        request: Request<Streaming<wire::EdgeMessage>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let (outbound, messages) = mpsc::channel(OUTBOUND_MAX);
        let mut inbound = request.into_inner();
        let hub = self.clone();
        tokio::spawn(async move {
            while let Ok(Some(message)) = inbound.message().await {
                match EdgeMessage::try_from(message).expect("a message of the protocol") {
                    EdgeMessage::Hello(hello) => {
                        tokio::spawn(hub.clone().speak(hello.window_bytes, outbound.clone()));
                    }
                    EdgeMessage::Ack(ack) => {
                        hub.acked.send_modify(|acked| {
                            acked.received_bytes = ack.received_bytes;
                            for at in ack.progress {
                                acked.applied = acked.applied.max(at.applied.0);
                                acked.durable = acked.durable.max(at.durable.0);
                            }
                        });
                    }
                    EdgeMessage::Diverged(diverged) => panic!("{diverged:?}"),
                    _ => {}
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(messages)))
    }
}
