//! Pods on a real CRI-O, which takes minutes to build: `cargo xtask survive cri-o`.

use std::time::Duration;

use headwater_cri::client::CriClient;
use headwater_cri::proto::{ListContainersRequest, ListPodSandboxRequest};
use headwater_cri_lab::{Containerd, Crio};
use serde_json::{Value, json};

use crate::bench::{Bench, is_running, log_files, until};
use crate::fake_edge::latest_status;
use crate::life::{FOREVER, nothing_left};

/// With this variable CRI-O is built, once on a machine, and run.
const CRIO: &str = "HEADWATER_CRIO";

/// CRI-O is killed this often, each time a moment after the next pod.
const KILLS: u64 = 4;
const BETWEEN_KILLS: Duration = Duration::from_millis(700);

fn start() -> Option<Crio> {
    if std::env::var_os(CRIO).is_none() || !Containerd::is_possible() {
        return None;
    }
    Some(Crio::start().expect("CRI-O"))
}

/// The containers and sandboxes that CRI-O has, by id.
async fn everything(crio: &Crio) -> Vec<String> {
    let client = CriClient::new(crio.socket());
    let containers = client.list_containers(ListContainersRequest { filter: None }).await;
    let sandboxes = client.list_pod_sandbox(ListPodSandboxRequest { filter: None }).await;
    let containers = containers.expect("a list").containers.into_iter().map(|it| it.id);
    containers.chain(sandboxes.expect("a list").items.into_iter().map(|it| it.id)).collect()
}

/// Waits until nothing of the pods is left.
async fn gone(crio: &Crio, names: &[&str]) {
    nothing_left(async || everything(crio).await, names).await;
}

fn restarts(status: &Value) -> u64 {
    status["containerStatuses"][0]["restartCount"].as_u64().expect("a count")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_runs_on_cri_o_with_its_init_container_hooks_probes_and_logs() {
    let Some(crio) = start() else { return };
    let bench = Bench::new(crio.socket());
    let edged = bench.edged().await;
    // It fails once, then runs.
    let once = format!("echo a line; [ $(wc -l < /notes/web) -gt 1 ] || exit 3; {FOREVER}");
    let mut pod = bench.pod("web", &once);
    // In a network of its own.
    pod["spec"]["hostNetwork"] = json!(false);
    let mut init = pod["spec"]["containers"][0].clone();
    init["name"] = json!("init");
    init["command"] = json!(["/bin/sh", "-c", "echo start >> /notes/init"]);
    pod["spec"]["initContainers"] = json!([init]);
    let run = |script: &str| json!({"exec": {"command": ["/bin/sh", "-c", script]}});
    let web = &mut pod["spec"]["containers"][0];
    web["lifecycle"] = json!({
        "postStart": run("echo started > /notes/hook"), "preStop": run("echo ends > /notes/end"),
    });
    web["readinessProbe"] = run("[ -e /notes/hook ]");
    web["resources"] = json!({"limits": {"cpu": "500m", "memory": "64Mi"}});
    bench.edge.apply(&pod);
    let ready = |status: &Value| {
        is_running(status)
            && restarts(status) == 1
            && status["containerStatuses"][0]["ready"] == true
    };
    let status = bench.status("web", "a ready pod", ready).await;
    let last = &status["containerStatuses"][0]["lastState"]["terminated"];
    assert_eq!((&last["exitCode"], &last["reason"]), (&3.into(), &"Error".into()), "{status}");
    assert!(status["podIP"].as_str().is_some_and(|ip| ip.starts_with("10.244.0.")), "{status}");
    assert_eq!(bench.starts("init"), 1, "{status}");
    bench.until_starts("web", 2).await;
    for previous in [false, true] {
        let has_line = || async {
            let text = std::fs::read_to_string(log_files(&edged, "web", previous).first()?).ok()?;
            text.trim_end().ends_with(" stdout F a line").then_some(())
        };
        assert!(until(has_line).await.is_some(), "the log has no line, previous {previous}");
    }
    bench.delete(&pod).await;
    assert_eq!(bench.starts("end"), 1, "the preStop hook");
    gone(&crio, &["web"]).await;
    edged.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cri_o_is_killed_and_nothing_starts_twice() {
    let Some(mut crio) = start() else { return };
    let bench = Bench::new(crio.socket());
    let mut edged = bench.edged().await;
    let names: Vec<String> = (0..KILLS).map(|number| format!("p{number}")).collect();
    let mut pods = Vec::new();
    for name in &names {
        let pod = bench.pod(name, FOREVER);
        bench.edge.apply(&pod);
        pods.push(pod);
        tokio::time::sleep(BETWEEN_KILLS).await;
        let settled: Vec<_> = names
            .iter()
            .filter_map(|name| Some((name, latest_status(&bench.edge.operations(), name)?)))
            .filter(|(_, status)| is_running(status))
            .map(|(name, status)| (name, restarts(&status)))
            .collect();
        crio.server().kill().expect("it can be killed");
        edged.stop().await;
        crio.server().start().expect("it starts again");
        edged = bench.edged().await;
        for (name, before) in settled {
            let status = bench.status(name, "a running pod", is_running).await;
            assert_eq!(restarts(&status), before, "{name}: {status}");
        }
    }
    for name in &names {
        let status = bench.status(name, "a running pod", is_running).await;
        let starts = u64::try_from(bench.starts(name)).expect("a few");
        assert!((1..=restarts(&status) + 1).contains(&starts), "{name}: {starts} starts, {status}");
    }
    for pod in &pods {
        bench.delete(pod).await;
    }
    gone(&crio, &names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    edged.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_takes_too_much_memory_is_reported_so_on_cri_o() {
    let Some(crio) = start() else { return };
    let bench = Bench::new(crio.socket());
    let edged = bench.edged().await;
    let mut pod = bench.pod("greedy", "exec tail /dev/zero");
    pod["spec"]["restartPolicy"] = json!("Never");
    pod["spec"]["containers"][0]["resources"] = json!({"limits": {"memory": "16Mi"}});
    bench.edge.apply(&pod);
    let is_oom = |status: &Value| {
        status["containerStatuses"][0]["state"]["terminated"]["reason"] == "OOMKilled"
    };
    let status = bench.status("greedy", "its end for memory", is_oom).await;
    assert_eq!(status["phase"], "Failed", "{status}");
    assert_eq!(status["containerStatuses"][0]["state"]["terminated"]["exitCode"], 137, "{status}");
    bench.delete(&pod).await;
    gone(&crio, &["greedy"]).await;
    edged.stop().await;
}
