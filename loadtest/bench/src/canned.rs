//! A hub that says what was prepared, as fast as the edge takes it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use headwater_event::{
    Applied, Assignment, Change, Checkpoint, EntryKey, HashKey, LogId, NodeName, ObjectHash,
    RemovalRuns, Seq, StateHash, StreamId, WriterEpoch,
};
use headwater_loadtest::failure::{Attempt, Failure};
use headwater_proto::replication as wire;
use headwater_proto::replication::replication_server::{Replication, ReplicationServer};
use headwater_session::message::{EdgeMessage, HubMessage, PROTOCOL, Push, PushMode, Welcome};
use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc, watch};
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{Request, Response, Status, Streaming};
use uuid::Uuid;

use crate::pods::event;

/// Messages on their way to the socket.
const OUTBOUND_MAX: usize = 4;

/// How long an edge may take to acknowledge what is waited for.
const ACKED_WITHIN: Duration = Duration::from_secs(120);

/// What a hub has to say of a node's stream.
pub(crate) struct Course {
    node: NodeName,
    first: Push,
    pushes: Vec<Push>,
    /// The stream's hash after each event.
    hashes: Vec<StateHash>,
    /// Where it ends.
    pub(crate) end: Seq,
}

/// How far an edge has acknowledged a course.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EdgePositions {
    pub(crate) applied: u64,
    pub(crate) durable: u64,
    received_bytes: u64,
}

/// The hub, for one session of one edge.
#[derive(Clone)]
pub(crate) struct CannedHub {
    course: Arc<Course>,
    slowly: Option<Slowly>,
    go: Arc<Notify>,
    acked: watch::Sender<EdgePositions>,
}

impl Course {
    /// `events` events of `objects` objects of `object_bytes` each, `per_push` in each push.
    pub(crate) fn new(
        node: &NodeName,
        events: u64,
        objects: u64,
        object_bytes: usize,
        per_push: u64,
    ) -> Self {
        let stream = StreamId::node(node);
        let log_id = LogId { number: 1, uuid: Uuid::from_u128(7) };
        let hash_key = HashKey::new(&log_id);
        let mut hash = StateHash::EMPTY;
        let mut held: Vec<Option<ObjectHash>> = vec![None; objects as usize];
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
            gone: RemovalRuns::default(),
            changes: changes.into_iter().map(|applied| Change::Applied(applied).into()).collect(),
            hash,
            part: 0,
            last_part: true,
        };
        let first = push(PushMode::Snapshot, 0, 1, vec![streams], hash);
        let mut hashes = vec![hash];
        let (mut pushes, mut seq) = (Vec::new(), 1);
        while seq < 1 + events {
            let from = seq;
            let mut changes = Vec::new();
            while seq < 1 + events && seq - from < per_push {
                seq += 1;
                let applied = event(seq as u32, objects as u32, object_bytes);
                let object_hash = ObjectHash::of(&applied.object);
                let before = &mut held[(seq % objects) as usize];
                if let Some(before) = before.replace(object_hash) {
                    hash.subtract(&hash_key, &applied.key, &before);
                }
                hash.add(&hash_key, &applied.key, &object_hash);
                hashes.push(hash);
                changes.push(applied);
            }
            pushes.push(push(PushMode::Tail, from, seq, changes, hash));
        }
        Self { node: node.clone(), first, pushes, hashes, end: Seq(seq) }
    }
}

impl Course {
    /// The stream's hash at `seq`, if there is such an event.
    pub(crate) fn hash_at(&self, seq: u64) -> Option<&StateHash> {
        self.hashes.get(usize::try_from(seq.checked_sub(1)?).ok()?)
    }
}

/// The pace at which a course is sent.
#[derive(Clone, Copy)]
struct Slowly {
    /// The events up to here as fast as they are taken.
    after: u64,
    /// And then a push in each of these.
    interval: Duration,
}

impl CannedHub {
    /// Serves `course` on a free port, as fast as it is taken.
    pub(crate) async fn start(course: Arc<Course>) -> Result<(Self, SocketAddr), Failure> {
        Self::serve(course, None).await
    }

    /// The same; after `events`, so many pushes a second.
    pub(crate) async fn paced(
        course: Arc<Course>,
        events: u64,
        pushes_per_second: u32,
    ) -> Result<(Self, SocketAddr), Failure> {
        let interval = Duration::from_secs(1) / pushes_per_second;
        Self::serve(course, Some(Slowly { after: events, interval })).await
    }

    async fn serve(
        course: Arc<Course>,
        slowly: Option<Slowly>,
    ) -> Result<(Self, SocketAddr), Failure> {
        let listener = TcpListener::bind("127.0.0.1:0").await.tried("finding a free port")?;
        let address = listener.local_addr().tried("finding a free port")?;
        let acked = watch::channel(EdgePositions::default()).0;
        let hub = Self { course, slowly, go: Arc::default(), acked };
        let service = ReplicationServer::new(hub.clone()).max_encoding_message_size(8 << 20);
        tokio::spawn(
            tonic::transport::Server::builder()
                .add_service(service)
                .serve_with_incoming(TcpListenerStream::new(listener)),
        );
        Ok((hub, address))
    }

    /// Says all there is.
    pub(crate) fn go(&self) {
        self.go.notify_one();
    }

    /// What was acknowledged so far.
    pub(crate) fn acked(&self) -> EdgePositions {
        *self.acked.borrow()
    }

    /// Waits for an acknowledgement.
    pub(crate) async fn until(
        &self,
        is_so: impl FnMut(&EdgePositions) -> bool,
    ) -> Result<(), Failure> {
        let mut acked = self.acked.subscribe();
        let waiting = tokio::time::timeout(ACKED_WITHIN, acked.wait_for(is_so));
        waiting.await.tried("the edge does not acknowledge")?.tried("the hub is gone")?;
        Ok(())
    }

    async fn speak(self, window_bytes: u64, outbound: Outbound) {
        let Course { node, first, pushes, .. } = &*self.course;
        let welcome = Welcome {
            protocol: PROTOCOL,
            log_id: first.to.log_id,
            streams: vec![StreamId::node(node)],
            known: None,
            verbs: Vec::new(),
            takes_events: true,
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
        let mut ticks = self.slowly.map(|slowly| tokio::time::interval(slowly.interval));
        for push in pushes {
            if let Some((ticks, slowly)) = ticks.as_mut().zip(self.slowly)
                && push.to.seq.0 > slowly.after
            {
                ticks.tick().await;
            }
            sent += push.bytes();
            let has_room = |acked: &EdgePositions| sent <= acked.received_bytes + window_bytes;
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
impl Replication for CannedHub {
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
                let Ok(message) = EdgeMessage::try_from(message) else { return };
                match message {
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
                    // It acknowledges no more; the waiting row reports that.
                    EdgeMessage::Divergence(diverged) => {
                        eprintln!("the edge differs: {diverged:?}")
                    }
                    _ => {}
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(messages)))
    }
}
