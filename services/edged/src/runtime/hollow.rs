//! The hollow runtime: containers without processes, for load tests.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

use super::{
    Exit, Features, LogQuery, PodState, RunHistory, RunState, Runtime, RuntimeError, StopRequest,
};
use crate::container::LaunchSpec;
use crate::container::volume::Volume;
use crate::pod::{PodRecord, PodUid};
use crate::pod_fields::Column;

/// Counts containers: one that is started runs immediately, one that is stopped ends immediately.
#[derive(Debug, Default)]
pub(crate) struct HollowRuntime {
    pods: Mutex<BTreeMap<PodUid, HollowPod>>,
}

/// The containers of a pod by name. Boxed: a map has room for eleven, and most pods have one.
type HollowPod = BTreeMap<String, Box<RunHistory>>;

impl HollowRuntime {
    fn with<T>(&self, work: impl FnOnce(&mut BTreeMap<PodUid, HollowPod>) -> T) -> T {
        // No code under this lock panics half-way: the map is whole even if a thread died.
        work(&mut self.pods.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[async_trait]
impl Runtime for HollowRuntime {
    fn features(&self) -> Features {
        Features {
            version: concat!("hollow://", env!("CARGO_PKG_VERSION")).to_owned(),
            sandboxes: false,
            commands: false,
            files: false,
            persistent: false,
            resize: false,
            collection: false,
            cpu_sets: false,
            devices: false,
        }
    }

    fn fields(&self) -> Column {
        Column::Hollow
    }

    fn pods(&self) -> Vec<PodUid> {
        self.with(|pods| pods.keys().cloned().collect())
    }

    fn pod(&self, pod: &PodUid) -> PodState {
        self.with(|pods| {
            let containers = pods.get(pod).into_iter().flatten();
            let containers =
                containers.map(|(name, runs)| (name.clone(), RunHistory::clone(runs))).collect();
            PodState { containers, ..PodState::default() }
        })
    }

    async fn write_volumes(&self, _: &PodRecord, _: &[Volume]) -> Result<(), RuntimeError> {
        Ok(())
    }

    async fn start(
        &self,
        pod: &PodRecord,
        _: &Pod,
        launch: &LaunchSpec,
    ) -> Result<(), RuntimeError> {
        self.with(|pods| {
            let containers = pods.entry(pod.uid.clone()).or_default();
            let now = Timestamp::now();
            let state = if launch.is_step {
                RunState::Exited(Exit::observed(0, None, now))
            } else {
                RunState::Running { started_at: now }
            };
            let before = containers.get(&launch.container).map(AsRef::as_ref);
            if let Some(runs) = RunHistory::next(before, 0, state, None, launch.stop_signal) {
                containers.insert(launch.container.clone(), Box::new(runs));
            }
        });
        Ok(())
    }

    async fn stop(
        &self,
        pod: &PodUid,
        container: &str,
        request: StopRequest,
    ) -> Result<(), RuntimeError> {
        self.with(|pods| {
            let runs = pods.get_mut(pod).and_then(|pod| pod.get_mut(container));
            let Some(runs) = runs else { return };
            let RunState::Running { started_at } = runs.state else { return };
            let signal = runs.signal_of(request);
            let exit = Exit::observed(128 + signal, Some(signal), started_at);
            runs.state = RunState::Exited(Exit { interrupted: request.interrupts, ..exit });
        });
        Ok(())
    }

    async fn remove(&self, pod: &PodRecord) -> Result<(), RuntimeError> {
        self.with(|pods| pods.remove(&pod.uid));
        Ok(())
    }

    fn log_files(&self, _: &LogQuery) -> io::Result<Vec<PathBuf>> {
        Ok(Vec::new())
    }
}
