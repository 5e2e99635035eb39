//! Ephemeral containers: one that names a target sees its processes.

use std::fs;

use headwater_cri_lab::BUSYBOX_IMAGE;
use serde_json::{Value, json};

use crate::bench::{Bench, is_running, until};
use crate::life::{FOREVER, gone, start};

#[tokio::test(flavor = "multi_thread")]
async fn an_ephemeral_container_sees_the_processes_of_its_target() {
    let Some(containerd) = start() else { return };
    let bench = Bench::new(containerd.socket());
    let edged = bench.edged().await;
    let mut pod = bench.pod("web", FOREVER);
    bench.edge.apply(&pod);
    bench.status("web", "a running pod", is_running).await;
    let debug = |name: &str, target: Value| {
        let script =
            format!("ps > /notes/new-{name}; mv /notes/new-{name} /notes/{name}; {FOREVER}");
        json!({"name": name, "image": BUSYBOX_IMAGE, "command": ["/bin/sh", "-c", script],
            "targetContainerName": target,
            "volumeMounts": [{"name": "notes", "mountPath": "/notes"}]})
    };
    pod["spec"]["ephemeralContainers"] = json!([
        debug("inside", json!("web")),
        debug("beside", Value::Null),
        debug("lost", json!("nothing")),
    ]);
    bench.edge.apply(&pod);
    for (name, sees) in [("inside", true), ("beside", false)] {
        let processes = || async { fs::read_to_string(bench.notes().join(name)).ok() };
        let processes = until(processes).await.expect("its processes");
        // The target notes its start, and this container does not.
        assert_eq!(processes.contains("echo start"), sees, "{name}: {processes}");
    }
    let waits = |status: &Value| {
        let all = status["ephemeralContainerStatuses"].as_array().cloned().unwrap_or_default();
        let lost = all.into_iter().find(|it| it["name"] == "lost");
        lost.is_some_and(|lost| {
            let waiting = &lost["state"]["waiting"];
            waiting["reason"] == "CreateContainerConfigError"
                && waiting["message"] == "unable to find target container nothing"
        })
    };
    bench.status("web", "the wait for a target", waits).await;
    bench.delete(&pod).await;
    gone(&containerd, &["web"]).await;
    edged.stop().await;
}
