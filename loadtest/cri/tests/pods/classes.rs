//! RuntimeClasses on a real containerd.

use headwater_cri::client::CriClient;
use serde_json::{Value, json};

use crate::bench::{Bench, is_running, sandboxes};
use crate::life::{FOREVER, gone, start};

pub(crate) fn class(name: &str, handler: &str) -> Value {
    json!({
        "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass",
        "metadata": {"name": name, "uid": name}, "handler": handler,
    })
}

pub(crate) fn pod(bench: &Bench, name: &str, class: &str) -> Value {
    let mut pod = bench.pod(name, FOREVER);
    pod["spec"]["runtimeClassName"] = json!(class);
    pod
}

/// The reason for which the container waits, and its message.
pub(crate) fn waiting(status: &Value) -> (&str, &str) {
    let waiting = &status["containerStatuses"][0]["state"]["waiting"];
    let of = |field: &str| waiting[field].as_str().unwrap_or_default();
    (of("reason"), of("message"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_runs_by_the_handler_of_its_class_and_waits_until_the_node_knows_it() {
    let Some(containerd) = start() else { return };
    let bench = Bench::new(containerd.socket());
    let edged = bench.edged().await;
    let own = pod(&bench, "own", "own");
    bench.edge.apply(&own);
    let is_unknown = |status: &Value| {
        let (reason, message) = waiting(status);
        reason == "CreateContainerConfigError" && message.contains("RuntimeClass \"own\"")
    };
    bench.status("own", "a pod of an unknown class", is_unknown).await;
    bench.edge.apply(&class("own", "second"));
    bench.status("own", "a running pod", is_running).await;
    let client = CriClient::new(containerd.socket());
    let listed = sandboxes(&client).await.into_iter();
    let handlers: Vec<_> = listed.map(|it| it.runtime_handler).collect();
    assert_eq!(handlers, ["second"]);

    // The class names a handler that the runtime does not have.
    bench.edge.apply(&class("lost", "absent"));
    let lost = pod(&bench, "lost", "lost");
    bench.edge.apply(&lost);
    let is_lost = |status: &Value| waiting(status).1.contains("\"absent\"");
    bench.status("lost", "a pod without a handler", is_lost).await;
    // A pod worker that starts again knows the class from the edge.
    edged.stop().await;
    let edged = bench.edged().await;
    bench.status("own", "the adopted pod", is_running).await;
    for pod in [&own, &lost] {
        bench.delete(pod).await;
    }
    gone(&containerd, &["own", "lost"]).await;
    edged.stop().await;
}
