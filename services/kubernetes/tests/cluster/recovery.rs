//! How soon the source is right after something befell the server, in virtual time on the server in memory: the true
//! bounds. The tests on a real server allow for a busy machine.

use std::collections::BTreeSet;
use std::time::Duration;

use headwater_apiserver::ApiServer;
use headwater_kubernetes::{Connection, KubernetesSettings};
use http::Method;
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::world::{Running, World, config, node, pod, put, twin};

/// How soon the source is right after the server is.
const RIGHT_WITHIN: Duration = Duration::from_secs(5);

/// How soon a server that does not answer is noticed.
const FROZEN_WITHIN: Duration = Duration::from_secs(65);

/// How soon a server that was set back is noticed.
const SET_BACK_WITHIN: Duration = Duration::from_secs(120);

/// How long a server that has just started refuses everything.
const REFUSAL_MS: u32 = 1_000;

/// An absence after which every pause is as long as it gets.
const ABSENCE: Duration = Duration::from_secs(100);

const STEP: Duration = Duration::from_millis(100);

/// A controller that follows a server.
struct RunningSource {
    server: ApiServer,
    world: World,
    running: Running,
    changes: u32,
}

impl RunningSource {
    async fn start() -> Self {
        let server = twin();
        put(&server, &[node("gw", true), config("settings", "0"), pod("p", "gw", "settings")]);
        let world = World::new();
        let connection = Connection::over(server.clone(), "the server in memory");
        let running = world.start_over(connection, KubernetesSettings::default()).await;
        running.reconciled().await;
        let source = Self { server, world, running, changes: 0 };
        source.is_right_within(RIGHT_WITHIN).await;
        source
    }

    /// An object changes, and a pod comes that names another one.
    fn change(&mut self) {
        self.changes += 1;
        let number = self.changes.to_string();
        let value = json!({"data": {"k": number}});
        let path = "/api/v1/namespaces/default/configmaps/settings";
        assert_eq!(self.server.request(Method::PATCH, path, Some(&value)).0, 200);
        let name = format!("of-{number}");
        put(&self.server, &[config(&name, "x"), pod(&format!("p-{number}"), "gw", &name)]);
    }

    /// Whether the log has what the server has.
    async fn is_right(&self) -> bool {
        let mut expected = BTreeSet::from(["null/node/gw".to_owned()]);
        for (plural, kind) in [("pods", "pod"), ("configmaps", "configmap")] {
            let objects = self.server.objects(plural);
            let names = objects.iter().filter_map(|one| one["metadata"]["name"].as_str());
            expected.extend(names.map(|name| format!("default/{kind}/{name}")));
        }
        let keys = self.world.keys("node/gw").await;
        let value = self.world.value("node/gw", "settings").await;
        let settings = "/api/v1/namespaces/default/configmaps/settings";
        let shown = self.server.request(Method::GET, settings, None).1["data"]["k"].clone();
        keys == expected && value == Some(shown)
    }

    async fn is_right_within(&self, within: Duration) {
        let end = Instant::now() + within;
        while !self.is_right().await {
            let states = self.running.controller.source_states();
            assert!(Instant::now() < end, "not right: {:?}", states.borrow().troubles());
            sleep(STEP).await;
        }
    }

    async fn stop(self) {
        self.running.controller.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_server_that_was_away_and_then_refuses_for_a_time_everything_is_right_in_five_seconds()
 {
    let mut source = RunningSource::start().await;
    for (refusal_ms, absence) in
        [(0, ABSENCE), (REFUSAL_MS, ABSENCE), (REFUSAL_MS, Duration::from_millis(700)), (0, STEP)]
    {
        source.server.set_start_refusal(refusal_ms);
        source.server.stop();
        sleep(absence).await;
        source.change();
        // The history that the watches would go on with is gone, too.
        source.server.compact();
        source.server.start();
        sleep(Duration::from_millis(refusal_ms.into())).await;
        source.is_right_within(RIGHT_WITHIN).await;
    }
    assert_eq!(source.world.removals().await, [""; 0]);
    source.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_object_that_could_not_be_read_for_a_time_comes_in_five_seconds() {
    let mut source = RunningSource::start().await;
    source.server.deny("get", "configmaps");
    source.change();
    sleep(Duration::from_millis(REFUSAL_MS.into())).await;
    assert!(!source.is_right().await, "the pod came before its ConfigMap can be read");
    source.server.allow_all();
    source.is_right_within(RIGHT_WITHIN).await;
    source.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_frozen_server_is_noticed_in_time_and_followed_again_in_five_seconds() {
    let mut source = RunningSource::start().await;
    source.server.set_frozen(true);
    let end = Instant::now() + FROZEN_WITHIN;
    loop {
        let troubles = source.running.controller.source_states().borrow().troubles();
        let is_named = |kind: &&str| {
            troubles.iter().any(|it| it.contains(&format!("kubernetes {kind} failed")))
        };
        if ["pods", "configmaps", "nodes"].iter().all(is_named) {
            break;
        }
        assert!(Instant::now() < end, "not noticed: {troubles:?}");
        sleep(STEP).await;
    }
    source.change();
    source.server.set_frozen(false);
    source.is_right_within(RIGHT_WITHIN).await;
    assert_eq!(source.world.removals().await, [""; 0]);
    source.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_was_set_back_is_noticed_in_time() {
    let mut source = RunningSource::start().await;
    let backup = source.server.backup();
    for _ in 0..10 {
        source.change();
    }
    source.is_right_within(RIGHT_WITHIN).await;
    source.server.restore(&backup);
    source.is_right_within(SET_BACK_WITHIN).await;
    source.stop().await;
}
