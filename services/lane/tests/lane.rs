//! Both ends of the lane over TCP, with and without TLS.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};
use std::{fs, future};

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use headwater_event::request::REQUEST_BODY_BYTES_MAX;
use headwater_event::{
    AnswerBody, ConnectedNode, NodeRequest, NodeState, PresenceUpdate, RequestError, RequestVerb,
    WriterAddress, WriterEpoch,
};
use headwater_identity::authority::{Authority, Validity};
use headwater_identity::{Acceptor, Connector, Principal, TlsFiles, system_clock};
use headwater_lane::{
    AskHandler, HUB_ASKS_MAX, LaneAsker, LaneClient, LaneMetrics, LaneServer, NODE_ASKS_MAX,
    PresenceIntake, UpdateHandler,
};
use headwater_proto::cloud::controller_lane_client::ControllerLaneClient;
use headwater_proto::cloud::controller_lane_server::{ControllerLane, ControllerLaneServer};
use headwater_proto::cloud::controller_message::Message as ControllerEvent;
use headwater_proto::cloud::hub_message::Message as HubEvent;
use headwater_proto::cloud::{ControllerMessage, HubHello, HubMessage, Welcome};
use headwater_proto::wire::{Ask, answer_from_wire};
use headwater_session::message::Response;
use prometheus::Registry;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::{Status, Streaming};

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Far longer than a condition takes.
const SOON: Duration = Duration::from_secs(30);

/// Records what hubs send: their names, and `None` where a stream ends.
#[derive(Default)]
struct Recorder {
    events: Mutex<Vec<(String, Option<PresenceUpdate>)>>,
    added: Notify,
}

/// The stream of a hub.
struct RecordedStream {
    hub: String,
    recorder: Arc<Recorder>,
}

struct Intake(Arc<Recorder>);

/// Answers each ask with the name of its node: of a node `slow...` once it is released, of node `dead` never.
struct Answers {
    released: Semaphore,
    /// A permit for each ask of a slow node that has begun.
    slow: Semaphore,
    /// A permit for each ask that is never answered.
    dead: Semaphore,
}

impl Default for Answers {
    fn default() -> Self {
        let none = || Semaphore::new(0);
        Self { released: none(), slow: none(), dead: none() }
    }
}

impl Answers {
    /// Waits until so many more asks of slow nodes have begun.
    async fn until_slow(&self, asks: usize) {
        let begun = self.slow.acquire_many(asks.try_into().expect("a few"));
        timeout(SOON, begun).await.expect("they begin").expect("never closed").forget();
    }
}

#[tonic::async_trait]
impl AskHandler for Answers {
    async fn respond(&self, request: NodeRequest) -> Result<AnswerBody, RequestError> {
        match request.node.as_str() {
            slow if slow.starts_with("slow") => {
                self.slow.add_permits(1);
                self.released.acquire().await.expect("never closed").forget();
            }
            "dead" => {
                self.dead.add_permits(1);
                future::pending().await
            }
            _ => {}
        }
        let mut answer = request.node.as_str().as_bytes().to_vec();
        answer.extend(&request.body);
        Ok(Bytes::from(answer).into())
    }
}

/// A controller's end.
struct Controller {
    address: SocketAddr,
    recorder: Arc<Recorder>,
    answers: Arc<Answers>,
    _stop: DropGuard,
}

/// A CA, and the files of the certificates that it issued.
struct Issuer {
    dir: TempDir,
    authority: Authority,
}

impl Recorder {
    fn add(&self, hub: &str, update: Option<PresenceUpdate>) {
        self.events.lock().expect("not poisoned").push((hub.to_owned(), update));
        self.added.notify_one();
    }

    async fn until(&self, what: &str, is_so: impl Fn(&[(String, Option<PresenceUpdate>)]) -> bool) {
        let waiting = async {
            while !is_so(&self.events.lock().expect("not poisoned")) {
                self.added.notified().await;
            }
        };
        let in_time = timeout(SOON, waiting).await.is_ok();
        assert!(in_time, "{what}: {:?}", self.events.lock().expect("not poisoned"));
    }
}

impl PresenceIntake for Intake {
    fn connect(&self, hub: &str) -> UpdateHandler {
        let stream = RecordedStream { hub: hub.to_owned(), recorder: self.0.clone() };
        Box::new(move |update| stream.recorder.add(&stream.hub, Some(update)))
    }
}

impl Drop for RecordedStream {
    fn drop(&mut self) {
        self.recorder.add(&self.hub, None);
    }
}

impl Controller {
    async fn start(tls: Option<Acceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let recorder = Arc::<Recorder>::default();
        let presence = Arc::new(Intake(recorder.clone()));
        let answers = Arc::<Answers>::default();
        let (stop, asks) = (CancellationToken::new(), answers.clone());
        tokio::spawn(LaneServer { listener, tls, presence, asks }.run(stop.clone()));
        Self { address, recorder, answers, _stop: stop.drop_guard() }
    }

    /// The address as a claim has it.
    fn claimed(&self) -> Option<WriterAddress> {
        claim_of(self.address)
    }
}

impl Issuer {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let authority = Authority::create("test", today()).expect("made");
        fs::write(dir.path().join("ca.crt"), authority.certificate()).expect("written");
        Self { dir, authority }
    }

    fn files(&self, uri: &str) -> TlsFiles {
        let owner: Principal = uri.parse().expect("a principal");
        let addresses = ["localhost".to_owned()];
        let issued = self.authority.issue(&owner, &addresses, today()).expect("issued");
        let file = |end: &str| self.dir.path().join(format!("{owner}.{end}"));
        fs::write(file("crt"), issued.certificate).expect("written");
        fs::write(file("key"), issued.key).expect("written");
        let ca = self.dir.path().join("ca.crt");
        TlsFiles { ca, certificate: file("crt"), key: file("key") }
    }

    fn acceptor(&self, uri: &str) -> Option<Acceptor> {
        Some(Acceptor::open(self.files(uri), system_clock()).expect("opens"))
    }

    fn connector(&self, uri: &str) -> Option<Connector> {
        Some(Connector::open(self.files(uri), system_clock()).expect("opens"))
    }
}

fn today() -> Validity {
    let now = SystemTime::now();
    Validity { from: now - DAY, until: now + DAY }
}

/// The claim of a writer that listens at a port of this machine.
fn claim_of(address: SocketAddr) -> Option<WriterAddress> {
    Some(WriterAddress { epoch: WriterEpoch(1), address: format!("localhost:{}", address.port()) })
}

/// The updates of a hub with one node.
fn updates() -> [PresenceUpdate; 2] {
    let state = Some(NodeState { lacks_worker: true, has_drained: false });
    let node = "a".parse().expect("a name");
    [PresenceUpdate::Connected(vec![ConnectedNode { node, state }]), PresenceUpdate::Complete]
}

/// The end of a hub named `hub-1`.
fn hub(
    controller: watch::Receiver<Option<WriterAddress>>,
    tls: Option<Connector>,
) -> (JoinHandle<()>, Registry) {
    let (task, registry, _) = asking_hub(controller, tls);
    (task, registry)
}

/// The same, with what asks for its nodes.
fn asking_hub(
    controller: watch::Receiver<Option<WriterAddress>>,
    tls: Option<Connector>,
) -> (JoinHandle<()>, Registry, LaneAsker) {
    let (asker, asks) = LaneAsker::new();
    let registry = Registry::new();
    let client = LaneClient {
        hub: "hub-1".to_owned(),
        tls,
        controller,
        presence: Box::new(|| {
            futures::stream::iter(updates()).chain(futures::stream::once(future::pending())).boxed()
        }),
        asks,
        metrics: LaneMetrics::new(&registry).expect("registered"),
    };
    (tokio::spawn(client.run()), registry, asker)
}

fn metric(registry: &Registry, name: &str) -> f64 {
    let families = registry.gather();
    let family = families.iter().find(|family| family.name() == name).expect("registered");
    let metric = &family.get_metric()[0];
    metric.get_gauge().get_value() + metric.get_counter().get_value()
}

/// Whether a hub's stream brought everything, and nothing else.
fn is_whole(events: &[(String, Option<PresenceUpdate>)]) -> bool {
    let updates = updates().map(|update| ("hub-1".to_owned(), Some(update)));
    events.starts_with(&updates)
}

#[tokio::test]
async fn a_hub_sends_its_presence_to_the_present_writer_and_moves_with_the_claim() {
    let (first, second) = (Controller::start(None).await, Controller::start(None).await);
    let (claim, controller) = watch::channel(None);
    let (task, registry) = hub(controller, None);
    claim.send_replace(first.claimed());
    first.recorder.until("the updates", is_whole).await;
    assert_eq!(metric(&registry, "headwater_hub_lane_up"), 1.0);
    claim.send_replace(second.claimed());
    second.recorder.until("the updates", is_whole).await;
    let has_ended = |events: &[_]| matches!(events.last(), Some((_, None)));
    first.recorder.until("the end of the first stream", has_ended).await;
    // It starts again and claims the log with its address: the hub does not wait for its old connection to end.
    let again = second.claimed().map(|claimed| WriterAddress { epoch: WriterEpoch(2), ..claimed });
    claim.send_replace(again);
    let has = |updates: usize, ends: usize| {
        move |events: &[(String, Option<PresenceUpdate>)]| {
            let received = events.iter().filter(|(_, update)| update.is_some()).count();
            (received, events.len() - received) == (updates, ends)
        }
    };
    second.recorder.until("the updates once more, and the end of the stream", has(4, 1)).await;
    // A writer that does not listen ends the lane.
    claim.send_replace(None);
    second.recorder.until("the end of the third stream", has(4, 2)).await;
    assert_eq!(metric(&registry, "headwater_hub_lane_up"), 0.0);
    assert_eq!(metric(&registry, "headwater_hub_lane_failures_total"), 0.0);
    drop(claim);
    timeout(SOON, task).await.expect("it ends with the claims").expect("no panic");
}

#[tokio::test]
async fn a_hub_connects_again_after_a_failure() {
    let first = Controller::start(None).await;
    let address = first.address;
    let (_claim, controller) = watch::channel(first.claimed());
    let (_task, _) = hub(controller, None);
    first.recorder.until("the updates", is_whole).await;
    drop(first);
    // The same address: the port is free once the listener of the first is gone.
    let bound = async {
        loop {
            match TcpListener::bind(address).await {
                Ok(listener) => break listener,
                Err(_) => tokio::task::yield_now().await,
            }
        }
    };
    let listener = timeout(SOON, bound).await.expect("the port is free");
    let recorder = Arc::<Recorder>::default();
    let presence = Arc::new(Intake(recorder.clone()));
    let stop = CancellationToken::new();
    let _stop = stop.clone().drop_guard();
    let asks = Arc::<Answers>::default();
    tokio::spawn(LaneServer { listener, tls: None, presence, asks }.run(stop));
    recorder.until("the updates once more", is_whole).await;
}

#[tokio::test]
async fn both_ends_verify_the_certificate_of_the_other() {
    let issuer = Issuer::new();
    let controller = Controller::start(issuer.acceptor("headwater://controller/one")).await;
    let (claim, address) = watch::channel(controller.claimed());
    let (task, _) = hub(address, issuer.connector("headwater://hub/one"));
    controller.recorder.until("the updates", is_whole).await;
    drop(claim);
    task.await.expect("no panic");

    // A node is no hub, and a hub is no controller.
    let posing = Controller::start(issuer.acceptor("headwater://hub/two")).await;
    let (node, hub_one) = ("headwater://node/a", "headwater://hub/one");
    for (listening, connecting) in [(&controller, node), (&posing, hub_one)] {
        let before = listening.recorder.events.lock().expect("not poisoned").len();
        let (claim, address) = watch::channel(listening.claimed());
        let (task, registry) = hub(address, issuer.connector(connecting));
        let refused = async {
            while metric(&registry, "headwater_hub_lane_failures_total") < 2.0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(SOON, refused).await.expect("refused, and tried again");
        let after = listening.recorder.events.lock().expect("not poisoned").len();
        // The end of the first stream may have been recorded meanwhile.
        assert!(after <= before + 1, "nothing was received from {connecting}");
        drop(claim);
        task.await.expect("no panic");
    }
}

#[tokio::test]
async fn a_stream_ends_with_the_trust_in_the_controller_and_begins_again_with_it() {
    let issuer = Issuer::new();
    let controller = Controller::start(issuer.acceptor("headwater://controller/one")).await;
    let (_claim, address) = watch::channel(controller.claimed());
    let (_task, registry) = hub(address, issuer.connector("headwater://hub/one"));
    controller.recorder.until("the updates", is_whole).await;
    let trust = |authority: &Authority| {
        let new = issuer.dir.path().join("ca.new");
        fs::write(&new, authority.certificate()).expect("written");
        fs::rename(new, issuer.dir.path().join("ca.crt")).expect("renamed");
    };
    trust(&Authority::create("other", today()).expect("made"));
    let has_ended = |events: &[_]| matches!(events.last(), Some((_, None)));
    controller.recorder.until("the end of the stream", has_ended).await;
    assert!(metric(&registry, "headwater_hub_lane_failures_total") >= 1.0);
    trust(&issuer.authority);
    let is_back = |events: &[(String, Option<PresenceUpdate>)]| {
        events
            .iter()
            .rposition(|(_, update)| update.is_none())
            .is_some_and(|end| is_whole(&events[end + 1..]))
    };
    controller.recorder.until("the updates once more", is_back).await;
}

fn request(node: &str, timeout: Duration) -> NodeRequest {
    NodeRequest {
        node: node.parse().expect("a name"),
        timeout,
        verb: RequestVerb::Get,
        key: "d/configmap/app".parse().expect("a key"),
        body: Bytes::new(),
    }
}

/// Asks until the controller answers: the lane may not be up yet.
async fn answered(asker: &LaneAsker, node: &str) {
    let asking = async {
        loop {
            match asker.ask(request(node, SOON)).await {
                Ok(answer) => break assert_eq!(&*answer, node.as_bytes()),
                Err(RequestError::Unavailable(_)) => {
                    tokio::time::sleep(Duration::from_millis(5)).await
                }
                Err(error) => panic!("{error}"),
            }
        }
    };
    timeout(SOON, asking).await.expect("an answer");
}

/// The words of an ask that cannot be answered now.
async fn unavailable(asker: &LaneAsker, node: &str, within: Duration) -> String {
    match timeout(SOON, asker.ask(request(node, within))).await.expect("in words") {
        Err(RequestError::Unavailable(reason)) => reason,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn asks_move_with_the_claim_and_have_an_answer_in_words_without_a_controller() {
    let (first, second) = (Controller::start(None).await, Controller::start(None).await);
    let (claim, controller) = watch::channel(None);
    let (_task, _, asker) = asking_hub(controller, None);
    let reason = unavailable(&asker, "a", SOON).await;
    assert!(reason.contains("controller"), "{reason}");
    claim.send_replace(first.claimed());
    answered(&asker, "a").await;
    // The largest answer, and one that is larger.
    let largest = vec![b'x'; (2 << 20) - 1];
    let answer = asker.ask(NodeRequest { body: largest.into(), ..request("a", SOON) }).await;
    assert_eq!(answer.map(|answer| answer.len()), Ok(2 << 20));
    let large = NodeRequest { body: vec![b'x'; 2 << 20].into(), ..request("a", SOON) };
    let answer = asker.ask(large).await;
    let Err(RequestError::Unavailable(reason)) = &answer else { panic!("{answer:?}") };
    assert!(reason.contains("2 MiB"), "{reason}");

    // The controller goes away in the middle of an ask.
    let waiting = tokio::spawn({
        let asker = asker.clone();
        async move { unavailable(&asker, "dead", SOON).await }
    });
    timeout(SOON, first.answers.dead.acquire()).await.expect("asked").expect("open").forget();
    claim.send_replace(second.claimed());
    let reason = waiting.await.expect("no panic");
    assert!(reason.contains("ended before the answer"), "{reason}");
    answered(&asker, "a").await;

    // No controller listens there.
    drop(second);
    until_words(&asker, "no lane to the controller at localhost:").await;
    claim.send_replace(None);
    until_words(&asker, "does not listen").await;
}

/// Asks until the reason for which there is no answer has these words. The last stream may answer once
/// more before.
async fn until_words(asker: &LaneAsker, words: &str) {
    let asking = async {
        loop {
            match asker.ask(request("a", SOON)).await {
                Err(RequestError::Unavailable(reason)) if reason.contains(words) => break,
                Ok(_) | Err(RequestError::Unavailable(_)) => {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                Err(error) => panic!("{error}"),
            }
        }
    };
    timeout(SOON, asking).await.expect("named");
}

#[tokio::test]
async fn a_slow_answer_ends_in_words_before_the_deadline() {
    let controller = Controller::start(None).await;
    let (_claim, address) = watch::channel(controller.claimed());
    let (_task, _, asker) = asking_hub(address, None);
    answered(&asker, "a").await;
    let reason = unavailable(&asker, "dead", Duration::from_millis(200)).await;
    assert_eq!(reason, "the controller has no answer after 180 ms");
}

#[tokio::test(start_paused = true)]
async fn an_ask_has_an_answer_in_words_beside_a_controller_that_accepts_and_never_answers() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let (_claim, address) = watch::channel(claim_of(listener.local_addr().expect("bound")));
    let (_task, registry, asker) = asking_hub(address, None);
    let (_accepted, _) = listener.accept().await.expect("a connection");
    // While the hub waits for the welcome, and once it has given up: at once.
    for words in ["the hub connects to the controller at", "no lane to the controller at"] {
        let asking = async {
            while !unavailable(&asker, "a", SOON).await.contains(words) {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        timeout(SOON, asking).await.expect("named");
    }
    assert!(metric(&registry, "headwater_hub_lane_failures_total") >= 1.0);
}

#[tokio::test]
async fn a_node_that_asks_without_end_delays_no_other() {
    let controller = Controller::start(None).await;
    let (_claim, address) = watch::channel(controller.claimed());
    let (_task, _, asker) = asking_hub(address, None);
    answered(&asker, "a").await;
    let mut asks = tokio::task::JoinSet::new();
    for _ in 0..2 * NODE_ASKS_MAX {
        let asker = asker.clone();
        asks.spawn(async move { asker.ask(request("slow", SOON)).await });
    }
    // Half of them are over the bound of the node, and end at once.
    for _ in 0..NODE_ASKS_MAX {
        let outcome = timeout(SOON, asks.join_next()).await.expect("at once").expect("one");
        let outcome = outcome.expect("no panic");
        assert!(matches!(outcome, Err(RequestError::TooMany(_))), "{outcome:?}");
    }
    let answer = asker.ask(request("a", SOON)).await;
    assert_eq!(answer.as_deref(), Ok(&b"a"[..]), "another node is not delayed");
    controller.answers.released.add_permits(NODE_ASKS_MAX);
    while let Some(outcome) = asks.join_next().await {
        assert_eq!(outcome.expect("no panic").as_deref(), Ok(&b"slow"[..]));
    }
}

#[tokio::test]
async fn a_hub_has_a_bounded_number_of_asks_in_flight() {
    let controller = Controller::start(None).await;
    let (_claim, address) = watch::channel(controller.claimed());
    let (_task, _, asker) = asking_hub(address, None);
    answered(&asker, "a").await;
    let mut asks = tokio::task::JoinSet::new();
    // No slot of a node without an answer is free again before all are asked.
    let within = Duration::from_secs(6);
    for n in 0..HUB_ASKS_MAX {
        let (asker, node) = (asker.clone(), if n % 2 == 0 { "slow" } else { "dead" });
        asks.spawn(async move { asker.ask(request(node, within)).await });
    }
    let mut too_many = 0;
    while let Some(outcome) = timeout(SOON, asks.join_next()).await.expect("all end") {
        too_many +=
            usize::from(matches!(outcome.expect("no panic"), Err(RequestError::TooMany(_))));
    }
    // Two nodes: 16 each at a time.
    assert_eq!(too_many, HUB_ASKS_MAX - 2 * NODE_ASKS_MAX);
    answered(&asker, "a").await;
}

#[tokio::test]
async fn the_asks_of_all_nodes_of_a_hub_are_bounded_together() {
    let controller = Controller::start(None).await;
    let (_claim, address) = watch::channel(controller.claimed());
    let (_task, _, asker) = asking_hub(address, None);
    answered(&asker, "a").await;
    let mut asks = tokio::task::JoinSet::new();
    for n in 0..HUB_ASKS_MAX {
        let (asker, node) = (asker.clone(), format!("slow-{}", n / NODE_ASKS_MAX));
        asks.spawn(async move { asker.ask(request(&node, SOON)).await });
    }
    controller.answers.until_slow(HUB_ASKS_MAX).await;
    let beyond = asker.ask(request("a", SOON)).await;
    assert_eq!(beyond, Err(RequestError::TooMany("of this hub in flight".to_owned())));
    controller.answers.released.add_permits(HUB_ASKS_MAX);
    while let Some(outcome) = asks.join_next().await {
        assert!(outcome.expect("no panic").is_ok());
    }
    answered(&asker, "a").await;
}

#[tokio::test]
async fn the_asks_of_a_node_through_several_hubs_are_bounded_together() {
    let controller = Controller::start(None).await;
    let (_claim, address) = watch::channel(controller.claimed());
    let hubs = [asking_hub(address.clone(), None), asking_hub(address, None)];
    let [first, second] = hubs.map(|(_, _, asker)| asker);
    let mut asks = tokio::task::JoinSet::new();
    for asker in [&first, &second] {
        answered(asker, "a").await;
        for _ in 0..NODE_ASKS_MAX / 2 {
            let asker = asker.clone();
            asks.spawn(async move { asker.ask(request("slow", SOON)).await });
        }
    }
    controller.answers.until_slow(NODE_ASKS_MAX).await;
    for asker in [&first, &second] {
        let beyond = timeout(SOON, asker.ask(request("slow", SOON))).await.expect("at once");
        assert_eq!(beyond, Err(RequestError::TooMany("of this node in flight".to_owned())));
        answered(asker, "a").await;
    }
    controller.answers.released.add_permits(NODE_ASKS_MAX + 1);
    while let Some(outcome) = asks.join_next().await {
        assert_eq!(outcome.expect("no panic").as_deref(), Ok(&b"slow"[..]));
    }
    let again = timeout(SOON, second.ask(request("slow", SOON))).await.expect("released");
    assert_eq!(again.as_deref(), Ok(&b"slow"[..]), "an answer makes room at every hub");
}

/// A controller of an earlier version: it sends its welcome and fails when a hub asks.
struct EarlierController(Arc<Notify>);

#[tonic::async_trait]
impl ControllerLane for EarlierController {
    type AttachStream = BoxStream<'static, Result<ControllerMessage, Status>>;

    async fn attach(
        &self,
        request: tonic::Request<Streaming<HubMessage>>,
    ) -> Result<tonic::Response<Self::AttachStream>, Status> {
        let mut messages = request.into_inner();
        let welcome = ControllerEvent::Welcome(Welcome { protocol: 1, verbs: Vec::new() });
        let welcome = Ok(ControllerMessage { message: Some(welcome) });
        // A message of a later version, which the hub has not asked for.
        let unknown = Ok(ControllerMessage { message: None });
        let complete = self.0.clone();
        let read = async move {
            while let Ok(Some(message)) = messages.message().await {
                match message.message {
                    Some(HubEvent::Ask(_)) | None => break,
                    Some(HubEvent::Complete(_)) => complete.notify_one(),
                    Some(_) => {}
                }
            }
            Err(Status::invalid_argument("HubMessage.message: missing"))
        };
        let sent = futures::stream::iter([welcome, unknown]).chain(futures::stream::once(read));
        Ok(tonic::Response::new(sent.boxed()))
    }
}

#[tokio::test]
async fn a_controller_of_an_earlier_version_gets_presence_and_no_ask() {
    let complete = Arc::<Notify>::default();
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    let service = ControllerLaneServer::new(EarlierController(complete.clone()));
    let incoming = tokio_stream::wrappers::TcpListenerStream::new(listener);
    let server = tonic::transport::Server::builder().add_service(service);
    tokio::spawn(server.serve_with_incoming(incoming));
    let (_claim, claimed) = watch::channel(claim_of(address));
    let (_task, registry, asker) = asking_hub(claimed, None);
    timeout(SOON, complete.notified()).await.expect("the presence");
    let reason = unavailable(&asker, "a", SOON).await;
    assert!(reason.contains("is of an earlier version and answers no get"), "{reason}");
    assert_eq!(metric(&registry, "headwater_hub_lane_up"), 1.0);
    assert_eq!(metric(&registry, "headwater_hub_lane_failures_total"), 0.0);
}

#[tokio::test]
async fn a_malformed_ask_is_answered_by_its_id_and_ends_no_stream() {
    let controller = Controller::start(None).await;
    let at = format!("http://localhost:{}", controller.address.port());
    let mut client = ControllerLaneClient::connect(at).await.expect("connects");
    let hello = HubHello { protocol: 1, hub: "hub-1".to_owned() };
    let ask = |id, bytes| {
        let body = vec![b' '; bytes].into();
        HubMessage::from(Ask { id, request: NodeRequest { body, ..request("a", SOON) } })
    };
    let largest = REQUEST_BODY_BYTES_MAX - 1; // The answer has the name of the node, too.
    let messages = [
        HubMessage { message: Some(HubEvent::Hello(hello)) },
        ask(1, REQUEST_BODY_BYTES_MAX + 1),
        ask(2, largest),
    ];
    let messages = futures::stream::iter(messages).chain(futures::stream::pending());
    let mut stream = client.attach(messages).await.expect("attached").into_inner();
    let mut outcomes = BTreeMap::new();
    while outcomes.len() < 2 {
        let message = timeout(SOON, stream.message()).await.expect("soon").expect("no error");
        if let Some(ControllerEvent::Answer(answer)) = message.expect("open").message {
            let Response { id, outcome } = answer_from_wire(answer).expect("well-formed");
            outcomes.insert(id, outcome.map(|answer| answer.len()));
        }
    }
    let why = "Ask.body: 2097153 bytes, at most 2097152 are allowed".to_owned();
    let expected = [(1, Err(RequestError::Invalid(why))), (2, Ok(REQUEST_BODY_BYTES_MAX))];
    assert_eq!(outcomes, BTreeMap::from(expected));
}

#[tokio::test]
async fn a_message_that_the_controller_does_not_know_ends_no_stream() {
    let controller = Controller::start(None).await;
    let at = format!("http://localhost:{}", controller.address.port());
    let mut client = ControllerLaneClient::connect(at).await.expect("connects");
    let hello = HubHello { protocol: 1, hub: "hub-1".to_owned() };
    let [connected, complete] = updates().map(HubMessage::from);
    let messages =
        [HubMessage { message: Some(HubEvent::Hello(hello)) }, HubMessage { message: None }]
            .into_iter()
            .chain([connected, complete]);
    let messages = futures::stream::iter(messages.collect::<Vec<_>>());
    let stream = client.attach(messages.chain(futures::stream::pending())).await.expect("attached");
    controller.recorder.until("the updates", is_whole).await;
    drop(stream);
}
