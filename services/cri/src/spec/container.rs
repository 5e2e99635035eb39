//! What a container is asked to be.

use std::path::{Path, PathBuf};

use headwater_edged::container::credentials;
use headwater_edged::container::devices::{ContainerDevices, DeviceNode};
use headwater_edged::container::termination::StopSignal;
use headwater_edged::container::{ContainerCpus, LaunchSpec, WaitReason};
use headwater_edged::pod::PodRecord;
use k8s_openapi::api::core::v1::{Container, Pod};

use super::labels::{container_annotations, container_labels, container_log_path};
use super::mounts::mounts;
use super::{NodeFacts, refused, resources, security};
use crate::proto::{
    CdiDevice, ContainerConfig, ContainerMetadata, Device, ImageSpec, KeyValue,
    LinuxContainerConfig, LinuxContainerResources, Signal,
};

/// The facts of a container's image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageFacts {
    /// Its id, by which the runtime finds it whatever becomes of its names.
    pub id: String,
    /// The number of the user that it names.
    pub user_id: Option<i64>,
    /// The name of that user, if it has no number.
    pub user_name: String,
}

/// A mount of the launch, and where it lies on the host, its part of the volume resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostMount {
    /// The mount's path, as the launch has it.
    pub path: PathBuf,
    /// The file or directory of the host.
    pub host_path: PathBuf,
}

/// Everything of which a container is made.
#[derive(Clone, Copy, Debug)]
pub struct ContainerRequest<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// Its record.
    pub record: &'a PodRecord,
    /// The container in the pod.
    pub container: &'a Container,
    /// How it is launched.
    pub launch: &'a LaunchSpec,
    /// The number of the run, from 0.
    pub attempt: u32,
    /// The image.
    pub image: &'a ImageFacts,
    /// The place of every mount of the launch.
    pub mounts: &'a [HostMount],
    /// The block devices of the launch, as nodes of the machine.
    pub block_devices: &'a [DeviceNode],
    /// The pod's file of hosts.
    pub hosts_file: Option<&'a Path>,
    /// The empty file in which the container leaves its termination message.
    pub termination_file: Option<&'a Path>,
    /// The id of the container whose processes it sees: the target of an ephemeral container.
    pub target: Option<&'a str>,
}

/// Decides what a container is asked to be (`kuberuntime_container.go`, `generateContainerConfig`).
///
/// # Errors
/// It asks for something that the runtime, the machine or the image does not have.
pub fn container_config(
    request: &ContainerRequest<'_>,
    node: &NodeFacts,
) -> Result<ContainerConfig, WaitReason> {
    let ContainerRequest { pod, record, container, launch, attempt, image, target, .. } = *request;
    let variables = launch.env.iter();
    let devices = &launch.devices;
    let own_annotations = container_annotations(pod, container, attempt, node);
    Ok(ContainerConfig {
        metadata: Some(ContainerMetadata { name: container.name.clone(), attempt }),
        image: Some(ImageSpec {
            image: image.id.clone(),
            user_specified_image: launch.image.clone().unwrap_or_default(),
            ..ImageSpec::default()
        }),
        command: launch.command.clone(),
        args: launch.args.clone(),
        working_dir: launch.working_dir.clone().unwrap_or_default(),
        envs: variables
            .map(|(key, value)| KeyValue { key: key.clone(), value: value.clone().into() })
            .collect(),
        mounts: mounts(request, node)?,
        labels: container_labels(record, &container.name, node),
        // A plugin sets none of ours.
        annotations: devices.annotations.clone().into_iter().chain(own_annotations).collect(),
        devices: device_nodes(devices, request.block_devices),
        cdi_devices: cdi_devices(pod, container, devices, node)?,
        log_path: container_log_path(&container.name, attempt),
        stdin: container.stdin == Some(true),
        stdin_once: container.stdin_once == Some(true),
        tty: container.tty == Some(true),
        linux: Some(LinuxContainerConfig {
            resources: Some(on_cpus(resources(pod, container, node), launch)),
            security_context: Some(security::of_container(pod, container, image, target, node)?),
        }),
        stop_signal: stop_signal(container).into(),
    })
}

/// The device nodes that its devices are. A volume comes before a device of a plugin, as under a kubelet.
fn device_nodes(devices: &ContainerDevices, block_devices: &[DeviceNode]) -> Vec<Device> {
    let nodes = block_devices.iter().chain(&devices.nodes).map(|it| Device {
        container_path: it.container_path.clone(),
        host_path: it.host_path.clone(),
        permissions: it.permissions.clone(),
    });
    nodes.collect()
}

/// The devices that the runtime resolves by name.
///
/// # Errors
/// The runtime takes no notice of such names.
fn cdi_devices(
    pod: &Pod,
    container: &Container,
    devices: &ContainerDevices,
    node: &NodeFacts,
) -> Result<Vec<CdiDevice>, WaitReason> {
    if let Some(name) = devices.cdi.first().filter(|_| !node.has_cdi) {
        return Err(refused(format!(
            "{}: the device plugin names the CDI device {name:?}, and the runtime takes none",
            credentials::path(pod, container)
        )));
    }
    Ok(devices.cdi.iter().map(|name| CdiDevice { name: name.clone() }).collect())
}

/// The resources of a container on the processors of its launch. One that has them for itself has no quota
/// (`DisableCPUQuotaWithExclusiveCPUs`).
fn on_cpus(resources: LinuxContainerResources, launch: &LaunchSpec) -> LinuxContainerResources {
    let Some(ContainerCpus { cpus, is_exclusive }) = &launch.cpus else { return resources };
    let cpu_quota = if *is_exclusive { -1 } else { resources.cpu_quota };
    LinuxContainerResources { cpuset_cpus: cpus.to_string(), cpu_quota, ..resources }
}

/// The signal that the pod names; without one the image's counts, and else SIGTERM (KEP-4960).
fn stop_signal(container: &Container) -> Signal {
    let named = container.lifecycle.as_ref().is_some_and(|hooks| hooks.stop_signal.is_some());
    let signal = StopSignal::of(container).ok().filter(|_| named);
    let name = signal.map(|signal| format!("SIGNAL_{signal}"));
    name.and_then(|name| Signal::from_str_name(&name)).unwrap_or(Signal::RuntimeDefault)
}
