//! The seam to container images.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::usage::{DiskUsage, FileSystemUsage};
use crate::container::WaitReason;

/// Keeps the images of containers.
#[async_trait]
pub trait Images: Send + Sync + 'static {
    /// The image of this name, if it is on the node.
    ///
    /// # Errors
    /// See [`ImageError`].
    async fn status(&self, name: &str) -> Result<Option<Image>, ImageError>;

    /// Pulls an image from its registry. `credentials` are tried in order; without any, the pull is
    /// anonymous. On success the image is on the node. On failure parts of it may be: the next pull
    /// continues.
    ///
    /// # Errors
    /// See [`ImageError`].
    async fn pull(
        &self,
        name: &str,
        credentials: &[RegistryCredentials],
    ) -> Result<PulledImage, ImageError>;

    /// All images on the node.
    ///
    /// # Errors
    /// See [`ImageError`].
    async fn list(&self) -> Result<Vec<Image>, ImageError>;

    /// Removes an image with all its names. Succeeds if it is not on the node.
    ///
    /// # Errors
    /// See [`ImageError`].
    async fn remove(&self, id: &str) -> Result<(), ImageError>;

    /// The images of all containers of the runtime, running or not, of this pod worker or of another agent. Each
    /// is an id or a name.
    ///
    /// # Errors
    /// See [`ImageError`].
    async fn in_use(&self) -> Result<BTreeSet<Arc<str>>, ImageError>;

    /// The disk of images.
    ///
    /// # Errors
    /// See [`ImageError`].
    async fn usage(&self) -> Result<ImageUsage, ImageError>;
}

/// The disk of images.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageUsage {
    /// What all images take.
    pub images: DiskUsage,
    /// The file system that holds them.
    pub file_system: FileSystemUsage,
}

/// An image that was pulled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PulledImage {
    /// Its id.
    pub id: Arc<str>,
    /// The time of the pull, without the wait for its turn.
    pub took: Duration,
}

/// An image on the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// The digest of its configuration.
    pub id: Arc<str>,
    /// Its names with tag or digest.
    pub names: Vec<String>,
    /// Its size on the disk.
    pub bytes: u64,
    /// The runtime needs it: it is never removed.
    pub is_pinned: bool,
}

/// A user of a registry.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct RegistryCredentials {
    /// The user's name.
    pub username: String,
    /// The user's password.
    pub password: String,
}

// The password is secret.
impl fmt::Debug for RegistryCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RegistryCredentials({:?})", self.username)
    }
}

/// An operation on images failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// The name does not name an image: a retry changes nothing.
    #[error("image name {name:?} is invalid")]
    InvalidName {
        /// The name.
        name: String,
    },
    /// The registry cannot be reached: a retry can succeed.
    #[error("image {name}: the registry cannot be reached: {cause}")]
    Unreachable {
        /// The image.
        name: String,
        /// The cause.
        cause: String,
    },
    /// The registry refused the pull: the image does not exist, or the credentials are wrong.
    #[error("image {name}: the registry refused the pull: {cause}")]
    Refused {
        /// The image.
        name: String,
        /// The cause.
        cause: String,
    },
    /// The runtime failed: a retry can succeed.
    #[error("image {name}: {cause}")]
    Runtime {
        /// The image.
        name: String,
        /// The cause.
        cause: String,
    },
}

/// The errors by which a runtime names the cause itself, and the words of a kubelet for each
/// (`k8s.io/cri-api/pkg/errors`).
const NAMED: [(&str, &str); 2] = [
    ("RegistryUnavailable", "the registry is unavailable"),
    ("SignatureValidationFailed", "the signature validation failed"),
];

impl ImageError {
    /// Why a container waits after this failure of its pull, in the words of a kubelet.
    pub fn wait_reason(&self) -> WaitReason {
        let (name, cause) = match self {
            Self::InvalidName { name } => {
                let message =
                    format!("couldn't parse image name {name:?}: invalid reference format");
                return WaitReason { reason: "InvalidImageName", message };
            }
            Self::Unreachable { name, cause }
            | Self::Refused { name, cause }
            | Self::Runtime { name, cause } => (name, cause),
        };
        for (reason, words) in NAMED {
            if let Some(rest) = cause.strip_prefix(reason) {
                let message = format!("image pull failed for {name} because {words}{rest}");
                return WaitReason { reason, message };
            }
        }
        WaitReason { reason: "ErrImagePull", message: cause.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_pull_is_told_in_a_kubelets_words() {
        let name = || "r/web:1".to_owned();
        let runtime = |cause: &str| ImageError::Runtime { name: name(), cause: cause.to_owned() };
        let refused = ImageError::Refused { name: name(), cause: "401 Unauthorized".to_owned() };
        for (error, reason, message) in [
            (refused, "ErrImagePull", "401 Unauthorized"),
            (runtime("no space left on device"), "ErrImagePull", "no space left on device"),
            (
                runtime("RegistryUnavailable: it is away"),
                "RegistryUnavailable",
                "image pull failed for r/web:1 because the registry is unavailable: it is away",
            ),
            (
                runtime("SignatureValidationFailed: no key"),
                "SignatureValidationFailed",
                "image pull failed for r/web:1 because the signature validation failed: no key",
            ),
            (
                ImageError::InvalidName { name: "Web".to_owned() },
                "InvalidImageName",
                "couldn't parse image name \"Web\": invalid reference format",
            ),
        ] {
            let message = message.to_owned();
            assert_eq!(error.wait_reason(), WaitReason { reason, message });
        }
    }
}
