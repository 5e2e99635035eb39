//! What ends under a pod: its sandbox, or a container for memory.

use std::fs;

use headwater_cri::client::CriClient;
use headwater_cri_lab::Containerd;
use serde_json::{Value, json};

use crate::bench::{Bench, is_running, stop_sandbox};
use crate::life::{FOREVER, gone, start};

/// The memory of the container that takes more.
const MEMORY: &str = "16Mi";

/// The id of the pod's newest sandbox that runs, and its first process as its machine counts.
fn sandbox(containerd: &Containerd, pod: &str) -> (String, String) {
    let filter = format!(
        "labels.\"io.kubernetes.pod.name\"=={pod},labels.\"io.cri-containerd.kind\"==sandbox"
    );
    let lines = |args: &[&str]| {
        let output = containerd.ctr().args(args).output().expect("ctr starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let sandboxes = lines(&["containers", "list", "--quiet", &filter]);
    let tasks = lines(&["tasks", "list"]);
    let found = tasks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [id, pid, "RUNNING"] = words[..] else { return None };
        sandboxes.lines().any(|sandbox| sandbox == id).then(|| (id.to_owned(), pid.to_owned()))
    });
    found.expect("a running sandbox")
}

/// A pod with an init container, whose containers note their starts.
fn pod(bench: &Bench) -> Value {
    let mut pod = bench.pod("web", FOREVER);
    let mut init = pod["spec"]["containers"][0].clone();
    init["name"] = json!("init");
    init["command"] = json!(["/bin/sh", "-c", "echo start >> /notes/init"]);
    pod["spec"]["initContainers"] = json!([init]);
    pod
}

/// Whether the pod runs again after the loss of its sandbox, with its counts.
fn is_whole_again(status: &Value, restarts: u64) -> bool {
    is_running(status)
        && status["containerStatuses"][0]["restartCount"] == restarts
        && status["initContainerStatuses"][0]["restartCount"] == restarts
        && status["initContainerStatuses"][0]["state"]["terminated"]["exitCode"] == 0
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_sandbox_is_replaced_and_all_containers_of_it_start_again() {
    let Some(containerd) = start() else { return };
    let bench = Bench::new(containerd.socket());
    let edged = bench.edged().await;
    let pod = pod(&bench);
    bench.edge.apply(&pod);
    bench.status("web", "a running pod", |status| is_whole_again(status, 0)).await;

    // The first process of the sandbox is killed.
    let (first, pid) = sandbox(&containerd, "web");
    let killed = containerd.machine().command("kill").args(["-9", &pid]).status();
    assert!(killed.expect("it starts").success());
    bench.status("web", "a new sandbox", |status| is_whole_again(status, 1)).await;
    bench.until_starts("init", 2).await;
    bench.until_starts("web", 2).await;

    // Another program stops it.
    let (second, _) = sandbox(&containerd, "web");
    assert_ne!(first, second);
    let client = CriClient::new(containerd.socket());
    stop_sandbox(&client, second.clone()).await;
    let again = |status: &Value| {
        is_running(status)
            && status["containerStatuses"][0]["restartCount"].as_u64() >= Some(2)
            && status["initContainerStatuses"][0]["restartCount"] == 2
    };
    let status = bench.status("web", "another new sandbox", again).await;
    bench.until_starts("init", 3).await;
    // The runtime says of the container first that it has ended: a start in the dying sandbox may fail.
    let last = &status["containerStatuses"][0]["lastState"]["terminated"];
    let failed = u64::from(last["reason"] == "StartError");
    let restarts = status["containerStatuses"][0]["restartCount"].as_u64().expect("a count");
    let starts = usize::try_from(restarts + 1 - failed).expect("a few");
    bench.until_starts("web", starts).await;
    assert_ne!(sandbox(&containerd, "web").0, second);
    bench.delete(&pod).await;
    gone(&containerd, &["web"]).await;
    edged.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_takes_too_much_memory_is_reported_so() {
    let Some(containerd) = start() else { return };
    let bench = Bench::new(containerd.socket());
    let edged = bench.edged().await;
    // containerd looks for a lack of memory from the end of the start on.
    let waits = "until test -e /notes/go; do sleep 0.1; done; exec tail /dev/zero";
    let mut pod = bench.pod("greedy", waits);
    pod["spec"]["restartPolicy"] = json!("Never");
    pod["spec"]["containers"][0]["resources"] = json!({"limits": {"memory": MEMORY}});
    bench.edge.apply(&pod);
    bench.status("greedy", "a running pod", is_running).await;
    fs::write(bench.notes().join("go"), "").expect("written");
    let status = bench.status("greedy", "its end", |status| status["phase"] == "Failed").await;
    let is_oom = |status: &Value| {
        status["containerStatuses"][0]["state"]["terminated"]["reason"] == "OOMKilled"
    };
    let status =
        if is_oom(&status) { status } else { bench.status("greedy", "the reason", is_oom).await };
    let ended = &status["containerStatuses"][0]["state"]["terminated"];
    assert_eq!(ended["exitCode"], 137, "{status}");
    bench.delete(&pod).await;
    gone(&containerd, &["greedy"]).await;
    edged.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_torn_result_of_the_network_plugin_holds_no_pod_back() {
    let Some(containerd) = start() else { return };
    let bench = Bench::new(containerd.socket());
    let edged = bench.edged().await;
    let mut pod = pod(&bench);
    pod["spec"]["hostNetwork"] = json!(false);
    bench.edge.apply(&pod);
    bench.status("web", "a running pod", |status| is_whole_again(status, 0)).await;

    // A power cut leaves the file empty. containerd, which sees another folder than this process, then refuses to stop
    // the sandbox.
    let results = fs::read_dir(containerd.machine().path("/var/lib/cni/results"));
    let results: Vec<_> = results.expect("the results").map(|it| it.expect("one").path()).collect();
    assert!(!results.is_empty());
    results.iter().for_each(|result| fs::write(result, "").expect("it is emptied"));
    let (first, pid) = sandbox(&containerd, "web");
    let killed = containerd.machine().command("kill").args(["-9", &pid]).status();
    assert!(killed.expect("it starts").success());
    bench.status("web", "a new sandbox", |status| is_whole_again(status, 1)).await;
    assert_ne!(first, sandbox(&containerd, "web").0);
    bench.delete(&pod).await;
    gone(&containerd, &["web"]).await;
    edged.stop().await;
}
