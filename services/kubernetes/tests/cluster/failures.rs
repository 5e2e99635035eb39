//! API servers that restart, freeze and refuse. The controllers may only read. A server that has just
//! started refuses until it has read the roles, so no refusal is counted where one restarts.

use std::time::Duration;

use headwater_cluster::Part;

use crate::deployment::{check_audit, readable};
use crate::world::{Kubectl as _, POLL, World, config, control_plane, node, pod};

/// The time within which a frozen server is noticed: 65 s, and twice that on a busy machine.
const NOTICED_WITHIN: Duration = Duration::from_secs(130);

/// The time within which everything is right after a server is back: 5 s, and more on a busy machine.
const RIGHT_WITHIN: Duration = Duration::from_secs(90);

/// What `node/gw` has in these tests.
const KEYS: [&str; 3] = ["default/configmap/settings", "default/pod/p", "null/node/gw"];

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_that_is_killed_loses_no_change_and_removes_nothing() {
    let (mut cluster, account) = readable();
    cluster.create(&[node("gw", true), config("settings", "x"), pod("p", "gw", "settings")]);
    let world = World::new();
    let running = world.start(&account).await;
    running.reconciled().await;
    world.has("node/gw", &KEYS).await;
    for round in 0..2 {
        // Versions go on, so that the watches of other kinds are too old for the new server.
        for n in 0..3 {
            cluster.create(&[config(&format!("filler-{round}-{n}"), "x")]);
        }
        cluster.part(Part::ApiServer).kill().expect("it can be killed");
        running.troubles(RIGHT_WITHIN, "trouble", |troubles| !troubles.is_empty()).await;
        cluster.part(Part::ApiServer).start().expect("it starts again");
        let value = format!("after {round}");
        cluster.run(&[
            "patch",
            "configmap",
            "settings",
            "-p",
            &format!("{{\"data\":{{\"k\":\"{value}\"}}}}"),
        ]);
        running.troubles(RIGHT_WITHIN, "end of trouble", |troubles| troubles.is_empty()).await;
        let arrived = async {
            while world.value("node/gw", "settings").await.as_ref() != Some(&value.as_str().into())
            {
                tokio::time::sleep(POLL).await;
            }
        };
        tokio::time::timeout(RIGHT_WITHIN, arrived).await.expect("the change arrives");
    }
    assert_eq!(world.removals().await, [""; 0]);
    running.controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_api_server_is_noticed_and_followed_again() {
    let (mut cluster, account) = readable();
    cluster.create(&[node("gw", true), config("settings", "x"), pod("p", "gw", "settings")]);
    let world = World::new();
    let running = world.start(&account).await;
    running.reconciled().await;
    cluster.part(Part::ApiServer).freeze().expect("it can be frozen");
    let all_kinds = |troubles: &[String]| {
        ["pods", "configmaps", "nodes"].iter().all(|kind| {
            troubles.iter().any(|trouble| trouble.contains(&format!("kubernetes {kind} failed")))
        })
    };
    running.troubles(NOTICED_WITHIN, "notice of the freeze", all_kinds).await;
    cluster.part(Part::ApiServer).thaw().expect("it can be thawed");
    cluster.create(&[pod("q", "gw", "settings")]);
    let with_q = [&KEYS[..], &["default/pod/q"]].concat();
    world.has("node/gw", &with_q).await;
    assert_eq!(world.removals().await, [""; 0]);
    running.controller.stop().await;
    check_audit(&cluster, &[]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_right_that_is_missing_is_named_and_the_rest_goes_on() {
    let cluster = control_plane();
    cluster.create(&[node("gw", true), config("settings", "x"), pod("p", "gw", "settings")]);
    let user = cluster.kubeconfig_of("reader", None).expect("a kubeconfig");
    let verbs = "--verb=get,list,watch";
    let resources = "--resource=namespaces,nodes,pods,services,configmaps,serviceaccounts,\
                     persistentvolumes,persistentvolumeclaims,endpointslices.discovery.k8s.io,\
                     volumeattachments.storage.k8s.io,csidrivers.storage.k8s.io,\
                     runtimeclasses.node.k8s.io";
    cluster.run(&["create", "clusterrole", "reader", verbs, resources]);
    cluster.run(&[
        "create",
        "clusterrolebinding",
        "reader",
        "--clusterrole=reader",
        "--user=reader",
    ]);
    let world = World::new();
    let running = world.start(&user).await;
    running.reconciled().await;
    world.has("node/gw", &KEYS).await;
    // Other kinds may still be listing on a busy machine; then this is the only trouble.
    let named = |troubles: &[String]| match troubles {
        [only] => only.contains("kubernetes secrets failed") && only.contains("grant this right"),
        _ => false,
    };
    running.troubles(RIGHT_WITHIN, "missing right alone", named).await;
    running.controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_away_at_the_start_is_waited_for() {
    let (mut cluster, account) = readable();
    cluster.create(&[node("gw", true), config("settings", "x"), pod("p", "gw", "settings")]);
    cluster.part(Part::ApiServer).kill().expect("it can be killed");
    let world = World::new();
    let running = world.start(&account).await;
    let server = cluster.server().to_owned();
    let named = |troubles: &[String]| troubles.iter().any(|trouble| trouble.contains(&server));
    running.troubles(RIGHT_WITHIN, "server that is away", named).await;
    assert!(running.controller.readiness().check().is_err());
    cluster.part(Part::ApiServer).start().expect("it starts again");
    running.reconciled().await;
    world.has("node/gw", &KEYS).await;
    running.controller.stop().await;
}
