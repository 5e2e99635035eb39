//! Processors that containers have for themselves.

use std::fs;
use std::time::Duration;

use headwater_edged::runtime::memory::MemoryRuntime;
use headwater_edged::{CpuPolicy, Edged, Handle, NOTICES_MAX};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::bench::{Bench, is_ready, script_pod, until};
use crate::fake_edge::latest_status;

/// A worker looks at its pod so often that a test waits for several looks.
const OFTEN: Duration = Duration::from_millis(50);

async fn edged(bench: &Bench, runtime: &MemoryRuntime, cpu_policy: CpuPolicy) -> Handle {
    let mut config = bench.config();
    config.settings.cpu_policy = cpu_policy;
    config.settings.reserved.cpu_milli = 1;
    config.settings.resync = OFTEN;
    let (_, noticed) = mpsc::channel(NOTICES_MAX);
    let edged = Edged::spawn_with(config, runtime.node_runtime(), noticed).await;
    edged.expect("the pod worker starts")
}

fn pod(name: &str, resources: Value) -> Value {
    let mut pod = script_pod(name, name, "");
    pod["spec"]["containers"][0]["image"] = json!("localhost/web:1");
    pod["spec"]["containers"][0]["resources"] = resources;
    pod
}

#[tokio::test]
async fn a_pod_that_runs_and_finds_too_few_processors_gets_them_once_they_are_free() {
    let cpus = std::thread::available_parallelism().expect("a machine").get();
    if cpus < 2 {
        return;
    }
    let own = pod("own", json!({"limits": {"cpu": "1", "memory": "1Mi"}}));
    let bench = Bench::new(&[own, pod("other", json!({}))]);
    let (notices, _noticed) = mpsc::channel(NOTICES_MAX);
    let runtime = MemoryRuntime::new(notices);
    let first = edged(&bench, &runtime, CpuPolicy::None).await;
    for name in ["own", "other"] {
        bench.edge.until_status(name, "a ready pod", is_ready).await;
    }
    first.stop().await;

    // A damaged file: it gives everything to a pod that requests nothing.
    let online = fs::read_to_string("/sys/devices/system/cpu/online").expect("the kernel shows it");
    let wrong = json!({"version": 1, "pods": {"other": {"main": online.trim()}}});
    let file = bench.edged_dir().join("cpus.json");
    fs::create_dir_all(bench.edged_dir()).expect("a directory");
    fs::write(&file, wrong.to_string()).expect("written");
    let allocated = || -> Value {
        let text = fs::read(&file).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    };
    let before = bench.edge.operations().len();
    let second = edged(&bench, &runtime, CpuPolicy::Static).await;
    let runs_on = bench.edge.until("a ready pod", |all| {
        latest_status(all.get(before..).unwrap_or_default(), "own").filter(is_ready)
    });
    runs_on.await;
    assert_eq!(allocated(), wrong);

    bench.edge.delete("shop/pod/other");
    let given = until("its processor", || {
        let given = allocated()["pods"]["own"]["main"].clone();
        given.is_string().then_some(given)
    });
    assert!(given.await.as_str().is_some_and(|cpus| !cpus.contains(['-', ','])));
    assert_eq!(allocated()["pods"]["other"], json!(null));
    second.stop().await;
}
