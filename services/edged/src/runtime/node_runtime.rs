//! The runtime of one node: the set of seams that it implements.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use headwater_event::NodeName;
use tokio::sync::mpsc;

use super::hollow::HollowRuntime;
use super::process::ProcessRuntime;
use super::{
    Features, FileSystemUsage, Images, Runtime, RuntimeError, Streams, Usage, VolumeDrivers,
    VolumeUsage,
};
use crate::config::{RuntimeKind, Settings};
use crate::devices::DeviceServer;
use crate::pod::PodUid;

/// The seams that one runtime implements. It dereferences to its [`Runtime`]. Cheap to clone.
#[derive(Clone)]
pub struct NodeRuntime {
    runtime: Arc<dyn Runtime>,
    features: Arc<Features>,
    images: Option<Arc<dyn Images>>,
    streams: Option<Arc<dyn Streams>>,
    usage: Option<Arc<dyn Usage>>,
    drivers: Option<Arc<dyn VolumeDrivers>>,
}

/// Opens a runtime of another crate.
#[async_trait]
pub trait RuntimeOpener: fmt::Debug + Send + Sync + 'static {
    /// Opens the runtime of `node` in the pod worker's directory, and adopts what runs. The runtime sends
    /// the UID of every pod that changes to `notices`.
    ///
    /// # Errors
    /// [`RuntimeError::Absent`] if there is no runtime, or it is not to be used. Nothing runs that did not run
    /// before.
    async fn open(
        &self,
        node: &NodeName,
        dir: &Path,
        settings: &Settings,
        notices: mpsc::Sender<PodUid>,
    ) -> Result<NodeRuntime, RuntimeError>;

    /// What serves the device plugins of the node. By default there is nothing.
    fn devices(&self) -> Option<Arc<dyn DeviceServer>> {
        None
    }
}

impl NodeRuntime {
    /// A runtime without images, streams and usage.
    pub fn new(runtime: Arc<dyn Runtime>) -> Self {
        let features = Arc::new(runtime.features());
        Self { runtime, features, images: None, streams: None, usage: None, drivers: None }
    }

    /// Adds the seam to images: from now on a container starts only when its image is present.
    #[must_use]
    pub fn with_images(self, images: Arc<dyn Images>) -> Self {
        Self { images: Some(images), ..self }
    }

    /// Adds the seam to streams.
    #[must_use]
    pub fn with_streams(self, streams: Arc<dyn Streams>) -> Self {
        Self { streams: Some(streams), ..self }
    }

    /// Adds the seam to resource usage.
    #[must_use]
    pub fn with_usage(self, usage: Arc<dyn Usage>) -> Self {
        Self { usage: Some(usage), ..self }
    }

    /// Adds the storage drivers.
    #[must_use]
    pub fn with_drivers(self, drivers: Arc<dyn VolumeDrivers>) -> Self {
        Self { drivers: Some(drivers), ..self }
    }

    /// Opens the runtime of this kind, unless it is of another crate, in the pod worker's directory, and adopts what runs.
    /// `edge_socket` is the edge's local API, whose user no container may be. The runtime sends the UID of every pod that changes to `notices`. Call it inside a Tokio runtime.
    ///
    /// # Errors
    /// The runtime cannot read its state. Nothing runs that did not run before.
    pub fn open(
        kind: &RuntimeKind,
        dir: &Path,
        edge_socket: &Path,
        settings: &Settings,
        notices: mpsc::Sender<PodUid>,
    ) -> Result<Self, RuntimeError> {
        let runtime: Arc<dyn Runtime> = match kind {
            RuntimeKind::Hollow => Arc::new(HollowRuntime::default()),
            RuntimeKind::Process(config) => {
                Arc::new(ProcessRuntime::open(dir, edge_socket, config, settings, notices)?)
            }
            RuntimeKind::Other(_) => {
                return Err(RuntimeError::Unsupported { verb: "be opened without its opener" });
            }
        };
        Ok(Self::new(runtime))
    }

    /// What the runtime can do.
    pub fn features(&self) -> &Features {
        &self.features
    }

    /// Container images; `None` if containers need none.
    pub fn images(&self) -> Option<&Arc<dyn Images>> {
        self.images.as_ref()
    }

    /// Exec, attach and port-forward; `None` if there are no streams.
    pub fn streams(&self) -> Option<&Arc<dyn Streams>> {
        self.streams.as_ref()
    }

    /// Resource usage; `None` if it is not measured.
    pub fn usage(&self) -> Option<&Arc<dyn Usage>> {
        self.usage.as_ref()
    }

    /// The usage of these volumes of a pod, by name, as its drivers measure it or the runtime. What is not measured is
    /// absent.
    pub async fn volume_usage(
        &self,
        pod: &PodUid,
        volumes: &[String],
    ) -> BTreeMap<String, FileSystemUsage> {
        let Some(usage) = &self.usage else { return BTreeMap::new() };
        let of_drivers = match &self.drivers {
            Some(drivers) => drivers.usage(pod).await,
            None => BTreeMap::new(),
        };
        let places = of_drivers.keys().cloned().collect();
        let found = usage.volumes(pod, volumes, &places).await.into_iter();
        let measured = found.filter_map(|(name, VolumeUsage { place, system })| {
            Some((name, of_drivers.get(&place).cloned().unwrap_or(system)?))
        });
        measured.collect()
    }

    /// Storage drivers; `None` if pods have no volumes of drivers.
    pub fn drivers(&self) -> Option<&Arc<dyn VolumeDrivers>> {
        self.drivers.as_ref()
    }
}

impl Deref for NodeRuntime {
    type Target = dyn Runtime;

    fn deref(&self) -> &Self::Target {
        &*self.runtime
    }
}
