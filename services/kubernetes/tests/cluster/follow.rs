//! What the streams have, as objects come, change and go. The controllers may only read.

use serde_json::json;

use crate::deployment::{check_audit, readable};
use crate::world::{Kubectl as _, World, config, node, object, pod};

#[tokio::test(flavor = "multi_thread")]
async fn a_node_gets_its_pods_and_all_that_they_name_and_deletes_of_a_downtime_arrive() {
    let (cluster, account) = readable();
    let claim = json!({"spec": {
        "accessModes": ["ReadWriteOnce"], "volumeName": "v", "storageClassName": "",
        "resources": {"requests": {"storage": "1Gi"}},
    }});
    let volume = json!({"spec": {
        "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
        "csi": {
            "driver": "csi.example", "volumeHandle": "h",
            "nodePublishSecretRef": {"name": "of-volume", "namespace": "default"},
        },
    }});
    let mut user = pod("user", "gw", "settings");
    user["spec"]["serviceAccountName"] = "account".into();
    user["spec"]["volumes"] = json!([
        {"name": "data", "persistentVolumeClaim": {"claimName": "claim"}},
        {"name": "secret", "secret": {"secretName": "of-pod"}},
    ]);
    let attachment = |name: &str, on: &str| {
        let source = json!({"persistentVolumeName": "v"});
        let spec = json!({"attacher": "csi.example", "nodeName": on, "source": source});
        object("storage.k8s.io/v1", "VolumeAttachment", name, json!({ "spec": spec }))
    };
    let ports = json!({"ports": [{"port": 80}]});
    let slice = json!({"addressType": "IPv4", "endpoints": [], "ports": []});
    cluster.create(&[
        node("gw", true),
        node("cloud-1", false),
        config("settings", "x"),
        config("unnamed", "x"),
        object("v1", "Secret", "of-pod", json!({})),
        object("v1", "Secret", "of-volume", json!({})),
        object("v1", "Secret", "unnamed", json!({})),
        object("v1", "ServiceAccount", "account", json!({})),
        object("v1", "PersistentVolume", "v", volume),
        object("v1", "PersistentVolumeClaim", "claim", claim),
        object("v1", "Service", "web", json!({ "spec": ports })),
        object("discovery.k8s.io/v1", "EndpointSlice", "web-1", slice),
        attachment("here", "gw"),
        attachment("there", "cloud-1"),
        user,
        pod("other", "gw", "settings"),
        pod("elsewhere", "cloud-1", "unnamed"),
    ]);
    let world = World::new();
    let running = world.start(&account).await;
    running.reconciled().await;
    let on_node = [
        "default/configmap/settings",
        "default/persistentvolumeclaim/claim",
        "default/pod/other",
        "default/pod/user",
        "default/secret/of-pod",
        "default/secret/of-volume",
        "default/serviceaccount/account",
        "null/node/gw",
        "null/persistentvolume/v",
        "null/volumeattachment/here",
    ];
    world.has("node/gw", &on_node).await;
    assert_eq!(world.keys("node/cloud-1").await.len(), 0);
    let cluster_keys = world.keys("cluster").await;
    for key in ["default/service/web", "default/endpointslice/web-1", "null/namespace/kube-system"]
    {
        assert!(cluster_keys.contains(key), "{key}: {cluster_keys:?}");
    }
    running.controller.stop().await;

    cluster.run(&["delete", "pod", "user", "--force", "--grace-period=0"]);
    cluster.run(&["delete", "service", "web"]);
    let running = world.start(&account).await;
    running.reconciled().await;
    let left = ["default/configmap/settings", "default/pod/other", "null/node/gw"];
    let mut left = left.to_vec();
    left.push("null/volumeattachment/here");
    world.has("node/gw", &left).await;
    assert!(!world.keys("cluster").await.contains("default/service/web"));
    running.controller.stop().await;
    check_audit(&cluster, &[]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_that_is_written_appends_nothing() {
    let (cluster, account) = readable();
    cluster.create(&[node("gw", true), config("settings", "x"), pod("p", "gw", "settings")]);
    let world = World::new();
    let running = world.start(&account).await;
    running.reconciled().await;
    let before = running.appended();
    for phase in ["Running", "Succeeded"] {
        let status = json!({"status": {"phase": phase}}).to_string();
        cluster.run(&["patch", "pod", "p", "--subresource=status", "--type=merge", "-p", &status]);
        let status = json!({"status": {"conditions": [
            {"type": "Ready", "status": "True", "reason": phase, "message": ""},
        ]}});
        let status = status.to_string();
        cluster.run(&[
            "patch",
            "node",
            "gw",
            "--subresource=status",
            "--type=merge",
            "-p",
            &status,
        ]);
    }
    // The watch of pods has delivered the statuses when it has delivered a later pod.
    cluster.create(&[pod("q", "gw", "settings")]);
    let keys = ["configmap/settings", "pod/p", "pod/q"].map(|key| format!("default/{key}"));
    let mut keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    keys.push("null/node/gw");
    world.has("node/gw", &keys).await;
    // The log has a record before the controller has the answer of the append.
    running.appended_since(before, 1).await;
    running.controller.stop().await;
    check_audit(&cluster, &[]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_gets_and_loses_its_stream_with_the_label() {
    let (cluster, account) = readable();
    cluster.create(&[node("gw", false), pod("p", "gw", "settings"), config("settings", "x")]);
    // A pod that is there before its Node.
    cluster.create(&[pod("early", "late", "settings")]);
    let world = World::new();
    let running = world.start(&account).await;
    running.reconciled().await;
    assert_eq!(world.keys("node/gw").await.len(), 0);

    cluster.run(&["label", "node", "gw", "node-role.kubernetes.io/edge="]);
    let with_pod = ["default/configmap/settings", "default/pod/p", "null/node/gw"];
    world.has("node/gw", &with_pod).await;
    cluster.create(&[node("late", true)]);
    let early = ["default/configmap/settings", "default/pod/early", "null/node/late"];
    world.has("node/late", &early).await;
    cluster.run(&["label", "node", "gw", "node-role.kubernetes.io/edge-"]);
    world.has("node/gw", &[]).await;
    cluster.run(&["label", "node", "gw", "node-role.kubernetes.io/edge="]);
    world.has("node/gw", &with_pod).await;
    running.controller.stop().await;
    check_audit(&cluster, &[]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_config_map_arrives_whenever_it_is_named_and_leaves_with_its_last_user() {
    let (cluster, account) = readable();
    cluster.create(&[node("gw", true), config("later", "unnamed until then")]);
    let world = World::new();
    let running = world.start(&account).await;
    running.reconciled().await;
    cluster.create(&[pod("a", "gw", "absent"), pod("b", "gw", "later")]);
    let pods = ["default/pod/a", "default/pod/b", "null/node/gw", "default/configmap/later"];
    world.has("node/gw", &pods).await;
    cluster.create(&[config("absent", "1")]);
    let all = [&pods[..], &["default/configmap/absent"]].concat();
    world.has("node/gw", &all).await;
    cluster.run(&["delete", "configmap", "absent"]);
    world.has("node/gw", &pods).await;
    cluster.create(&[config("absent", "2")]);
    world.has("node/gw", &all).await;
    assert_eq!(world.value("node/gw", "absent").await, Some(json!("2")));
    cluster.run(&["delete", "pod", "a", "--force", "--grace-period=0"]);
    world.has("node/gw", &pods[1..]).await;
    // Named again after it was forgotten.
    cluster.create(&[pod("c", "gw", "absent")]);
    let again = [&pods[1..], &["default/configmap/absent", "default/pod/c"]].concat();
    world.has("node/gw", &again).await;
    running.controller.stop().await;
    check_audit(&cluster, &[]);
}
