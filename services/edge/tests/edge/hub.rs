//! A hub for tests: the protocol's own hub end over a fold in memory, served over TCP.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use headwater_event::{
    Applied, Assignment, Checkpoint, EntryKey, Envelope, Event, HashKey, Identity, LogId, NodeName,
    ObjectHash, Removed, Report, Seq, StateHash, StreamId, WriterEpoch,
};
use headwater_proto::replication as wire;
use headwater_proto::replication::replication_server::{Replication, ReplicationServer};
use headwater_proto::wire::EdgeMessageDecoder;
use headwater_session::message::{
    EdgeMessage, HubMessage, Refusal, RefusalCode, RequestError, Response as Answer,
};
use headwater_session::{
    HubInput, HubOutput, HubSession, HubSettings, MemorySource, Readiness, SessionId,
    SessionRegistry,
};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tokio_util::task::AbortOnDropHandle;
use tonic::{Request, Response, Status, Streaming};
use uuid::Uuid;

/// A hub with its log.
pub(crate) struct Hub {
    pub(crate) address: SocketAddr,
    shared: Arc<HubState>,
    _server: AbortOnDropHandle<()>,
}

struct HubState {
    state: Mutex<State>,
    moved: watch::Sender<u64>,
}

struct State {
    source: MemorySource,
    registry: SessionRegistry,
    sessions: u64,
    dismissals: BTreeMap<SessionId, mpsc::Sender<Refusal>>,
    heads: BTreeMap<StreamId, Head>,
    reports: Vec<Report>,
    holds_reports: bool,
    answers: BTreeMap<String, Result<Bytes, RequestError>>,
    /// What edges have acknowledged as durable.
    durable: BTreeMap<StreamId, Seq>,
    frame_bytes_max: Option<u64>,
    /// See [`Hub::consumes_cluster`].
    consumes_cluster: Option<bool>,
}

/// The end of a stream, as its writer knows it.
#[derive(Clone, Default)]
struct Head {
    seq: u64,
    hash: StateHash,
    objects: BTreeMap<EntryKey, (String, Bytes)>,
}

pub(crate) fn log_id() -> LogId {
    LogId { number: 1, uuid: Uuid::from_u128(7) }
}

impl Hub {
    /// A hub whose log gives `node` its private stream and the cluster's.
    pub(crate) async fn start(node: &NodeName) -> Self {
        let mut source = MemorySource::new(4);
        source.begin(log_id());
        source.claim(WriterEpoch(1));
        source.set_readiness(Readiness::Reconciled);
        let shared = Arc::new(HubState {
            state: Mutex::new(State {
                source,
                registry: SessionRegistry::default(),
                sessions: 0,
                dismissals: BTreeMap::new(),
                heads: BTreeMap::new(),
                reports: Vec::new(),
                holds_reports: false,
                answers: BTreeMap::new(),
                durable: BTreeMap::new(),
                consumes_cluster: None,
                frame_bytes_max: None,
            }),
            moved: watch::channel(0).0,
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let service = ReplicationServer::new(Service { shared: shared.clone() });
        let server = tokio::spawn(async move {
            tonic::transport::Server::builder()
                .add_service(service)
                .serve_with_incoming(TcpListenerStream::new(listener))
                .await
                .expect("serves");
        });
        let hub = Self { address, shared, _server: AbortOnDropHandle::new(server) };
        hub.assign(node, [StreamId::Cluster]);
        hub
    }

    /// Says which streams the node has.
    pub(crate) fn assign(&self, node: &NodeName, shared: impl IntoIterator<Item = StreamId>) {
        let object = Assignment::new(node, shared).encode();
        self.append(&StreamId::node(node), EntryKey::Streams, Some(("", object)));
    }

    /// Logs that an object came or changed.
    pub(crate) fn apply(&self, stream: &StreamId, key: &str, uid: &str, object: &str) {
        let object = Bytes::copy_from_slice(object.as_bytes());
        self.append(stream, key.parse().expect("a key"), Some((uid, object)));
    }

    /// Logs that an object left.
    pub(crate) fn remove(&self, stream: &StreamId, key: &str) {
        self.append(stream, key.parse().expect("a key"), None);
    }

    /// How far the stream goes, and the hash there.
    pub(crate) fn head(&self, stream: &StreamId) -> (Seq, StateHash) {
        let state = self.state();
        let head = state.heads.get(stream).cloned().unwrap_or_default();
        (Seq(head.seq), head.hash)
    }

    /// Every report that was appended, in order.
    pub(crate) fn reports(&self) -> Vec<Report> {
        self.state().reports.clone()
    }

    /// How far the edge has acknowledged the stream as durable.
    pub(crate) fn durable(&self, stream: &StreamId) -> Seq {
        self.state().durable.get(stream).copied().unwrap_or_default()
    }

    /// What the last heartbeat of the edge says of its programs.
    pub(crate) fn consumes_cluster(&self) -> Option<bool> {
        self.state().consumes_cluster
    }

    /// Ends every session: the hub stops, and edges are to connect elsewhere.
    pub(crate) fn dismiss(&self) {
        for dismiss in self.state().dismissals.values() {
            let message = "the hub stops".to_owned();
            let _ = dismiss.try_send(Refusal { code: RefusalCode::Unavailable, message });
        }
    }

    /// Appends reports, or no longer says that it has.
    pub(crate) fn hold_reports(&self, holds: bool) {
        self.state().holds_reports = holds;
    }

    /// What the cloud answers when it is asked for `key`.
    pub(crate) fn answer(&self, key: &str, object: &'static str) {
        let object = Bytes::from_static(object.as_bytes());
        self.state().answers.insert(key.to_owned(), Ok(object));
    }

    /// Why the cloud has no answer when it is asked for `key`.
    pub(crate) fn refuse(&self, key: &str, error: RequestError) {
        self.state().answers.insert(key.to_owned(), Err(error));
    }

    /// The reports that the cloud has received from a node.
    pub(crate) fn know(&self, identity: Identity) {
        self.state().source.set_known_identity(identity);
    }

    /// Cuts transfers of later sessions into parts of about so many bytes.
    pub(crate) fn cut_into(&self, frame_bytes_max: u64) {
        self.state().frame_bytes_max = Some(frame_bytes_max);
    }

    fn append(&self, stream: &StreamId, key: EntryKey, object: Option<(&str, Bytes)>) {
        let mut state = self.state();
        let hash_key = HashKey::new(&log_id());
        let head = state.heads.entry(stream.clone()).or_default();
        head.seq += 1;
        let before = head.objects.remove(&key);
        if let Some((_, object)) = &before {
            head.hash.subtract(&hash_key, &key, &ObjectHash::of(object));
        }
        let event = match object {
            Some((uid, object)) => {
                head.hash.add(&hash_key, &key, &ObjectHash::of(&object));
                head.objects.insert(key.clone(), (uid.to_owned(), object.clone()));
                let resource_version = head.seq.to_string();
                Event::Applied(Applied { key, uid: uid.to_owned(), resource_version, object })
            }
            None => {
                let uid = before.map(|(uid, _)| uid).unwrap_or_default();
                Event::Removed(Removed { key, uid })
            }
        };
        let envelope = Envelope {
            stream: stream.clone(),
            seq: Seq(head.seq),
            epoch: WriterEpoch(1),
            epoch_first_seq: Seq(1),
            time_ms: 0,
            hash: head.hash,
            traceparent: None,
            shared: None,
            event,
        };
        state.source.fold(envelope).expect("the next event");
        drop(state);
        self.shared.moved.send_modify(|moved| *moved += 1);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state()
    }
}

/// The checkpoint at `seq` of the hub's log.
pub(crate) fn checkpoint(seq: Seq) -> Checkpoint {
    Checkpoint { log_id: log_id(), epoch: WriterEpoch(1), seq }
}

impl HubState {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Service {
    shared: Arc<HubState>,
}

type Outbound = mpsc::Sender<Result<wire::HubMessage, Status>>;

#[tonic::async_trait]
impl Replication for Service {
    type SessionStream = ReceiverStream<Result<wire::HubMessage, Status>>;

    async fn session(
        &self,
        request: Request<Streaming<wire::EdgeMessage>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let (outbound, messages) = mpsc::channel(1_000);
        tokio::spawn(serve(self.shared.clone(), request.into_inner(), outbound));
        Ok(Response::new(ReceiverStream::new(messages)))
    }
}

async fn serve(
    shared: Arc<HubState>,
    mut inbound: Streaming<wire::EdgeMessage>,
    outbound: Outbound,
) {
    let (dismiss, mut dismissed) = mpsc::channel(1);
    let (id, mut settings) = {
        let mut state = shared.state();
        state.sessions += 1;
        let id = SessionId(state.sessions);
        state.dismissals.insert(id, dismiss);
        let mut settings = HubSettings::default();
        if let Some(bytes) = state.frame_bytes_max {
            settings.frame_bytes_max = bytes;
        }
        (id, Some(settings))
    };
    let mut moved = shared.moved.subscribe();
    let (mut decoder, mut kept) = (EdgeMessageDecoder::default(), BTreeMap::new());
    let mut session: Option<HubSession> = None;
    let mut ticks = tokio::time::interval(Duration::from_secs(1));
    let mut now_ms = 0;
    loop {
        let input = tokio::select! {
            message = inbound.message() => {
                let Ok(Some(message)) = message else { break };
                let message = decoder.decode(message, &mut kept);
                let message = message.expect("a message of the protocol");
                if let (EdgeMessage::Hello(hello), Some(settings)) = (&message, settings.take()) {
                    session = Some(HubSession::new(settings, hello.identity.node.clone()));
                }
                let answer = shared.state().answer_to(&message);
                if let Some(answer) = answer {
                    let _ = outbound.send(Ok(HubMessage::Response(answer).into())).await;
                    continue;
                }
                HubInput::Received(message)
            }
            Some(refusal) = dismissed.recv() => HubInput::Dismissed(refusal),
            _ = moved.changed() => HubInput::Advanced,
            _ = ticks.tick() => {
                now_ms += 1_000;
                HubInput::Tick(now_ms)
            }
        };
        let Some(session) = &mut session else { continue };
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            let outputs = session.step(&shared.state().source, input);
            for output in outputs {
                match output {
                    HubOutput::Send(message) => {
                        if outbound.send(Ok(message.into())).await.is_err() {
                            return;
                        }
                    }
                    HubOutput::Close(_) => {
                        let mut state = shared.state();
                        let node = session.node().clone();
                        state.registry.remove(&node, id);
                        return;
                    }
                    HubOutput::Progressed(stream) => {
                        let progressed = session.streams().find(|found| *found.stream == stream);
                        let durable = progressed.map_or(Seq::ZERO, |found| found.durable);
                        shared.state().durable.insert(stream, durable);
                    }
                    output => inputs.extend(shared.state().carry_out(id, output)),
                }
            }
        }
    }
    if let Some(session) = session {
        shared.state().registry.remove(session.node(), id);
    }
}

impl State {
    /// The answer to a request for what the test says is of interest to the node.
    fn answer_to(&self, message: &EdgeMessage) -> Option<Answer> {
        let EdgeMessage::Request(request) = message else { return None };
        let outcome = self.answers.get(request.key.as_str()).cloned()?;
        Some(Answer { id: request.id, outcome: outcome.map(Into::into) })
    }

    fn carry_out(&mut self, id: SessionId, output: HubOutput) -> Option<HubInput> {
        match output {
            HubOutput::Identify(identity) => {
                self.consumes_cluster = None;
                let admission = self.registry.admit(id, &identity);
                if let Some((older, refusal)) = admission.replaced
                    && let Some(dismiss) = self.dismissals.get(&older)
                {
                    let _ = dismiss.try_send(refusal);
                }
                Some(match admission.result {
                    Ok(known) => HubInput::Admitted { known },
                    Err(refusal) => HubInput::Dismissed(refusal),
                })
            }
            HubOutput::AppendReports(reports) => {
                if self.holds_reports {
                    return None;
                }
                let last = reports.last()?.id;
                self.reports.extend(reports);
                Some(HubInput::Appended(last.into()))
            }
            HubOutput::Ask(request) => {
                let outcome = Err(RequestError::NotFound);
                Some(HubInput::Answered(Answer { id: request.id, outcome }))
            }
            HubOutput::Alive(heartbeat) => {
                self.consumes_cluster = heartbeat.consumes_cluster;
                None
            }
            HubOutput::Progressed(_) => None,
            HubOutput::Send(_) | HubOutput::Share(_) | HubOutput::Close(_) => None,
        }
    }
}
