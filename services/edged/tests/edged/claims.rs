//! Directories of claims: their data, and their end.

use std::path::PathBuf;
use std::time::Duration;

use headwater_edged::{Edged, EdgedConfig, Handle, kept_claims};
use serde_json::{Value, json};

use crate::bench::{Bench, content, is_ready, script_pod, until};

/// A pod worker that notices soon that a claim has left.
async fn edged(bench: &Bench) -> Handle {
    let mut config: EdgedConfig = bench.config();
    config.settings.relist = Duration::from_millis(20);
    config.settings.claim_hold = Duration::from_millis(100);
    Edged::spawn(config).await.expect("the pod worker starts")
}

fn claim(uid: &str, policy: &str) -> Value {
    let annotations = json!({"headwater/reclaim-policy": policy});
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": "data", "namespace": "shop", "uid": uid, "annotations": annotations},
        "spec": {},
    })
}

/// A pod that mounts the claim at `data`, below its root directory.
fn pod(name: &str, uid: &str, script: &str) -> Value {
    let mut pod = script_pod(name, uid, script);
    pod["spec"]["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]);
    pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "v", "mountPath": "data"}]);
    pod
}

fn dir(bench: &Bench, uid: &str) -> PathBuf {
    bench.edged_dir().join("claims").join(uid)
}

#[tokio::test]
async fn a_deleted_claim_is_removed_after_its_last_pod_and_its_successor_is_empty() {
    let bench = Bench::new(&[claim("c1", "Delete")]);
    let edged = edged(&bench).await;
    bench.edge.apply(&pod("web", "u1", "echo first > data/file; exec sleep 1000"));
    bench.edge.until_status("web", "a ready pod", is_ready).await;
    assert_eq!(content(&dir(&bench, "c1").join("data/file")).await, "first\n");

    bench.edge.delete("shop/persistentvolumeclaim/data");
    until("the end of the claim", || {
        (kept_claims(&bench.edged_dir()).ok()?.len() == 1).then_some(())
    })
    .await;
    assert!(dir(&bench, "c1").join("data/file").exists(), "its pod runs");
    bench.edge.delete("shop/pod/web");
    until("the removal", || (!dir(&bench, "c1").exists()).then_some(())).await;

    let out = bench.path("out");
    bench.edge.apply(&claim("c2", "Retain"));
    let script = format!("ls data | wc -l > {}; exec sleep 1000", out.display());
    bench.edge.apply(&pod("web", "u2", &script));
    assert_eq!(content(&out).await.trim(), "0");
    edged.stop_pods(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_claim_that_leaves_with_its_pod_stays_for_the_next_one() {
    let bench = Bench::new(&[claim("c1", "Delete")]);
    let edged = edged(&bench).await;
    bench.edge.apply(&pod("web", "u1", "echo first > data/file; exec sleep 1000"));
    bench.edge.until_status("web", "a ready pod", is_ready).await;
    content(&dir(&bench, "c1").join("data/file")).await;
    bench.edge.delete("shop/pod/web");
    bench.edge.delete("shop/persistentvolumeclaim/data");
    until("the end of the claim", || {
        (kept_claims(&bench.edged_dir()).ok()?.len() == 1).then_some(())
    })
    .await;

    let out = bench.path("out");
    bench.edge.apply(&claim("c1", "Delete"));
    let script = format!("cat data/file > {}; exec sleep 1000", out.display());
    bench.edge.apply(&pod("web", "u2", &script));
    assert_eq!(content(&out).await, "first\n");
    until("no claim has left", || kept_claims(&bench.edged_dir()).ok()?.is_empty().then_some(()))
        .await;
    edged.stop_pods(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_pod_finds_the_data_that_its_claim_had_under_an_earlier_version() {
    let out = tempfile::tempdir().expect("a directory");
    let out = out.path().join("out");
    let script = format!("cat data/file > {}; exec sleep 1000", out.display());
    let bench = Bench::new(&[claim("c1", "Retain"), pod("web", "u1", &script)]);
    let named = bench.edged_dir().join("claims/shop_data");
    std::fs::create_dir_all(&named).expect("made");
    std::fs::write(named.join("file"), "old\n").expect("written");
    let edged = edged(&bench).await;
    assert_eq!(content(&out).await, "old\n");
    assert!(dir(&bench, "c1").join("data/file").exists());
    until("the end of the former path", || (!named.is_symlink() && !named.exists()).then_some(()))
        .await;
    edged.stop_pods(Duration::from_secs(5)).await;
}
