//! The seam to container images.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

/// Keeps the images of containers.
#[async_trait]
pub trait Images: Send + Sync + 'static {
    /// The image of this name, if it is on the node.
    ///
    /// # Errors
    /// See [`ImageError`].
    async fn status(&self, name: &str) -> Result<Option<Image>, ImageError>;

    /// Pulls an image from its registry. `credentials` are tried in order; without any, the pull is
    /// anonymous. On success the image is on the node, and the result is its id. On failure parts of
    /// it may be: the next pull continues.
    ///
    /// # Errors
    /// See [`ImageError`].
    async fn pull(
        &self,
        name: &str,
        credentials: &[RegistryCredentials],
    ) -> Result<Arc<str>, ImageError>;

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

    /// The bytes that all images take on the disk.
    ///
    /// # Errors
    /// See [`ImageError`].
    async fn disk_bytes(&self) -> Result<u64, ImageError>;
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
}

/// A user of a registry.
#[derive(Clone, PartialEq, Eq)]
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

impl ImageError {
    /// The reason for which a container waits, as a kubelet names it.
    pub fn wait_reason(&self) -> &'static str {
        match self {
            Self::InvalidName { .. } => "InvalidImageName",
            Self::Unreachable { .. } => "RegistryUnavailable",
            Self::Refused { .. } | Self::Runtime { .. } => "ErrImagePull",
        }
    }
}
