//! The real edge against hubs over real TLS.

use headwater_edge::BackoffSettings;
use headwater_edge::{Edge, EdgeConfig, EdgeDependencies, EdgeHandle, HubAddress, StartError};
use headwater_identity::{Connector, IdentityError};

use super::tls::{Issuer, hub_with};
use super::*;

/// An edge of node `a` with this certificate and these hubs.
async fn edge(
    dir: &tempfile::TempDir,
    hubs: Vec<HubAddress>,
    tls: Connector,
) -> Result<EdgeHandle, StartError> {
    let node = "a".parse().expect("a name");
    let mut config = EdgeConfig::new(node, hubs, dir.path().join("edge.sock"));
    config.tls = Some(tls);
    config.settings.session.backoff = BackoffSettings {
        base: Duration::from_millis(20),
        cap: Duration::from_millis(100),
        ..BackoffSettings::default()
    };
    let engine = || Arc::new(MemoryEngine::new());
    Edge::start(config, engine(), engine(), EdgeDependencies::default()).await
}

fn named(hub: &HubHandle) -> HubAddress {
    format!("localhost:{}", hub.address().port()).parse().expect("an address")
}

async fn until_connected(edge: &EdgeHandle, is_so: bool) {
    until_true("a connection, or its end", async || {
        edge.status().await.is_ok_and(|status| status.connected == is_so)
    })
    .await;
}

async fn trouble(edge: &EdgeHandle, words: &[&str]) {
    let trouble = || async { edge.status().await.ok().and_then(|status| status.trouble) };
    until_true(&format!("{words:?} as trouble"), async || {
        trouble().await.is_some_and(|trouble| words.iter().all(|word| trouble.contains(word)))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_edge_connects_by_name_and_reports_what_is_wrong_with_a_certificate() {
    let cloud = TestCloud::new(&["a"]).await;
    let issuer = Issuer::new();
    let (hub, _) = hub_with(&cloud, &issuer, limits()).await;
    let dir = tempfile::tempdir().expect("a directory");

    let whole = edge(&dir, vec![named(&hub)], issuer.connector("headwater://node/a")).await;
    let whole = whole.expect("starts");
    until_connected(&whole, true).await;
    assert_eq!(whole.status().await.expect("runs").trouble, None);
    // Its files are replaced while it runs: by those of a CA that the hub does not know, and back.
    let strangers = Issuer::new();
    strangers.replace(&issuer, "headwater://node/a");
    hub.view().set_link(&"a".parse().expect("a name"), true);
    until_connected(&whole, false).await;
    hub.view().set_link(&"a".parse().expect("a name"), false);
    trouble(&whole, &["localhost", "refused this node's certificate", "another CA"]).await;
    issuer.connector("headwater://node/a");
    until_connected(&whole, true).await;
    assert_eq!(whole.status().await.expect("runs").trouble, None);
    whole.stop().await;

    let other = issuer.connector("headwater://node/b");
    let refused = edge(&dir, vec![named(&hub)], other).await.expect_err("another's");
    assert!(matches!(refused, StartError::Identity(IdentityError::WrongPrincipal { .. })));

    // A hub that is called by a name that its certificate has not: its files are replaced too.
    issuer.files("headwater://hub/hub-1", &["hub.test"], Duration::from_secs(60));
    let lost = edge(&dir, vec![named(&hub)], issuer.connector("headwater://node/a")).await;
    let lost = lost.expect("starts");
    trouble(&lost, &["hub.test", "connects to localhost", "--dns"]).await;
    lost.stop().await;
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_edge_continues_at_the_next_hub_when_its_own_stops() {
    let mut cloud = TestCloud::new(&["a"]).await;
    let issuer = Issuer::new();
    let (first, _) = hub_with(&cloud, &issuer, limits()).await;
    let (second, _) = hub_with(&cloud, &issuer, limits()).await;
    let dir = tempfile::tempdir().expect("a directory");
    let nobody: HubAddress = "localhost:1".parse().expect("an address");
    let hubs = vec![named(&first), nobody, named(&second)];
    let edge = edge(&dir, hubs, issuer.connector("headwater://node/a")).await.expect("starts");
    until_connected(&edge, true).await;
    let node = "a".parse().expect("a name");
    let holds =
        |hub: &HubHandle| hub.view().node_positions().get(&node).is_some_and(|at| at.connected);
    until_true("a connection", async || holds(&first) || holds(&second)).await;
    let (leaving, staying) = if holds(&first) { (first, second) } else { (second, first) };
    leaving.stop().await;
    cloud.set("node/a", "one", Some("{}".to_owned())).await;
    until_true("the event at the other hub", async || {
        let status = edge.status().await.expect("runs");
        let mut streams = status.streams.into_iter();
        let private = streams.find(|stream| stream.stream == StreamId::node(&node));
        private.is_some_and(|private| private.durable == Seq(2)) && holds(&staying)
    })
    .await;
    assert_eq!(edge.status().await.expect("runs").trouble, None);
    edge.stop().await;
    staying.stop().await;
}
