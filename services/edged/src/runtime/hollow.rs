//! The hollow runtime: containers that are only counted, for load.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod, PodStatus};

use crate::container::volume::Volume;
use crate::container::{LaunchSpec, WaitReason};
use crate::pod::{PodRecord, PodUid};
use crate::runtime::{
    CommandOutput, Exit, RunHistory, RunState, Runtime, RuntimeError, StopSignal,
};

/// Pods without processes: a start runs at once, a signal ends at once.
#[derive(Debug, Default)]
pub(crate) struct HollowRuntime {
    pods: Mutex<BTreeMap<PodUid, HollowPod>>,
}

#[derive(Debug)]
struct HollowPod {
    record: PodRecord,
    /// Boxed, for a map has room for eleven, and most pods have one container.
    containers: BTreeMap<String, Box<RunHistory>>,
}

impl HollowRuntime {
    fn with<T>(&self, work: impl FnOnce(&mut BTreeMap<PodUid, HollowPod>) -> T) -> T {
        // No code under this lock can panic half-way: the map is whole even if a thread died.
        work(&mut self.pods.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[async_trait]
impl Runtime for HollowRuntime {
    fn version(&self) -> String {
        concat!("hollow://", env!("CARGO_PKG_VERSION")).to_owned()
    }

    fn can_be_probed(&self) -> bool {
        false
    }

    fn accepts(&self, _: &Pod, _: &Container) -> Result<(), WaitReason> {
        Ok(())
    }

    fn environment(&self, _: &PodUid, _: &Pod, _: &str) -> BTreeMap<String, String> {
        BTreeMap::new()
    }

    fn pods(&self) -> Vec<PodRecord> {
        self.with(|pods| pods.values().map(|pod| pod.record.clone()).collect())
    }

    fn containers(&self, pod: &PodUid) -> BTreeMap<String, RunHistory> {
        self.with(|pods| {
            let containers = pods.get(pod).into_iter().flat_map(|pod| &pod.containers);
            containers.map(|(name, runs)| (name.clone(), RunHistory::clone(runs))).collect()
        })
    }

    async fn relist(&self) -> Result<(), RuntimeError> {
        Ok(())
    }

    async fn lay_out(&self, pod: &PodRecord, _: &[Volume]) -> Result<(), RuntimeError> {
        self.with(|pods| {
            pods.entry(pod.uid.clone())
                .or_insert_with(|| HollowPod { record: pod.clone(), containers: BTreeMap::new() });
        });
        Ok(())
    }

    async fn start(&self, pod: &PodRecord, launch: &LaunchSpec) -> Result<(), RuntimeError> {
        self.with(|pods| {
            let Some(pod) = pods.get_mut(&pod.uid) else { return };
            let now = Timestamp::now();
            let state = if launch.is_step {
                RunState::Exited(exit(0, None, now, "Completed", false))
            } else {
                RunState::Running { started_at: now }
            };
            let runs = match pod.containers.remove(&launch.container).map(|runs| *runs) {
                None => RunHistory { attempt: 0, state, previous: None },
                Some(RunHistory { attempt, state: RunState::Exited(exit), .. }) => {
                    RunHistory { attempt: attempt + 1, state, previous: Some(exit) }
                }
                Some(running) => running,
            };
            pod.containers.insert(launch.container.clone(), Box::new(runs));
        });
        Ok(())
    }

    async fn signal(
        &self,
        pod: &PodUid,
        container: &str,
        how: StopSignal,
        interrupted: bool,
    ) -> Result<(), RuntimeError> {
        let signal = match how {
            StopSignal::Terminate => 15,
            StopSignal::Kill => 9,
        };
        self.with(|pods| {
            let runs = pods.get_mut(pod).and_then(|pod| pod.containers.get_mut(container));
            let Some(runs) = runs else { return };
            let RunState::Running { started_at } = runs.state else { return };
            let ended = exit(128 + signal, Some(signal), started_at, "Error", interrupted);
            runs.state = RunState::Exited(ended);
        });
        Ok(())
    }

    async fn exec(
        &self,
        _: &PodUid,
        _: &str,
        _: &[String],
        _: Duration,
    ) -> Result<CommandOutput, RuntimeError> {
        Ok(CommandOutput { code: Some(0), output: String::new() })
    }

    async fn remember(&self, _: &PodUid, _: &PodStatus) -> Result<(), RuntimeError> {
        Ok(())
    }

    fn remembered(&self, _: &PodUid) -> Option<PodStatus> {
        None
    }

    async fn remove(&self, pod: &PodUid) -> Result<(), RuntimeError> {
        self.with(|pods| pods.remove(pod));
        Ok(())
    }
}

fn exit(
    code: i32,
    signal: Option<i32>,
    started_at: Timestamp,
    reason: &str,
    interrupted: bool,
) -> Exit {
    Exit {
        code,
        signal,
        started_at: Some(started_at),
        finished_at: Timestamp::now(),
        reason: reason.to_owned(),
        message: None,
        interrupted,
    }
}
