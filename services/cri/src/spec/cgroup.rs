//! The cgroup of a pod: its place in the node's tree by its quality of service.

use headwater_edged::container::qos::QosClass;
use headwater_edged::pod::PodUid;
use k8s_openapi::api::core::v1::Pod;

/// The root of all pods, below the root of each controller, unless the node has another one.
pub const CGROUP_ROOT: &str = "headwater";

/// Who makes cgroups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupDriver {
    /// The runtime itself, by directories.
    Cgroupfs,
    /// The service manager, by slices.
    Systemd,
}

/// The parent of the cgroups of a pod's containers, in the form that the driver demands.
///
/// As a kubelet's tree (`pkg/kubelet/cm/pod_container_manager_linux.go`): guaranteed pods lie at the
/// root, the others below `burstable` and `besteffort`. A slice has the names of all slices above it
/// in its own (`cgroup_manager_linux.go`, `ToSystemd`), and `_` for each `-` of a UID. `root` is the node's name for the
/// root of its pods.
pub fn cgroup_parent(root: &str, driver: CgroupDriver, pod: &Pod, uid: &PodUid) -> String {
    let class = match QosClass::of(pod) {
        QosClass::Guaranteed => None,
        QosClass::Burstable => Some("burstable"),
        QosClass::BestEffort => Some("besteffort"),
    };
    match driver {
        CgroupDriver::Cgroupfs => {
            let class = class.map(|class| format!("/{class}")).unwrap_or_default();
            format!("/{root}{class}/pod{uid}")
        }
        CgroupDriver::Systemd => {
            let class = class.map(|class| format!("-{class}")).unwrap_or_default();
            format!("{root}{class}-pod{}.slice", uid.as_str().replace('-', "_"))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_pods_cgroup_lies_where_a_kubelet_puts_it() {
        let uid = PodUid::try_from("12ab-34".to_owned()).expect("a UID");
        let limits = json!({"limits": {"cpu": "1", "memory": "1Gi"}});
        for (resources, cgroupfs, systemd) in [
            (limits, "/headwater/pod12ab-34", "headwater-pod12ab_34.slice"),
            (
                json!({"requests": {"cpu": "1"}}),
                "/headwater/burstable/pod12ab-34",
                "headwater-burstable-pod12ab_34.slice",
            ),
            (
                Value::Null,
                "/headwater/besteffort/pod12ab-34",
                "headwater-besteffort-pod12ab_34.slice",
            ),
        ] {
            let container = json!({"name": "a", "resources": resources});
            let pod = json!({"spec": {"containers": [container]}});
            let pod: Pod = serde_json::from_value(pod).expect("a pod");
            let of = |driver| cgroup_parent(CGROUP_ROOT, driver, &pod, &uid);
            assert_eq!(of(CgroupDriver::Cgroupfs), cgroupfs);
            assert_eq!(of(CgroupDriver::Systemd), systemd);
        }
    }
}
