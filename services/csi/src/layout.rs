//! The paths of drivers and their volumes, which are a kubelet's: drivers mount folders of its tree. Pure.

use std::path::{Path, PathBuf};

use headwater_edged::container::driver_volume::{DriverVolume, VolumeSource};
use headwater_edged::pod::PodUid;
use ring::digest::{SHA256, digest};

/// The longest name of a driver (CSI specification, `GetPluginInfo`).
pub const DRIVER_NAME_BYTES_MAX: usize = 63;

/// The longest name of an object.
const SPEC_NAME_BYTES_MAX: usize = 253;

/// The folder of this kind of volume in a pod's folder.
const KIND: &str = "kubernetes.io~csi";

/// The file that says which volume a folder is of.
pub(crate) const DATA_FILE: &str = "vol_data.json";

/// A kubelet's tree: `/var/lib/kubelet`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout(PathBuf);

impl Layout {
    /// The tree at this path.
    pub fn new(root: PathBuf) -> Self {
        Self(root)
    }

    /// Its path.
    pub fn root(&self) -> &Path {
        &self.0
    }

    /// Where drivers put the sockets by which they register.
    pub fn registrations(&self) -> PathBuf {
        self.0.join("plugins_registry")
    }

    /// The folders of staged volumes.
    pub fn all_staged(&self) -> PathBuf {
        self.0.join("plugins/kubernetes.io/csi")
    }

    /// The folder of a staged volume.
    pub fn staged(&self, driver: &str, handle: &str) -> PathBuf {
        self.all_staged().join(driver).join(hex(handle.as_bytes()))
    }

    /// Where the driver stages the volume.
    pub fn staging_target(&self, driver: &str, handle: &str) -> PathBuf {
        self.staged(driver, handle).join("globalmount")
    }

    /// The folders of pods.
    pub fn pods(&self) -> PathBuf {
        self.0.join("pods")
    }

    /// The folder of a pod's volumes of drivers.
    pub fn pod_volumes(&self, pod: &str) -> PathBuf {
        self.pods().join(pod).join("volumes").join(KIND)
    }

    /// The folder of one of them.
    pub fn pod_volume(&self, pod: &str, spec_name: &str) -> PathBuf {
        self.pod_volumes(pod).join(spec_name)
    }

    /// Where the driver publishes it.
    pub fn target(&self, pod: &str, spec_name: &str) -> PathBuf {
        self.pod_volume(pod, spec_name).join("mount")
    }
}

/// The driver's own name of the volume: of one that comes and goes with its pod, a kubelet makes it up.
pub fn handle(volume: &DriverVolume, pod: &PodUid) -> String {
    match &volume.source {
        VolumeSource::Persistent { handle } => handle.clone(),
        VolumeSource::Inline => inline_handle(pod.as_str(), &volume.spec_name),
    }
}

/// The name that a kubelet makes up for a volume that comes and goes with its pod.
pub(crate) fn inline_handle(pod: &str, spec_name: &str) -> String {
    format!("csi-{}", hex(format!("{pod}{spec_name}").as_bytes()))
}

/// The name of the volume's attachment to the node.
pub(crate) fn attachment_name(driver: &str, handle: &str, node: &str) -> String {
    format!("csi-{}", hex(format!("{handle}{driver}{node}").as_bytes()))
}

/// Checks the name of a driver: it becomes the name of a folder.
///
/// # Errors
/// Why the name is none.
pub fn check_driver_name(name: &str) -> Result<(), String> {
    if name.starts_with("kubernetes.io/") {
        return Err(format!("{name:?} is no name of a driver: kubernetes.io/ is reserved"));
    }
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
    let ends = [name.bytes().next(), name.bytes().next_back()];
    let is_name = name.len() <= DRIVER_NAME_BYTES_MAX
        && name.bytes().all(is_inner)
        && ends.iter().all(|end| end.is_some_and(|byte| byte.is_ascii_alphanumeric()));
    if is_name {
        Ok(())
    } else {
        Err(format!(
            "{:?} is no name of a driver: use 1 to {DRIVER_NAME_BYTES_MAX} letters, digits, dots and \
             dashes, with a letter or a digit at both ends",
            name.chars().take(DRIVER_NAME_BYTES_MAX + 1).collect::<String>()
        ))
    }
}

/// Checks the name of a volume: it becomes the name of a folder.
///
/// # Errors
/// Why the name is none.
pub fn check_spec_name(name: &str) -> Result<(), String> {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    let is_name = (1..=SPEC_NAME_BYTES_MAX).contains(&name.len())
        && !name.starts_with('.')
        && name.bytes().all(is_inner);
    if is_name { Ok(()) } else { Err(format!("{name:?} cannot name a folder")) }
}

fn hex(bytes: &[u8]) -> String {
    digest(&SHA256, bytes).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_those_of_a_kubelet() {
        let layout = Layout::new("/var/lib/kubelet".into());
        let data = "3a6eb0790f39ac87c94f3856b2dd2c5d110e6811602261a9a923d3bb23adc8b7";
        assert_eq!(
            layout.staging_target("disk.example.com", "data"),
            Path::new("/var/lib/kubelet/plugins/kubernetes.io/csi/disk.example.com")
                .join(data)
                .join("globalmount")
        );
        assert_eq!(
            layout.target("u1", "pv-1"),
            Path::new("/var/lib/kubelet/pods/u1/volumes/kubernetes.io~csi/pv-1/mount")
        );
    }

    #[test]
    fn a_name_that_leaves_its_folder_is_none() {
        for name in ["disk.example.com", "a", "A-1"] {
            check_driver_name(name).expect(name);
        }
        let long = "a".repeat(DRIVER_NAME_BYTES_MAX + 1);
        for name in ["", "..", "../up", "a/b", ".a", "a.", "-a", "a b", "a\0", &long] {
            check_driver_name(name).expect_err(name);
        }
        let reserved = check_driver_name("kubernetes.io/csi").expect_err("reserved");
        assert!(reserved.contains("reserved"), "{reserved}");
        for name in ["", ".", "..", "../x", "a/b", "a\0"] {
            check_spec_name(name).expect_err(name);
        }
        check_spec_name("pvc-1.2_a").expect("a name");
    }
}
