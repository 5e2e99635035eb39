//! Streams to nodes, over real TLS, by the real edge and by others that want its streams.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use headwater_edge::{Edge, EdgeConfig, EdgeDependencies, EdgeHandle, TunnelSettings};
use headwater_event::{Incarnation, Partition};
use headwater_identity::Connector;
use headwater_log::PartitionFault;
use headwater_proto::replication::tunnel_client::TunnelClient;
use headwater_session::message::{Dial, DialId};
use headwater_tunnel::frame;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpStream, UnixListener};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;
use tonic::transport::Endpoint;
use tower::service_fn;

use super::edge::Wire;
use super::positions::start_paused;
use super::tls::{Issuer, hub_with, secure};
use super::*;

/// What a stream carries each way: several windows.
const BULK_BYTES: usize = 1 << 20;

/// How long the second connection of a test stays without streams.
const IDLE: Duration = Duration::from_millis(300);

/// A way to a hub that counts the connections on it: all of them, and those that are open.
#[derive(Clone, Default)]
struct Connections {
    all: Arc<AtomicUsize>,
    open: Arc<AtomicUsize>,
}

impl Connections {
    fn counts(&self) -> (usize, usize) {
        (self.all.load(Ordering::Relaxed), self.open.load(Ordering::Relaxed))
    }

    /// Starts the way, and returns its address.
    async fn to(&self, hub: SocketAddr) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let counts = self.clone();
        tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                let counts = counts.clone();
                tokio::spawn(async move {
                    counts.all.fetch_add(1, Ordering::Relaxed);
                    counts.open.fetch_add(1, Ordering::Relaxed);
                    let mut far = TcpStream::connect(hub).await.expect("the hub listens");
                    let _ = copy_bidirectional(&mut near, &mut far).await;
                    counts.open.fetch_sub(1, Ordering::Relaxed);
                });
            }
        });
        address
    }
}

/// A node's own server, which sends back what it gets.
fn echo(socket: &std::path::Path) {
    let listener = UnixListener::bind(socket).expect("a socket");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut reader, mut writer) = stream.into_split();
                let _ = tokio::io::copy(&mut reader, &mut writer).await;
            });
        }
    });
}

/// A session of node `a` message by message.
struct RawSession {
    wire: Wire,
}

impl RawSession {
    /// Opens the session, up to the hub's welcome.
    async fn open(hub: &HubHandle, connector: &Connector, dials: DialSupport) -> Self {
        let wire = secure(hub, connector).await.expect("a session");
        let hello = Hello { dials, ..hello(identity("a", 1, 1), Vec::new()) };
        wire.0.send(EdgeMessage::Hello(hello).into()).await.expect("sent");
        let mut session = Self { wire };
        while !matches!(session.receive().await, HubMessage::Welcome(_)) {}
        session
    }

    async fn receive(&mut self) -> HubMessage {
        let message = timeout(SOON, self.wire.1.message()).await.expect("soon");
        let message = message.expect("a message").expect("the session is open");
        HubMessage::try_from(message).expect("well-formed")
    }

    /// The next dial.
    async fn dial(&mut self) -> Dial {
        loop {
            if let HubMessage::Dial(dial) = self.receive().await {
                return dial;
            }
        }
    }
}

/// An edge of node `a` that takes two streams.
async fn edge(dir: &tempfile::TempDir, hub: SocketAddr, tls: Connector) -> EdgeHandle {
    let node = "a".parse().expect("a name");
    let mut config = EdgeConfig::new(node, [hub], dir.path().join("edge.sock"));
    config.tls = Some(tls);
    config.pod_socket = Some(dir.path().join("pods.sock"));
    config.settings.tunnel =
        TunnelSettings { streams_max: 2, idle: IDLE, ..TunnelSettings::default() };
    let engine = || Arc::new(MemoryEngine::new());
    Edge::start(config, engine(), engine(), EdgeDependencies::default()).await.expect("starts")
}

/// Opens a stream with this id at the hub, with the certificate of `connector`.
async fn open(hub: &HubHandle, connector: &Connector, id: DialId, claims: &str) -> Code {
    let stream = TcpStream::connect(hub.address()).await.expect("the hub listens");
    let mut stream =
        Some(TokioIo::new(connector.connect("127.0.0.1", stream).await.expect("a handshake")));
    let once = service_fn(move |_| {
        let stream = stream.take().ok_or(std::io::ErrorKind::NotConnected);
        async { stream.map_err(std::io::Error::from) }
    });
    let endpoint = Endpoint::from_static("http://hub");
    let channel = endpoint.connect_with_connector(once).await.expect("a channel");
    let (sender, frames) = mpsc::channel(1);
    sender.send(frame::open(id.0, claims, None)).await.expect("room");
    match TunnelClient::new(channel).stream(ReceiverStream::new(frames)).await {
        Ok(_) => Code::Ok,
        Err(status) => status.code(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_edge_has_one_connection_until_a_client_waits_for_a_stream() {
    let cloud = TestCloud::new(&["a"]).await;
    let issuer = Issuer::new();
    let limits = HubLimits { dial_receipt_within: Duration::from_secs(8), ..limits() };
    let (hub, _) = hub_with(&cloud, &issuer, limits).await;
    let (view, node): (_, headwater_event::NodeName) = (hub.view(), "a".parse().expect("a name"));
    let dir = tempfile::tempdir().expect("a directory");
    let connections = Connections::default();
    let way = connections.to(hub.address()).await;

    let absent = view.dial(&node).await.expect_err("no edge has connected");
    assert!(matches!(absent, crate::DialError::Absent { contact: None, .. }), "{absent}");
    let edge = edge(&dir, way, issuer.connector("headwater://node/a")).await;
    until_true("a session", async || {
        view.node_positions().get(&node).is_some_and(|at| at.connected)
    })
    .await;
    assert_eq!(connections.counts(), (1, 1));

    // Its pod worker is not there.
    let refused = view.dial(&node).await.expect_err("there is no server").to_string();
    assert!(refused.contains("pods.sock"), "{refused}");
    until_true("an idle end", async || connections.counts() == (2, 1)).await;

    echo(&dir.path().join("pods.sock"));
    let (mut first, mut second) =
        (view.dial(&node).await.expect("a stream"), view.dial(&node).await.expect("a stream"));
    assert_eq!(connections.counts(), (3, 2), "all streams have one connection");
    let busy = view.dial(&node).await.expect_err("one too many");
    assert!(busy.is_busy() && busy.to_string().contains("2 streams"), "{busy}");

    // Nothing reads the first one, and the second one carries its bytes.
    let (mut unread, mut full) = (Vec::new(), 0);
    while let Ok(written) = timeout(Duration::from_millis(200), first.write(&[1; 8 << 10])).await {
        full += written.expect("written");
        unread.push(());
        assert!(full < 4 * BULK_BYTES, "its window has no end");
    }
    let bulk: Vec<u8> = (0..BULK_BYTES).map(|at| u8::try_from(at % 251).expect("a byte")).collect();
    let (mut reader, mut writer) = tokio::io::split(second);
    let writing = async {
        writer.write_all(&bulk).await.expect("written");
        writer.shutdown().await.expect("its end");
    };
    let reading = async {
        let mut all = Vec::new();
        reader.read_to_end(&mut all).await.expect("read");
        all
    };
    let ((), echoed) = timeout(SOON, async { tokio::join!(writing, reading) }).await.expect("soon");
    assert!(echoed == bulk, "{} bytes", echoed.len());
    second = reader.unsplit(writer);

    // What was held back comes, once it is read.
    first.shutdown().await.expect("its end");
    let mut all = Vec::new();
    timeout(SOON, first.read_to_end(&mut all)).await.expect("soon").expect("read");
    assert_eq!(all.len(), full);
    drop((first, second));
    until_true("an idle end", async || connections.counts() == (3, 1)).await;

    edge.cut_link().await.expect("it runs");
    until_true("an absent node", async || {
        let error = view.dial(&node).await.expect_err("its link is cut");
        matches!(error, crate::DialError::Absent { contact: Some(_), .. })
    })
    .await;
    edge.stop().await;
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_is_taken_once_and_by_the_node_that_was_dialed() {
    let cloud = TestCloud::new(&["a", "b"]).await;
    let issuer = Issuer::new();
    let (hub, _) = hub_with(&cloud, &issuer, limits()).await;
    let (as_a, as_b) =
        (issuer.connector("headwater://node/a"), issuer.connector("headwater://node/b"));
    let mut session = RawSession::open(&hub, &as_a, DialSupport::Taken).await;

    let (view, node) = (hub.view(), "a".parse().expect("a name"));
    let dialing = tokio::spawn(async move { view.dial(&node).await });
    let Dial { id, within_ms } = session.dial().await;
    assert!(within_ms > 1_000);
    let other = DialId(id.0.map(|byte| !byte));
    assert_eq!(open(&hub, &as_a, other, "a").await, Code::NotFound);
    assert_eq!(open(&hub, &as_b, id, "a").await, Code::PermissionDenied, "whatever it claims");
    assert_eq!(open(&hub, &as_a, id, "a").await, Code::Ok);
    assert_eq!(open(&hub, &as_a, id, "a").await, Code::NotFound);
    dialing.await.expect("it ends").expect("a stream");
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_sends_nothing_after_a_dial_does_not_respond() {
    const RECEIPT_WITHIN: Duration = Duration::from_secs(3);
    let cloud = TestCloud::new(&["a"]).await;
    let issuer = Issuer::new();
    let limits = HubLimits { dial_receipt_within: RECEIPT_WITHIN, ..limits() };
    let (hub, _) = hub_with(&cloud, &issuer, limits).await;
    let as_a = issuer.connector("headwater://node/a");
    let mut session = RawSession::open(&hub, &as_a, DialSupport::Confirmed).await;

    // A half-open link: the session is there, and nothing comes.
    let node: headwater_event::NodeName = "a".parse().expect("a name");
    let error = hub.view().dial(&node).await.expect_err("nothing opens it");
    assert!(matches!(error, crate::DialError::Silent { contact: Some(_), .. }), "{error}");
    session.dial().await;
    // A receipt is a sign of life, and the stream may take longer.
    let view = hub.view();
    let mut dialing = tokio::spawn(async move { view.dial(&node).await });
    let Dial { id, .. } = session.dial().await;
    session.wire.0.send(EdgeMessage::DialReceipt.into()).await.expect("sent");
    let longer = RECEIPT_WITHIN + Duration::from_secs(1);
    timeout(longer, &mut dialing).await.expect_err("the hub still waits");
    assert_eq!(open(&hub, &as_a, id, "a").await, Code::Ok);
    dialing.await.expect("it ends").expect("a stream");
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_whose_reports_wait_for_the_log_is_dialled_although_its_receipt_is_not_read() {
    const RECEIPT_WITHIN: Duration = Duration::from_millis(200);
    let cloud = TestCloud::new(&["a"]).await;
    let issuer = Issuer::new();
    let limits =
        HubLimits { dial_receipt_within: RECEIPT_WITHIN, upstream_groups_max: 1, ..limits() };
    let (hub, _) = hub_with(&cloud, &issuer, limits).await;
    let as_a = issuer.connector("headwater://node/a");
    let mut session = RawSession::open(&hub, &as_a, DialSupport::Confirmed).await;
    for partition in [0, 1] {
        cloud.upstream.set_partition_fault(Partition(partition), Some(PartitionFault::Hangs));
    }
    // More than the queue of a partition has room for, and more than a session lets wait.
    let mut after = None;
    for seq in 1..=60 {
        let body = ReportBody::PodStatus {
            pod: "d/pod/web".parse().expect("a key"),
            uid: "u".to_owned(),
            status: format!("{{\"note\":\"{}\"}}", "x".repeat(8_000)).into(),
        };
        let id = ReportId { incarnation: Incarnation(1), boot: 1, seq };
        let reports = vec![Report { id, body, traceparent: None }];
        let message = EdgeMessage::Reports(Reports { after, reports });
        session.wire.0.send(message.into()).await.expect("sent");
        after = Some(id);
    }

    let node: headwater_event::NodeName = "a".parse().expect("a name");
    // What the hub still reads during the dial would be a sign of life.
    until_true("a session that reads no more", async || {
        let dials = hub.hub.sessions.dials(&node).flatten();
        !dials.expect("it takes dials").is_read()
    })
    .await;
    let view = hub.view();
    let mut dialing = tokio::spawn(async move { view.dial(&node).await });
    let Dial { id, .. } = session.dial().await;
    session.wire.0.send(EdgeMessage::DialReceipt.into()).await.expect("sent");
    timeout(3 * RECEIPT_WITHIN, &mut dialing).await.expect_err("the hub still waits");
    assert_eq!(open(&hub, &as_a, id, "a").await, Code::Ok);
    dialing.await.expect("it ends").expect("a stream");
    for partition in [0, 1] {
        cloud.upstream.set_partition_fault(Partition(partition), None);
    }
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_client_of_a_node_that_opens_no_stream_learns_its_last_contact_within_a_second() {
    let cloud = TestCloud::new(&["a"]).await;
    let hub = start_paused(&cloud).await;
    let node = "a".parse().expect("a name");
    // A half-open link of an edge that confirms dials, and one of an edge that does not.
    for (boot, dials) in [(1, DialSupport::Confirmed), (2, DialSupport::Taken)] {
        let (edge, messages) = mpsc::channel(1);
        let mut replies = hub.open_session(ReceiverStream::new(messages).boxed());
        let hello = Hello { dials, ..hello(identity("a", boot, boot), Vec::new()) };
        edge.send(Ok(EdgeMessage::Hello(hello).into())).await.expect("the session is there");
        loop {
            let message = replies.next().await.expect("a session").expect("a message");
            if let HubMessage::Welcome(_) = HubMessage::try_from(message).expect("well-formed") {
                break;
            }
        }
        tokio::spawn(async move { while replies.next().await.is_some() {} });
        let begun = tokio::time::Instant::now();
        let error = hub.view().dial(&node).await.expect_err("nothing opens it");
        match (dials, &error) {
            (DialSupport::Confirmed, crate::DialError::Silent { contact: Some(_), .. }) => {
                let within = begun.elapsed();
                assert!(within < Duration::from_secs(1), "by default after {within:?}");
            }
            (DialSupport::Taken, crate::DialError::Late { contact: Some(_), .. }) => {}
            _ => panic!("{error}"),
        }
        let words = error.to_string();
        assert!(words.contains("hub hub-1 heard it last at "), "{words}");
    }
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_edge_of_an_earlier_version_gets_no_dial() {
    let cloud = TestCloud::new(&["a"]).await;
    let hub = hub(&cloud).await;
    let mut edge = TestEdge::connect(hub.address(), identity("a", 1, 1)).await;
    edge.receive_until("a snapshot", |edge| edge.seq("node/a") > 0).await;
    let error = hub.view().dial(&"a".parse().expect("a name")).await.expect_err("it takes none");
    assert!(matches!(error, crate::DialError::Earlier { .. }), "{error}");
    hub.stop().await;
}
