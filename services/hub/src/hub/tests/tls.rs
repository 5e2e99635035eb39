//! Sessions over real TLS: what a certificate permits a node to do, and what it does not.

use std::collections::BTreeMap;
use std::time::SystemTime;
use std::{fs, io};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use headwater_event::RequestVerb;
use headwater_identity::authority::{Authority, Validity};
use headwater_identity::{Acceptor, Connector, Principal, TlsFiles, system_clock};
use headwater_proto::replication::replication_client::ReplicationClient;
use headwater_session::message::{Request, RequestError, StreamProgress};
use hyper_util::rt::TokioIo;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto, version};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use tonic::transport::Endpoint;
use tower::service_fn;

use super::*;
use edge::Wire;
use requests::POD_WITH_TOKEN;

const DAY: Duration = Duration::from_secs(24 * 3600);

/// A CA, and the files of the certificates that it issued.
pub(super) struct Issuer {
    dir: TempDir,
    authority: Authority,
}

impl Issuer {
    pub(super) fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let authority = Authority::create("test", for_a(DAY)).expect("made");
        fs::write(dir.path().join("ca.crt"), authority.certificate()).expect("written");
        Self { dir, authority }
    }

    pub(super) fn files(&self, uri: &str, addresses: &[&str], lasts: Duration) -> TlsFiles {
        let to: Principal = uri.parse().expect("a principal");
        let addresses: Vec<_> = addresses.iter().map(|text| (*text).to_owned()).collect();
        let issued = self.authority.issue(&to, &addresses, for_a(lasts)).expect("issued");
        let file = |end: &str| self.dir.path().join(format!("{to}.{end}"));
        fs::write(file("crt"), issued.certificate).expect("written");
        fs::write(file("key"), issued.key).expect("written");
        let ca = self.dir.path().join("ca.crt");
        TlsFiles { ca, certificate: file("crt"), key: file("key") }
    }

    /// Puts what this CA issues to `uri` in the place of what `other` did, whose CA stays.
    pub(super) fn replace(&self, other: &Self, uri: &str) {
        let from = self.files(uri, &[], DAY);
        let to: Principal = uri.parse().expect("a principal");
        for (file, end) in [(from.certificate, "crt"), (from.key, "key")] {
            fs::copy(file, other.dir.path().join(format!("{to}.{end}"))).expect("copied");
        }
    }

    /// Makes these the CAs that hubs and edges of this issuer trust.
    fn trust(&self, issuers: &[&Self]) {
        let authorities: String =
            issuers.iter().map(|issuer| issuer.authority.certificate()).collect();
        let new = self.dir.path().join("ca.new");
        fs::write(&new, authorities).expect("written");
        fs::rename(new, self.dir.path().join("ca.crt")).expect("renamed");
    }

    fn acceptor(&self) -> Acceptor {
        let files = self.files("headwater://hub/hub-1", &["127.0.0.1", "localhost"], DAY);
        Acceptor::open(files, system_clock()).expect("opens")
    }

    pub(super) fn connector(&self, uri: &str) -> Connector {
        self.lasting(uri, DAY)
    }

    fn lasting(&self, uri: &str, lasts: Duration) -> Connector {
        Connector::open(self.files(uri, &[], lasts), system_clock()).expect("opens")
    }
}

fn for_a(while_: Duration) -> Validity {
    let now = SystemTime::now();
    Validity { from: now - DAY, until: now + while_ }
}

pub(super) async fn hub_with(
    cloud: &TestCloud,
    issuer: &Issuer,
    limits: HubLimits,
) -> (HubHandle, Registry) {
    let registry = Registry::new();
    let (logs, engine) = (cloud.logs(), Arc::new(MemoryEngine::new()));
    let config = HubConfig { tls: Some(issuer.acceptor()), ..config(settings(), limits) };
    let hub = Hub::start(config, dependencies(&logs, &engine, &registry)).await.expect("starts");
    until_true("a hub that has read its log", async || hub.view().is_reconciled()).await;
    (hub, registry)
}

pub(super) async fn secure(hub: &HubHandle, connector: &Connector) -> Result<Wire, Status> {
    let stream = TcpStream::connect(hub.address()).await.expect("the hub listens");
    let stream = connector.connect("127.0.0.1", stream).await.expect("a handshake");
    over(stream).await
}

async fn over<S>(stream: S) -> Result<Wire, Status>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin + 'static,
{
    let mut stream = Some(TokioIo::new(stream));
    let once = service_fn(move |_| {
        let stream = stream.take().ok_or(io::ErrorKind::NotConnected);
        async { stream.map_err(io::Error::from) }
    });
    let endpoint = Endpoint::from_static("http://hub");
    let channel = endpoint.connect_with_connector(once).await.expect("a channel");
    let (sender, outgoing) = tokio::sync::mpsc::channel(64);
    let receiver = ReplicationClient::new(channel).session(ReceiverStream::new(outgoing)).await?;
    Ok((sender, receiver.into_inner()))
}

async fn connect(hub: &HubHandle, issuer: &Issuer, node: &str) -> TestEdge {
    let connector = issuer.connector(&format!("headwater://node/{node}"));
    let wire = secure(hub, &connector).await.expect("a session");
    let mut edge = TestEdge::over(wire, identity(node, 1, 1), BTreeMap::new()).await;
    edge.receive_until("a snapshot", |edge| edge.seq(&format!("node/{node}")) > 0).await;
    edge
}

/// The refusal of a hello that is sent over `wire`.
async fn hello_over((sender, mut receiver): Wire, claims: &str) -> (RefusalCode, String) {
    let hello = hello(identity(claims, 1, 9), Vec::new());
    sender.send(EdgeMessage::Hello(hello).into()).await.expect("sent");
    refusal(timeout(SOON, receiver.message()).await.expect("soon").expect("a reason"))
}

fn refusal(message: Option<replication::HubMessage>) -> (RefusalCode, String) {
    match HubMessage::try_from(message.expect("a message")).expect("well-formed") {
        HubMessage::Refusal(refusal) => (refusal.code, refusal.message),
        other => panic!("not refused: {other:?}"),
    }
}

fn assert_contains(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "{word:?} is not in {text:?}");
    }
}

fn counted(registry: &Registry, outcome: &str) -> f64 {
    counted_in(registry, "headwater_hub_handshakes_total", outcome)
}

fn rejected(registry: &Registry, reason: &str) -> f64 {
    counted_in(registry, "headwater_hub_handshakes_rejected_total", reason)
}

fn counted_in(registry: &Registry, family: &str, outcome: &str) -> f64 {
    let families = registry.gather();
    let family = families.iter().find(|found| found.name() == family);
    let metrics = family.expect("registered").get_metric();
    let of = metrics.iter().find(|metric| metric.get_label()[0].value() == outcome);
    of.expect("known").get_counter().get_value()
}

/// A request for the certificate of a node of the cluster.
pub(super) fn signing_request(node: &str) -> String {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
    params.distinguished_name.push(DnType::CommonName, format!("system:node:{node}"));
    let key = KeyPair::generate().expect("a key");
    let pem = params.serialize_request(&key).expect("a request").pem().expect("PEM");
    let (request, signer) =
        (BASE64_STANDARD.encode(pem), "kubernetes.io/kube-apiserver-client-kubelet");
    let spec = serde_json::json!({
        "request": request, "signerName": signer, "usages": ["client auth"],
    });
    serde_json::json!({ "spec": spec }).to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_of_one_node_reads_and_writes_nothing_of_another() {
    let mut cloud = TestCloud::new(&["a", "b"]).await;
    cloud.set("node/b", "private", Some("{\"secret\":1}".to_owned())).await;
    // A pod of a has the same ServiceAccount as the pod of b.
    for (node, pod, uid) in [("node/a", "d/pod/own", "u-a"), ("node/b", "d/pod/web", "u-b")] {
        cloud.set_key(node, pod, Some(POD_WITH_TOKEN.replace("u1", uid))).await;
    }
    let issuer = Issuer::new();
    let (hub, _) = hub_with(&cloud, &issuer, limits()).await;
    let mut b = connect(&hub, &issuer, "b").await;
    b.receive_until("what it has", |b| b.seq("node/b") == 3).await;
    let as_a = issuer.connector("headwater://node/a");

    // A hello as b.
    let (code, words) = hello_over(secure(&hub, &as_a).await.expect("a session"), "b").await;
    assert_eq!(code, RefusalCode::Forbidden);
    assert_contains(&words, &["certificate is for node a", "the hello names node b"]);

    // A hello as a with a position in b's stream.
    let stream = || "node/b".parse::<StreamId>().expect("a stream");
    let checkpoint = Checkpoint { log_id: cloud.log_id(), epoch: WriterEpoch(1), seq: Seq(1) };
    let position = ReplicaPosition { stream: stream(), checkpoint, hash: StateHash::EMPTY };
    let (sender, mut receiver) = secure(&hub, &as_a).await.expect("a session");
    let hello = hello(identity("a", 1, 1), vec![position]);
    sender.send(EdgeMessage::Hello(hello).into()).await.expect("sent");
    let (code, _) =
        refusal(timeout(SOON, receiver.message()).await.expect("soon").expect("a reason"));
    assert_eq!(code, RefusalCode::Violation);

    // Acknowledgements of b's stream.
    let mut a = connect(&hub, &issuer, "a").await;
    let progress = StreamProgress { stream: stream(), applied: Seq(9), durable: Seq(9) };
    let ack = Ack { received_bytes: 0, progress: vec![progress] };
    a.sender.send(EdgeMessage::Ack(ack).into()).await.expect("sent");
    assert_eq!(refused(a.receive_end().await), RefusalCode::Violation);

    // A request for what b alone has.
    let (sender, mut receiver) = secure(&hub, &as_a).await.expect("a session");
    let hello = super::hello(identity("a", 2, 2), Vec::new());
    sender.send(EdgeMessage::Hello(hello).into()).await.expect("sent");
    let token = |pod: &str, uid: &str, audience: &str| {
        let bound = format!(r#"{{"kind":"Pod","apiVersion":"v1","name":"{pod}","uid":"{uid}"}}"#);
        format!(r#"{{"spec":{{"audiences":["{audience}"],"boundObjectRef":{bound}}}}}"#)
    };
    let (robot, csr) = ("d/serviceaccount/robot", "null/certificatesigningrequest/c");
    for (id, (verb, key, body, why)) in (7..).zip([
        (RequestVerb::Get, "d/configmap/private", String::new(), RequestError::NOT_NAMED),
        (RequestVerb::Get, "null/node/b", String::new(), "its own Node only"),
        (RequestVerb::Token, robot, token("web", "u-b", "vault"), "this node has no pod d/pod/web"),
        (RequestVerb::Token, robot, token("own", "u-b", "vault"), "has another UID"),
        (RequestVerb::Token, robot, token("own", "u-a", "else"), "for this audience"),
        (RequestVerb::Csr, csr, signing_request("b"), "the subject must be CN=system:node:a"),
    ]) {
        let key = key.parse().expect("a key");
        let request =
            Request { verb: Some(verb), body: body.into(), ..Request::get(id, 1_000, key) };
        sender.send(EdgeMessage::Request(request).into()).await.expect("sent");
        let answer = loop {
            let message = timeout(SOON, receiver.message()).await.expect("soon");
            let message = message.expect("a session").expect("a message");
            match HubMessage::try_from(message).expect("well-formed") {
                HubMessage::Response(response) => break response.outcome,
                HubMessage::Push(push) => assert_ne!(push.stream, stream(), "I6"),
                _ => {}
            }
        };
        let Err(RequestError::Forbidden(words)) = &answer else { panic!("{verb}: {answer:?}") };
        assert_contains(words, &[why]);
    }
    drop((sender, receiver));

    // Reports of pods, also of b's, are appended under a's name.
    let mut a = TestEdge::over(
        secure(&hub, &as_a).await.expect("a session"),
        identity("a", 3, 3),
        BTreeMap::new(),
    )
    .await;
    a.receive_until("a welcome", TestEdge::is_open).await;
    let of_b = b.report(1).await;
    b.receive_until("an acknowledgement", |b| b.unacknowledged() == 0).await;
    let of_a = a.report(1).await;
    a.receive_until("an acknowledgement", |a| a.unacknowledged() == 0).await;
    assert_eq!(cloud.reports(a.node()).await, [of_a]);
    assert_eq!(cloud.reports(b.node()).await, [of_b], "both name the pod d/p1");

    // And b is not affected.
    cloud.set("node/b", "private", None).await;
    b.receive_until("the next event", |b| b.seq("node/b") == 4).await;
    b.check_prefix(&cloud);
    hub.stop().await;
}

/// A client that trusts the CA and has no certificate.
fn anonymous(issuer: &Issuer) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from_pem_slice(issuer.authority.certificate().as_bytes());
    roots.add(authority.expect("a certificate")).expect("a CA");
    let provider = Arc::new(crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&version::TLS13])
        .expect("TLS 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    TlsConnector::from(Arc::new(config))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_without_a_certificate_of_a_node_is_refused_with_the_reason() {
    let cloud = TestCloud::new(&["a"]).await;
    let issuer = Issuer::new();
    let (hub, registry) = hub_with(&cloud, &issuer, limits()).await;

    for (uri, whose) in
        [("headwater://hub/other", "hub other"), ("headwater://operator/a", "operator a")]
    {
        let wire = secure(&hub, &issuer.connector(uri)).await;
        // A hub's certificate is for servers only: its connection gets no session.
        let Ok(wire) = wire else { continue };
        let (code, words) = hello_over(wire, "a").await;
        assert_eq!(code, RefusalCode::Forbidden);
        assert_contains(&words, &[whose, "one of its node"]);
    }
    let anonymous = anonymous(&issuer);
    let stream = TcpStream::connect(hub.address()).await.expect("the hub listens");
    let name = "127.0.0.1".try_into().expect("a name");
    let stream = anonymous.connect(name, stream).await.expect("a handshake");
    let (code, words) = hello_over(over(stream).await.expect("a session"), "a").await;
    assert_eq!(code, RefusalCode::Forbidden);
    assert_contains(&words, &["shows no certificate"]);

    // A connection without TLS is closed, and counted.
    let failed = counted(&registry, "failed");
    let plain = TcpStream::connect(hub.address()).await.expect("the hub listens");
    assert!(over(plain).await.is_err());
    until_true("a count", async || counted(&registry, "failed") > failed).await;
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rejected_handshake_is_counted_by_its_reason() {
    let cloud = TestCloud::new(&["a"]).await;
    let (issuer, stranger) = (Issuer::new(), Issuer::new());
    let (hub, registry) = hub_with(&cloud, &issuer, limits()).await;

    // An edge that trusts the hub, with a certificate of another CA.
    stranger.trust(&[&issuer]);
    let connector = stranger.connector("headwater://node/a");
    let stream = TcpStream::connect(hub.address()).await.expect("the hub listens");
    // The hub refuses the certificate after the edge's end of the handshake.
    let outcome = connector.connect("127.0.0.1", stream).await;
    until_true("the count", async || rejected(&registry, "untrusted") > 0.0).await;
    drop(outcome);

    // An edge that does not trust the hub.
    let other = Issuer::new();
    let stream = TcpStream::connect(hub.address()).await.expect("the hub listens");
    let refused = other.connector("headwater://node/a").connect("127.0.0.1", stream).await;
    assert!(refused.is_err());
    until_true("the count", async || rejected(&registry, "refused_by_peer") > 0.0).await;

    let mut plain = TcpStream::connect(hub.address()).await.expect("the hub listens");
    tokio::io::AsyncWriteExt::write_all(&mut plain, b"GET / HTTP/1.1\r\n\r\n").await.expect("sent");
    until_true("the count", async || rejected(&registry, "no_tls") > 0.0).await;
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_without_handshake_delays_no_other_and_is_closed() {
    let cloud = TestCloud::new(&["a"]).await;
    let issuer = Issuer::new();
    let limits = HubLimits { handshake_within: Duration::from_secs(5), ..limits() };
    let (hub, registry) = hub_with(&cloud, &issuer, limits).await;
    let mut silent = TcpStream::connect(hub.address()).await.expect("the hub listens");
    connect(&hub, &issuer, "a").await;
    let mut nothing = [0];
    let closed = tokio::io::AsyncReadExt::read(&mut silent, &mut nothing);
    let closed = timeout(SOON, closed).await.expect("soon");
    assert!(matches!(closed, Ok(0) | Err(_)), "{closed:?}");
    // The hub closes the connection before it counts it.
    until_true("the count", async || counted(&registry, "late") >= 1.0).await;
    assert!(counted(&registry, "done") >= 1.0);
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_ends_with_its_certificate() {
    let cloud = TestCloud::new(&["a"]).await;
    let issuer = Issuer::new();
    let (hub, _) = hub_with(&cloud, &issuer, limits()).await;
    let connector = issuer.lasting("headwater://node/a", Duration::from_secs(10));
    let wire = secure(&hub, &connector).await.expect("a session");
    let mut edge = TestEdge::over(wire, identity("a", 1, 1), BTreeMap::new()).await;
    edge.receive_until("a welcome", TestEdge::is_open).await;
    assert_eq!(refused(edge.receive_end().await), RefusalCode::Forbidden);
    hub.stop().await;
}

/// The hub reads its files at each handshake; a peer without a certificate makes it do so.
async fn shake_hands(hub: &HubHandle, issuer: &Issuer) {
    let stream = TcpStream::connect(hub.address()).await.expect("the hub listens");
    let name = "127.0.0.1".try_into().expect("a name");
    anonymous(issuer).connect(name, stream).await.expect("a handshake");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_ends_with_the_trust_in_its_ca_and_the_others_go_on() {
    let mut cloud = TestCloud::new(&["a", "b"]).await;
    let (issuer, next) = (Issuer::new(), Issuer::new());
    let (hub, _) = hub_with(&cloud, &issuer, limits()).await;
    let mut a = connect(&hub, &issuer, "a").await;

    // Both CAs for a while, as a rotation has it.
    issuer.trust(&[&issuer, &next]);
    next.trust(&[&issuer]);
    let mut b = connect(&hub, &next, "b").await;
    cloud.set("node/a", "c", Some("{}".to_owned())).await;
    a.receive_until("an event under both CAs", |a| a.seq("node/a") == 2).await;

    issuer.trust(&[&next]);
    shake_hands(&hub, &issuer).await;
    assert_eq!(refused(a.receive_end().await), RefusalCode::Forbidden);
    cloud.set("node/b", "c", Some("{}".to_owned())).await;
    b.receive_until("an event under the next CA", |b| b.seq("node/b") == 2).await;
    hub.stop().await;
}
