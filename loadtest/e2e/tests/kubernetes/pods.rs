//! `up` and `doctor` on a cluster.

use std::fs;

use headwater_cluster::{ControlPlane, ControlPlaneSettings};
use headwater_e2e::running::{Running, headwater, output};
use serde_json::{Value, json};

use crate::world::{
    USER, create, deployed, deployed_as, kubectl, node, pod, pod_with_token, words,
};

/// Where the API server mounts the volume that it adds.
const PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The checks of a Kubernetes API that `doctor` prints: result and finding.
fn doctor(kubeconfig: &str, more: &[&str]) -> Vec<(String, String)> {
    let args = ["doctor", "-o", "json", "--kubeconfig", kubeconfig];
    let printed = output(headwater().args(args).args(more));
    let report: Value = serde_json::from_slice(&printed.stdout).expect("JSON");
    let text = |check: &Value, field: &str| check[field].as_str().unwrap_or_default().to_owned();
    let checks = report["checks"].as_array().expect("checks").iter();
    let of_api = checks.filter(|check| text(check, "check").starts_with("kubernetes"));
    of_api.map(|check| (text(check, "result"), text(check, "found"))).collect()
}

/// Checks that the pod `web` has a token in its volume, with which the API server takes it for its account.
fn authenticates(cluster: &ControlPlane, running: &Running) {
    let log = running.text(&["logs", "web"]).expect("a log");
    assert!(log.contains(" bytes in default") && !log.contains("token of  bytes"), "{log}");
    let pod = kubectl(cluster, &["get", "pod", "web", "-o", "json"]);
    let pod: Value = serde_json::from_str(&pod).expect("JSON");
    let uid = pod["metadata"]["uid"].as_str().expect("a UID");
    let volumes = pod["spec"]["volumes"].as_array().expect("the volume of the API server");
    let volume = volumes[0]["name"].as_str().expect("a name");
    let files = running.data().join("nodes/gw-1/edged/pods").join(uid).join("volumes").join(volume);
    let token = fs::read_to_string(files.join("token")).expect("a token");
    let (server, token) = (cluster.server(), format!("--token={token}"));
    let ca = format!("--certificate-authority={}", files.join("ca.crt").display());
    let args = ["--kubeconfig=/dev/null", "--server", server, &ca, &token];
    let whoami = kubectl(cluster, &[&args[..], &["auth", "whoami", "-o", "json"]].concat());
    let user = serde_json::from_str::<Value>(&whoami).expect("JSON")["status"]["userInfo"].clone();
    assert_eq!(user["username"], "system:serviceaccount:default:default");
    let extra =
        |field: &str| user["extra"][format!("authentication.kubernetes.io/{field}")][0].clone();
    assert_eq!([extra("pod-name"), extra("pod-uid"), extra("node-name")], ["web", uid, "gw-1"]);
    // What the node does not do for the pod is in a condition.
    let conditions = pod["status"]["conditions"].to_string();
    assert!(!conditions.contains("erviceAccount"), "{conditions}");
}

#[test]
fn a_pod_that_kubectl_creates_runs_on_an_edge_of_up() {
    let (cluster, kubeconfig) = deployed(ControlPlaneSettings::default());
    let kubeconfig = kubeconfig.display().to_string();
    let checks = doctor(&kubeconfig, &[]);
    assert_eq!(checks.len(), 3, "version, clock, rights: {checks:?}");
    assert!(checks.iter().all(|(result, _)| result == "ok"), "{checks:?}");
    assert_eq!(checks[0].1, cluster.program().version());
    let lacking = doctor(&kubeconfig, &["--act-as", "self"]);
    let missing = "missing: patch pods/status";
    assert!(
        lacking.iter().any(|(result, found)| result == "fail" && found == missing),
        "{lacking:?}"
    );

    create(&cluster, &node("gw-1"));
    create(&cluster, &words());
    let mut web = pod_with_token("web", "gw-1");
    let script = format!(
        "echo \"token of $(wc -c < {PATH}/token) bytes in $(cat {PATH}/namespace)\"; \
                          echo \"word $WORD\"; while :; do sleep 0.2; done"
    );
    web["spec"]["containers"][0]["command"] = json!(["sh", "-c", script]);
    create(&cluster, &web);
    let running = Running::start(&["--kubeconfig", &kubeconfig, "--nodes", "gw-1,gw-2"]);
    running.wait_for_pods(1, |status| status == "Running");
    running.wait_for("the pod's words", |running| {
        running.text(&["logs", "web"]).filter(|log| log.contains("word first"))
    });
    authenticates(&cluster, &running);
    let pods = running.items(&["get", "pods"]);
    let uid = kubectl(&cluster, &["get", "pod", "web", "-o", "jsonpath={.metadata.uid}"]);
    assert_eq!(pods[0]["metadata"]["uid"], uid.as_str());
    assert_eq!(pods[0]["spec"]["nodeName"], "gw-1");
    assert!(running.http_get("/readyz").is_some_and(|answer| answer.contains(" 200 ")));

    // A change and a deletion arrive as well.
    create(&cluster, &pod("second", "gw-1"));
    running.wait_for_pods(2, |status| status == "Running");
    for name in ["web", "second"] {
        kubectl(&cluster, &["delete", "pod", name, "--force", "--grace-period=0"]);
    }
    running.wait_for_pods(0, |_| true);
    let log = cluster.audit_log().expect("an audit log");
    assert!(log.count(USER) > 0);
    assert_eq!(log.refused(USER), [""; 0], "the roles refuse what the controller does");
}

#[test]
fn as_itself_a_controller_shows_a_pod_that_runs_and_confirms_the_deletion_of_another() {
    let only_api = ControlPlaneSettings { parts: Vec::new(), ..ControlPlaneSettings::default() };
    let (cluster, kubeconfig) = deployed_as("act-as-self", only_api);
    create(&cluster, &words());
    create(&cluster, &pod("web", "gw-1"));
    create(&cluster, &pod("second", "gw-1"));
    let kubeconfig = kubeconfig.display().to_string();
    let args = ["--kubeconfig", &kubeconfig, "--act-as", "self", "--nodes", "gw-1"];
    let running = Running::start(&args);
    for name in ["web", "second"] {
        running.wait_for("the phase at the API", |_| {
            let args = ["get", "pod", name, "-o", "jsonpath={.status.phase}"];
            (kubectl(&cluster, &args) == "Running").then_some(())
        });
    }
    // kubectl waits until it is gone.
    kubectl(&cluster, &["delete", "pod", "second", "--timeout=60s"]);
    assert_eq!(kubectl(&cluster, &["get", "pods", "-o", "name"]), "pod/web\n");
    let log = cluster.audit_log().expect("an audit log");
    assert_eq!(log.refused(USER), [""; 0], "the roles refuse what the controller does");
}

#[test]
fn a_right_that_is_missing_is_named_by_status_readyz_and_doctor() {
    let (cluster, kubeconfig) =
        deployed(ControlPlaneSettings { parts: Vec::new(), ..ControlPlaneSettings::default() });
    let role = "clusterrole/headwater-controller";
    // The last rule: to patch pods.
    let last = "[{\"op\":\"remove\",\"path\":\"/rules/8\"}]";
    kubectl(&cluster, &["patch", role, "--type=json", "-p", last]);
    create(&cluster, &node("gw-1"));
    let kubeconfig = kubeconfig.display().to_string();
    let running = Running::start(&["--kubeconfig", &kubeconfig, "--nodes", "gw-1"]);
    let named =
        "the controller lacks a right: patch pods (to let pods tolerate that their edge is away)";
    running.wait_for("the right in status", |running| {
        running.text(&["status"]).filter(|status| status.contains(named))
    });
    // The rest goes on: it is ready.
    running.wait_for("readiness", |running| {
        let answer = running.http_get("/readyz?verbose")?;
        (answer.contains(" 200 ") && answer.contains(named)).then_some(())
    });
    let checks = doctor(&kubeconfig, &[]);
    let failed: Vec<_> = checks.iter().filter(|(result, _)| result != "ok").collect();
    assert_eq!(failed, [&("fail".to_owned(), "missing: patch pods".to_owned())]);
}
