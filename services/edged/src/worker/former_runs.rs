//! The ends of a pod's containers in a runtime that the node had before.
//!
//! A change of the runtime removes what the former one has of a pod. The ends are durable before that, because no pod worker
//! may have reported them: a pod that had ended by them has ended, and nothing of it runs again. Any other pod starts anew, and
//! its ends are forgotten before that: they stay as they were written first, and the next change of the runtime writes others.
//! An earlier build did not forget them, so they are also forgotten once a pod has containers in this runtime.

use std::collections::BTreeMap;

use headwater_telemetry::error_chain;
use k8s_openapi::api::core::v1::Pod;
use serde::{Deserialize, Serialize};

use super::Worker;
use super::plan::{self, ContainerFacts, Containers, Run};
use crate::container::WaitReason;
use crate::container::termination::StopSignal;
use crate::pod;
use crate::runtime::{Exit, PodState, RunHistory, RunState};

/// The end of a container's latest run in the former runtime.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FormerRun {
    attempt: u32,
    exit: Exit,
}

/// The ends of a pod's containers, by name.
pub(crate) type FormerRuns = BTreeMap<String, FormerRun>;

/// The ends that count for a pod: not those for the machine's sake, and none from before a restart of all its containers,
/// of which `restart` has the latest runs. One that is pending is lost with the runtime: it was not observed.
pub(crate) fn ends_that_count(state: &PodState, restart: &BTreeMap<String, u32>) -> FormerRuns {
    let ends = state.containers.iter().filter_map(|(name, runs)| {
        let exit = match &runs.state {
            RunState::Exited(exit) => exit.clone(),
            RunState::EndPending { started_at } => Exit::unobserved(*started_at),
            RunState::Running { .. } => return None,
        };
        let counts = !exit.interrupted && !is_superseded(name, runs, restart);
        counts.then(|| (name.clone(), FormerRun { attempt: runs.attempt, exit }))
    });
    ends.collect()
}

/// Whether it is not known yet how a run ended whose end [counts](ends_that_count).
pub(crate) fn has_pending_end(state: &PodState, restart: &BTreeMap<String, u32>) -> bool {
    let mut runs = state.containers.iter();
    runs.any(|(name, runs)| runs.is_end_pending() && !is_superseded(name, runs, restart))
}

/// Whether the run is from before the restart of all containers.
fn is_superseded(name: &str, runs: &RunHistory, restart: &BTreeMap<String, u32>) -> bool {
    restart.get(name).is_some_and(|before| runs.attempt <= *before)
}

impl Worker {
    /// Forgets the ends in the former runtime, before a container of the pod starts in this one.
    ///
    /// # Errors
    /// They cannot be removed: the container waits, because the next runtime would take them for those of this one.
    pub(super) async fn forget_former_runs(&mut self) -> Result<(), WaitReason> {
        if self.has_no_former {
            return Ok(());
        }
        let removed = self.shared.store.remove_former_runs(&self.record.uid).await;
        self.has_no_former = removed.is_ok();
        removed.map_err(|error| WaitReason {
            reason: "CreateContainerError",
            message: error_chain(&error),
        })
    }

    /// Forgets the ends in the former runtime of a pod that has containers in this one: an earlier build left them. A pod
    /// that stops for a change of the runtime keeps them, as that change may have been cut off.
    pub(super) async fn forget_superseded_runs(&mut self, state: &PodState) {
        let is_stopping = self.assignment.shutdown.is_some();
        if state.containers.is_empty() || !self.assignment.is_desired || is_stopping {
            return;
        }
        // If they cannot be removed, the next look tries again.
        if let Err(reason) = self.forget_former_runs().await {
            let message = reason.message;
            tracing::debug!(pod = %self.record.key, message, "the ends in a former runtime stay");
        }
    }

    /// Adds the ends in the former runtime to the state of a pod that had ended by them.
    pub(super) fn add_former_runs(&mut self, pod: &Pod, state: &mut PodState) {
        let is_stopping = self.assignment.shutdown.is_some();
        if !state.containers.is_empty() || !self.assignment.is_desired || is_stopping {
            return;
        }
        let (store, uid) = (&self.shared.store, &self.record.uid);
        let runs = self.former.get_or_insert_with(|| {
            let runs = store.former_runs(uid);
            if has_ended(pod, &runs) { runs } else { FormerRuns::new() }
        });
        for (name, run) in &*runs {
            let history = RunHistory {
                attempt: run.attempt,
                sandbox_attempt: state.sandbox_attempt,
                state: RunState::Exited(run.exit.clone()),
                previous: None,
                image_id: None,
                stop_signal: StopSignal::default(),
            };
            state.containers.insert(name.clone(), history);
        }
    }
}

/// Whether the pod had ended for good by these ends.
fn has_ended(pod: &Pod, runs: &FormerRuns) -> bool {
    let restarts_all = pod::all_containers(pod).any(|container| {
        let run = runs.get(&container.name);
        run.is_some_and(|run| pod::restarts_all(container, run.exit.code))
    });
    let facts = runs.iter().map(|(name, run)| {
        let run = Run::Exited { code: run.exit.code, interrupted: false };
        (name.clone(), ContainerFacts { run, ..ContainerFacts::default() })
    });
    let facts: Containers = facts.collect();
    !restarts_all && plan::outcome(pod, &facts).is_some()
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;

    fn runs(code: i32, attempt: u32, interrupted: bool) -> RunHistory {
        let exit = Exit { interrupted, ..Exit::observed(code, None, Timestamp::UNIX_EPOCH) };
        RunHistory {
            attempt,
            sandbox_attempt: 0,
            state: RunState::Exited(exit),
            previous: None,
            image_id: None,
            stop_signal: StopSignal::default(),
        }
    }

    fn state(containers: &[(&str, RunHistory)]) -> PodState {
        let containers = containers.iter().map(|(name, runs)| ((*name).to_owned(), runs.clone()));
        PodState { containers: containers.collect(), ..PodState::default() }
    }

    #[test]
    fn an_end_for_the_sake_of_the_machine_or_before_a_restart_of_all_does_not_count() {
        let running = RunHistory {
            state: RunState::Running { started_at: Timestamp::UNIX_EPOCH },
            ..runs(0, 0, false)
        };
        let state = state(&[
            ("ended", runs(0, 3, false)),
            ("killed", runs(0, 0, true)),
            ("running", running),
            ("before", runs(0, 2, false)),
            ("after", runs(0, 3, false)),
        ]);
        let restart = BTreeMap::from([("before".to_owned(), 2), ("after".to_owned(), 2)]);
        let found = ends_that_count(&state, &restart);
        assert_eq!(found.keys().collect::<Vec<_>>(), ["after", "ended"]);
    }

    #[test]
    fn an_end_that_is_pending_is_awaited_and_counts_as_lost_unless_all_containers_restarted_since()
    {
        let started_at = Some(Timestamp::UNIX_EPOCH);
        let pending =
            RunHistory { state: RunState::EndPending { started_at }, ..runs(0, 2, false) };
        let state = state(&[("ended", runs(0, 3, false)), ("job", pending)]);
        assert!(has_pending_end(&state, &BTreeMap::new()));
        let exit = &ends_that_count(&state, &BTreeMap::new())["job"].exit;
        assert_eq!((exit.code, exit.started_at), (137, started_at));
        assert!(exit.is_unobserved());
        let restart = BTreeMap::from([("job".to_owned(), 2)]);
        assert!(!has_pending_end(&state, &restart));
        assert!(!ends_that_count(&state, &restart).contains_key("job"));
    }

    #[test]
    fn a_pod_has_ended_if_none_of_its_containers_starts_again() {
        let pod = |policy: &str| -> Pod {
            let containers = json!([{"name": "a"}, {"name": "b"}]);
            let spec = json!({"restartPolicy": policy, "containers": containers});
            serde_json::from_value(json!({"spec": spec})).expect("a pod")
        };
        let both = |a: i32, b: i32| state(&[("a", runs(a, 0, false)), ("b", runs(b, 0, false))]);
        let ended = |policy: &str, state: &PodState| {
            has_ended(&pod(policy), &ends_that_count(state, &BTreeMap::new()))
        };
        assert!(ended("Never", &both(0, 1)) && ended("OnFailure", &both(0, 0)));
        assert!(!ended("OnFailure", &both(0, 1)) && !ended("Always", &both(0, 0)));
        assert!(!ended("Never", &state(&[("a", runs(0, 0, false)), ("b", runs(0, 0, true))])));
        assert!(!ended("Never", &PodState::default()));
    }
}
