//! The seam to storage drivers: they publish the volumes of pods, and take them back.

use std::collections::BTreeMap;
use std::path::PathBuf;

use async_trait::async_trait;

use super::{FileSystemUsage, RuntimeError};
use crate::container::driver_volume::DriverVolume;
use crate::pod::{PodRecord, PodUid};

/// A registered driver, as the node states it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatedDriver {
    /// Its name.
    pub name: String,
    /// Its own name of the node.
    pub node_id: String,
    /// The number of its volumes that the node has room for; `None`: it sets no limit.
    pub volumes_max: Option<u32>,
    /// Where the node is, in the driver's terms: labels that its volumes select nodes by.
    pub topology: BTreeMap<String, String>,
}

/// The storage drivers of a node.
///
/// Every call is bounded in time and can be repeated. A call that is dropped may have acted: what it may have done is
/// on the disk, and [`unpublish`](Self::unpublish) undoes it.
#[async_trait]
pub trait VolumeDrivers: Send + Sync + 'static {
    /// Whether a driver of this name is registered.
    fn has(&self, driver: &str) -> bool;

    /// The registered drivers, by name.
    fn stated(&self) -> Vec<StatedDriver>;

    /// The persistent volumes that a pod uses or that are still staged, as a Node's `volumesInUse` names them, in order.
    /// A cluster detaches none of them.
    fn in_use(&self) -> Vec<String>;

    /// Whether a volume is published for the pod, or may be.
    fn has_volumes(&self, pod: &PodUid) -> bool;

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

    /// The usage of each volume that is published for the pod, by its path; `None`: its driver does not measure it, or
    /// does not answer.
    async fn usage(&self, pod: &PodUid) -> BTreeMap<PathBuf, Option<FileSystemUsage>>;
}
