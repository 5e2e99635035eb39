//! The runtime of a node's pods.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use headwater_cri::{CriSettings, OpenError};
use headwater_csi::{CsiSettings, CsiVolumes};
use headwater_devices::DevicePlugins;
use headwater_edged::devices::DeviceServer;
use headwater_edged::pod::PodUid;
use headwater_edged::runtime::{NodeRuntime, RuntimeError, RuntimeOpener};
use headwater_edged::{
    Edged, EdgedConfig, EdgedError, EndedPods, FileError, ProcessConfig, RuntimeKind, RuntimeNote,
    Settings, running_pods,
};
use headwater_event::NodeName;
use headwater_settings::{InvalidSetting, Runtime};
use headwater_telemetry::error_chain;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::settings::cri::Cri;

/// The argument with which the pod worker starts this program as a container's shim.
pub(crate) const SHIM: &str = "shim";

/// The heap settings of a shim, which allocates a little at its start and then waits: no background
/// thread, one arena, no thread caches, and freed memory returns to the system at once.
const SHIM_HEAP: &str = "narenas:1,tcache:false,background_thread:false,dirty_decay_ms:0";

/// The pods that another runtime ran are killed if they have not ended within this time after the start: a longer grace period
/// is for pods that stay.
const GRACE_LONGEST: Duration = Duration::from_mins(10);

/// A path at which no edge listens.
const NO_EDGE: &str = "/dev/null";

/// The runtime of a node's pods, as it is set.
#[derive(Clone, Debug)]
pub(crate) struct PodRuntime {
    pub(crate) kind: Runtime,
    /// Whether pods may run as root with the runtime `process`.
    pub(crate) allow_root: bool,
    pub(crate) cri: Cri,
}

/// The runtime that a node's pods ran with last, as the note beside their records has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct LastRuntime {
    runtime: Runtime,
    /// Only of a container runtime.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cri: Option<Cri>,
}

/// There is no runtime of this kind.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PodRuntimeError {
    /// The path of this program is unknown, so it cannot start a container's shim.
    #[error("this program's own path is unknown; containers cannot be started")]
    Program(#[source] std::io::Error),
    /// A setting of the container runtime is wrong.
    #[error("{}: {}", .0.key, .0.reason)]
    Setting(InvalidSetting),
    /// The container runtime cannot be used.
    #[error(transparent)]
    Absent(#[from] OpenError),
    /// The note of the last runtime cannot be used.
    #[error("the note of the runtime that the pods of node {node} had before cannot be used")]
    Note {
        /// The node.
        node: NodeName,
        /// The cause.
        source: FileError,
    },
    /// The pods of another runtime still run.
    #[error(
        "the pods of node {node} ran with {former}, and do not end: start that runtime, or remove {} if \
         it is gone for good", note.display()
    )]
    Former {
        /// The node.
        node: NodeName,
        /// The runtime.
        former: String,
        /// The file that names it.
        note: PathBuf,
        /// The cause.
        source: Box<EdgedError>,
    },
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

impl PodRuntime {
    /// The runtime of the pods in the pod worker's directory `dir`. Ends first what another runtime ran there.
    ///
    /// # Errors
    /// See [`PodRuntimeError`].
    pub(crate) async fn open(
        &self,
        node: &NodeName,
        dir: &Path,
    ) -> Result<RuntimeKind, PodRuntimeError> {
        let note = RuntimeNote::of(dir);
        let unusable = |source| PodRuntimeError::Note { node: node.clone(), source };
        let (last, own) = (LastRuntime::read(node, dir)?, LastRuntime::of(self));
        if let Some(former) = last.as_ref().filter(|last| !last.is_same(&own)) {
            // Nothing ends for a runtime that cannot be used.
            self.probe(node, dir).await?;
            tracing::info!(%node, former = %former, "the pods have another runtime now; they end");
            let ending = Edged::clear(former.config(node, dir)?, GRACE_LONGEST).await;
            let ended = ending.map_err(|source| former.failure(node, dir, source))?;
            tracing::info!(%node, pods = ended.ended.len(), "the pods of the former runtime ended");
        }
        if self.kind == Runtime::Hollow {
            // Its pods end with this process.
            note.remove().map_err(unusable)?;
        } else if last.as_ref() != Some(&own) {
            note.write(&own).map_err(unusable)?;
        }
        runtime(self.kind, self.allow_root, &self.cri)
    }

    /// Checks whether the runtime can be used. Nothing is started in it.
    async fn probe(&self, node: &NodeName, dir: &Path) -> Result<(), PodRuntimeError> {
        if self.kind == Runtime::Cri {
            let settings = self.cri.settings().map_err(PodRuntimeError::Setting)?;
            let (notices, _) = mpsc::channel(1);
            headwater_cri::open(&settings, node, dir, &Settings::default(), notices).await?;
        }
        Ok(())
    }
}

impl LastRuntime {
    fn of(runtime: &PodRuntime) -> Self {
        let cri = (runtime.kind == Runtime::Cri).then(|| runtime.cri.clone());
        Self { runtime: runtime.kind, cri }
    }

    /// The runtime of the pods in a pod worker's directory; `None` if none of them runs.
    fn read(node: &NodeName, dir: &Path) -> Result<Option<Self>, PodRuntimeError> {
        let unusable = |source| PodRuntimeError::Note { node: node.clone(), source };
        if let Some(last) = RuntimeNote::of(dir).read().map_err(unusable)? {
            return Ok(Some(last));
        }
        // Earlier versions wrote no note.
        let process = || Self { runtime: Runtime::Process, cri: None };
        Ok((!running_pods(dir).map_err(unusable)?.is_empty()).then(process))
    }

    /// Its pods in the pod worker's directory `dir` do not end.
    fn failure(&self, node: &NodeName, dir: &Path, source: EdgedError) -> PodRuntimeError {
        PodRuntimeError::Former {
            node: node.clone(),
            former: self.to_string(),
            note: RuntimeNote::of(dir).path(),
            source: Box::new(source),
        }
    }

    /// Whether the pods of one go on under the other.
    fn is_same(&self, other: &Self) -> bool {
        let endpoint = |last: &Self| {
            let socket = Path::new(last.cri.as_ref()?.socket());
            // /var/run is /run.
            Some(socket.canonicalize().unwrap_or_else(|_| socket.to_owned()))
        };
        self.runtime == other.runtime && endpoint(self) == endpoint(other)
    }

    /// The configuration of a pod worker that ends the pods. It starts none.
    fn config(&self, node: &NodeName, dir: &Path) -> Result<EdgedConfig, PodRuntimeError> {
        let cri = self.cri.clone().unwrap_or_default();
        // Nothing starts, so that the rights of containers do not matter.
        let kind = runtime(self.runtime, true, &cri)?;
        let mut config = EdgedConfig::new(node.clone(), NO_EDGE.into(), dir.to_owned(), kind);
        // The pods that end are no reason to remove anything else.
        config.settings.pressure.evicts = false;
        config.settings.image_collection.high_percent = 100;
        Ok(config)
    }
}

impl fmt::Display for LastRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cri {
            Some(cri) => write!(f, "the container runtime at {}", cri.socket()),
            None if self.runtime == Runtime::Process => f.write_str("the runtime process"),
            None => f.write_str("the runtime hollow"),
        }
    }
}

/// Ends the pods in the pod worker's directory `dir` with the runtime that they ran with last, each within its own grace
/// period but at most `grace`. They start again with the next pod worker.
///
/// # Errors
/// See [`PodRuntimeError`].
pub(crate) async fn end_pods(
    node: &NodeName,
    dir: &Path,
    grace: Duration,
) -> Result<EndedPods, PodRuntimeError> {
    let Some(last) = LastRuntime::read(node, dir)? else { return Ok(EndedPods::default()) };
    let ending = Edged::end_pods(last.config(node, dir)?, grace).await;
    ending.map_err(|source| last.failure(node, dir, source))
}

/// The runtime `kind`. The caller decides whether pods may run as root with it.
///
/// # Errors
/// See [`PodRuntimeError`].
fn runtime(kind: Runtime, allow_root: bool, cri: &Cri) -> Result<RuntimeKind, PodRuntimeError> {
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
