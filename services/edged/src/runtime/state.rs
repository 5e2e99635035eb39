//! The state of a pod in a runtime: its sandbox, its addresses and the runs of its containers.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};

use super::StopRequest;
use crate::container::termination::StopSignal;

/// A pod as its runtime knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodState {
    /// The state of the latest sandbox.
    pub sandbox: SandboxState,
    /// The number of the latest sandbox, from 0.
    pub sandbox_attempt: u32,
    /// The pod's own addresses. Empty if it has none: the node's address is the pod's.
    pub addresses: Vec<IpAddr>,
    /// The containers by name. One that was never started is absent.
    pub containers: BTreeMap<String, RunHistory>,
}

/// The state of a pod's sandbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SandboxState {
    /// There is none.
    #[default]
    None,
    /// Containers can start in it.
    Ready,
    /// It ended by itself, and its containers end with it.
    Lost,
}

/// A container's latest run, and the end of the run before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunHistory {
    /// The number of the latest run, from 0: the container's restart count.
    pub attempt: u32,
    /// The sandbox in which the latest run was started.
    pub sandbox_attempt: u32,
    /// The state of the latest run.
    pub state: RunState,
    /// The end of the run before it.
    pub previous: Option<Exit>,
    /// The id of the image that the latest run uses; `None` if the runtime has no images.
    pub image_id: Option<Arc<str>>,
    /// The signal that asks the latest run to end.
    pub stop_signal: StopSignal,
}

/// The state of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunState {
    /// It runs.
    Running {
        /// The time of its start.
        started_at: Timestamp,
    },
    /// It has ended, and the runtime does not say yet how. Nothing is decided that follows from its end: it is neither stopped nor
    /// started again. After [`END_PENDING_MAX`] the end is a made-up one.
    EndPending {
        /// The time of its start, if it is known.
        started_at: Option<Timestamp>,
    },
    /// It has ended.
    Exited(Exit),
}

/// The end of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// The exit code; 128 + signal for a run that a signal ended.
    pub code: i32,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// The time of its start; unknown for a run that never started.
    pub started_at: Option<Timestamp>,
    /// The time of its end.
    pub finished_at: Timestamp,
    /// One word: `Completed`, `Error`, `StartError`, `ContainerStatusUnknown`.
    pub reason: String,
    /// Details for a person.
    pub message: Option<String>,
    /// The run ended for the machine's sake: the container starts again under any restart
    /// policy.
    #[serde(default)]
    pub interrupted: bool,
}

/// The longest time that an end is pending. It counts from the first list of this process that shows it. A runtime that hangs is
/// restarted within minutes; a damaged status never comes.
pub const END_PENDING_MAX: Duration = Duration::from_mins(5);

/// The exit code of a command that cannot be started, as Docker and containerd report it.
const START_ERROR_CODE: i32 = 128;

/// The exit code of a killed process: 128 + SIGKILL.
const KILLED_CODE: i32 = 137;

/// A kubelet's reason of an end that nothing saw.
pub const UNOBSERVED: &str = "ContainerStatusUnknown";

impl Exit {
    /// Whether the container ended with exit code zero.
    pub fn succeeded(&self) -> bool {
        self.code == 0
    }

    /// The end of a run, now.
    pub(crate) fn observed(code: i32, signal: Option<i32>, started_at: Timestamp) -> Self {
        Self {
            code,
            signal,
            started_at: Some(started_at),
            finished_at: Timestamp::now(),
            reason: if code == 0 { "Completed" } else { "Error" }.to_owned(),
            message: None,
            interrupted: false,
        }
    }

    /// The end of a run that never started.
    pub(crate) fn start_error(message: String) -> Self {
        Self {
            code: START_ERROR_CODE,
            signal: None,
            started_at: None,
            finished_at: Timestamp::now(),
            reason: "StartError".to_owned(),
            message: Some(message),
            interrupted: false,
        }
    }

    /// The end of a run that was not observed, with a kubelet's reason and message.
    pub fn unobserved(started_at: Option<Timestamp>) -> Self {
        Self {
            code: KILLED_CODE,
            signal: None,
            started_at,
            finished_at: Timestamp::now(),
            reason: UNOBSERVED.to_owned(),
            message: Some(
                "The container could not be located when the pod was looked at".to_owned(),
            ),
            interrupted: false,
        }
    }

    /// Whether nothing has seen the end, and its code is made up.
    pub fn is_unobserved(&self) -> bool {
        self.reason == UNOBSERVED
    }
}

impl PodState {
    /// Whether nothing of the pod runs, and it is not known how a container of it ended: the pod may have ended well. That is
    /// known soon, or given up.
    pub(crate) fn awaits_ends(&self) -> bool {
        let runs = || self.containers.values();
        !runs().any(RunHistory::is_running) && runs().any(RunHistory::is_end_pending)
    }
}

impl RunHistory {
    /// The history after a start in sandbox `sandbox_attempt`; `None` if the container runs, or it is not known how it ended.
    pub(crate) fn next(
        before: Option<&Self>,
        sandbox_attempt: u32,
        state: RunState,
        image_id: Option<Arc<str>>,
        stop_signal: StopSignal,
    ) -> Option<Self> {
        let (attempt, previous) = match before {
            None => (0, None),
            Some(Self { attempt, state: RunState::Exited(exit), .. }) => {
                (attempt + 1, Some(exit.clone()))
            }
            Some(Self {
                state: RunState::Running { .. } | RunState::EndPending { .. }, ..
            }) => {
                return None;
            }
        };
        Some(Self { attempt, sandbox_attempt, state, previous, image_id, stop_signal })
    }

    /// The number of the signal that a request to end sends.
    pub(crate) fn signal_of(&self, request: StopRequest) -> i32 {
        if request.kills() { Signal::SIGKILL as i32 } else { self.stop_signal.number() }
    }

    /// Whether the latest run runs.
    pub(crate) fn is_running(&self) -> bool {
        matches!(self.state, RunState::Running { .. })
    }

    /// Whether the latest run has ended, and it is not known yet how.
    pub(crate) fn is_end_pending(&self) -> bool {
        matches!(self.state, RunState::EndPending { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_awaits_ends_only_while_nothing_of_it_runs() {
        let time = Timestamp::now();
        let awaits = |states: &[&RunState]| {
            let run = |state: &RunState| RunHistory {
                attempt: 0,
                sandbox_attempt: 0,
                state: state.clone(),
                previous: None,
                image_id: None,
                stop_signal: StopSignal::default(),
            };
            let runs = states.iter().copied().enumerate();
            let containers = runs.map(|(index, state)| (format!("c{index}"), run(state))).collect();
            PodState { containers, ..PodState::default() }.awaits_ends()
        };
        let pending = RunState::EndPending { started_at: None };
        let running = RunState::Running { started_at: time };
        let ended = RunState::Exited(Exit::observed(0, None, time));
        assert!(awaits(&[&pending, &ended]));
        assert!(!awaits(&[&pending, &running]));
        assert!(!awaits(&[&ended]));
        assert!(!awaits(&[]));
    }
}
