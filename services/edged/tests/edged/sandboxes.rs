//! Pods in a runtime with sandboxes and images.

use std::time::Duration;

use headwater_edged::pod::PodUid;
use headwater_edged::runtime::memory::MemoryRuntime;
use headwater_edged::runtime::{Images as _, Rejection};
use headwater_edged::{Edged, EdgedConfig, Handle, NOTICES_MAX, PullOffline};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::bench::{Bench, condition, deleting, is_ready, is_running, script_pod, until};
use crate::fake_edge::asked_delete;

async fn edged(bench: &Bench) -> (Handle, MemoryRuntime) {
    edged_with(bench.config()).await
}

async fn edged_with(config: EdgedConfig) -> (Handle, MemoryRuntime) {
    let (notices, noticed) = mpsc::channel(NOTICES_MAX);
    let runtime = MemoryRuntime::new(notices);
    let edged = Edged::spawn_with(config, runtime.node_runtime(), noticed).await;
    (edged.expect("the pod worker starts"), runtime)
}

fn pod_with_image() -> Value {
    let mut pod = script_pod("web", "u1", "");
    pod["spec"]["initContainers"] = json!([{"name": "init", "image": "localhost/init:1"}]);
    pod["spec"]["containers"][0]["image"] = json!("localhost/web:1");
    pod
}

fn uid() -> PodUid {
    PodUid::try_from("u1".to_owned()).expect("a UID")
}

/// Ends the init container with success as soon as it runs.
async fn initialize(bench: &Bench, runtime: &MemoryRuntime, restarts: u64) {
    let init_runs = |status: &Value| {
        let init = &status["initContainerStatuses"][0];
        !init["state"]["running"].is_null() && init["restartCount"] == restarts
    };
    bench.edge.until_status("web", "a running init container", init_runs).await;
    runtime.exit(&uid(), "init", 0);
}

#[tokio::test]
async fn a_pod_gets_its_sandbox_and_images_and_reports_address_and_image_ids() {
    let pod = pod_with_image();
    let bench = Bench::new(std::slice::from_ref(&pod));
    let (edged, runtime) = edged(&bench).await;
    initialize(&bench, &runtime, 0).await;
    let status = bench.edge.until_status("web", "a ready pod", is_ready).await;
    assert_eq!(status["podIP"], "10.244.0.1");
    assert_eq!(status["hostIP"], "127.0.0.1");
    assert_eq!(status["containerStatuses"][0]["imageID"], "memory:localhost/web:1");
    assert_eq!(condition(&status, "PodReadyToStartContainers"), "True");
    bench.edge.apply(&deleting(&pod, 30));
    bench.edge.until("the delete", |all| asked_delete(all, "web")).await;
    bench.edge.delete("shop/pod/web");
    use headwater_edged::runtime::Runtime as _;
    until("nothing left of the pod", || runtime.pods().is_empty().then_some(())).await;
    edged.stop().await;
}

#[tokio::test]
async fn after_the_loss_of_its_sandbox_all_containers_start_again_in_another_one() {
    let bench = Bench::new(&[pod_with_image()]);
    let (edged, runtime) = edged(&bench).await;
    initialize(&bench, &runtime, 0).await;
    bench.edge.until_status("web", "a ready pod", is_ready).await;
    runtime.lose_sandbox(&uid());
    initialize(&bench, &runtime, 1).await;
    let again = |s: &Value| is_running(s) && s["containerStatuses"][0]["restartCount"] == 1;
    bench.edge.until_status("web", "the pod again", again).await;
    assert_eq!(edged.stop_pods(Duration::from_mins(1)).await, 0);
}

#[tokio::test]
async fn a_job_whose_end_is_pending_does_not_run_again_in_another_sandbox() {
    let mut pod = script_pod("web", "u1", "");
    pod["spec"]["restartPolicy"] = json!("Never");
    pod["spec"]["containers"][0]["image"] = json!("localhost/web:1");
    let bench = Bench::new(std::slice::from_ref(&pod));
    let (edged, runtime) = edged(&bench).await;
    bench.edge.until_status("web", "a ready pod", is_ready).await;
    runtime.hide_end(&uid(), "main");
    let pending = |status: &Value| !is_ready(status) && is_running(status);
    bench.edge.until_status("web", "a pod that is not ready", pending).await;
    runtime.lose_sandbox(&uid());
    use headwater_edged::runtime::{Runtime as _, SandboxState};
    let is_closed = || (runtime.pod(&uid()).sandbox == SandboxState::None).then_some(());
    until("the end of the lost sandbox", is_closed).await;
    // A deletion waits for the code, past the grace period. Another pod becomes ready meanwhile.
    bench.edge.apply(&deleting(&pod, 0));
    let mut later = script_pod("later", "u2", "");
    later["spec"]["containers"][0]["image"] = json!("localhost/web:1");
    bench.edge.apply(&later);
    bench.edge.until_status("later", "a ready pod", is_ready).await;
    let asked = asked_delete(&bench.edge.operations(), "web");
    assert_eq!(asked, None, "its code is not known");
    runtime.exit(&uid(), "main", 0);
    let ended = |status: &Value| status["phase"] == "Succeeded";
    let status = bench.edge.until_status("web", "its end", ended).await;
    let container = &status["containerStatuses"][0];
    assert_eq!(container["restartCount"], 0, "{status}");
    assert_eq!(container["state"]["terminated"]["exitCode"], 0, "{status}");
    bench.edge.until("the delete", |all| asked_delete(all, "web")).await;
    edged.stop().await;
}

#[tokio::test]
async fn a_job_whose_end_is_pending_does_not_fail_at_its_deadline() {
    let job = |name: &str, uid: &str, deadline: Option<u32>| {
        let mut pod = script_pod(name, uid, "");
        pod["spec"]["restartPolicy"] = json!("Never");
        pod["spec"]["containers"][0]["image"] = json!("localhost/web:1");
        if let Some(seconds) = deadline {
            pod["spec"]["activeDeadlineSeconds"] = json!(seconds);
        }
        pod
    };
    let bench = Bench::new(&[job("web", "u1", None)]);
    let (edged, runtime) = edged(&bench).await;
    bench.edge.until_status("web", "a running pod", is_running).await;
    runtime.hide_end(&uid(), "main");
    bench.edge.apply(&job("web", "u1", Some(1)));
    // The deadline of a later job is later.
    bench.edge.apply(&job("later", "u2", Some(1)));
    let is_late = |status: &Value| status["reason"] == "DeadlineExceeded";
    bench.edge.until_status("later", "its deadline", is_late).await;
    runtime.exit(&uid(), "main", 0);
    let has_ended = |status: &Value| status["phase"] != "Running";
    let status = bench.edge.until_status("web", "its end", has_ended).await;
    assert_eq!(status["phase"], "Succeeded", "{status}");
    edged.stop().await;
}

#[tokio::test]
async fn a_container_whose_image_changed_is_replaced_by_one_with_the_new_image() {
    let mut pod = script_pod("web", "u1", "");
    pod["spec"]["restartPolicy"] = json!("Never");
    pod["spec"]["containers"][0]["image"] = json!("localhost/web:1");
    let bench = Bench::new(std::slice::from_ref(&pod));
    let (edged, _runtime) = edged(&bench).await;
    bench.edge.until_status("web", "a ready pod", is_ready).await;
    pod["spec"]["containers"][0]["image"] = json!("localhost/web:2");
    bench.edge.apply(&pod);
    let replaced = |s: &Value| is_ready(s) && s["containerStatuses"][0]["restartCount"] == 1;
    let status = bench.edge.until_status("web", "the new container", replaced).await;
    assert_eq!(status["containerStatuses"][0]["image"], "localhost/web:2");
    assert_eq!(status["containerStatuses"][0]["imageID"], "memory:localhost/web:2");
    edged.stop().await;
}

#[tokio::test]
async fn a_container_that_fails_starts_at_once_with_another_image() {
    let mut pod = script_pod("web", "u1", "");
    pod["spec"]["containers"][0]["image"] = json!("localhost/web:1");
    let bench = Bench::new(std::slice::from_ref(&pod));
    let mut config = bench.config();
    config.settings.backoff_base = Duration::from_secs(3600);
    config.settings.backoff_cap = Duration::from_secs(3600);
    let (edged, runtime) = edged_with(config).await;
    // The first failure has no wait.
    for restarts in 0..2 {
        let runs = |s: &Value| is_ready(s) && s["containerStatuses"][0]["restartCount"] == restarts;
        bench.edge.until_status("web", "a run", runs).await;
        runtime.exit(&uid(), "main", 1);
    }
    let waits = |status: &Value| {
        status["containerStatuses"][0]["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    };
    bench.edge.until_status("web", "a wait", waits).await;
    pod["spec"]["containers"][0]["image"] = json!("localhost/web:2");
    bench.edge.apply(&pod);
    let again = |s: &Value| is_ready(s) && s["containerStatuses"][0]["restartCount"] == 2;
    bench.edge.until_status("web", "the next run", again).await;
    edged.stop().await;
}

#[tokio::test]
async fn a_pull_that_fails_is_reported_and_tried_again() {
    let bench = Bench::new(&[]);
    let (edged, runtime) = edged(&bench).await;
    runtime.fail_pulls(usize::MAX);
    let mut pod = script_pod("web", "u1", "");
    pod["spec"]["containers"][0]["image"] = json!("localhost/web:1");
    bench.edge.apply(&pod);
    let waits = |status: &Value| {
        let waiting = &status["containerStatuses"][0]["state"]["waiting"];
        waiting["reason"] == "RegistryUnavailable"
            && waiting["message"].as_str().is_some_and(|m| m.contains("localhost/web:1"))
    };
    bench.edge.until_status("web", "a failed pull", waits).await;
    runtime.fail_pulls(0);
    bench.edge.until_status("web", "a ready pod", is_ready).await;
    let images = runtime.list().await.expect("images");
    assert_eq!(images.len(), 1);
    edged.stop_pods(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_container_that_ignores_its_end_is_killed() {
    let bench = Bench::new(&[]);
    let (edged, runtime) = edged(&bench).await;
    runtime.ignore_stops(&uid(), "main");
    let mut pod = script_pod("web", "u1", "");
    pod["spec"]["containers"][0]["image"] = json!("localhost/web:1");
    bench.edge.apply(&pod);
    bench.edge.until_status("web", "a ready pod", is_ready).await;
    bench.edge.apply(&deleting(&pod, 1));
    bench.edge.until("the delete", |all| asked_delete(all, "web")).await;
    let status = crate::fake_edge::latest_status(&bench.edge.operations(), "web");
    let status = status.expect("a status");
    assert_eq!(status["containerStatuses"][0]["state"]["terminated"]["signal"], 9);
    edged.stop().await;
}

/// A Secret with the password of the user `edge` of `localhost`.
fn secret(password: &str) -> Value {
    let config = json!({"auths": {"localhost": {"username": "edge", "password": password}}});
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson",
        "metadata": {"name": "pull", "namespace": "shop"},
        "stringData": {".dockerconfigjson": config.to_string()},
    })
}

#[tokio::test]
async fn a_pod_with_two_addresses_has_both_in_its_environment() {
    let bench = Bench::new(&[]);
    let (edged, runtime) = edged(&bench).await;
    runtime.set_dual_stack();
    let mut pod = script_pod("web", "u1", "");
    let variable = |name: &str| {
        let source = json!({"fieldRef": {"fieldPath": format!("status.{name}")}});
        json!({"name": name, "valueFrom": source})
    };
    let container = &mut pod["spec"]["containers"][0];
    container["image"] = json!("localhost/web:1");
    container["env"] = json!([variable("podIP"), variable("podIPs")]);
    bench.edge.apply(&pod);
    let status = bench.edge.until_status("web", "a ready pod", is_ready).await;
    let launch = runtime.launch(&uid(), "main").expect("it was launched");
    assert_eq!(launch.env["podIP"], "10.244.0.1");
    assert_eq!(launch.env["podIPs"], "10.244.0.1,::ffff:10.244.0.1");
    assert_eq!(status["podIPs"][1]["ip"], "::ffff:10.244.0.1");
    edged.stop_pods(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_pod_that_waits_for_its_image_pulls_it_as_soon_as_its_secret_has_the_password() {
    let mut pod = script_pod("web", "u1", "");
    pod["spec"]["containers"][0]["image"] = json!("localhost/web:1");
    pod["spec"]["imagePullSecrets"] = json!([{"name": "pull"}]);
    let bench = Bench::new(&[pod]);
    let mut config = bench.config();
    // Longer than the test waits: only the news of the Secret ends it.
    config.settings.backoff_base = Duration::from_secs(3600);
    config.settings.backoff_cap = Duration::from_secs(3600);
    let (edged, runtime) = edged_with(config).await;
    runtime.demand_login("edge", "s3cret");
    let waits = |status: &Value| {
        status["containerStatuses"][0]["state"]["waiting"]["reason"] == "ErrImagePull"
    };
    // The Secret is absent, then wrong, then right.
    bench.edge.until_status("web", "a refused pull", waits).await;
    bench.edge.apply(&secret("wrong"));
    bench.edge.apply(&secret("s3cret"));
    bench.edge.until_status("web", "a ready pod", is_ready).await;
    edged.stop_pods(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn while_its_registry_is_out_of_reach_a_container_starts_from_the_image_that_it_ran_from() {
    for offline in [PullOffline::Present, PullOffline::Strict] {
        let mut pod = script_pod("web", "u1", "");
        pod["spec"]["containers"][0]["image"] = json!("localhost/web");
        let bench = Bench::new(&[pod]);
        let mut config = bench.config();
        config.settings.pull_offline = offline;
        let (edged, runtime) = edged_with(config).await;
        bench.edge.until_status("web", "a ready pod", is_ready).await;
        runtime.fail_pulls(usize::MAX);
        runtime.exit(&uid(), "main", 1);
        let again = |status: &Value| {
            let container = &status["containerStatuses"][0];
            let runs_again = is_ready(status) && container["restartCount"] == 1;
            let waits = container["state"]["waiting"]["reason"] == "RegistryUnavailable";
            runs_again || waits
        };
        let status = bench.edge.until_status("web", "the next run, or a wait", again).await;
        assert_eq!(is_ready(&status), offline == PullOffline::Present, "{offline:?}");
        edged.stop_pods(Duration::from_secs(5)).await;
    }
}

#[tokio::test]
async fn a_pod_that_the_runtime_does_not_admit_fails_before_anything_of_it_runs() {
    let bench = Bench::new(&[]);
    let (edged, runtime) = edged(&bench).await;
    let message = "forbidden sysctl: \"vm.swappiness\" is not safe".to_owned();
    runtime.reject(Some(Rejection { reason: "SysctlForbidden", message }));
    bench.edge.apply(&pod_with_image());
    let failed = |status: &Value| status["phase"] == "Failed";
    let status = bench.edge.until_status("web", "its failure", failed).await;
    assert_eq!(status["reason"], "SysctlForbidden");
    assert_eq!(status["message"], "forbidden sysctl: \"vm.swappiness\" is not safe");
    use headwater_edged::runtime::Runtime as _;
    assert_eq!(runtime.pods(), [], "it has no sandbox");
    // The end is final, whatever the node admits later.
    runtime.reject(None);
    let mut another = pod_with_image();
    another["metadata"]["name"] = json!("next");
    another["metadata"]["uid"] = json!("u2");
    bench.edge.apply(&another);
    let begins = |status: &Value| !status["initContainerStatuses"][0]["state"]["running"].is_null();
    bench.edge.until_status("next", "a start", begins).await;
    let status = crate::fake_edge::latest_status(&bench.edge.operations(), "web");
    assert_eq!(status.expect("a status")["phase"], "Failed");
    assert_eq!(edged.stop_pods(Duration::from_mins(1)).await, 0);
}

#[tokio::test]
async fn a_container_that_is_added_to_a_running_pod_starts_once_and_has_a_status() {
    let mut pod = script_pod("web", "u1", "");
    pod["spec"]["containers"][0]["image"] = json!("localhost/web:1");
    let bench = Bench::new(std::slice::from_ref(&pod));
    let (edged, runtime) = edged(&bench).await;
    bench.edge.until_status("web", "a ready pod", is_ready).await;
    pod["spec"]["ephemeralContainers"] =
        json!([{"name": "debug", "image": "localhost/tools:1", "targetContainerName": "main"}]);
    bench.edge.apply(&pod);
    let debugged = |status: &Value| {
        let container = &status["ephemeralContainerStatuses"][0];
        container["name"] == "debug" && !container["state"]["running"].is_null()
    };
    let status = bench.edge.until_status("web", "the container", debugged).await;
    assert_eq!(status["ephemeralContainerStatuses"][0]["imageID"], "memory:localhost/tools:1");
    runtime.exit(&uid(), "debug", 3);
    let ended = |status: &Value| {
        status["ephemeralContainerStatuses"][0]["state"]["terminated"]["exitCode"] == 3
    };
    let status = bench.edge.until_status("web", "its end", ended).await;
    assert!(is_ready(&status), "the pod runs on");
    // The next round starts the main container again, and this one not.
    runtime.exit(&uid(), "main", 1);
    let again =
        |status: &Value| status["containerStatuses"][0]["restartCount"] == 1 && is_ready(status);
    let status = bench.edge.until_status("web", "the pod again", again).await;
    assert!(ended(&status), "it started once");
    assert_eq!(status["ephemeralContainerStatuses"][0]["restartCount"], 0);
    edged.stop_pods(Duration::from_secs(5)).await;
}
