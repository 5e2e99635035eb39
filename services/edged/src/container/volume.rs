//! A volume of a pod as a value: its name and its content.

use std::collections::BTreeMap;
use std::fmt;

use super::claim::Claim;

/// A volume of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// Its name in the pod.
    pub name: String,
    /// Its content.
    pub content: VolumeContent,
    /// Its files come from a Secret.
    pub is_secret: bool,
}

/// The content of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeContent {
    /// These files by path, replaced together when one changes.
    Files(BTreeMap<String, VolumeFile>),
    /// An emptyDir: containers write to it, and it is removed with the pod.
    Empty,
    /// A path of the host.
    Host {
        /// The path.
        path: String,
        /// Kubernetes' hostPath type; empty for no check.
        kind: String,
    },
    /// A directory of the node that belongs to a claim and outlives the pod.
    Claim(Claim),
    /// A volume that needs a storage driver.
    Unsupported {
        /// The kind of volume that the pod asks for.
        kind: &'static str,
    },
}

/// A file of a volume.
#[derive(Clone, PartialEq, Eq)]
pub struct VolumeFile {
    /// Its content.
    pub bytes: Vec<u8>,
    /// Its permission bits.
    pub mode: u32,
}

// The content may be secret.
impl fmt::Debug for VolumeFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VolumeFile({} bytes, {:o})", self.bytes.len(), self.mode)
    }
}
