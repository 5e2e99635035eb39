//! The wrong cluster, and a cluster that went back in time. The controllers may only read.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use headwater_cluster::ControlPlaneSettings;
use headwater_kubernetes::KubernetesSettings;

use crate::deployment::{check_audit, readable, readable_with};
use crate::world::{Kubectl as _, POLL, World, config, node, only_api, pod};

const KEYS: [&str; 3] = ["default/configmap/settings", "default/pod/p", "null/node/gw"];

/// The time within which a server that was set back is noticed: 2 min, and twice that on a busy machine.
const NOTICED_WITHIN: Duration = Duration::from_secs(240);

#[tokio::test(flavor = "multi_thread")]
async fn another_cluster_stops_the_source_and_removes_nothing() {
    let (cluster, account) = readable();
    cluster.create(&[node("gw", true), config("settings", "x"), pod("p", "gw", "settings")]);
    let world = World::new();
    let running = world.start(&account).await;
    running.reconciled().await;
    world.has("node/gw", &KEYS).await;
    running.controller.stop().await;
    check_audit(&cluster, &[]);
    drop(cluster);

    let (other, account) = readable();
    other.create(&[node("gw-2", true)]);
    let running = world.start(&account).await;
    let stopped = |troubles: &[String]| {
        troubles.iter().any(|trouble| {
            trouble.contains("another cluster") && trouble.contains("--allow-other-cluster")
        })
    };
    running.troubles(Duration::from_secs(90), "stop", stopped).await;
    assert!(running.controller.readiness().check().is_err());
    world.has("node/gw", &KEYS).await;
    assert_eq!(world.removals().await, [""; 0]);
    running.controller.stop().await;

    let settings =
        KubernetesSettings { allow_other_cluster: true, ..KubernetesSettings::default() };
    let running = world.start_with(&account, settings).await;
    running.reconciled().await;
    world.has("node/gw-2", &["null/node/gw-2"]).await;
    world.has("node/gw", &[]).await;
    running.controller.stop().await;
    check_audit(&other, &[]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_was_set_back_is_noticed_and_listed_anew() {
    let scratch = tempfile::tempdir().expect("a folder");
    let data = scratch.path().join("data");
    let settings = ControlPlaneSettings { data: Some(data.clone()), ..only_api() };
    let (mut cluster, account) = readable_with(settings);
    cluster.create(&[node("gw", true), config("settings", "old"), pod("p", "gw", "settings")]);
    cluster.stop().expect("it stops");
    let backup = scratch.path().join("backup");
    copy(&data.join("etcd"), &backup);
    cluster.resume().expect("it starts again");
    let world = World::new();
    let running = world.start(&account).await;
    running.reconciled().await;
    for n in 0..30 {
        cluster.create(&[config(&format!("filler-{n}"), "x")]);
    }
    cluster.create(&[pod("young", "gw", "settings")]);
    cluster.run(&["patch", "configmap", "settings", "-p", r#"{"data":{"k":"new"}}"#]);
    let with_young = [&KEYS[..], &["default/pod/young"]].concat();
    world.has("node/gw", &with_young).await;

    cluster.stop().expect("it stops");
    std::fs::remove_dir_all(data.join("etcd")).expect("removed");
    copy(&backup, &data.join("etcd"));
    cluster.resume().expect("it starts on the backup");
    let end = Instant::now() + NOTICED_WITHIN;
    while world.keys("node/gw").await.contains("default/pod/young")
        || world.value("node/gw", "settings").await != Some("old".into())
    {
        assert!(Instant::now() < end, "the server went back, and that is not noticed");
        tokio::time::sleep(POLL).await;
    }
    world.has("node/gw", &KEYS).await;
    running.controller.stop().await;
}

fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").arg(from).arg(to).status().expect("cp starts");
    assert!(copied.success());
}
