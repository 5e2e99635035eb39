//! The Node object: facts of this machine, in the form of a kubelet.

use std::collections::BTreeMap;
use std::net::IpAddr;

use headwater_event::NodeName;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    ContainerImage, DaemonEndpoint, Node, NodeAddress, NodeCondition, NodeDaemonEndpoints,
    NodeFeatures, NodeRuntimeHandler, NodeRuntimeHandlerFeatures, NodeSpec, NodeStatus,
    NodeSystemInfo,
};
use k8s_openapi::api::storage::v1::{CSINodeDriver, VolumeNodeResources};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde_json::json;

use super::measurement::memory_bytes;
use super::pressure::{Pressure, Pressures};
use crate::container::requests::{Amounts, CPU, MEMORY, STORAGE};
use crate::devices::StatedDevices;
use crate::runtime::{StatedDriver, StatedFeatures};
use crate::static_pods::statement;

/// The annotation with the drivers of a CSINode, as JSON.
const CSI_DRIVERS: &str = "headwater/csi-drivers";

/// The annotation of a node to which the cluster's own controller attaches volumes.
const ATTACHES: &str = "volumes.kubernetes.io/controller-managed-attach-detach";

/// The facts that the Node object states.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NodeFacts {
    /// The node's name.
    pub(crate) name: NodeName,
    /// Its address.
    pub(crate) address: IpAddr,
    /// The host's name.
    pub(crate) hostname: String,
    /// Processors.
    pub(crate) cpus: usize,
    /// Memory in KiB.
    pub(crate) memory_kib: u64,
    /// The file system of pods, in KiB.
    pub(crate) storage_kib: u64,
    /// What the node keeps from its pods.
    pub(crate) reserved: Amounts,
    /// The number of pods that the node has room for.
    pub(crate) pods_max: u32,
    /// The runtime's name and version.
    pub(crate) runtime: String,
    /// What the runtime can do for a pod.
    pub(crate) features: StatedFeatures,
    /// The images that it has.
    pub(crate) images: Vec<ContainerImage>,
    /// The devices that plugins have.
    pub(crate) devices: Vec<StatedDevices>,
    /// The storage drivers; `None`: the node is not set up for any.
    pub(crate) drivers: Option<Vec<StatedDriver>>,
    /// The volumes of drivers that the node has mounted.
    pub(crate) volumes_in_use: Vec<String>,
    /// The statement of the static pods; `None`: they are not known yet.
    pub(crate) static_pods: Option<String>,
    /// The port of the kubelet's server.
    pub(crate) kubelet_port: Option<u16>,
    /// Why the runtime can run no pods now.
    pub(crate) runtime_trouble: Option<String>,
    /// Kernel release.
    pub(crate) kernel: String,
    /// The operating system's name.
    pub(crate) os_image: String,
    /// The machine's id.
    pub(crate) machine_id: String,
    /// The id of the machine's current boot.
    pub(crate) boot_id: String,
}

impl NodeFacts {
    /// Reads the facts from the machine. A fact that cannot be read is empty.
    pub(crate) fn gather(name: NodeName, address: IpAddr, pods_max: u32, runtime: String) -> Self {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        let hostname = nix::unistd::gethostname().unwrap_or_default();
        Self {
            name,
            address,
            hostname: hostname.to_string_lossy().into_owned(),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            memory_kib: memory_bytes().unwrap_or(0) >> 10,
            storage_kib: 0,
            reserved: Amounts::default(),
            pods_max,
            runtime,
            features: StatedFeatures::default(),
            images: Vec::new(),
            devices: Vec::new(),
            drivers: None,
            volumes_in_use: Vec::new(),
            static_pods: None,
            kubelet_port: None,
            runtime_trouble: None,
            kernel: read("/proc/sys/kernel/osrelease"),
            os_image: os_image(&read("/etc/os-release")),
            machine_id: read("/etc/machine-id"),
            boot_id: read("/proc/sys/kernel/random/boot_id"),
        }
    }

    /// What the machine has.
    pub(crate) fn capacity(&self) -> Amounts {
        let cpus = u64::try_from(self.cpus).unwrap_or(u64::MAX);
        Amounts {
            cpu_milli: cpus.saturating_mul(1000),
            memory_bytes: self.memory_kib.saturating_mul(1 << 10),
            storage_bytes: self.storage_kib.saturating_mul(1 << 10),
        }
    }

    /// What the node has for its pods, as its object states it.
    pub(crate) fn allocatable(&self) -> Amounts {
        self.capacity().less(self.reserved)
    }
}

/// The Node object at `now`. A condition that did not change since `before` keeps the time of its
/// last change.
pub(crate) fn node(
    facts: &NodeFacts,
    pressures: Pressures,
    before: Option<&Node>,
    now: Timestamp,
) -> Node {
    let name = facts.name.as_str();
    let labels = [
        ("kubernetes.io/hostname", name),
        ("kubernetes.io/os", std::env::consts::OS),
        ("kubernetes.io/arch", architecture()),
        ("node-role.kubernetes.io/edge", ""),
        ("node-role.kubernetes.io/agent", ""),
    ];
    let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let address = |type_: &str, address: String| NodeAddress { type_: type_.to_owned(), address };
    Node {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(labels.into_iter().chain(topology_labels(facts)).collect()),
            annotations: annotations(facts),
            ..ObjectMeta::default()
        },
        spec: Some(NodeSpec::default()),
        status: Some(NodeStatus {
            addresses: Some(vec![
                address("InternalIP", facts.address.to_string()),
                address("Hostname", facts.hostname.clone()),
            ]),
            allocatable: Some(stated(facts, facts.allocatable(), |it| it.allocatable)),
            capacity: Some(stated(facts, facts.capacity(), |it| it.capacity)),
            volumes_in_use: (!facts.volumes_in_use.is_empty())
                .then(|| facts.volumes_in_use.clone()),
            images: (!facts.images.is_empty()).then(|| facts.images.clone()),
            features: facts
                .features
                .supplemental_groups_policy
                .map(|has| NodeFeatures { supplemental_groups_policy: Some(has) }),
            runtime_handlers: runtime_handlers(&facts.features),
            declared_features: Some(declared(&facts.features)),
            daemon_endpoints: facts.kubelet_port.map(|port| NodeDaemonEndpoints {
                kubelet_endpoint: Some(DaemonEndpoint { port: port.into() }),
            }),
            conditions: Some(conditions(facts.runtime_trouble.as_deref(), pressures, before, now)),
            node_info: Some(NodeSystemInfo {
                architecture: architecture().to_owned(),
                boot_id: facts.boot_id.clone(),
                container_runtime_version: facts.runtime.clone(),
                kernel_version: facts.kernel.clone(),
                kubelet_version: concat!("v1.33.0-headwater-v", env!("CARGO_PKG_VERSION"))
                    .to_owned(),
                machine_id: facts.machine_id.clone(),
                operating_system: std::env::consts::OS.to_owned(),
                os_image: facts.os_image.clone(),
                system_uuid: facts.machine_id.clone(),
                ..NodeSystemInfo::default()
            }),
            ..NodeStatus::default()
        }),
    }
}

/// The labels by which volumes of drivers select this node.
fn topology_labels(facts: &NodeFacts) -> impl Iterator<Item = (String, String)> {
    facts.drivers.iter().flatten().flat_map(|driver| driver.topology.clone())
}

/// What the controller makes other objects of; `None`: nothing.
fn annotations(facts: &NodeFacts) -> Option<BTreeMap<String, String>> {
    let mut all = facts.drivers.as_deref().map(driver_annotations).unwrap_or_default();
    let static_pods = facts.static_pods.clone();
    all.extend(static_pods.map(|stated| (statement::ANNOTATION.to_owned(), stated)));
    (!all.is_empty()).then_some(all)
}

/// Lets the cluster attach volumes to this node, and states the drivers: the controller makes the CSINode of it.
fn driver_annotations(drivers: &[StatedDriver]) -> BTreeMap<String, String> {
    let of = |driver: &StatedDriver| CSINodeDriver {
        name: driver.name.clone(),
        node_id: driver.node_id.clone(),
        topology_keys: Some(driver.topology.keys().cloned().collect()),
        allocatable: driver
            .volumes_max
            .map(|max| VolumeNodeResources { count: Some(i32::try_from(max).unwrap_or(i32::MAX)) }),
    };
    let stated: Vec<_> = drivers.iter().map(of).collect();
    BTreeMap::from([
        (ATTACHES.to_owned(), "true".to_owned()),
        (CSI_DRIVERS.to_owned(), json!(stated).to_string()),
    ])
}

/// Amounts as a Node states them.
fn stated(
    facts: &NodeFacts,
    amounts: Amounts,
    count: impl Fn(&StatedDevices) -> usize,
) -> BTreeMap<String, Quantity> {
    let Amounts { cpu_milli, memory_bytes, storage_bytes } = amounts;
    let cpu = match cpu_milli % 1000 {
        0 => (cpu_milli / 1000).to_string(),
        _ => format!("{cpu_milli}m"),
    };
    let kib = |bytes: u64| format!("{}Ki", bytes >> 10);
    let all = [
        (CPU, cpu),
        (MEMORY, kib(memory_bytes)),
        (STORAGE, kib(storage_bytes)),
        ("pods", facts.pods_max.to_string()),
    ];
    let devices = facts.devices.iter().map(|it| (it.resource.as_str(), count(it).to_string()));
    let all = all.into_iter().chain(devices);
    all.map(|(key, amount)| (key.to_owned(), Quantity(amount))).collect()
}

/// The reasons and messages of a kubelet.
fn conditions(
    runtime_trouble: Option<&str>,
    pressures: Pressures,
    before: Option<&Node>,
    now: Timestamp,
) -> Vec<NodeCondition> {
    let Pressures { memory, disk, pids } = pressures;
    let finding = |kind, pressure, absent: (_, _), present: (_, _)| match pressure {
        Pressure::Absent => (kind, "False", absent.0, absent.1),
        Pressure::Present => (kind, "True", present.0, present.1),
        Pressure::Unknown => (kind, "Unknown", "NotMeasured", "this resource cannot be measured"),
    };
    let findings = [
        finding(
            "MemoryPressure",
            memory,
            ("KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
            ("KubeletHasInsufficientMemory", "kubelet has insufficient memory available"),
        ),
        finding(
            "DiskPressure",
            disk,
            ("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
            ("KubeletHasDiskPressure", "kubelet has disk pressure"),
        ),
        finding(
            "PIDPressure",
            pids,
            ("KubeletHasSufficientPID", "kubelet has sufficient PID available"),
            ("KubeletHasInsufficientPID", "kubelet has insufficient PID available"),
        ),
        // A node whose worker sends this is ready, if its runtime is.
        match runtime_trouble {
            None => ("Ready", "True", "EdgedReady", "edged runs pods"),
            Some(why) => ("Ready", "False", "RuntimeNotReady", why),
        },
    ];
    let before =
        before.and_then(|node| node.status.as_ref()?.conditions.as_deref()).unwrap_or_default();
    findings
        .map(|(type_, status, reason, message)| NodeCondition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            last_heartbeat_time: Some(Time(now)),
            last_transition_time: before
                .iter()
                .find(|c| c.type_ == type_ && c.status == status)
                .and_then(|c| c.last_transition_time.clone())
                .or(Some(Time(now))),
        })
        .into()
}

/// A feature of the pod worker itself: the end of a container can restart all containers of its pod.
const RESTARTS_ALL: &str = "RestartAllContainersOnContainerExits";

/// The features of Kubernetes that the node declares, in order. The scheduler gives a pod that uses one to no other node.
fn declared(features: &StatedFeatures) -> Vec<String> {
    let declared = features.declared.iter().copied().chain([RESTARTS_ALL]);
    let mut declared: Vec<String> = declared.map(str::to_owned).collect();
    declared.sort_unstable();
    declared
}

fn runtime_handlers(features: &StatedFeatures) -> Option<Vec<NodeRuntimeHandler>> {
    let handlers = features.handlers.iter().map(|handler| NodeRuntimeHandler {
        name: Some(handler.name.clone()),
        features: Some(NodeRuntimeHandlerFeatures {
            recursive_read_only_mounts: Some(handler.recursive_read_only_mounts),
            user_namespaces: Some(handler.user_namespaces),
        }),
    });
    Some(handlers.collect()).filter(|handlers: &Vec<_>| !handlers.is_empty())
}

/// The name of the architecture in Go, which Kubernetes uses.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" => "386",
        other => other,
    }
}

fn os_image(text: &str) -> String {
    let line = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    line.unwrap_or("Linux").trim_matches('"').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::StatedHandler;

    const ENOUGH: Pressures =
        Pressures { memory: Pressure::Absent, disk: Pressure::Absent, pids: Pressure::Absent };

    fn facts() -> NodeFacts {
        let name = "gw-1".parse().expect("a name");
        NodeFacts::gather(name, IpAddr::from([10, 0, 0, 7]), 110, "hollow://1".to_owned())
    }

    #[test]
    fn a_node_object_has_the_fields_of_a_kubelets_node() {
        let node = node(&facts(), ENOUGH, None, Timestamp::UNIX_EPOCH);
        let labels = node.metadata.labels.expect("labels");
        assert_eq!(labels["kubernetes.io/hostname"], "gw-1");
        assert!(labels.contains_key("node-role.kubernetes.io/edge"));
        let status = node.status.expect("a status");
        assert_eq!(status.daemon_endpoints, None, "there is no server");
        assert_eq!(status.capacity.expect("a capacity")["pods"].0, "110");
        let ready = status.conditions.expect("conditions");
        assert!(ready.iter().any(|c| c.type_ == "Ready" && c.status == "True"));
        let addresses = status.addresses.expect("addresses");
        assert!(addresses.iter().any(|a| a.type_ == "InternalIP" && a.address == "10.0.0.7"));
    }

    #[test]
    fn images_handlers_and_features_are_stated_if_the_runtime_has_any() {
        let status = |facts: &NodeFacts| {
            let node = node(facts, ENOUGH, None, Timestamp::UNIX_EPOCH);
            serde_json::to_value(node.status).expect("JSON")
        };
        let bare = status(&facts());
        let keys = ["images", "features", "runtimeHandlers"];
        assert!(keys.iter().all(|key| bare[key].is_null()), "{bare}");
        assert_eq!(bare["declaredFeatures"], json!(["RestartAllContainersOnContainerExits"]));
        let image = ContainerImage { names: Some(vec!["r/web:1".to_owned()]), size_bytes: Some(7) };
        let handler =
            StatedHandler { name: "runc".to_owned(), user_namespaces: true, ..Default::default() };
        let features = StatedFeatures {
            handlers: vec![handler],
            supplemental_groups_policy: Some(true),
            declared: vec!["InPlacePodVerticalScalingInitContainers"],
        };
        let status = status(&NodeFacts { images: vec![image], features, ..facts() });
        assert_eq!(status["images"], json!([{"names": ["r/web:1"], "sizeBytes": 7}]));
        assert_eq!(status["features"], json!({"supplementalGroupsPolicy": true}));
        let declared =
            ["InPlacePodVerticalScalingInitContainers", "RestartAllContainersOnContainerExits"];
        assert_eq!(status["declaredFeatures"], json!(declared));
        let features = json!({"recursiveReadOnlyMounts": false, "userNamespaces": true});
        assert_eq!(status["runtimeHandlers"], json!([{"name": "runc", "features": features}]));
    }

    #[test]
    fn a_node_states_what_it_has_and_what_is_left_of_it_for_pods() {
        let reserved = Amounts { cpu_milli: 1250, memory_bytes: 1 << 20, storage_bytes: 1 << 40 };
        let resource = "example.com/gpu".to_owned();
        let devices = vec![StatedDevices { resource, capacity: 3, allocatable: 2 }];
        let facts =
            NodeFacts { cpus: 4, memory_kib: 4096, storage_kib: 7, reserved, devices, ..facts() };
        let status = node(&facts, ENOUGH, None, Timestamp::UNIX_EPOCH).status.expect("a status");
        let stated = |amounts| serde_json::to_value(amounts).expect("JSON");
        let capacity = json!({"cpu": "4", "memory": "4096Ki", "ephemeral-storage": "7Ki", "pods": "110",
                "example.com/gpu": "3"});
        assert_eq!(stated(status.capacity), capacity);
        let left = json!({"cpu": "2750m", "memory": "3072Ki", "ephemeral-storage": "0Ki", "pods": "110",
                "example.com/gpu": "2"});
        assert_eq!(stated(status.allocatable), left);
    }

    #[test]
    fn drivers_are_stated_where_the_node_may_have_some() {
        let bare = node(&facts(), ENOUGH, None, Timestamp::UNIX_EPOCH);
        assert_eq!(bare.metadata.annotations, None);
        let rack = ("disk.example.com/rack".to_owned(), "r1".to_owned());
        let driver = StatedDriver {
            name: "disk.example.com".to_owned(),
            node_id: "n".to_owned(),
            volumes_max: Some(7),
            topology: BTreeMap::from([rack]),
        };
        let volumes_in_use = vec!["kubernetes.io/csi/disk.example.com^h".to_owned()];
        let facts = NodeFacts { drivers: Some(vec![driver]), volumes_in_use, ..facts() };
        let node = node(&facts, ENOUGH, None, Timestamp::UNIX_EPOCH);
        let annotations = node.metadata.annotations.expect("annotations");
        let drivers: serde_json::Value =
            serde_json::from_str(&annotations[CSI_DRIVERS]).expect("JSON");
        let keys = json!(["disk.example.com/rack"]);
        assert_eq!(
            drivers,
            json!([{"name": "disk.example.com", "nodeID": "n", "topologyKeys": keys, "allocatable": {"count": 7}}])
        );
        assert_eq!(annotations[ATTACHES], "true");
        assert_eq!(node.metadata.labels.expect("labels")["disk.example.com/rack"], "r1");
        let status = node.status.expect("a status");
        assert_eq!(status.volumes_in_use.expect("volumes"), facts.volumes_in_use);
    }

    #[test]
    fn a_pressure_is_a_condition_with_a_kubelets_reason() {
        let pressures = Pressures { disk: Pressure::Present, pids: Pressure::Unknown, ..ENOUGH };
        let node = node(&facts(), pressures, None, Timestamp::UNIX_EPOCH);
        let conditions = node.status.expect("a status").conditions.expect("conditions");
        let found = conditions.iter().map(|condition| {
            let reason = condition.reason.as_deref().unwrap_or_default();
            (condition.type_.as_str(), condition.status.as_str(), reason)
        });
        let wanted = [
            ("MemoryPressure", "False", "KubeletHasSufficientMemory"),
            ("DiskPressure", "True", "KubeletHasDiskPressure"),
            ("PIDPressure", "Unknown", "NotMeasured"),
            ("Ready", "True", "EdgedReady"),
        ];
        assert_eq!(found.collect::<Vec<_>>(), wanted);
    }

    #[test]
    fn a_condition_that_stays_keeps_the_time_of_its_change() {
        let first = node(&facts(), ENOUGH, None, Timestamp::UNIX_EPOCH);
        let later = Timestamp::UNIX_EPOCH + jiff::SignedDuration::from_secs(60);
        let second = node(&facts(), ENOUGH, Some(&first), later);
        let condition = &second.status.expect("a status").conditions.expect("conditions")[3];
        assert_eq!(condition.last_heartbeat_time, Some(Time(later)));
        assert_eq!(condition.last_transition_time, Some(Time(Timestamp::UNIX_EPOCH)));
    }
}
