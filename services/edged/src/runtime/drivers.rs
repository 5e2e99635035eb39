//! The seam to storage drivers: they publish the volumes of pods, and take them back.

use std::collections::BTreeMap;
use std::path::PathBuf;

use async_trait::async_trait;

use super::RuntimeError;
use crate::container::driver_volume::DriverVolume;
use crate::pod::{PodRecord, PodUid};

/// The storage drivers of a node.
///
/// Every call is bounded in time and can be repeated. A call that is dropped may have acted: what it may have done is
/// on the disk, and [`unpublish`](Self::unpublish) undoes it.
#[async_trait]
pub trait VolumeDrivers: Send + Sync + 'static {
    /// Whether a driver of this name is registered.
    fn has(&self, driver: &str) -> bool;

    /// Publishes the volumes for a pod that has a record. Returns the path of each by its name in the pod.
    ///
    /// # Errors
    /// [`RuntimeError::Driver`] of the first volume that is not published.
    async fn publish(
        &self,
        pod: &PodRecord,
        volumes: &[DriverVolume],
    ) -> Result<BTreeMap<String, PathBuf>, RuntimeError>;

    /// Takes back every volume of the pod, of which no container runs. Succeeds if there is none.
    ///
    /// # Errors
    /// [`RuntimeError::Driver`] of a volume that is still published.
    async fn unpublish(&self, pod: &PodUid) -> Result<(), RuntimeError>;
}
