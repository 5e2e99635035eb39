//! `headwater stop-pods`: the end of pods that outlived the process that started them.

use std::fs;
use std::path::Path;
use std::process::Output;

use headwater_e2e::containers::containers;
use headwater_e2e::running::{Running, headwater, output};

/// One pod ends when it is asked to, the other only when it is killed.
const PODS: &str = "\
apiVersion: v1
kind: Pod
metadata: {name: polite}
spec:
  nodeName: node-1
  terminationGracePeriodSeconds: 60
  containers:
  - {name: c, command: [sh, -c, 'trap \"echo bye; exit\" TERM; while :; do sleep 0.1; done']}
---
apiVersion: v1
kind: Pod
metadata: {name: deaf}
spec:
  nodeName: node-2
  terminationGracePeriodSeconds: 1
  containers:
  - {name: c, command: [sh, -c, 'trap \"\" TERM; while :; do sleep 0.1; done']}
";

fn stop_pods(data: &Path) -> Output {
    output(headwater().arg("stop-pods").arg("--data").arg(data))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn pods_that_a_killed_process_left_end_within_their_grace_and_start_again_with_it() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    fs::write(folder.path().join("pods.yaml"), PODS).expect("written");
    let mut running = Running::start(&[folder.path().to_str().expect("UTF-8")]);
    running.wait_for_pods(2, |status| status == "Running");
    let data = running.data();

    let refused = stop_pods(&data);
    assert_eq!(refused.status.code(), Some(1));
    let why = text(&refused.stderr);
    assert!(why.contains("runs") && why.contains("stop it first"), "{why}");
    assert_eq!(containers(&data).len(), 2, "its pods run on");

    running.kill();
    assert_eq!(containers(&data).len(), 2, "they outlive it");
    let done = stop_pods(&data);
    let (out, why) = (text(&done.stdout), text(&done.stderr));
    assert_eq!(done.status.code(), Some(0), "{out}{why}");
    assert_eq!(out, "pod default/polite ended\npod default/deaf ended\n2 pods ended\n", "{why}");
    assert!(containers(&data).is_empty());
    let again = stop_pods(&data);
    assert_eq!(again.status.code(), Some(0));
    assert!(text(&again.stdout).starts_with("no pod runs in "), "{}", text(&again.stdout));

    running.start_again();
    running.wait_for_pods(2, |status| status == "Running");
    assert_eq!(running.interrupt().code(), Some(0));
}

#[test]
fn a_folder_that_is_no_data_directory_is_refused_and_stays_as_it_is() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for path in [folder.path().to_owned(), folder.path().join("absent")] {
        let refused = stop_pods(&path);
        assert_eq!(refused.status.code(), Some(1));
        let why = text(&refused.stderr);
        assert!(why.contains("is not a data directory") && why.contains("--data"), "{why}");
    }
    assert_eq!(fs::read_dir(folder.path()).expect("listed").count(), 0);
}
