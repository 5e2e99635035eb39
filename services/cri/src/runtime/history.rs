//! The state of a container's runs, as the pod worker has it.

use headwater_edged::container::termination::StopSignal;
use headwater_edged::pod::PodUid;
use headwater_edged::runtime::{Exit, RunHistory, RunState, UNOBSERVED};

use super::CriRuntime;
use crate::facts::START_ERROR;
use crate::knowledge::{End, Knowledge, Phase, Run};

/// The latest runs of a container that were started.
pub(super) struct LatestRuns {
    pub(super) latest: Run,
    before: Option<Run>,
    /// The number of the sandbox of the latest run.
    sandbox_attempt: u32,
}

impl LatestRuns {
    pub(super) fn of(knowledge: &Knowledge, pod: &PodUid, container: &str) -> Option<Self> {
        let mut runs = knowledge.runs_of(pod, container);
        runs.retain(|(_, run)| run.phase != Phase::Created);
        let (_, latest) = runs.pop()?;
        let sandbox_attempt = knowledge.sandbox(&latest.sandbox).map_or(0, |it| it.attempt);
        let before = runs.pop().map(|(_, run)| run.clone());
        Some(Self { latest: latest.clone(), before, sandbox_attempt })
    }
}

impl CriRuntime {
    /// The state of a container's runs; `None` if none was started.
    pub(super) fn history(&self, runs: LatestRuns) -> Option<RunHistory> {
        let LatestRuns { latest, before, sandbox_attempt } = &runs;
        let exit = |run: &Run, end: &End| self.exit(run, end);
        let previous = before.as_ref().and_then(|run| match &run.phase {
            Phase::Exited(end) => Some(exit(run, end)),
            _ => None,
        });
        let state = match &latest.phase {
            Phase::Running { started_at } => RunState::Running { started_at: *started_at },
            Phase::EndPending { started_at } => RunState::EndPending { started_at: *started_at },
            Phase::Exited(end) => RunState::Exited(exit(latest, end)),
            Phase::Created => return None,
        };
        Some(RunHistory {
            attempt: latest.attempt,
            sandbox_attempt: *sandbox_attempt,
            state,
            previous,
            image_id: latest.image_id.clone(),
            // The runtime knows the signal of the spec or the image, and sends it.
            stop_signal: StopSignal::default(),
        })
    }

    fn exit(&self, run: &Run, end: &End) -> Exit {
        let files = &self.inner.files;
        let log = run.falls_back_to_logs.then_some(run.log.as_path());
        let left = files.message(&run.pod, &run.container, run.attempt, log, end.code == 0);
        let words = Some(end.message.clone()).filter(|words| !words.is_empty());
        let is_marked =
            || files.is_interrupted(&run.pod, &run.container, run.attempt, end.finished_at);
        let interrupted = end.is_interrupted || is_marked();
        // The runtime had lost the state of the run, which was ended therefore: whether it had started is not known.
        let is_lost = interrupted && end.started_at.is_none() && end.reason != START_ERROR;
        let is_unseen = end.is_unseen() || is_lost;
        Exit {
            code: end.code,
            signal: None,
            started_at: end.started_at,
            finished_at: end.finished_at,
            reason: if is_unseen { UNOBSERVED.to_owned() } else { end.reason.clone() },
            message: left.or(words),
            interrupted,
        }
    }
}
