//! The runtime of a node's pods.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use headwater_cri::CriSettings;
use headwater_csi::{CsiSettings, CsiVolumes};
use headwater_devices::DevicePlugins;
use headwater_edged::devices::DeviceServer;
use headwater_edged::pod::PodUid;
use headwater_edged::runtime::{NodeRuntime, RuntimeError, RuntimeOpener};
use headwater_edged::{ProcessConfig, RuntimeKind, Settings};
use headwater_event::NodeName;
use headwater_settings::{InvalidSetting, Runtime};
use headwater_telemetry::error_chain;
use tokio::sync::mpsc;

use crate::settings::cri::Cri;

/// The argument with which the pod worker starts this program as a container's shim.
pub(crate) const SHIM: &str = "shim";

/// The heap settings of a shim, which allocates a little at its start and then waits: no background
/// thread, one arena, no thread caches, and freed memory returns to the system at once.
const SHIM_HEAP: &str = "narenas:1,tcache:false,background_thread:false,dirty_decay_ms:0";

/// There is no runtime of this kind.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PodRuntimeError {
    /// The path of this program is unknown, so it cannot start a container's shim.
    #[error("this program's own path is unknown; containers cannot be started")]
    Program(#[source] std::io::Error),
    /// A setting of the container runtime is wrong.
    #[error("{}: {}", .0.key, .0.reason)]
    Setting(InvalidSetting),
}

/// A container runtime, to be opened, and the storage drivers beside it.
#[derive(Debug)]
struct CriOpener {
    runtime: CriSettings,
    drivers: Option<CsiSettings>,
    devices: Option<DevicePlugins>,
}

#[async_trait]
impl RuntimeOpener for CriOpener {
    async fn open(
        &self,
        node: &NodeName,
        dir: &Path,
        settings: &Settings,
        notices: mpsc::Sender<PodUid>,
    ) -> Result<NodeRuntime, RuntimeError> {
        let opened = headwater_cri::open(&self.runtime, node, dir, settings, notices.clone()).await;
        let runtime = opened.map_err(|error| RuntimeError::Absent(error_chain(&error)))?;
        let Some(drivers) = self.drivers.clone() else { return Ok(runtime) };
        let drivers = CsiVolumes::open(drivers, node.clone(), notices);
        let drivers = drivers.map_err(|error| RuntimeError::Absent(error_chain(&error)))?;
        Ok(runtime.with_drivers(Arc::new(drivers)))
    }

    fn devices(&self) -> Option<Arc<dyn DeviceServer>> {
        let devices = self.devices.clone()?;
        Some(Arc::new(devices))
    }
}

/// The runtime `kind`. The caller decides whether pods may run as root with it.
///
/// # Errors
/// See [`PodRuntimeError`].
pub(crate) fn runtime(
    kind: Runtime,
    allow_root: bool,
    cri: &Cri,
) -> Result<RuntimeKind, PodRuntimeError> {
    Ok(match kind {
        Runtime::Hollow => RuntimeKind::Hollow,
        Runtime::Cri => RuntimeKind::Other(Arc::new(CriOpener {
            runtime: cri.settings().map_err(PodRuntimeError::Setting)?,
            drivers: cri.drivers().map_err(PodRuntimeError::Setting)?,
            devices: cri.device_plugin_dir().map(DevicePlugins::new),
        })),
        Runtime::Process => {
            let program = std::env::current_exe().map_err(PodRuntimeError::Program)?;
            let shim = vec![program.display().to_string(), SHIM.to_owned()];
            let shim_env = vec![("MALLOC_CONF".to_owned(), SHIM_HEAP.to_owned())];
            RuntimeKind::Process(ProcessConfig { shim, shim_env, allow_root })
        }
    })
}

/// What an operator should know of the pods of this runtime.
pub(crate) fn shared_rights(kind: Option<Runtime>, allow_root: bool) -> Vec<String> {
    match kind {
        Some(Runtime::Process) => headwater_edged::shared_rights(allow_root).into_iter().collect(),
        Some(Runtime::Hollow | Runtime::Cri) | None => Vec::new(),
    }
}
