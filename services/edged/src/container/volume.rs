//! A volume of a pod as a value: its name and its content.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use super::claim::Claim;
use super::driver_volume::{DriverVolume, VolumeGroup};

/// A volume of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// Its name in the pod.
    pub name: String,
    /// Its content.
    pub content: VolumeContent,
    /// A file of it comes from a Secret, or is a token.
    pub is_secret: bool,
}

/// The content of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeContent {
    /// These files by path, replaced together when one changes.
    Files(BTreeMap<String, VolumeFile>),
    /// An emptyDir: containers write to it, and it is removed with the pod.
    Empty {
        /// Its size, if it lies in memory; `None`: it lies on the disk.
        memory_bytes_max: Option<u64>,
    },
    /// A path of the host.
    Host {
        /// The path.
        path: String,
        /// Kubernetes' hostPath type; empty for no check.
        kind: String,
    },
    /// A directory or device of the host that is a PersistentVolume (`local`).
    Local {
        /// The path. It is there before a pod uses it.
        path: String,
        /// It is a block device, without a file system.
        is_block: bool,
        /// The group of its files, if the pod has one and writes to it.
        group: Option<VolumeGroup>,
    },
    /// A directory of the node that belongs to a claim and outlives the pod.
    Claim {
        /// The claim.
        claim: Claim,
        /// The group of its files, if the pod has one and writes to it.
        group: Option<VolumeGroup>,
    },
    /// A volume of a storage driver, which has to publish it.
    Driver(Box<DriverVolume>),
    /// A volume that a storage driver has published for the pod.
    Published {
        /// Its path.
        path: PathBuf,
    },
    /// A volume that needs a storage driver of another kind.
    Unsupported {
        /// The kind of volume that the pod asks for.
        kind: &'static str,
    },
}

/// A file of a volume.
#[derive(Clone, PartialEq, Eq)]
pub struct VolumeFile {
    /// Its content. `None`: the present file stays; if there is none, the volume has no such file.
    pub bytes: Option<Vec<u8>>,
    /// Its permission bits.
    pub mode: u32,
    /// The user who owns it, where the runtime can give files away; `None`: the pod worker's.
    pub owner: Option<u32>,
}

// The content may be secret.
impl fmt::Debug for VolumeFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.bytes.as_ref().map(Vec::len);
        write!(f, "VolumeFile({bytes:?} bytes, {:o}, {:?})", self.mode, self.owner)
    }
}
