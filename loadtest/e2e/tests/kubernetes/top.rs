//! `kubectl top` of an edge that the cluster cannot reach: Kubernetes' server of metrics asks the hub's one port.

use std::fs;
use std::net::Ipv4Addr;

use headwater_cluster::{ControlPlane, ControlPlaneSettings, MetricsServer};
use headwater_cri_lab::{BUSYBOX_IMAGE, Containerd, ContainerdSettings};
use headwater_e2e::pressure::NO_DISK_PRESSURE;
use headwater_e2e::running::Running;
use serde_json::json;

use crate::world::{
    USER, create, deployed, free_port, kubelet_table, node, output, without_controllers,
};

/// With this variable the server of metrics is built, once on a machine, and run.
const KUBELET: &str = "HEADWATER_KUBELET";

const NODE: &str = "gw-1";

/// The name of the node at the hub's port, by which the hub knows it.
const NAME: &str = "gw-1.edges.test";

/// Gives the API of metrics to the server on this port of loopback.
fn register(cluster: &ControlPlane, port: u16) {
    let (namespace, name) = ("kube-system", "metrics-server");
    create(
        cluster,
        &json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"type": "ExternalName", "externalName": "localhost"},
        }),
    );
    create(
        cluster,
        &json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": "v1beta1.metrics.k8s.io"},
            "spec": {
                "service": {"name": name, "namespace": namespace, "port": port},
                "group": "metrics.k8s.io", "version": "v1beta1",
                "insecureSkipTLSVerify": true, "groupPriorityMinimum": 100, "versionPriority": 100,
            },
        }),
    );
}

#[test]
fn kubectl_top_shows_an_edge_and_its_pods_through_the_port_of_its_hub() {
    if std::env::var_os(KUBELET).is_none() || !Containerd::is_possible() {
        return;
    }
    let containerd = Containerd::start(ContainerdSettings::default()).expect("containerd");
    let scratch = tempfile::tempdir().expect("a folder");
    let data = scratch.path().join("cluster");
    let settings =
        ControlPlaneSettings { data: Some(data.clone()), ..ControlPlaneSettings::default() };
    let (cluster, kubeconfig) = deployed(settings);
    without_controllers(&cluster);
    create(&cluster, &node(NODE));
    let (port, certificates) = (free_port(), data.join("certificates"));
    let config = scratch.path().join("up.toml");
    let text = format!(
        "{}[kubernetes]\nkubelet_address = \"*.edges.test:{port}\"\n{NO_DISK_PRESSURE}",
        kubelet_table(&certificates, port)
    );
    fs::write(&config, text).expect("written");
    let (config, kubeconfig) = (config.display().to_string(), kubeconfig.display().to_string());
    let socket = containerd.socket().display().to_string();
    let of_cluster = ["--config", &config, "--kubeconfig", &kubeconfig, "--nodes", NODE];
    let of_runtime = ["--runtime", "cri", "--cri-endpoint", &socket];
    let running = Running::start(&[&of_cluster[..], &of_runtime].concat());
    create(
        &cluster,
        &json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "busy"},
            "spec": {
                "nodeName": NODE, "hostNetwork": true, "automountServiceAccountToken": false,
                "terminationGracePeriodSeconds": 1,
                "containers": [{
                    "name": "main", "image": BUSYBOX_IMAGE,
                    "command": ["/bin/sh", "-c", "while :; do :; done"],
                    "resources": {"limits": {"cpu": "200m"}},
                }],
            },
        }),
    );
    let hosts = [(NAME, Ipv4Addr::LOCALHOST)];
    let server = MetricsServer::start(cluster.kubeconfig(), &certificates, &hosts, scratch.path());
    let server = server.expect("the server of metrics");
    register(&cluster, server.port());

    // NAME CPU(cores) CPU(%) MEMORY(bytes) MEMORY(%)
    let top = |args: &[&str]| -> Option<Vec<String>> {
        let output = output(cluster.kubectl().arg("top").args(args).arg("--no-headers"));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let words: Vec<_> = text.split_whitespace().map(str::to_owned).collect();
        (output.status.success() && !words.is_empty()).then_some(words)
    };
    let whole = |text: &str, unit: &str| text.strip_suffix(unit).and_then(|it| it.parse().ok());
    let pod = running.wait_for("the pod in kubectl top", |_| top(&["pod", "busy"]));
    assert_eq!(pod[0], "busy");
    let milli: u32 = whole(&pod[1], "m").expect("thousandths of a processor");
    assert!((50..=300).contains(&milli), "its limit is 200m: {pod:?}");
    let container = running.wait_for("its container", |_| top(&["pod", "busy", "--containers"]));
    assert_eq!(container[..2], ["busy", "main"]);
    let node = running.wait_for("the node in kubectl top", |_| top(&["node", NODE]));
    assert_eq!(node[0], NODE);
    let milli: u32 = whole(&node[1], "m").expect("thousandths of a processor");
    assert!(milli > 0, "its pod runs without a pause: {node:?}");
    let mebibytes: u32 = whole(&node[3], "Mi").expect("mebibytes");
    assert!(mebibytes > 0, "{node:?}");
    let log = cluster.audit_log().expect("an audit log");
    assert_eq!(log.refused(USER), [""; 0], "the roles refuse what the controller does");
}
