//! Both ends over an in-memory pipe, with certificates of a test CA and a test clock.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

use super::authority::{Authority, AuthorityError, Validity};
use super::*;

const DAY: Duration = Duration::from_secs(24 * 3600);

/// A clock that tests set, and a CA whose certificates are valid for a day before and after its
/// start.
struct World {
    dir: TempDir,
    start: SystemTime,
    now: Arc<Mutex<SystemTime>>,
    authority: Authority,
}

fn principal(uri: &str) -> Principal {
    uri.parse().expect("a principal")
}

impl World {
    fn new() -> Self {
        let start = SystemTime::UNIX_EPOCH + 20_000 * DAY;
        let validity = Validity { from: start - 10 * DAY, until: start + 10 * DAY };
        let authority = Authority::create("test", validity).expect("made");
        let dir = tempfile::tempdir().expect("a directory");
        fs::write(dir.path().join("ca.crt"), authority.certificate()).expect("written");
        Self { dir, start, now: Arc::new(Mutex::new(start)), authority }
    }

    fn clock(&self) -> Clock {
        let now = self.now.clone();
        Arc::new(move || *now.lock().expect("whole"))
    }

    fn set_clock(&self, now: SystemTime) {
        *self.now.lock().expect("whole") = now;
    }

    fn around(&self) -> Validity {
        Validity { from: self.start - DAY, until: self.start + DAY }
    }

    /// Another CA, with the same clock and the same folder.
    fn other_authority(&self) -> Authority {
        let validity = Validity { from: self.start - 10 * DAY, until: self.start + 10 * DAY };
        Authority::create("other", validity).expect("made")
    }

    /// Makes these the CAs that both ends trust.
    fn trust(&self, authorities: &[&Authority]) {
        let text: String = authorities.iter().map(|authority| authority.certificate()).collect();
        replace(&self.dir.path().join("ca.crt"), &text);
    }

    fn files(&self, name: &str) -> TlsFiles {
        let file = |end: &str| self.dir.path().join(format!("{name}.{end}"));
        TlsFiles { ca: self.dir.path().join("ca.crt"), certificate: file("crt"), key: file("key") }
    }

    fn issue(&self, name: &str, uri: &str, addresses: &[&str], validity: Validity) -> TlsFiles {
        let addresses: Vec<_> = addresses.iter().map(|text| (*text).to_owned()).collect();
        let issued = self.authority.issue(&principal(uri), &addresses, validity).expect("issued");
        let files = self.files(name);
        replace(&files.certificate, &issued.certificate);
        replace(&files.key, &issued.key);
        files
    }

    fn node(&self) -> Connector {
        let files = self.issue("a", "headwater://node/a", &[], self.around());
        Connector::open(files, self.clock()).expect("opens")
    }

    fn hub(&self) -> Acceptor {
        let files = self.issue("hub", "headwater://hub/one", &["hub.test"], self.around());
        Acceptor::open(files, self.clock()).expect("opens")
    }
}

/// Replaces a file as a rotation does: another file is renamed over it.
fn replace(file: &Path, text: &str) {
    let new = file.with_extension("new");
    fs::write(&new, text).expect("written");
    fs::rename(new, file).expect("renamed");
}

/// Replaces the content of a file in place. Of the metadata only the change time differs, and not
/// even that if the file system's clock has not ticked.
fn rewrite(file: &Path, text: &str) {
    let modified = fs::metadata(file).and_then(|metadata| metadata.modified()).expect("there");
    let mut open = fs::File::options().write(true).truncate(true).open(file).expect("opens");
    open.write_all(text.as_bytes()).expect("written");
    open.set_modified(modified).expect("set");
}

/// The trust of each end in the other.
async fn trusts(acceptor: &Acceptor, connector: &Connector) -> (PeerTrust, PeerTrust) {
    let (at_edge, at_hub) = duplex(1 << 16);
    let (accepted, connected) =
        tokio::join!(acceptor.accept(at_hub), connector.connect_to("hub.test", at_edge));
    let (_, node) = accepted.expect("accepted");
    let (_, hub) = connected.expect("connected");
    (node.expect("shown").trust, hub.trust)
}

type Ends = (Result<Option<Certificate>, HandshakeError>, Result<(), String>);

/// Connects both ends and returns the result of each. The edge sends a byte and waits for one.
async fn meet(acceptor: &Acceptor, connector: &Connector, host: &str) -> Ends {
    let (at_edge, at_hub) = duplex(1 << 16);
    let hub = async {
        let (mut stream, peer) = acceptor.accept(at_hub).await?;
        let _ = stream.read_u8().await;
        let _ = stream.write_u8(7).await;
        let _ = stream.flush().await;
        Ok(peer.map(|peer| peer.certificate))
    };
    let edge = async {
        let stream = connector.connect(host, at_edge).await.map_err(|error| error.to_string())?;
        let (mut stream, refusal) = RefusalDetector::new(stream);
        let exchange = async {
            stream.write_u8(7).await?;
            stream.flush().await?;
            stream.read_u8().await
        };
        match exchange.await {
            Ok(_) => Ok(()),
            Err(error) => Err(match refusal.refusal() {
                Some(refused) => refused.to_string(),
                None => error.to_string(),
            }),
        }
    };
    tokio::join!(hub, edge)
}

fn assert_contains(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "{word:?} is not in {text:?}");
    }
}

#[tokio::test]
async fn a_hub_learns_the_name_of_a_node_from_its_certificate() {
    let world = World::new();
    let (met, connected) = meet(&world.hub(), &world.node(), "hub.test").await;
    connected.expect("connected");
    let certificate = met.expect("accepted").expect("shown");
    assert_eq!(certificate.principal, Ok(principal("headwater://node/a")));
    assert_eq!(certificate.not_after, world.start + DAY);
}

#[tokio::test]
async fn a_hub_is_known_by_its_name_and_its_ca() {
    let world = World::new();
    let (_, other) = meet(&world.hub(), &world.node(), "else.test").await;
    assert_contains(&other.expect_err("another name"), &["hub.test", "else.test", "--dns"]);

    let strangers = World::new();
    let (met, connected) = meet(&strangers.hub(), &world.node(), "hub.test").await;
    assert_contains(&connected.expect_err("another CA"), &["not from the CA", "ca.crt"]);
    met.expect_err("the edge hung up");
}

#[tokio::test]
async fn no_node_passes_for_a_hub() {
    let world = World::new();
    let files = world.issue("b", "headwater://node/b", &["hub.test"], world.around());
    let rogue = Acceptor::open(files, world.clock()).expect("opens");
    let (_, connected) = meet(&rogue, &world.node(), "hub.test").await;
    connected.expect_err("no server");
}

#[tokio::test]
async fn a_node_of_another_ca_is_refused_with_the_reason() {
    let (world, strangers) = (World::new(), World::new());
    let mut files = strangers.issue("a", "headwater://node/a", &[], world.around());
    files.ca = world.files("a").ca;
    let stranger = Connector::open(files, world.clock()).expect("opens");
    let (met, connected) = meet(&world.hub(), &stranger, "hub.test").await;
    assert!(matches!(met, Err(HandshakeError::Failed(_))), "{met:?}");
    assert_contains(
        &connected.expect_err("another CA"),
        &["refused this node's certificate", "another CA"],
    );
}

#[tokio::test]
async fn an_error_of_a_wrong_clock_names_both_times() {
    let world = World::new();
    let (hub, node) = (world.hub(), world.node());
    world.set_clock(SystemTime::UNIX_EPOCH);
    let (_, early) = meet(&hub, &node, "hub.test").await;
    let words =
        ["a.crt", "valid from 2024-10-03T00:00:00Z", "1970-01-01T00:00:00Z", "set the clock"];
    assert_contains(&early.expect_err("1970"), &words);
    world.set_clock(world.start + 2 * DAY);
    let (_, late) = meet(&hub, &node, "hub.test").await;
    assert_contains(
        &late.expect_err("late"),
        &["a.crt", "until 2024-10-05T00:00:00Z", "2024-10-06T00:00:00Z"],
    );

    // The same of the server's certificate.
    let long = Validity { from: world.start - 9 * DAY, until: world.start + 9 * DAY };
    let files = world.issue("long", "headwater://node/a", &[], long);
    let node = Connector::open(files, world.clock()).expect("opens");
    let (_, late) = meet(&hub, &node, "hub.test").await;
    assert_contains(
        &late.expect_err("late"),
        &["the server's certificate", "until 2024-10-05T00:00:00Z"],
    );
    world.set_clock(world.start - 2 * DAY);
    let (_, early) = meet(&hub, &node, "hub.test").await;
    assert_contains(
        &early.expect_err("early"),
        &["the server's certificate", "from 2024-10-03T00:00:00Z"],
    );
}

#[tokio::test]
async fn a_hub_refuses_a_certificate_that_is_expired_by_its_own_clock() {
    let world = World::new();
    let node = world.node();
    let long = Validity { from: world.start - 9 * DAY, until: world.start + 9 * DAY };
    let files = world.issue("hub", "headwater://hub/one", &["hub.test"], long);
    let later = world.start + 5 * DAY;
    let hub = Acceptor::open(files, Arc::new(move || later)).expect("opens");
    let (met, connected) = meet(&hub, &node, "hub.test").await;
    met.expect_err("over");
    assert_contains(
        &connected.expect_err("refused"),
        &["refused this node's certificate", "not valid now"],
    );
}

#[tokio::test]
async fn changed_files_are_reloaded_and_half_a_rotation_ends_no_service() {
    let world = World::new();
    let (hub, node) = (world.hub(), world.node());
    let name = |ends: Ends| ends.0.expect("accepted").expect("shown").principal;
    let named = name(meet(&hub, &node, "hub.test").await);
    assert_eq!(named, Ok(principal("headwater://node/a")));

    // The certificate comes first, its key later.
    let validity = world.around();
    let to = principal("headwater://node/again");
    let issued = world.authority.issue(&to, &[], validity).expect("issued");
    let files = world.files("a");
    replace(&files.certificate, &issued.certificate);
    let named = name(meet(&hub, &node, "hub.test").await);
    assert_eq!(named, Ok(principal("headwater://node/a")), "the pair before");
    replace(&files.key, &issued.key);
    assert_eq!(name(meet(&hub, &node, "hub.test").await), Ok(to));

    // The hub's too, whose name changes.
    world.issue("hub", "headwater://hub/one", &["new.test"], validity);
    meet(&hub, &node, "new.test").await.1.expect("the new name");
    fs::remove_file(world.files("hub").key).expect("removed");
    meet(&hub, &node, "new.test").await.1.expect("the previous files stay in use");
}

#[tokio::test]
async fn a_rotation_that_the_clock_forbids_is_taken_when_the_clock_is_right() {
    let world = World::new();
    let (hub, node) = (world.hub(), world.node());
    let name = |ends: Ends| ends.0.expect("accepted").expect("shown").principal;
    world.set_clock(world.start - 2 * DAY);
    let soon = Validity { from: world.start - DAY, until: world.start + 5 * DAY };
    world.issue("a", "headwater://node/again", &[], soon);
    meet(&hub, &node, "hub.test").await.1.expect_err("nothing is valid by this clock");
    world.set_clock(world.start);
    let named = name(meet(&hub, &node, "hub.test").await);
    assert_eq!(named, Ok(principal("headwater://node/again")), "the files did not change again");
}

#[tokio::test]
async fn a_rotation_that_could_not_be_read_is_taken_without_a_further_change() {
    let world = World::new();
    let (hub, node) = (world.hub(), world.node());
    let name = |ends: Ends| ends.0.expect("accepted").expect("shown").principal;
    let to = principal("headwater://node/again");
    let issued = world.authority.issue(&to, &[], world.around()).expect("issued");
    let files = world.files("a");
    // As with a file that only its owner may read: the metadata is there, the content is not.
    replace(&files.key, &"?".repeat(issued.key.len()));
    replace(&files.certificate, &issued.certificate);
    let named = name(meet(&hub, &node, "hub.test").await);
    assert_eq!(named, Ok(principal("headwater://node/a")), "the pair before");
    rewrite(&files.key, &issued.key);
    assert_eq!(name(meet(&hub, &node, "hub.test").await), Ok(to));
}

#[tokio::test]
async fn a_rewrite_that_leaves_no_trace_in_the_metadata_is_found_by_a_refresh() {
    let world = World::new();
    let (hub, node) = (world.hub(), world.node());
    let (mut of_node, _) = trusts(&hub, &node).await;
    let ca = world.files("a").ca;
    let other = world.other_authority();
    rewrite(&ca, other.certificate());
    hub.refresh();
    of_node.check().expect_err("another CA");
}

#[tokio::test]
async fn a_new_ca_ends_the_trust_in_its_peers_and_both_together_end_none() {
    let world = World::new();
    let (hub, node) = (world.hub(), world.node());
    let other = world.other_authority();
    let (mut of_node, mut of_hub) = trusts(&hub, &node).await;

    world.trust(&[&world.authority, &other]);
    meet(&hub, &node, "hub.test").await.1.expect("a connection reads the files of both");
    of_node.check().expect("both CAs are there");
    of_hub.check().expect("both CAs are there");
    world.issue("a", "headwater://node/a", &[], world.around());
    meet(&hub, &node, "hub.test").await.1.expect("a connection reads the files of both");
    of_node.check().expect("a certificate of its own is no CA");

    world.trust(&[&other]);
    // A new connection meets the new CA at once, and with it the live ones do.
    meet(&hub, &node, "hub.test").await.0.expect_err("the former CA's certificate");
    let distrust = of_node.check().expect_err("the CA is gone");
    assert_contains(&distrust.to_string(), &["ca.crt", "issue it"]);
    of_hub.check().expect_err("the CA is gone");
    of_node.check().expect_err("and stays so");
    world.trust(&[&world.authority]);
    hub.refresh();
    of_node.check().expect("the CA is back");
}

#[tokio::test(start_paused = true)]
async fn a_waiting_client_learns_within_the_interval_that_its_server_is_trusted_no_more() {
    let world = World::new();
    let (hub, node) = (world.hub(), world.node());
    let (_, mut of_hub) = trusts(&hub, &node).await;
    let waits = tokio::time::timeout(10 * REFRESH_INTERVAL, of_hub.lost());
    waits.await.expect_err("the CA is there");
    world.trust(&[&world.other_authority()]);
    let lost = tokio::time::timeout(2 * REFRESH_INTERVAL, of_hub.lost());
    lost.await.expect("within the interval");
}

#[tokio::test]
async fn a_peer_that_speaks_another_protocol_is_refused() {
    let world = World::new();
    let (mut peer, at_hub) = duplex(1 << 12);
    peer.write_all(b"GET / HTTP/1.1\r\n\r\n").await.expect("written");
    let met = world.hub().accept(at_hub).await;
    assert!(matches!(met, Err(HandshakeError::Failed(_))));
}

#[test]
fn an_error_of_a_file_names_the_file() {
    let world = World::new();
    let open = |files: TlsFiles| Acceptor::open(files, world.clock()).map(|_| ());
    let hub = || world.issue("hub", "headwater://hub/one", &["hub.test"], world.around());
    open(hub()).expect("whole");

    let mut files = hub();
    files.key = world.dir.path().join("missing.key");
    let error = open(files).expect_err("missing");
    assert!(matches!(&error, IdentityError::Read { .. }), "{error:?}");
    assert_contains(&error.to_string(), &["missing.key", "private key"]);

    let files = hub();
    fs::File::create(&files.certificate).expect("there").write_all(b"x").expect("written");
    let error = open(files).expect_err("garbage");
    assert!(matches!(&error, IdentityError::Pem { what: "certificate", .. }), "{error:?}");

    let mut files = hub();
    files.key = world.issue("other", "headwater://hub/two", &["hub.test"], world.around()).key;
    let error = open(files).expect_err("no pair");
    assert!(matches!(&error, IdentityError::NoPair { .. }), "{error:?}");
    assert_contains(&error.to_string(), &["other.key", "hub.crt", "no pair"]);

    let files = hub();
    world.set_clock(world.start + 2 * DAY);
    let error = open(files).expect_err("over");
    assert!(matches!(&error, IdentityError::Expired { .. }), "{error:?}");
}

#[test]
fn an_error_of_a_wrong_owner_names_both_principals() {
    let world = World::new();
    let node = world.node();
    node.check_owner(&principal("headwater://node/a")).expect("its own");
    let error = node.check_owner(&principal("headwater://node/b")).expect_err("another's");
    assert_contains(&error.to_string(), &["a.crt", "node a", "node b"]);
}

#[test]
fn a_reopened_ca_issues_in_the_same_name() {
    let world = World::new();
    let (certificate, key) = (world.authority.certificate(), world.authority.key());
    let again = Authority::from_pem(certificate, &key).expect("reads");
    let to = principal("headwater://node/a");
    again.issue(&to, &[], world.around()).expect("issues");
    let other = Authority::create("other", world.around()).expect("made");
    let error = Authority::from_pem(certificate, &other.key()).expect_err("two CAs");
    assert!(matches!(error, AuthorityError::NoPair(_)), "{error:?}");
    let odd = principal("headwater://hub/one");
    let error = again.issue(&odd, &["a b".to_owned()], world.around()).err().expect("no address");
    assert!(matches!(error, AuthorityError::Address { .. }), "{error:?}");
}

#[test]
fn a_uri_names_one_principal() {
    for uri in ["headwater://node/a.b-c", "headwater://hub/h", "headwater://operator/o"] {
        assert_eq!(principal(uri).uri(), uri);
    }
    for uri in [
        "",
        "headwater://node/",
        "headwater://node/A",
        "headwater://node/a/b",
        "headwater://guest/a",
        "https://node/a",
        "headwater://node",
    ] {
        uri.parse::<Principal>().expect_err(uri);
    }
}
