//! Tokens of ServiceAccounts in projected volumes.

use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::time::Duration;

use headwater_edged::{Edged, EdgedConfig, Handle, RuntimeKind};
use headwater_proto::local::Operation;
use headwater_proto::local::operation::Verb;
use serde_json::{Value, json};

use crate::bench::{Bench, is_alive, is_running, script_pod, until};
use crate::fake_edge::latest_status;

/// The mountPath that an API server adds.
const PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// A pod as an API server passes it on, whose container prints its process and then each new token.
fn pod(script: &str) -> Value {
    let mut pod = script_pod("web", "u1", script);
    pod["spec"]["volumes"] = json!([{"name": "kube-api-access-x", "projected": {"sources": [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [
            {"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
    ]}}]);
    pod["spec"]["containers"][0]["volumeMounts"] =
        json!([{"name": "kube-api-access-x", "mountPath": PATH, "readOnly": true}]);
    pod
}

fn root_ca() -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "kube-root-ca.crt", "namespace": "shop"}, "data": {"ca.crt": "ca"},
    })
}

/// A pod worker that asks for tokens again and again.
fn config(bench: &Bench) -> EdgedConfig {
    let mut config = bench.config();
    config.settings.token_check = Duration::from_millis(60);
    config.settings.token_retry = Duration::from_millis(10);
    config
}

async fn edged(bench: &Bench) -> Handle {
    Edged::spawn(config(bench)).await.expect("the pod worker starts")
}

fn file(bench: &Bench, name: &str) -> PathBuf {
    bench.edged_dir().join("pods/u1/volumes/kube-api-access-x").join(name)
}

fn read(bench: &Bench, name: &str) -> Option<String> {
    std::fs::read_to_string(file(bench, name)).ok()
}

fn requests(all: &[Operation]) -> usize {
    all.iter().filter(|operation| operation.verb() == Verb::Token).count()
}

#[tokio::test]
async fn a_new_pod_waits_for_its_token_and_sees_each_later_one_without_a_restart() {
    let bench = Bench::new(&[root_ca()]);
    let out = bench.path("out");
    let root = "$(cat \"$HEADWATER_ROOT";
    let script = format!(
        "echo {root}{PATH}/token\") {root}{PATH}/namespace\") > {}; exec sleep 1000",
        out.display()
    );
    bench.edge.apply(&pod(&script));
    let edged = edged(&bench).await;
    let wanted = "MountVolume.SetUp failed for volume \"kube-api-access-x\" : failed to fetch \
                  token: no connection to the cloud";
    let waits = |status: &Value| {
        let waiting = &status["containerStatuses"][0]["state"]["waiting"];
        waiting["reason"] == "ContainerCreating" && waiting["message"] == wanted
    };
    let status = bench.edge.until_status("web", "the wait", waits).await;
    assert_eq!(status["phase"], "Pending");
    let event = |all: &[Operation]| {
        let mut events = all.iter().filter(|operation| operation.resource.contains("/event/"));
        events.find_map(|event| {
            let event: Value = serde_json::from_slice(&event.content).ok()?;
            (event["reason"] == "FailedMount" && event["message"] == wanted).then_some(())
        })
    };
    bench.edge.until("an Event", event).await;
    assert!(!file(&bench, "namespace").exists(), "all files come together");

    bench.edge.set_token(Some("first"));
    bench.edge.until_status("web", "a start", is_running).await;
    assert_eq!(crate::bench::content(&out).await, "first shop\n");
    assert_eq!(read(&bench, "ca.crt").as_deref(), Some("ca"));
    let claimed = |all: &[Operation]| {
        let request = all.iter().find(|operation| operation.verb() == Verb::Token)?;
        let body: Value = serde_json::from_slice(&request.content).ok()?;
        Some((request.resource.clone(), body["spec"].clone()))
    };
    let (account, spec) = bench.edge.until("a request", claimed).await;
    assert_eq!(account, "shop/serviceaccount/default");
    let bound = json!({"kind": "Pod", "apiVersion": "v1", "name": "web", "uid": "u1"});
    let wanted = json!({"audiences": [], "expirationSeconds": 3607, "boundObjectRef": bound});
    assert_eq!(spec, wanted);

    bench.edge.set_token(Some("second"));
    until("the second token", || read(&bench, "token").filter(|text| text == "second")).await;
    // The cloud goes away, and the token stays.
    bench.edge.set_token(None);
    let asked = requests(&bench.edge.operations());
    bench.edge.until("more requests", |all| (requests(all) > asked + 2).then_some(())).await;
    assert_eq!(read(&bench, "token").as_deref(), Some("second"));
    let status = latest_status(&bench.edge.operations(), "web").expect("a status");
    assert!(is_running(&status));
    assert_eq!(status["containerStatuses"][0]["restartCount"], 0);
    edged.stop_pods(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_pod_that_has_run_starts_again_without_a_cloud_and_keeps_its_token() {
    let bench = Bench::new(&[root_ca()]);
    let out = bench.path("out");
    let script = format!("echo $$ > {}; exec sleep 1000", out.display());
    bench.edge.apply(&pod(&script));
    bench.edge.set_token(Some("first"));
    let first = edged(&bench).await;
    bench.edge.until_status("web", "a start", is_running).await;
    let before = crate::bench::content(&out).await;
    first.stop().await;
    assert!(is_alive(&before), "the pod runs on");

    bench.edge.set_token(None);
    let second = edged(&bench).await;
    let asked = requests(&bench.edge.operations());
    bench.edge.until("answers", |all| (requests(all) > asked + 4).then_some(())).await;
    let pid = nix::unistd::Pid::from_raw(before.trim().parse().expect("a process"));
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).expect("it runs");
    until("the next run", || {
        std::fs::read_to_string(&out).ok().filter(|pid| *pid != before && pid.ends_with('\n'))
    })
    .await;
    assert_eq!(read(&bench, "token").as_deref(), Some("first"));
    second.stop_pods(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_token_belongs_to_the_one_user_of_its_pod() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    const USER: u32 = 41_001;
    let bench = Bench::new(&[root_ca()]);
    let script = format!("cat {PATH}/token > /dev/termination-log; exec sleep 1000");
    let mut pod = pod(&script.replace("/dev/termination-log", "\"$HEADWATER_ROOT/copy\""));
    pod["spec"]["securityContext"] = json!({"runAsUser": USER});
    bench.edge.apply(&pod);
    bench.edge.set_token(Some("first"));
    let edged = edged(&bench).await;
    let copy = bench.edged_dir().join("pods/u1/containers/main/rootfs/copy");
    until("the copy", || std::fs::read_to_string(&copy).ok().filter(|text| text == "first")).await;
    let found = std::fs::metadata(file(&bench, "token")).expect("the token");
    assert_eq!((found.uid(), found.mode() & 0o777), (USER, 0o600));
    let others = std::fs::metadata(file(&bench, "namespace")).expect("the namespace");
    assert_eq!((others.uid(), others.mode() & 0o777), (0, 0o644));
    edged.stop_pods(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_runtime_without_files_requests_no_token_and_waits_for_none() {
    let bench = Bench::new(&[root_ca(), pod("true")]);
    let mut config = config(&bench);
    config.runtime = RuntimeKind::Hollow;
    let edged = Edged::spawn(config).await.expect("the pod worker starts");
    bench.edge.until_status("web", "a start", is_running).await;
    assert_eq!(requests(&bench.edge.operations()), 0);
    edged.stop().await;
}
