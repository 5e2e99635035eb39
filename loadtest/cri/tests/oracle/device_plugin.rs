//! A device plugin of another project: Kubernetes' own sample, on the pod worker.

use std::process::{Child, Command, Stdio};

use headwater_cluster::NodePrograms;
use headwater_cri_lab::{Cgroup, RecordedRequest};
use serde_json::{Value, json};

use crate::bench::{Bench, is_running, until};
use crate::cases::IMAGES;
use crate::{KUBELET, recording};

/// Its resource, and the files that it mounts for its two devices.
const RESOURCE: &str = "example.com/resource";
const FILES: [&str; 2] = ["/tmp/Dev-1", "/tmp/Dev-2"];

/// It knows a kubelet's folder alone: in its own view of the machine the folder of the pod worker lies there.
const SCRIPT: &str = "mount -t tmpfs none /var/lib && mkdir -p /var/lib/kubelet/device-plugins && \
                      mount --bind \"$1\" /var/lib/kubelet/device-plugins && exec \"$2\"";

/// The plugin; it is killed when dropped.
struct Plugin(Child);

impl Drop for Plugin {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A pod with one device.
fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "shop", "uid": format!("u-{name}")},
        "spec": {"nodeName": "gw-1", "containers": [{
            "name": name, "image": IMAGES[0],
            "resources": {"limits": {RESOURCE: "1"}},
        }]},
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sample_plugin_of_kubernetes_gives_each_pod_a_device() {
    if std::env::var_os(KUBELET).is_none() {
        return;
    }
    let programs = NodePrograms::prepare().expect("the plugin");
    let folder = tempfile::tempdir().expect("a folder");
    let twin = recording::twin(&folder.path().join("runtime.sock"));
    let mut bench = Bench::new(twin.socket());
    let (cgroup, dir) = (Cgroup::claim(), folder.path().join("device-plugins"));
    bench.cgroup_root = cgroup.name().to_owned();
    bench.device_plugin_dir = Some(dir.clone());
    let edged = bench.edged().await;
    let mut command = Command::new("unshare");
    command.args(["--mount", "--", "sh", "-c", SCRIPT, "sh"]).arg(&dir);
    command.arg(programs.sample_device_plugin()).stdout(Stdio::null()).stderr(Stdio::null());
    let plugin = Plugin(command.spawn().expect("it starts"));
    let stated = || async {
        let operations = bench.edge.operations();
        let node = operations.iter().rev().find(|it| it.resource == "null/node/gw-1")?;
        let node: Value = serde_json::from_slice(&node.content).expect("JSON");
        (node["status"]["allocatable"][RESOURCE] == "2").then_some(())
    };
    assert!(until(stated).await.is_some(), "the Node states its devices");

    for name in ["first", "second"] {
        bench.edge.apply(&pod(name));
        bench.status(name, "a running pod", is_running).await;
    }
    let mounted = twin.recorded().into_iter().filter_map(|request| match request {
        RecordedRequest::Container(request) => request.config,
        RecordedRequest::Sandbox(_) => None,
    });
    let mut mounted: Vec<String> = mounted
        .flat_map(|config| config.mounts.into_iter().map(|mount| mount.container_path))
        .filter(|path| FILES.contains(&path.as_str()))
        .collect();
    mounted.sort();
    assert_eq!(mounted, FILES, "a device each");
    // There are two.
    bench.edge.apply(&pod("third"));
    let failed = |status: &Value| status["reason"] == "UnexpectedAdmissionError";
    bench.status("third", "a pod that fails", failed).await;
    drop(plugin);
    edged.stop().await;
    FILES.iter().for_each(|file| drop(std::fs::remove_file(file)));
}
