//! A volume of a storage driver as a value: what the driver gets to know of it.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::api::core::v1::Pod;

pub(crate) mod of_view;
pub(crate) mod tokens;

/// A volume of a storage driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverVolume {
    /// Its name in the pod.
    pub volume: String,
    /// The name by which its directory goes: that of the PersistentVolume, or that in the pod.
    pub spec_name: String,
    /// The driver's name.
    pub driver: String,
    /// Where it comes from.
    pub source: VolumeSource,
    /// It is a block device, without a file system.
    pub is_block: bool,
    /// Its file system; empty for the driver's default.
    pub fs_type: String,
    /// How many nodes and pods write to it.
    pub access_mode: AccessMode,
    /// Options of its mount.
    pub mount_options: Vec<String>,
    /// The pod only reads it.
    pub read_only: bool,
    /// The attributes of the volume.
    pub attributes: BTreeMap<String, String>,
    /// What the driver wants to know of the pod; empty if it wants nothing.
    pub pod_info: BTreeMap<String, String>,
    /// What the attachment of the volume to the node says.
    pub attachment: BTreeMap<String, String>,
    /// The secrets with which it is staged.
    pub stage_secrets: DriverSecrets,
    /// The secrets with which it is published.
    pub publish_secrets: DriverSecrets,
    /// Tokens of the pod's account, beside the attributes of the volume when it is published.
    pub tokens: DriverSecrets,
    /// The driver is to publish it again from time to time, while the pod runs.
    pub republishes: bool,
    /// The pod's group, if the pod has one.
    pub group: Option<VolumeGroup>,
}

/// Where a volume comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeSource {
    /// A PersistentVolume, with the driver's own name of it.
    Persistent {
        /// The name.
        handle: String,
    },
    /// The pod alone: the volume comes and goes with it.
    Inline,
}

/// The access mode of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessMode {
    /// One node writes.
    ReadWriteOnce,
    /// One pod writes.
    ReadWriteOncePod,
    /// Many nodes read.
    ReadOnlyMany,
    /// Many nodes write.
    ReadWriteMany,
}

/// The group that a pod's volumes belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeGroup {
    /// The group.
    pub id: u32,
    /// The node gives the files to it, unless the driver does.
    pub gives_files: bool,
    /// Only if the root of the volume is not the group's.
    pub only_on_mismatch: bool,
}

impl VolumeGroup {
    /// The pod's group, if the pod has one. The node gives the files to it.
    pub(crate) fn of(pod: &Pod) -> Option<Self> {
        let security = pod.spec.as_ref()?.security_context.as_ref()?;
        let id = u32::try_from(security.fs_group?).ok()?;
        let only_on_mismatch = security.fs_group_change_policy.as_deref() == Some("OnRootMismatch");
        Some(Self { id, gives_files: true, only_on_mismatch })
    }
}

/// Secrets of a volume. Their values are in no debug output.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct DriverSecrets(pub BTreeMap<String, String>);

/// Their names only.
impl fmt::Debug for DriverSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
