//! What a container is given with its devices.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Everything with which device plugins give a container its devices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerDevices {
    /// Variables. Those of the pod come before them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Files and directories of the host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<DeviceMount>,
    /// Device nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<DeviceNode>,
    /// Annotations for the runtime.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Qualified names of the Container Device Interface, which the runtime resolves: `vendor.com/gpu=0`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cdi: Vec<String>,
}

/// A file or directory of the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceMount {
    /// Where the container sees it.
    pub container_path: String,
    /// Where it lies.
    pub host_path: String,
    /// The container cannot write to it.
    pub read_only: bool,
}

/// A device node of the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceNode {
    /// Where the container sees it.
    pub container_path: String,
    /// Where it lies.
    pub host_path: String,
    /// Letters of `rwm`: read, write, make.
    pub permissions: String,
}

impl ContainerDevices {
    /// Adds what another plugin gives. What two of them name is the first one's, as under a kubelet
    /// (`pkg/kubelet/cm/devicemanager/pod_devices.go`, `deviceRunContainerOptions`).
    pub(crate) fn add(&mut self, other: &Self) {
        for (name, value) in &other.env {
            self.env.entry(name.clone()).or_insert_with(|| value.clone());
        }
        for (name, value) in &other.annotations {
            self.annotations.entry(name.clone()).or_insert_with(|| value.clone());
        }
        for mount in &other.mounts {
            if !self.mounts.iter().any(|it| it.container_path == mount.container_path) {
                self.mounts.push(mount.clone());
            }
        }
        for node in &other.nodes {
            if !self.nodes.iter().any(|it| it.container_path == node.container_path) {
                self.nodes.push(node.clone());
            }
        }
        for name in &other.cdi {
            if !self.cdi.contains(name) {
                self.cdi.push(name.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_two_plugins_name_is_the_first_ones() {
        let of = |value: &str, more: &str| ContainerDevices {
            env: [("A", value), (more, value)].map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
            nodes: vec![DeviceNode {
                container_path: "/dev/a".to_owned(),
                host_path: format!("/dev/{value}"),
                permissions: "rw".to_owned(),
            }],
            mounts: vec![DeviceMount {
                container_path: format!("/{more}"),
                host_path: "/".to_owned(),
                read_only: true,
            }],
            cdi: vec!["v.com/c=0".to_owned()],
            ..ContainerDevices::default()
        };
        let mut both = of("one", "B");
        both.add(&of("two", "C"));
        let env: Vec<_> = both.env.iter().map(|(k, v)| format!("{k}={v}")).collect();
        assert_eq!(env, ["A=one", "B=one", "C=two"]);
        assert_eq!((both.nodes.len(), both.mounts.len(), both.cdi.len()), (1, 2, 1));
        assert_eq!(both.nodes[0].host_path, "/dev/one");
    }
}
