//! An edge that follows the protocol over a real socket: the session of an edge, and a disk in
//! memory that is always synced.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use headwater_check::{State, isolation, prefix};
use headwater_event::{
    Assignment, Boot, Change, Checkpoint, DigestKey, EntryKey, Identity, Incarnation, NodeName,
    RemovalRuns, Report, ReportBody, ReportId, Seq, StateHash, StreamId,
};
use headwater_proto::replication as wire;
use headwater_proto::replication::replication_client::ReplicationClient;
use headwater_proto::wire::EdgeMessageEncoder;
use headwater_session::message::{HubMessage, PushMode, RefusedReport, ReplicaPosition};
use headwater_session::{
    EdgeCloseReason, EdgeInput, EdgeOutput, EdgeSession, EdgeSettings, EdgeState,
};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use super::cloud::TestCloud;

/// How long a test waits for something that must happen.
pub(super) const SOON: Duration = Duration::from_secs(30);

#[derive(Clone, Default)]
pub(super) struct TestReplica {
    pub(super) checkpoint: Option<Checkpoint>,
    pub(super) hash: StateHash,
    pub(super) state: State,
}

pub(super) struct TestEdge {
    session: EdgeSession,
    pub(super) identity: Identity,
    pub(super) sender: mpsc::Sender<wire::EdgeMessage>,
    encoder: EdgeMessageEncoder,
    receiver: Streaming<wire::HubMessage>,
    pub(super) replicas: BTreeMap<StreamId, TestReplica>,
    staged: BTreeMap<StreamId, (RemovalRuns, Vec<Change>)>,
    outbox: BTreeMap<ReportId, Report>,
    /// Each applied push: stream, mode, from, to.
    pub(super) pushes: Vec<(StreamId, PushMode, Seq, Seq)>,
    pub(super) parked: Vec<String>,
    pub(super) refused: Vec<RefusedReport>,
    pub(super) heartbeats: usize,
    pub(super) end: Option<EdgeCloseReason>,
}

pub(super) fn identity(node: &str, boot: u64, nonce: u64) -> Identity {
    let boot = Boot { number: boot, nonce };
    Identity { node: node.parse().expect("a name"), incarnation: Incarnation(1), boot }
}

/// Both ways of a connection.
pub(super) type Wire = (mpsc::Sender<wire::EdgeMessage>, Streaming<wire::HubMessage>);

/// A connection without a message yet.
pub(super) async fn dial(hub: SocketAddr) -> Result<Wire, Status> {
    let mut client =
        ReplicationClient::connect(format!("http://{hub}")).await.expect("the hub listens");
    let (sender, outgoing) = mpsc::channel(64);
    let receiver = client.session(ReceiverStream::new(outgoing)).await?.into_inner();
    Ok((sender, receiver))
}

impl TestEdge {
    /// A new edge.
    pub(super) async fn connect(hub: SocketAddr, identity: Identity) -> Self {
        Self::resume(hub, identity, BTreeMap::new()).await
    }

    /// An edge that holds replicas.
    pub(super) async fn resume(
        hub: SocketAddr,
        identity: Identity,
        replicas: BTreeMap<StreamId, TestReplica>,
    ) -> Self {
        Self::over(dial(hub).await.expect("a session"), identity, replicas).await
    }

    /// An edge that holds replicas, over this connection.
    pub(super) async fn over(
        (sender, receiver): Wire,
        identity: Identity,
        replicas: BTreeMap<StreamId, TestReplica>,
    ) -> Self {
        let private = StreamId::node(&identity.node);
        let positions = replicas.iter().filter_map(|(stream, replica)| {
            let (stream, hash) = (stream.clone(), replica.hash);
            Some(ReplicaPosition { stream, checkpoint: replica.checkpoint?, hash })
        });
        let assigned = replicas.get(&private).map(|replica| replica.state.entries.keys());
        let has_streams = assigned.is_some_and(|mut keys| keys.any(|k| *k == EntryKey::Streams));
        let assignment = has_streams.then(|| Assignment::new(&identity.node, [StreamId::Cluster]));
        let state =
            EdgeState { identity: identity.clone(), positions: positions.collect(), assignment };
        let mut edge = Self {
            session: EdgeSession::new(EdgeSettings::default(), state),
            identity,
            sender,
            encoder: EdgeMessageEncoder::default(),
            receiver,
            replicas,
            staged: BTreeMap::new(),
            outbox: BTreeMap::new(),
            pushes: Vec::new(),
            parked: Vec::new(),
            refused: Vec::new(),
            heartbeats: 0,
            end: None,
        };
        edge.step(EdgeInput::Connected).await;
        edge
    }

    pub(super) fn is_open(&self) -> bool {
        self.session.is_open()
    }

    pub(super) fn seq(&self, stream: &str) -> u64 {
        let stream: StreamId = stream.parse().expect("a stream");
        let replica = self.replicas.get(&stream);
        replica.and_then(|replica| replica.checkpoint).map_or(0, |at| at.seq.0)
    }

    pub(super) fn modes(&self, stream: &str) -> Vec<PushMode> {
        let stream: StreamId = stream.parse().expect("a stream");
        self.pushes.iter().filter(|push| push.0 == stream).map(|push| push.1).collect()
    }

    pub(super) fn unacknowledged(&self) -> usize {
        self.outbox.len()
    }

    pub(super) async fn report(&mut self, seq: u64) -> ReportId {
        self.report_status(seq, Bytes::from_static(b"{}")).await
    }

    pub(super) async fn report_status(&mut self, seq: u64, status: Bytes) -> ReportId {
        let (incarnation, boot) = (self.identity.incarnation, self.identity.boot.number);
        let id = ReportId { incarnation, boot, seq };
        let body = ReportBody::PodStatus {
            pod: format!("d/pod/p{seq}").parse().expect("a key"),
            uid: "u".to_owned(),
            status,
        };
        self.outbox.insert(id, Report { id, body, traceparent: None });
        self.step(EdgeInput::Reported).await;
        id
    }

    pub(super) async fn report_event(&mut self, seq: u64) -> ReportId {
        let (incarnation, boot) = (self.identity.incarnation, self.identity.boot.number);
        let id = ReportId { incarnation, boot, seq };
        let body = ReportBody::Event {
            key: format!("d/event/p.{seq}").parse().expect("a key"),
            object: Bytes::from_static(b"{}"),
        };
        self.outbox.insert(id, Report { id, body, traceparent: None });
        self.step(EdgeInput::Reported).await;
        id
    }

    /// Handles the hub's messages until `done`.
    pub(super) async fn receive_until(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        let receiving = async {
            while !done(self) {
                self.receive().await;
            }
        };
        let receiver = timeout(SOON, receiving).await.is_ok();
        assert!(
            receiver,
            "{what}: {:?}, parked {:?}, end {:?}",
            self.pushes, self.parked, self.end
        );
    }

    pub(super) async fn receive_end(&mut self) -> EdgeCloseReason {
        self.receive_until("the end of the session", |edge| edge.end.is_some()).await;
        self.end.take().expect("sent")
    }

    async fn receive(&mut self) {
        match self.receiver.message().await {
            Ok(Some(message)) => {
                let message = HubMessage::try_from(message).expect("well-formed");
                self.check_readable(&message);
                self.heartbeats += usize::from(matches!(message, HubMessage::Heartbeat(_)));
                self.step(EdgeInput::Received(message)).await;
            }
            ended => panic!("the hub closed the stream: {ended:?}, {:?}", self.end),
        }
    }

    /// I6.
    fn check_readable(&self, message: &HubMessage) {
        if let HubMessage::Push(push) = message {
            isolation::check_stream(&self.identity.node, &push.stream).expect("I6");
        }
    }

    async fn step(&mut self, input: EdgeInput) {
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            for output in self.session.step(input) {
                match output {
                    EdgeOutput::Send(message) => {
                        let _ = self.sender.send(self.encoder.encode(message)).await;
                    }
                    EdgeOutput::Apply(push) => {
                        let stream = push.stream.clone();
                        let staged = self.staged.entry(stream.clone()).or_default();
                        if push.part == 0 {
                            *staged = (push.gone, Vec::new());
                        }
                        staged.1.extend(push.changes.into_iter().map(|pushed| pushed.change));
                        if !push.last_part {
                            continue;
                        }
                        let replica = self.replicas.entry(stream.clone()).or_default();
                        let (gone, changes) = self.staged.remove(&stream).unwrap_or_default();
                        match push.mode {
                            PushMode::Tail | PushMode::Delta => {}
                            PushMode::Snapshot => replica.state = State::default(),
                            PushMode::Correction => replica.state.retain(&gone),
                        }
                        for change in changes {
                            replica.state.apply(&change);
                        }
                        replica.hash = replica.state.hash(&push.to.log_id);
                        assert_eq!(replica.hash, push.hash, "{stream} at {:?}", push.to);
                        replica.checkpoint = Some(push.to);
                        self.pushes.push((stream.clone(), push.mode, push.from, push.to.seq));
                        let (checkpoint, hash) = (push.to, replica.hash);
                        inputs.push(EdgeInput::Durable { stream: stream.clone(), checkpoint });
                        inputs.push(EdgeInput::Applied { stream, checkpoint, hash });
                    }
                    EdgeOutput::Summarize { stream, nonce, .. } => {
                        let replica = self.replicas.entry(stream.clone()).or_default();
                        let digests = replica.state.digests(&DigestKey::new(nonce), "1");
                        inputs.push(EdgeInput::Summarized { stream, nonce, digests });
                    }
                    EdgeOutput::Drop(stream) => {
                        self.replicas.remove(&stream);
                    }
                    EdgeOutput::ReadOutbox { after, count, .. } => {
                        let behind = self.outbox.values().filter(|report| Some(report.id) > after);
                        let reports: Vec<_> = behind.clone().take(count).cloned().collect();
                        let is_end = behind.count() == reports.len();
                        inputs.push(EdgeInput::Outbox { reports, is_end });
                    }
                    EdgeOutput::DelayAck => inputs.push(EdgeInput::AckDue),
                    EdgeOutput::Refused(refused) => self.refused.push(refused),
                    EdgeOutput::Forget(through) => self.outbox.retain(|id, _| *id > through),
                    EdgeOutput::Dial(_) => panic!("the edge takes no dials"),
                    EdgeOutput::Parked(parked) => self.parked.push(parked.reason),
                    EdgeOutput::Close(end) => self.end = Some(end),
                    EdgeOutput::Sync
                    | EdgeOutput::Unstage(_)
                    | EdgeOutput::RaiseBoot { .. }
                    | EdgeOutput::Answered(_)
                    | EdgeOutput::Welcomed { .. }
                    | EdgeOutput::Stopped(_) => {}
                }
            }
        }
    }

    /// I1: every stream is what the events that count make of it.
    pub(super) fn check_prefix(&self, cloud: &TestCloud) {
        for (stream, replica) in &self.replicas {
            let at = replica.checkpoint.map_or(Seq::ZERO, |at| at.seq);
            let events = cloud.events.iter().filter(|event| event.stream == *stream);
            prefix::check(events, stream, at, &replica.state).expect("I1");
        }
    }

    pub(super) fn node(&self) -> &NodeName {
        &self.identity.node
    }
}
