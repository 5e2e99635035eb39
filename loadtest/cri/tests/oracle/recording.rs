//! A kubelet's requests, recorded: it runs on an API server, with the twin as its runtime.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use headwater_cluster::{
    ControlPlane, ControlPlaneSettings, Kubelet, KubeletSettings, NodePrograms,
};
use headwater_cri_lab::{Life, PullOutcome, Twin};
use serde_json::{Value, json};

use crate::canonical::Reader;
use crate::cases::{IMAGES, INIT, NAMESPACE, NODE, objects, pods};
use crate::record::RecordedPod;

/// The time limit of all requests: the kubelet starts all pods at once.
const RECORDED_WITHIN: Duration = Duration::from_mins(4);

/// Between two looks.
const POLL: Duration = Duration::from_millis(200);

/// Pods that are created by one command.
const CREATED_AT_ONCE: usize = 50;

/// A twin in which the pods run.
pub(crate) fn twin(socket: &Path) -> Twin {
    let twin = Twin::start(socket).expect("the twin");
    for image in IMAGES {
        twin.add_image(image);
        twin.set_pull(image, PullOutcome::Pulled);
    }
    INIT.iter().for_each(|name| twin.set_life(name, Life::Exit { code: 0, tenths: 0 }));
    twin.record();
    twin
}

/// The names of the containers of a pod that are created at its start.
pub(crate) fn containers(pod: &Value) -> usize {
    let count = |field: &str| pod["spec"][field].as_array().map_or(0, Vec::len);
    count("containers") + count("initContainers")
}

/// Runs a kubelet.
pub(crate) async fn record() -> Vec<RecordedPod> {
    let scratch = tempfile::tempdir().expect("a folder");
    let twin = twin(&scratch.path().join("runtime.sock"));
    let cluster = ControlPlane::start(ControlPlaneSettings::default()).expect("a control plane");
    let settings = KubeletSettings {
        node: NODE.to_owned(),
        kubeconfig: cluster.kubeconfig().to_owned(),
        runtime: twin.socket().to_owned(),
        folder: scratch.path().to_owned(),
        cgroup: format!("headwater-kubelet-{}", std::process::id()),
    };
    let programs = NodePrograms::prepare().expect("a kubelet");
    let start = || Kubelet::start(&programs, &settings);
    let _kubelet = tokio::task::block_in_place(start).expect("it starts");
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    create(&cluster, std::slice::from_ref(&namespace));
    create(&cluster, &objects());
    wait_for_account(&cluster).await;
    for some in pods().chunks(CREATED_AT_ONCE) {
        create(&cluster, some);
    }
    let path = |name: &str| scratch.path().join(name).display().to_string();
    let cgroup = format!("/{}/kubepods/", settings.cgroup);
    let reader =
        Reader::new(&[(&path("logs"), "LOGS"), (&path("root"), "ROOT"), (&cgroup, "CGROUP/")]);
    let deadline = Instant::now() + RECORDED_WITHIN;
    loop {
        let pods = listed(&cluster);
        let name = |pod: &Value| pod["metadata"]["name"].as_str().expect("a name").to_owned();
        let uid = |pod: &Value| pod["metadata"]["uid"].as_str().expect("a UID").to_owned();
        let uids = pods.iter().map(|pod| (name(pod), uid(pod))).collect();
        let requests = reader.by_pod(&twin.recorded(), &uids);
        let lacking = pods.iter().filter(|pod| {
            let found = requests.get(&name(pod)).map_or(0, |it| it.containers.len());
            found < containers(pod)
        });
        let lacking: Vec<String> = lacking
            .map(|pod| format!("{}: {}", name(pod), pod["status"]["containerStatuses"]))
            .collect();
        if lacking.is_empty() {
            let recorded = pods.into_iter().map(|pod| {
                let name = name(&pod);
                RecordedPod { requests: requests[&name].clone(), name, pod }
            });
            return recorded.collect();
        }
        if Instant::now() > deadline {
            let log = std::fs::read_to_string(scratch.path().join("kubelet.log"));
            let log = log.unwrap_or_default();
            let last: Vec<&str> = log.lines().rev().take(30).collect();
            panic!("not all containers were created: {lacking:#?}\n{last:#?}");
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Waits for the account of pods, and for the certificates that each mounts.
async fn wait_for_account(cluster: &ControlPlane) {
    let deadline = Instant::now() + RECORDED_WITHIN;
    let is_there = |object: &str| {
        let output = cluster.kubectl().args(["get", object, "-n", NAMESPACE]).output();
        output.is_ok_and(|output| output.status.success())
    };
    while !["serviceaccount/default", "configmap/kube-root-ca.crt"].into_iter().all(is_there) {
        assert!(Instant::now() < deadline, "the controllers make no account");
        tokio::time::sleep(POLL).await;
    }
}

fn create(cluster: &ControlPlane, objects: &[Value]) {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    let mut command = cluster.kubectl();
    command.args(["create", "-n", NAMESPACE, "-f", "-"]).stdin(Stdio::piped());
    command.stdout(Stdio::null());
    let mut child = command.spawn().expect("kubectl starts");
    serde_json::to_writer(child.stdin.take().expect("piped"), &list).expect("written");
    assert!(child.wait().expect("it ends").success());
}

fn listed(cluster: &ControlPlane) -> Vec<Value> {
    let output = cluster.kubectl().args(["get", "pods", "-n", NAMESPACE, "-o", "json"]).output();
    let list: Value = serde_json::from_slice(&output.expect("kubectl").stdout).expect("JSON");
    list["items"].as_array().cloned().unwrap_or_default()
}
