//! Pods that run when the node begins to forbid what they are.

use headwater_cri::client::CriClient;
use headwater_cri::proto::PodSandboxState;
use headwater_cri::spec::POD_NAME;
use headwater_cri_lab::Containerd;
use serde_json::{Value, json};

use crate::bench::{is_running, on_a_twin, sandboxes, until};

const REASON: &str = "CreateContainerConfigError";
const WORDS: &str = "spec.hostNetwork: the node forbids it";

/// Whether the sandbox of this pod is closed.
async fn is_closed(client: &CriClient, pod: &str) -> Option<()> {
    let mut sandboxes = sandboxes(client).await.into_iter();
    let sandbox = sandboxes.find(|it| it.labels.get(POD_NAME).is_some_and(|name| name == pod))?;
    (sandbox.state() == PodSandboxState::SandboxNotready).then_some(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_the_node_forbids_meanwhile_ends_and_fails_with_the_words_for_a_new_one() {
    if !Containerd::is_possible() {
        return;
    }
    let (_scratch, twin, mut bench, edged) = on_a_twin().await;
    let client = CriClient::new(twin.socket());
    let mut allowed = bench.pod("allowed", "");
    allowed["spec"]["hostNetwork"] = json!(false);
    let pods = [allowed, bench.pod("web", "")];
    pods.iter().for_each(|pod| bench.edge.apply(pod));
    for name in ["allowed", "web"] {
        bench.status(name, "a running pod", is_running).await;
    }
    edged.stop().await;

    bench.forbidden.host_network = true;
    let edged = bench.edged().await;
    let new = bench.pod("new", "");
    bench.edge.apply(&new);
    let status = bench.status("web", "its end", |status| status["phase"] == "Failed").await;
    assert_eq!((&status["reason"], &status["message"]), (&json!(REASON), &json!(WORDS)));
    assert!(!status["containerStatuses"][0]["state"]["terminated"].is_null(), "{status}");
    assert!(until(|| is_closed(&client, "web")).await.is_some(), "its sandbox is open");
    let waits = |status: &Value| {
        let waiting = &status["containerStatuses"][0]["state"]["waiting"];
        waiting["reason"] == REASON && waiting["message"] == WORDS
    };
    bench.status("new", "a pod that waits", waits).await;
    bench.status("allowed", "a running pod", is_running).await;
    assert_eq!(["allowed", "web", "new"].map(|name| twin.starts(name)), [1, 1, 0]);
    for pod in pods.iter().chain([&new]) {
        bench.delete(pod).await;
    }
    edged.stop().await;
}
