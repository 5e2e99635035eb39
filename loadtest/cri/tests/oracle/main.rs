//! A kubelet as oracle: what the pod worker asks of a container runtime for a pod is what a kubelet asks.
//!
//! `pods.yaml` has the pods. `kubelet.json` has them as an API server completes them, and what a kubelet asked for each;
//! `cargo xtask survive kubelet` runs a kubelet again and compares. `differences.yaml` names where the pod worker asks for
//! something else, and why.

#[allow(dead_code, reason = "the tests of pods use all of it")]
#[path = "../pods/bench.rs"]
mod bench;
mod canonical;
mod cases;
mod device_plugin;
mod differences;
mod edged;
#[allow(dead_code, reason = "the tests of the pod worker use all of it")]
#[path = "../../../../services/edged/tests/edged/fake_edge.rs"]
mod fake_edge;
mod record;
mod recording;

use std::fs;
use std::path::Path;

use differences::MeantDifferences;

/// With this variable a kubelet is built, once on a machine, and run.
const KUBELET: &str = "HEADWATER_KUBELET";

/// With this one it also writes the record.
const WRITE: &str = "HEADWATER_WRITE_KUBELET";

/// As many pods as a record has at least.
const PODS_MIN: usize = 150;

#[tokio::test(flavor = "multi_thread")]
async fn edged_asks_what_a_kubelet_asks() {
    let recorded = record::stored();
    assert!(recorded.len() >= PODS_MIN, "{} pods", recorded.len());
    let meant = MeantDifferences::read();
    let folder = tempfile::tempdir().expect("a folder");
    let twin = recording::twin(&folder.path().join("runtime.sock"));
    let pods: Vec<_> = recorded
        .iter()
        .filter(|pod| !meant.refuses(&pod.name))
        .map(|pod| pod.pod.clone())
        .collect();
    let own = edged::requests(&twin, &pods).await;
    let mut found = Vec::new();
    for pod in recorded.iter().filter(|pod| !meant.refuses(&pod.name)) {
        found.extend(differences::between(&pod.name, &pod.requests, &own[&pod.name]));
    }
    let (unnamed, stale) = meant.judge(&found);
    assert!(unnamed.is_empty(), "{unnamed:#?}");
    assert!(stale.is_empty(), "differences.yaml names what is not there: {stale:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kubelet_asks_what_is_recorded() {
    if std::env::var_os(KUBELET).is_none() {
        return;
    }
    let text = record::text(recording::record().await);
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oracle/kubelet.json");
    if std::env::var_os(WRITE).is_some() {
        fs::write(&file, &text).expect("written");
    }
    let stored = fs::read_to_string(&file).expect("a record");
    for (new, old) in text.lines().zip(stored.lines()) {
        assert_eq!(new, old, "{WRITE}=1 writes {}", file.display());
    }
    assert_eq!(text.lines().count(), stored.lines().count());
}
