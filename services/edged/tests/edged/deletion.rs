//! Pods end before their objects are deleted.

use std::time::Duration;

use serde_json::{Value, json};

use crate::bench::{Bench, content, deleting, is_alive, is_ready, is_running, script_pod, until};
use crate::fake_edge::asked_delete;

#[tokio::test]
async fn a_deleted_pod_is_asked_to_end_and_its_object_goes_only_then() {
    let bench = Bench::new(&[]);
    let (pid_file, go) = (bench.path("pid"), bench.path("go"));
    // It ends on SIGTERM, but not before it is let.
    let script = format!(
        "trap 'while [ ! -e {} ]; do sleep 0.02; done; exit 0' TERM; echo $$ > {}; \
         while :; do sleep 0.02; done",
        go.display(),
        pid_file.display()
    );
    let pod = script_pod("web", "u1", &script);
    bench.edge.apply(&pod);
    let edged = bench.edged().await;
    bench.edge.until_status("web", "a ready pod", is_ready).await;
    let pid = content(&pid_file).await;
    bench.edge.apply(&deleting(&pod, 60));
    bench.edge.until_status("web", "an unready pod", |s| !is_ready(s)).await;
    assert_eq!(asked_delete(&bench.edge.operations(), "web"), None, "it still runs");
    assert!(is_alive(&pid));
    std::fs::write(&go, "").expect("written");
    let asked = bench.edge.until("the delete", |all| asked_delete(all, "web")).await;
    assert_eq!(asked, json!({"uid": "u1"}));
    assert!(!is_alive(&pid));
    let status = crate::fake_edge::latest_status(&bench.edge.operations(), "web");
    let status = status.expect("a status");
    assert_eq!(status["phase"], "Succeeded");
    let state = &status["containerStatuses"][0]["state"];
    assert_eq!(state["terminated"]["exitCode"], 0, "the last status precedes the delete");
    bench.edge.delete("shop/pod/web");
    let left = bench.edged_dir().join("pods/u1");
    until("nothing left of the pod", || (!left.exists()).then_some(())).await;
    let logs = std::fs::read_dir(bench.edged_dir().join("logs")).expect("logs").count();
    assert_eq!(logs, 0);
    edged.stop().await;
}

#[tokio::test]
async fn a_container_that_does_not_listen_is_killed_after_its_grace_period() {
    let bench = Bench::new(&[]);
    let pid_file = bench.path("pid");
    let script =
        format!("trap '' TERM; echo $$ > {}; while :; do sleep 0.05; done", pid_file.display());
    let pod = script_pod("web", "u1", &script);
    bench.edge.apply(&pod);
    let edged = bench.edged().await;
    let pid = content(&pid_file).await;
    bench.edge.until_status("web", "a running pod", is_running).await;
    bench.edge.apply(&deleting(&pod, 1));
    bench.edge.until("the delete", |all| asked_delete(all, "web")).await;
    assert!(!is_alive(&pid));
    let status = crate::fake_edge::latest_status(&bench.edge.operations(), "web");
    let status = status.expect("a status");
    assert_eq!(status["containerStatuses"][0]["state"]["terminated"]["signal"], 9);
    edged.stop().await;
}

#[tokio::test]
async fn hooks_run_after_the_start_and_before_the_stop() {
    let bench = Bench::new(&[]);
    let order = bench.path("order");
    let hook = |what: &str| {
        let script = format!("echo {what} >> {}", order.display());
        json!({"exec": {"command": ["sh", "-c", script]}})
    };
    let listens = bench.path("listens");
    let script = format!(
        "trap 'echo term >> {}; exit 0' TERM; echo > {}; while :; do sleep 0.02; done",
        order.display(),
        listens.display()
    );
    let mut pod = script_pod("web", "u1", &script);
    pod["spec"]["containers"][0]["lifecycle"] =
        json!({"postStart": hook("start"), "preStop": hook("stop")});
    bench.edge.apply(&pod);
    let edged = bench.edged().await;
    bench.edge.until_status("web", "a ready pod", is_ready).await;
    content(&listens).await;
    bench.edge.apply(&deleting(&pod, 60));
    bench.edge.until("the delete", |all| asked_delete(all, "web")).await;
    assert_eq!(content(&order).await, "start\nstop\nterm\n");
    edged.stop().await;
}

#[tokio::test]
async fn sidecars_end_after_the_main_containers_in_the_reverse_order_of_their_starts() {
    let bench = Bench::new(&[]);
    let order = bench.path("order");
    let container = |name: &str| {
        let script = format!(
            "trap 'echo {name} >> {}; exit 0' TERM; echo > {}; while :; do sleep 0.02; done",
            order.display(),
            bench.path(name).display()
        );
        json!({"name": name, "command": ["sh", "-c", script]})
    };
    let sidecar = |name: &str| {
        let mut sidecar = container(name);
        sidecar["restartPolicy"] = json!("Always");
        sidecar
    };
    let mut pod = script_pod("web", "u1", "");
    pod["spec"]["initContainers"] = json!([sidecar("first"), sidecar("second")]);
    pod["spec"]["containers"] = json!([container("main")]);
    bench.edge.apply(&pod);
    let edged = bench.edged().await;
    bench.edge.until_status("web", "a ready pod", is_ready).await;
    // A container without probes is ready before its shell has set the trap.
    for name in ["first", "second", "main"] {
        content(&bench.path(name)).await;
    }
    bench.edge.apply(&deleting(&pod, 60));
    bench.edge.until("the delete", |all| asked_delete(all, "web")).await;
    assert_eq!(content(&order).await, "main\nsecond\nfirst\n");
    edged.stop().await;
}

#[tokio::test]
async fn a_pod_that_the_view_loses_ends_without_a_delete() {
    let bench = Bench::new(&[]);
    let pid_file = bench.path("pid");
    let script = format!("echo $$ > {}; exec sleep 1000", pid_file.display());
    bench.edge.apply(&script_pod("web", "u1", &script));
    let edged = bench.edged().await;
    let pid = content(&pid_file).await;
    bench.edge.delete("shop/pod/web");
    let left = bench.edged_dir().join("pods/u1");
    until("nothing left of the pod", || (!left.exists()).then_some(())).await;
    assert!(!is_alive(&pid));
    assert_eq!(asked_delete(&bench.edge.operations(), "web"), None);
    edged.stop().await;
}

#[tokio::test]
async fn another_uid_under_the_same_name_starts_when_the_first_has_ended() {
    let bench = Bench::new(&[]);
    let (first, second) = (bench.path("first"), bench.path("second"));
    let script = format!("echo $$ > {}; exec sleep 1000", first.display());
    bench.edge.apply(&script_pod("web", "u1", &script));
    let edged = bench.edged().await;
    let pid = content(&first).await;
    // The second reports whether the first still runs.
    let (pid, out) = (pid.trim(), second.display());
    let script = format!(
        "if kill -0 {pid}; then echo both > {out}; else echo alone > {out}; fi; exec sleep 1000"
    );
    bench.edge.apply(&script_pod("web", "u2", &script));
    assert_eq!(content(&second).await, "alone\n");
    assert!(!is_alive(pid));
    assert!(!bench.edged_dir().join("pods/u1").exists());
    let is_second = |s: &Value| is_running(s);
    bench.edge.until_status("web", "the second pod", is_second).await;
    edged.stop_pods(Duration::from_secs(5)).await;
}
