//! The machine restarts, and comes back without a network.

use std::fs;

use headwater_cri_lab::Image;
use serde_json::{Value, json};

use crate::bench::{Bench, is_running};
use crate::life::{FOREVER, gone, start};

/// A port of loopback in the network of containerd.
const REGISTRY_PORT: u16 = 5000;

/// Where secret volumes lie, in memory.
const MEMORY: &str = "/dev/shm";

/// Removes the secrets that this pod worker has in memory, as a restart of the machine does.
fn forget_memory(bench: &Bench) {
    let dir = bench.edged_dir();
    for entry in fs::read_dir(MEMORY).into_iter().flatten().flatten() {
        let owner = fs::read(entry.path().join("..owner")).unwrap_or_default();
        if owner == dir.as_os_str().as_encoded_bytes() {
            fs::remove_dir_all(entry.path()).expect("removed");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_pod_comes_back_from_its_own_disk_without_a_registry() {
    let Some(mut containerd) = start() else { return };
    let registry = containerd.registry(REGISTRY_PORT, None).expect("a registry");
    let busybox = Image::busybox().expect("an image");
    let image = containerd.push(&registry, &busybox, "team/busybox:1").expect("it is sent");
    let mut bench = Bench::new(containerd.socket());
    bench.boot_id = "boot-1".to_owned();
    let edged = bench.edged().await;
    bench.edge.apply(&json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "hush", "namespace": "shop"},
        "data": {"word": "cXVpZXQ="},
    }));
    // It pulls its image at each start, has an address of its own, an init container and a secret.
    let mut web = bench.pod("web", &format!("grep -q quiet /secret/word || exit 9; {FOREVER}"));
    web["spec"]["hostNetwork"] = json!(false);
    let container = &mut web["spec"]["containers"][0];
    container["image"] = json!(image);
    container["imagePullPolicy"] = json!("Always");
    let mounts = container["volumeMounts"].as_array_mut().expect("mounts");
    mounts.push(json!({"name": "secret", "mountPath": "/secret"}));
    let mut init = container.clone();
    init["name"] = json!("init");
    init["command"] = json!(["/bin/sh", "-c", "echo start >> /notes/init"]);
    web["spec"]["initContainers"] = json!([init]);
    let volumes = web["spec"]["volumes"].as_array_mut().expect("volumes");
    volumes.push(json!({"name": "secret", "secret": {"secretName": "hush"}}));
    let never = |name: &str, script: &str| {
        let mut pod = bench.pod(name, script);
        pod["spec"]["restartPolicy"] = json!("Never");
        pod
    };
    let (done, failed) = (never("done", "exit 0"), never("failed", "exit 7"));
    let working = never("working", FOREVER);
    let pods = [&web, &done, &failed, &working];
    pods.iter().for_each(|pod| bench.edge.apply(pod));
    for name in ["web", "working"] {
        bench.status(name, "a running pod", is_running).await;
        // Its process may not have come so far when the runtime says that it runs.
        bench.until_starts(name, 1).await;
    }
    bench.status("done", "its end", |status| status["phase"] == "Succeeded").await;
    bench.status("failed", "its end", |status| status["phase"] == "Failed").await;

    edged.stop().await;
    drop(registry);
    containerd.cut_power().expect("it starts again");
    forget_memory(&bench);
    bench.boot_id = "boot-2".to_owned();
    let edged = bench.edged().await;
    let again =
        |status: &Value| is_running(status) && status["containerStatuses"][0]["restartCount"] == 1;
    for name in ["web", "working"] {
        let status = bench.status(name, "the pod after the restart", again).await;
        let last = &status["containerStatuses"][0]["lastState"]["terminated"];
        assert_eq!(last["reason"], "ContainerStatusUnknown", "{status}");
        bench.until_starts(name, 2).await;
    }
    bench.until_starts("init", 2).await;
    for (name, phase, code) in [("done", "Succeeded", 0), ("failed", "Failed", 7)] {
        let status = bench.status(name, "its end", |status| status["phase"] == phase).await;
        let ended = &status["containerStatuses"][0]["state"]["terminated"];
        assert_eq!((&ended["exitCode"], bench.starts(name)), (&json!(code), 1), "{status}");
    }
    for pod in pods {
        bench.delete(pod).await;
    }
    gone(&containerd, &["web", "done", "failed", "working"]).await;
    edged.stop().await;
}
