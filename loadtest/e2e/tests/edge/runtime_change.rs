//! The runtime setting of an edge changes: the pods of the former runtime end, and run in the new one.

use std::fs;
use std::path::Path;

use headwater_cri_lab::{Containerd, ContainerdSettings};
use headwater_e2e::containers::containers;
use headwater_e2e::pressure::NO_DISK_PRESSURE;
use headwater_e2e::running::{headwater, output};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::cloud::Cloud;
use crate::process::Process;
use crate::{NODE, PODS, edge_on};

/// A pod that lives and one that ends. Both note their starts in the folder `notes`.
fn manifests(notes: &Path) -> String {
    let pod = |name: &str, policy: &str, script: &str| {
        let script = format!("echo start >> /notes/{name}; {script}");
        let container = json!({
            "name": "c",
            "image": "localhost/headwater/busybox:1",
            "imagePullPolicy": "Never",
            "command": ["/bin/sh", "-c", script],
            "volumeMounts": [{"name": "notes", "mountPath": "/notes"}],
        });
        let volumes = json!([{"name": "notes", "hostPath": {"path": notes}}]);
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {
                "nodeName": NODE, "hostNetwork": true, "restartPolicy": policy,
                "terminationGracePeriodSeconds": 5, "containers": [container], "volumes": volumes,
            },
        })
    };
    let keeper = pod("keeper", "Always", "trap exit TERM; while :; do sleep 0.1; done");
    format!("{keeper}\n---\n{}\n", pod("once", "Never", "exit 0"))
}

#[test]
fn pods_end_in_the_former_runtime_before_they_run_in_the_next_one() {
    if !Containerd::is_possible() {
        return;
    }
    let mut containerd = Containerd::start(ContainerdSettings::default()).expect("containerd");
    let notes = tempfile::tempdir().expect("a folder");
    fs::set_permissions(notes.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777))
        .expect("open to all");
    let cloud = Cloud::start(&manifests(notes.path()));
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let settings = folder.path().join("edge.toml");
    fs::write(&settings, NO_DISK_PRESSURE).expect("written");
    let config = ["--config", settings.to_str().expect("UTF-8")];
    let endpoint = containerd.endpoint();
    let process = [&config[..], &PODS].concat();
    let cri = [&config[..], &["--runtime", "cri", "--cri-endpoint", &endpoint]].concat();

    let starts = |name: &str| {
        fs::read_to_string(notes.path().join(name)).unwrap_or_default().lines().count()
    };
    let phase = |edge: &Process, name: &str| -> Option<String> {
        let pods = edge.json(&["get", "pods", "-o", "json"])?;
        let is_named = |pod: &&Value| pod["metadata"]["name"] == name;
        let pod = pods["items"].as_array()?.iter().find(is_named)?.clone();
        pod["status"]["phase"].as_str().map(str::to_owned)
    };
    // `count`: so many times has the keeper started; the other pod has only once.
    let runs = |edge: &Process, count: usize| {
        edge.wait_for("both pods", || {
            let phases = ["keeper", "once"].map(|name| phase(edge, name));
            let is_so = phases == ["Running", "Succeeded"].map(|phase| Some(phase.to_owned()));
            (is_so && starts("keeper") == count).then_some(())
        });
        assert_eq!(starts("once"), 1);
    };
    let in_containerd = |containerd: &Containerd| {
        let listed = output(containerd.ctr().args(["containers", "list", "--quiet"]));
        assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
        String::from_utf8_lossy(&listed.stdout).lines().count()
    };

    let mut edge = edge_on(&data, &cloud, &process);
    runs(&edge, 1);
    assert_eq!(containers(&data).len(), 1);
    edge.end(Signal::SIGTERM);
    assert_eq!(containers(&data).len(), 1, "it outlives its edge");

    let mut edge = edge_on(&data, &cloud, &cri);
    runs(&edge, 2);
    assert_eq!(containers(&data).len(), 0, "{}", edge.output());
    assert!(in_containerd(&containerd) > 0);
    edge.end(Signal::SIGTERM);

    // A runtime that cannot be asked is not forgotten.
    containerd.server().kill().expect("it is killed");
    let mut refused = edge_on(&data, &cloud, &process);
    assert_eq!(refused.ended().code(), Some(1), "{}", refused.output());
    let why = refused.output();
    let socket = containerd.socket().display().to_string();
    assert!(why.contains(&socket) && why.contains("runtime.json"), "{why}");
    assert_eq!((containers(&data).len(), starts("keeper")), (0, 2));
    containerd.server().start().expect("it starts again");

    // What the command ends starts again, and only there.
    let ended = output(headwater().arg("stop-pods").arg("--data").arg(&data));
    let (out, why) =
        (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert_eq!(out, "pod default/keeper ended\n1 pod ended\n", "{why}");

    let edge = edge_on(&data, &cloud, &process);
    runs(&edge, 3);
    assert_eq!(in_containerd(&containerd), 0, "{}", edge.output());
    cloud.write("---\n");
    edge.wait_for("the pods' end", || containers(&data).is_empty().then_some(()));
}
