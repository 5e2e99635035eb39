//! The seam to device plugins.

use std::collections::BTreeSet;
use std::fmt::Debug;

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use super::Devices;
use crate::container::devices::ContainerDevices;
use crate::disk::file_error::FileError;

/// Serves the registration of device plugins.
pub trait DeviceServer: Debug + Send + Sync + 'static {
    /// Serves until cancelled. Call it inside a Tokio runtime.
    ///
    /// # Errors
    /// The socket cannot be made. Nothing is served.
    fn serve(&self, devices: Devices, cancel: CancellationToken) -> Result<(), FileError>;
}

/// A registered plugin. Each call has a deadline.
#[async_trait]
pub trait DevicePlugin: Debug + Send + Sync + 'static {
    /// What the plugin can do.
    fn options(&self) -> PluginOptions;

    /// The devices that the plugin would choose: `count` of the `available` ones, with all of `included` among them.
    ///
    /// # Errors
    /// It has no answer: any of them are chosen.
    async fn prefer(
        &self,
        available: &BTreeSet<String>,
        included: &BTreeSet<String>,
        count: usize,
    ) -> Result<Vec<String>, PluginError>;

    /// What a container is given with these devices.
    ///
    /// # Errors
    /// The pod fails.
    async fn allocate(&self, ids: &BTreeSet<String>) -> Result<ContainerDevices, PluginError>;

    /// Prepares the devices of a container that is about to start.
    ///
    /// # Errors
    /// The container waits.
    async fn pre_start(&self, ids: &BTreeSet<String>) -> Result<(), PluginError>;
}

/// What a plugin can do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PluginOptions {
    /// Devices are prepared before each start of a container.
    pub pre_start: bool,
    /// It prefers some devices to others.
    pub prefers: bool,
}

/// A plugin did not do what it was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PluginError(pub String);
