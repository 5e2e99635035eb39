//! Both ends of the lane over TCP, with and without TLS.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};
use std::{fs, future};

use futures::StreamExt;
use headwater_event::{ConnectedNode, NodeState, PresenceUpdate};
use headwater_identity::authority::{Authority, Validity};
use headwater_identity::{Acceptor, Connector, Principal, TlsFiles, system_clock};
use headwater_lane::{LaneClient, LaneMetrics, LaneServer, PresenceIntake, UpdateHandler};
use prometheus::Registry;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};

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

/// A controller's end.
struct Controller {
    address: SocketAddr,
    recorder: Arc<Recorder>,
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
        let stop = CancellationToken::new();
        tokio::spawn(LaneServer { listener, tls, presence }.run(stop.clone()));
        Self { address, recorder, _stop: stop.drop_guard() }
    }

    /// The address as a claim has it.
    fn claimed(&self) -> Option<String> {
        Some(format!("localhost:{}", self.address.port()))
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

/// The updates of a hub with one node.
fn updates() -> [PresenceUpdate; 2] {
    let state = Some(NodeState { lacks_worker: true, has_drained: false });
    let node = "a".parse().expect("a name");
    [PresenceUpdate::Connected(vec![ConnectedNode { node, state }]), PresenceUpdate::Complete]
}

/// The end of a hub named `hub-1`.
fn hub(
    controller: watch::Receiver<Option<String>>,
    tls: Option<Connector>,
) -> (JoinHandle<()>, Registry) {
    let registry = Registry::new();
    let client = LaneClient {
        hub: "hub-1".to_owned(),
        tls,
        controller,
        presence: Box::new(|| {
            futures::stream::iter(updates()).chain(futures::stream::once(future::pending())).boxed()
        }),
        metrics: LaneMetrics::new(&registry).expect("registered"),
    };
    (tokio::spawn(client.run()), registry)
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
    // A writer that does not listen ends the lane.
    claim.send_replace(None);
    second.recorder.until("the end of the second stream", has_ended).await;
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
    tokio::spawn(LaneServer { listener, tls: None, presence }.run(stop));
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
