//! Volumes that are block devices of containers (`volumeMode: Block`, `volumeDevices`). Pure.

use k8s_openapi::api::core::v1::{Container, Pod, Volume, VolumeDevice};

use super::environment::stays_inside;
use crate::pod::every_container;

/// The mode of a volume without a file system.
const BLOCK: &str = "Block";

/// A volume that is a block device of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockDevice {
    /// The volume's name.
    pub volume: String,
    /// Where the container sees the device: an absolute path.
    pub path: String,
    /// The container cannot write to it.
    pub read_only: bool,
}

impl BlockDevice {
    /// The block devices of a container. Only a claim has one, as at an API server.
    ///
    /// # Errors
    /// The device that is none, and why.
    pub(crate) fn all(pod: &Pod, container: &Container) -> Result<Vec<Self>, String> {
        let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref());
        let volumes = volumes.unwrap_or_default();
        container.volume_devices.iter().flatten().map(|it| Self::of(it, volumes)).collect()
    }

    fn of(device: &VolumeDevice, volumes: &[Volume]) -> Result<Self, String> {
        let VolumeDevice { name, device_path: path } = device;
        let volume = volumes.iter().find(|volume| volume.name == *name);
        let volume =
            volume.ok_or_else(|| format!("volumeDevice {name:?} names no volume of the pod"))?;
        let claim = volume.persistent_volume_claim.as_ref();
        if claim.is_none() && volume.ephemeral.is_none() {
            return Err(format!(
                "volumeDevice {name:?}: only the volume of a claim is a block device"
            ));
        }
        if !path.starts_with('/') || path.ends_with('/') || !stays_inside(path) {
            return Err(format!("devicePath {path:?} of {name:?} is no absolute path of a file"));
        }
        let read_only = claim.and_then(|claim| claim.read_only) == Some(true);
        Ok(Self { volume: name.clone(), path: path.clone(), read_only })
    }
}

/// Whether a PersistentVolume or a claim is a block device.
pub(crate) fn is_block(volume_mode: Option<&str>) -> bool {
    volume_mode == Some(BLOCK)
}

/// Checks that the containers use a volume as what it is (`pkg/kubelet/volumemanager/populator`).
///
/// # Errors
/// A container mounts a block device, or has a file system as a device.
pub(crate) fn check_use(pod: &Pod, volume: &str, is_block: bool) -> Result<(), String> {
    let (is_mounted, is_device) = every_container(pod).fold((false, false), |found, container| {
        let mut mounts = container.volume_mounts.iter().flatten();
        let mut devices = container.volume_devices.iter().flatten();
        (
            found.0 || mounts.any(|mount| mount.name == volume),
            found.1 || devices.any(|device| device.name == volume),
        )
    });
    match is_block {
        true if is_mounted => {
            Err(format!("volume {volume} has volumeMode Block, but is specified in volumeMounts"))
        }
        false if is_device => Err(format!(
            "volume {volume} has volumeMode Filesystem, but is specified in volumeDevices"
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(container: &Value) -> Pod {
        let volumes = json!([
            {"name": "disk", "persistentVolumeClaim": {"claimName": "disk", "readOnly": true}},
            {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
            {"name": "files", "emptyDir": {}},
        ]);
        let spec = json!({"containers": [container], "volumes": volumes});
        serde_json::from_value(json!({"spec": spec})).expect("a pod")
    }

    fn devices(devices: &Value) -> Result<Vec<BlockDevice>, String> {
        let pod = pod(&json!({"name": "c", "volumeDevices": devices}));
        let container = every_container(&pod).next().expect("a container");
        BlockDevice::all(&pod, &container)
    }

    #[test]
    fn a_device_is_the_volume_of_a_claim_at_an_absolute_path() {
        let found = devices(&json!([
            {"name": "disk", "devicePath": "/dev/xvda"},
            {"name": "scratch", "devicePath": "/dev/xvdb"},
        ]));
        let found = found.expect("valid");
        assert_eq!(found.iter().map(|it| it.read_only).collect::<Vec<_>>(), [true, false]);
        assert_eq!((&*found[0].volume, &*found[0].path), ("disk", "/dev/xvda"));
        for (name, path, word) in [
            ("other", "/dev/x", "names no volume"),
            ("files", "/dev/x", "only the volume of a claim"),
            ("disk", "dev/x", "no absolute path"),
            ("disk", "/dev/", "no absolute path"),
            ("disk", "/dev/../x", "no absolute path"),
        ] {
            let why = devices(&json!([{"name": name, "devicePath": path}])).expect_err(word);
            assert!(why.contains(word) && why.contains(name), "{why}");
        }
    }

    #[test]
    fn a_volume_is_used_as_what_it_is() {
        let mounted =
            pod(&json!({"name": "c", "volumeMounts": [{"name": "disk", "mountPath": "/d"}]}));
        let device =
            pod(&json!({"name": "c", "volumeDevices": [{"name": "disk", "devicePath": "/d"}]}));
        assert_eq!(
            (check_use(&mounted, "disk", false), check_use(&device, "disk", true)),
            (Ok(()), Ok(()))
        );
        let why = check_use(&mounted, "disk", true).expect_err("no file system");
        assert!(why.contains("volumeMode Block, but is specified in volumeMounts"), "{why}");
        let why = check_use(&device, "disk", false).expect_err("no device");
        assert!(why.contains("volumeMode Filesystem, but is specified in volumeDevices"), "{why}");
    }
}
