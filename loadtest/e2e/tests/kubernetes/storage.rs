//! A volume that a cluster attaches: the drivers of an edge are its CSINode, the cluster's own controller attaches what a
//! pod claims, and detaches it once the edge has taken it back.

use std::fs;
use std::path::Path;

use headwater_cluster::{ControlPlane, ControlPlaneSettings};
use headwater_cri_lab::{
    BUSYBOX_IMAGE, Containerd, ContainerdSettings, Driver, DriverSettings, VOLUME_FILE,
};
use headwater_e2e::pressure::NO_DISK_PRESSURE;
use headwater_e2e::running::Running;
use serde_json::{Value, json};

use crate::world::{
    USER, create, deployed, input, kubectl, node, output, stderr_of, without_controllers,
};

const NODE: &str = "gw-1";
const DRIVER: &str = "disk.example.com";
const HANDLE: &str = "h-1";

/// A driver that attaches, a volume of it, the claim of it, and a pod with the claim.
fn objects() -> [Value; 4] {
    let storage = json!({"storage": "1Gi"});
    let claim = json!({"namespace": "default", "name": "data"});
    let source = json!({"driver": DRIVER, "volumeHandle": HANDLE});
    let script = format!("echo \"$(cat /data/{VOLUME_FILE})\"; while :; do sleep 0.2; done");
    let object = |version: &str, kind: &str, name: &str, spec: Value| json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec});
    [
        object("storage.k8s.io/v1", "CSIDriver", DRIVER, json!({"attachRequired": true})),
        object(
            "v1",
            "PersistentVolume",
            "pv-1",
            json!({
                "csi": source, "claimRef": claim, "capacity": storage,
                "accessModes": ["ReadWriteOnce"], "storageClassName": "",
            }),
        ),
        object(
            "v1",
            "PersistentVolumeClaim",
            "data",
            json!({
                "volumeName": "pv-1", "storageClassName": "",
                "accessModes": ["ReadWriteOnce"], "resources": {"requests": storage},
            }),
        ),
        object(
            "v1",
            "Pod",
            "web",
            json!({
                "nodeName": NODE, "hostNetwork": true, "automountServiceAccountToken": false,
                "terminationGracePeriodSeconds": 1,
                "containers": [{
                    "name": "main", "image": BUSYBOX_IMAGE, "command": ["/bin/sh", "-c", script],
                    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                }],
                "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
            }),
        ),
    ]
}

/// What kubectl prints of an object, or nothing if it is not there.
fn shown(cluster: &ControlPlane, args: &[&str], path: &str) -> String {
    let path = format!("jsonpath={path}");
    let args = [&["get"], args, &["--ignore-not-found", "-o", &path]].concat();
    kubectl(cluster, &args).trim().to_owned()
}

/// The attachment of the volume, as JSON.
fn attachments(cluster: &ControlPlane) -> Vec<Value> {
    let text = kubectl(cluster, &["get", "volumeattachments", "-o", "json"]);
    let list: Value = serde_json::from_str(&text).expect("JSON");
    list["items"].as_array().cloned().unwrap_or_default()
}

/// Says of an attachment that the volume is attached, as the driver's controller does.
fn attach(cluster: &ControlPlane, mut attachment: Value) {
    attachment["status"] = json!({"attached": true});
    let name = attachment["metadata"]["name"].as_str().expect("a name").to_owned();
    let path = format!("/apis/storage.k8s.io/v1/volumeattachments/{name}/status");
    let mut command = cluster.kubectl();
    command.args(["replace", "--raw", &path, "-f", "-"]).stdin(input(&attachment));
    let replaced = output(&mut command);
    assert!(replaced.status.success(), "{}", stderr_of(&replaced));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_attaches_the_volume_of_a_pod_on_an_edge() {
    if !Containerd::is_possible() {
        return;
    }
    let containerd = Containerd::start(ContainerdSettings::default()).expect("containerd");
    let (cluster, kubeconfig) = deployed(ControlPlaneSettings::default());
    without_controllers(&cluster);
    create(&cluster, &node(NODE));
    let scratch = tempfile::tempdir().expect("a folder");
    let plugins = scratch.path().join("kubelet");
    // The driver mounts where containerd sees it, as one in a container does by propagation.
    let mounts_in = Some(containerd.machine().pid());
    let registrations = plugins.join("plugins_registry");
    fs::create_dir_all(&registrations).expect("a folder");
    let settings = DriverSettings { mounts_in, ..DriverSettings::new(DRIVER) };
    let mut driver = Driver::start(settings, &registrations).expect("a driver");
    let config = scratch.path().join("up.toml");
    fs::write(&config, format!("[cri]\nplugins_dir = {plugins:?}\n{NO_DISK_PRESSURE}"))
        .expect("written");
    let text = |path: &Path| path.display().to_string();
    let (config, kubeconfig, socket) =
        (text(&config), text(&kubeconfig), text(containerd.socket()));
    let of_cluster = ["--config", &config, "--kubeconfig", &kubeconfig, "--nodes", NODE];
    let of_runtime = ["--runtime", "cri", "--cri-endpoint", &socket];
    let running = Running::start(&[&of_cluster[..], &of_runtime].concat());

    let drivers = || shown(&cluster, &["csinode", NODE], "{.spec.drivers[*].name}");
    running.wait_for("the driver in the CSINode", |_| (drivers() == DRIVER).then_some(()));
    for object in objects() {
        create(&cluster, &object);
    }
    let attachment = running
        .wait_for("an attachment by the cluster's controller", |_| attachments(&cluster).pop());
    assert_eq!(attachment["spec"]["nodeName"], NODE);
    assert_eq!(attachment["spec"]["source"]["persistentVolumeName"], "pv-1");
    assert_eq!(driver.holds(), (0, 0), "it is not attached yet");
    attach(&cluster, attachment);
    running.wait_for("a running pod", |_| {
        (shown(&cluster, &["pod", "web"], "{.status.phase}") == "Running").then_some(())
    });
    let in_use = || shown(&cluster, &["node", NODE], "{.status.volumesInUse[*]}");
    let volume = format!("kubernetes.io/csi/{DRIVER}^{HANDLE}");
    running.wait_for("the volume in use", |_| (in_use() == volume).then_some(()));
    running.wait_for("the volume in the container", |running| {
        running.text(&["logs", "web"]).filter(|log| log.contains(HANDLE))
    });

    kubectl(&cluster, &["delete", "pod", "web", "--wait=false"]);
    running
        .wait_for("the end of the attachment", |_| attachments(&cluster).is_empty().then_some(()));
    assert_eq!(driver.holds(), (0, 0), "the edge has taken it back before");
    running.wait_for("no volume in use", |_| in_use().is_empty().then_some(()));
    driver.stop();
    running.wait_for("the end of the driver", |_| drivers().is_empty().then_some(()));
    assert_eq!(driver.wrongs(), [""; 0]);
    let log = cluster.audit_log().expect("an audit log");
    assert_eq!(log.refused(USER), [""; 0]);
}
