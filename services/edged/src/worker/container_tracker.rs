//! What a worker remembers of one container beyond what the runtime knows.

use std::time::Duration;

use tokio::time::Instant;

use super::crash_loop::CrashLoop;
use super::plan::{ContainerFacts, Run, Stopping};
use super::probe::Prober;
use super::signal::ProbeKind;
use crate::config::Settings;
use crate::container::WaitReason;
use crate::runtime::{RunHistory, RunState};

/// One container.
#[derive(Debug)]
pub(super) struct ContainerTracker {
    runs: Option<RunHistory>,
    crash: CrashLoop,
    stopping: Option<Stopping>,
    unhealthy: Option<Instant>,
    post_started: bool,
    startup: Gate,
    readiness: Gate,
    probers: Vec<Prober>,
    probing: ProbeStage,
    start_error: Option<(WaitReason, Instant)>,
}

/// A probe's verdict, once it is known whether there is a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gate {
    /// Not passed.
    Closed,
    /// Passed, or there is nothing to pass.
    Open,
}

/// Which probes of the current run are at work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProbeStage {
    /// None yet.
    Nothing,
    /// The startup probe.
    Startup,
    /// Readiness and liveness.
    Steady,
}

impl ContainerTracker {
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            runs: None,
            crash: CrashLoop::new(settings.backoff_base, settings.backoff_cap),
            stopping: None,
            unhealthy: None,
            post_started: true,
            startup: Gate::Closed,
            readiness: Gate::Closed,
            probers: Vec::new(),
            probing: ProbeStage::Nothing,
            start_error: None,
        }
    }

    /// Takes in what the runtime knows.
    pub(super) fn observe(&mut self, runs: RunHistory, now: Instant) {
        if self.runs.as_ref() == Some(&runs) {
            return;
        }
        let is_new = self.attempt() != Some(runs.attempt);
        if is_new || matches!(runs.state, RunState::Exited(_)) {
            self.stopping = None;
            self.unhealthy = None;
            self.startup = Gate::Closed;
            self.readiness = Gate::Closed;
            self.probing = ProbeStage::Nothing;
            self.probers.clear();
        }
        if let RunState::Exited(exit) = &runs.state {
            let ran = exit.started_at.map_or(Duration::ZERO, |started| {
                Duration::try_from(exit.finished_at.duration_since(started)).unwrap_or_default()
            });
            if !exit.interrupted {
                self.crash.ended(now, ran);
            }
        }
        self.runs = Some(runs);
        self.start_error = None;
    }

    /// As the planner sees it.
    pub(super) fn view(&self, now: Instant) -> ContainerFacts {
        let run = match self.runs.as_ref().map(|runs| &runs.state) {
            None => Run::Never,
            Some(RunState::Running { .. }) => Run::Running,
            Some(RunState::Exited(exit)) => {
                Run::Exited { succeeded: exit.succeeded(), interrupted: exit.interrupted }
            }
        };
        ContainerFacts {
            run,
            started: self.is_started(),
            unhealthy: self.unhealthy,
            stopping: self.stopping,
            blocked: self.crash.blocked(now),
            refused: self.start_error.as_ref().map(|(waiting, _)| waiting.clone()),
            retry_at: self.start_error.as_ref().map(|(_, at)| *at),
        }
    }

    pub(super) fn attempt(&self) -> Option<u32> {
        self.runs.as_ref().map(|runs| runs.attempt)
    }

    pub(super) fn is_running(&self) -> bool {
        self.runs.as_ref().is_some_and(|runs| matches!(runs.state, RunState::Running { .. }))
    }

    pub(super) fn is_started(&self) -> bool {
        self.is_running() && self.post_started && self.startup == Gate::Open
    }

    pub(super) fn is_ready(&self) -> bool {
        self.is_started() && self.readiness == Gate::Open && self.unhealthy.is_none()
    }

    pub(super) fn probing(&self) -> ProbeStage {
        self.probing
    }

    /// Probes of the current run were started; a gate without a probe is open.
    pub(super) fn probes_started(&mut self, stage: ProbeStage, probers: Vec<Prober>, gate: Gate) {
        self.probing = stage;
        self.probers = probers;
        match stage {
            ProbeStage::Startup => self.startup = gate,
            ProbeStage::Steady => self.readiness = gate,
            ProbeStage::Nothing => {}
        }
    }

    /// A verdict changed. A failed startup or liveness probe ends the run by `deadline`.
    pub(super) fn probed(
        &mut self,
        attempt: u32,
        kind: ProbeKind,
        healthy: bool,
        deadline: Instant,
    ) {
        if self.attempt() != Some(attempt) || !self.is_running() {
            return;
        }
        match (kind, healthy) {
            (ProbeKind::Startup, true) => self.startup = Gate::Open,
            (ProbeKind::Readiness, true) => self.readiness = Gate::Open,
            (ProbeKind::Readiness, false) => self.readiness = Gate::Closed,
            (ProbeKind::Liveness, true) => {}
            (ProbeKind::Startup | ProbeKind::Liveness, false) => {
                self.unhealthy.get_or_insert(deadline);
            }
        }
    }

    /// A start with a hook: the container counts as started once the hook has ended.
    pub(super) fn post_start_pending(&mut self, pending: bool) {
        self.post_started = !pending;
    }

    pub(super) fn post_started(&mut self, attempt: u32, succeeded: bool, deadline: Instant) {
        if self.attempt() != Some(attempt) || !self.is_running() {
            return;
        }
        self.post_started = succeeded;
        if !succeeded {
            self.unhealthy.get_or_insert(deadline);
        }
    }

    pub(super) fn pre_stopped(&mut self, attempt: u32) {
        if self.attempt() == Some(attempt)
            && matches!(self.stopping, Some(Stopping::PreStop { .. }))
        {
            self.stopping = Some(Stopping::PreStop { done: true });
        }
    }

    pub(super) fn stopping(&mut self, how: Stopping) {
        self.stopping = Some(how);
        // Nobody asks a container that ends how it is.
        self.probers.clear();
        self.readiness = Gate::Closed;
    }

    /// A start failed; it is tried again at `retry_at`.
    pub(super) fn start_failed(&mut self, waiting: WaitReason, now: Instant) {
        self.crash.ended(now, Duration::ZERO);
        let retry_at = self.crash.blocked(now).map_or(now + START_AGAIN, |(until, _)| until);
        self.start_error = Some((waiting, retry_at));
    }
}

/// A start that failed for the first time is tried again after this.
const START_AGAIN: Duration = Duration::from_secs(1);
