//! What the source cannot follow is named as long as it cannot: a kind that is not served, an object that cannot be
//! carried, a Secret of a type that no list has.

use std::time::Duration;

use headwater_apiserver::ApiServer;
use headwater_kubernetes::{Connection, KubernetesSettings};
use headwater_object::OBJECT_BYTES_MAX;
use http::Method;
use serde_json::json;
use tokio::time::sleep;

use crate::world::{Running, World, config, node, object, pod, put, twin};

/// What `node/gw` has in these tests.
const KEYS: [&str; 3] = ["default/configmap/settings", "default/pod/p", "null/node/gw"];

/// Some looks at the server, and lists of every kind.
const LONG: Duration = Duration::from_secs(100);

async fn follow(world: &World, server: &ApiServer) -> Running {
    let connection = Connection::over(server.clone(), "the server in memory");
    let running = world.start_over(connection, KubernetesSettings::default()).await;
    running.reconciled().await;
    running
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_not_served_is_named_and_the_rest_goes_on() {
    let server = twin();
    server.withdraw("csidrivers");
    put(&server, &[node("gw", true), config("settings", "x"), pod("p", "gw", "settings")]);
    let world = World::new();
    let running = follow(&world, &server).await;
    let named = |troubles: &[String]| match troubles {
        [only] => {
            only.contains("kubernetes csidrivers failed")
                && only.contains("the API server does not serve this kind")
        }
        _ => false,
    };
    running.troubles(LONG, "kind that is not served", named).await;
    assert_eq!((running.following("csidrivers"), running.following("pods")), (Some(0), Some(1)));
    world.has("node/gw", &KEYS).await;
    running.controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_carried_is_named_until_it_can() {
    let server = twin();
    put(&server, &[node("gw", true), config("settings", "x"), pod("p", "gw", "settings")]);
    let world = World::new();
    let running = follow(&world, &server).await;
    world.has("node/gw", &KEYS).await;
    let write = |value: &str| {
        let path = "/api/v1/namespaces/default/configmaps/settings";
        let value = json!({"data": {"k": value}});
        assert_eq!(server.request(Method::PATCH, path, Some(&value)).0, 200);
    };
    write(&"x".repeat(OBJECT_BYTES_MAX));
    let is_named = |troubles: &[String]| {
        troubles
            .iter()
            .any(|it| it.contains("ConfigMap default/settings: ") && it.contains("bytes"))
    };
    running.troubles(LONG, "name of the object", is_named).await;
    assert_eq!(world.value("node/gw", "settings").await, Some("x".into()), "as it was");
    write("y");
    running.troubles(LONG, "end of the trouble", |troubles| !is_named(troubles)).await;
    running.controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_release_of_helm_that_a_pod_names_is_named_and_never_sent() {
    let server = twin();
    let release = json!({"type": "helm.sh/release.v1", "data": {}});
    let mut user = pod("p", "gw", "settings");
    user["spec"]["volumes"] = json!([{"name": "s", "secret": {"secretName": "release"}}]);
    put(&server, &[node("gw", true), object("v1", "Secret", "release", release), user]);
    let world = World::new();
    let running = follow(&world, &server).await;
    let is_named = |troubles: &[String]| {
        troubles.iter().any(|it| it.contains("Secret default/release: pods name it"))
    };
    running.troubles(LONG, "name of the Secret", is_named).await;
    for _ in 0..3 {
        server.restart();
        sleep(LONG).await;
        assert!(is_named(&running.controller.source_states().borrow().troubles()));
    }
    world.has("node/gw", &["default/pod/p", "null/node/gw"]).await;
    assert_eq!(world.removals().await, [""; 0], "it was never there");

    let path = "/api/v1/namespaces/default/pods/p?gracePeriodSeconds=0";
    assert_eq!(server.request(Method::DELETE, path, None).0, 200);
    running.troubles(LONG, "end of the trouble", |troubles| !is_named(troubles)).await;
    running.controller.stop().await;
}
