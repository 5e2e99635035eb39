//! What sandboxes and containers are asked to be, and what is refused.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use headwater_edged::container::credentials::Credentials;
use headwater_edged::container::devices::ContainerDevices;
use headwater_edged::container::termination::{StopSignal, TerminationMessage};
use headwater_edged::container::{LaunchSpec, Mount, WaitReason};
use headwater_edged::pod::{PodRecord, PodUid, all_containers};
use k8s_openapi::api::core::v1::{Container, Pod};
use serde_json::{Value, json};

use super::*;
use crate::proto::{ContainerConfig, PodSandboxConfig};

mod arbitrary_pod;
mod container_of_spec;
mod refusals;
mod sandbox_of_spec;

/// A pod `shop/web` with one container `app`.
fn pod(spec: Value, container: Value) -> Pod {
    let mut container = container;
    container["name"] = json!("app");
    container["image"] = json!("busybox:1");
    let mut spec = spec;
    spec["containers"] = json!([container]);
    let metadata = json!({
        "name": "web", "namespace": "shop", "uid": "u1",
        "labels": {"app": "web", "io.kubernetes.pod.uid": "another"},
        "annotations": {"note": "x"},
    });
    serde_json::from_value(json!({"metadata": metadata, "spec": spec})).expect("a pod")
}

fn record() -> PodRecord {
    PodRecord {
        uid: PodUid::try_from("u1".to_owned()).expect("a UID"),
        key: "shop/pod/web".parse().expect("a key"),
        grace_seconds: 30,
        seen_at: jiff::Timestamp::UNIX_EPOCH,
        seen_in_boot: None,
        is_static: false,
    }
}

fn node() -> NodeFacts {
    NodeFacts {
        node: "gw-1".to_owned(),
        dir: "/data/edged".into(),
        resolv_conf: ResolvConf::parse(
            "nameserver 10.0.0.1\nsearch site.example\noptions rotate\n",
        ),
        cgroup_driver: Some(CgroupDriver::Cgroupfs),
        memory_bytes: 1 << 30,
        huge_page_sizes: vec!["2MB".to_owned(), "1GB".to_owned()],
        ..NodeFacts::default()
    }
}

fn launch(container: &Container) -> LaunchSpec {
    LaunchSpec {
        container: container.name.clone(),
        image: container.image.clone(),
        is_step: false,
        command: container.command.clone().unwrap_or_default(),
        args: container.args.clone().unwrap_or_default(),
        env: [("A".to_owned(), "1".to_owned())].into(),
        working_dir: container.working_dir.clone(),
        mounts: Vec::new(),
        block_devices: Vec::new(),
        stop_signal: StopSignal::default(),
        termination_message: TerminationMessage::default(),
        credentials: Credentials::default(),
        cpus: None,
        devices: ContainerDevices::default(),
    }
}

fn sandbox(pod: &Pod, node: &NodeFacts) -> Result<PodSandboxConfig, String> {
    sandbox_config(pod, &record(), 2, node).map_err(message)
}

fn container_with(
    pod: &Pod,
    mounts: &[(Mount, &str)],
    image: &ImageFacts,
    node: &NodeFacts,
) -> Result<ContainerConfig, String> {
    let container = all_containers(pod).next().expect("a container");
    let launch = LaunchSpec {
        mounts: mounts.iter().map(|(mount, _)| mount.clone()).collect(),
        ..launch(container)
    };
    let places: Vec<HostMount> = mounts
        .iter()
        .map(|(mount, host_path)| HostMount {
            path: mount.path.clone(),
            host_path: host_path.into(),
        })
        .collect();
    let request = ContainerRequest {
        pod,
        record: &record(),
        container,
        launch: &launch,
        attempt: 3,
        image,
        mounts: &places,
        block_devices: &[],
        hosts_file: Some(Path::new("/pods/u1/etc-hosts")),
        termination_file: Some(Path::new("/pods/u1/end")),
        target: None,
    };
    container_config(&request, node).map_err(message)
}

fn container(pod: &Pod) -> ContainerConfig {
    container_with(pod, &[], &ImageFacts::default(), &node()).expect("it can be had")
}

fn message(reason: WaitReason) -> String {
    assert_eq!(reason.reason, "CreateContainerConfigError");
    reason.message
}

/// A machine with these files, whose mounts are shared below `/shared` and slaves below `/slave`.
#[derive(Default)]
struct FakeMachine(BTreeSet<PathBuf>);

impl Machine for FakeMachine {
    fn has_file(&self, path: &Path) -> bool {
        self.0.contains(path)
    }

    fn mount_kind(&self, path: &Path) -> MountKind {
        if path.starts_with("/shared") {
            MountKind::Shared
        } else if path.starts_with("/slave") {
            MountKind::Slave
        } else {
            MountKind::Private
        }
    }
}

fn checked(pod: &Pod, node: &NodeFacts) -> Result<(), String> {
    let container = all_containers(pod).next().expect("a container");
    check(pod, container, &FakeMachine::default(), node).map_err(message)
}
