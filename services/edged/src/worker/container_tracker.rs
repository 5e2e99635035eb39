//! What a worker knows of one container beyond the runtime: back-off, probes, hooks, stops.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ContainerStatus;
use tokio::time::Instant;

use super::crash_loop::{CrashLoop, CrashRecord};
use super::plan::{ContainerFacts, Run, Stopping};
use super::probe::Prober;
use super::probe_failure::ProbeFailure;
use super::signal::{ProbeFinding, ProbeKind};
use crate::config::Settings;
use crate::container::WaitReason;
use crate::container::compute_resources::ComputeResources;
use crate::runtime::{Exit, RunHistory, RunState};

/// The state of one container.
#[derive(Debug)]
pub(super) struct ContainerTracker {
    runs: Option<RunHistory>,
    /// The runtime does not have the latest run any more.
    is_lost: bool,
    /// Nor the sandbox of that run.
    is_sandbox_lost: bool,
    /// The image that the spec named when the latest run started.
    image: Option<Arc<str>>,
    /// The CPU and memory of the latest run; `None`: unknown.
    resources: Option<ComputeResources>,
    crash: CrashLoop,
    /// The number of the run whose end the back-off counted last.
    counted: Option<u32>,
    stopping: Option<Stopping>,
    unhealthy: Option<Instant>,
    post_started: bool,
    startup: Gate,
    readiness: Gate,
    probers: Vec<Prober>,
    /// The probes that fail, at most one of a kind. A failed startup or liveness probe stays over a
    /// restart of the container until it succeeds: it is why the container was restarted.
    failures: Vec<ProbeFailure>,
    probe_stage: ProbeStage,
    start_error: Option<(WaitReason, Instant)>,
}

/// The verdict of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gate {
    /// The probe has not succeeded.
    Closed,
    /// The probe has succeeded, or there is none.
    Open,
}

/// The probes of the current run that are active.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProbeStage {
    /// None yet.
    None,
    /// The startup probe.
    Startup,
    /// Readiness and liveness.
    Steady,
}

/// A start that failed for the first time, or that found no runtime, is tried again after this time.
const START_AGAIN: Duration = Duration::from_secs(1);

impl ContainerTracker {
    /// A container that never ran.
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            runs: None,
            is_lost: false,
            is_sandbox_lost: false,
            image: None,
            resources: None,
            crash: CrashLoop::new(settings.backoff_base, settings.backoff_cap),
            counted: None,
            stopping: None,
            unhealthy: None,
            post_started: true,
            startup: Gate::Closed,
            readiness: Gate::Closed,
            probers: Vec::new(),
            failures: Vec::new(),
            probe_stage: ProbeStage::None,
            start_error: None,
        }
    }

    /// Applies the runs that the runtime reports.
    pub(super) fn observe(&mut self, runs: RunHistory, now: Instant) {
        if self.runs.as_ref() == Some(&runs) {
            return;
        }
        let is_found = self.is_lost && runs.is_running();
        let is_new = self.attempt() != Some(runs.attempt);
        if is_new {
            (self.image, self.resources) = (None, None);
        }
        if is_new || is_found {
            (self.is_lost, self.is_sandbox_lost) = (false, false);
        }
        if is_found {
            // The end that was made up is none.
            self.counted = None;
        }
        if is_new || is_found || !runs.is_running() {
            self.stopping = None;
            self.unhealthy = None;
            self.startup = Gate::Closed;
            self.readiness = Gate::Closed;
            self.probe_stage = ProbeStage::None;
            self.probers.clear();
            self.failures.retain(|failure| failure.kind != ProbeKind::Readiness);
        }
        if let RunState::Exited(exit) = &runs.state {
            let ran = exit.started_at.map_or(Duration::ZERO, |started| {
                Duration::try_from(exit.finished_at.duration_since(started)).unwrap_or_default()
            });
            // A runtime may report more of an end later: it is one failure.
            if !exit.interrupted && self.counted != Some(runs.attempt) {
                self.crash.ended(now, ran);
                self.counted = Some(runs.attempt);
            }
        }
        self.runs = Some(runs);
        self.start_error = None;
    }

    /// The runs of a container that the runtime does not have any more, if it is not known how the latest one ended, or if its
    /// sandbox is lost, too, or the runtime shows the run before it (`has_earlier`). Nothing will show how a run ended that ran, or whose end was pending: its end stays the one that is
    /// made up now.
    pub(super) fn lost_runs(
        &mut self,
        is_sandbox_lost: bool,
        has_earlier: bool,
    ) -> Option<RunHistory> {
        let runs = self.runs.as_ref()?;
        let made_up = |started_at| RunState::Exited(Exit::unobserved(started_at));
        let is_kept =
            |exit: &Exit| is_sandbox_lost || has_earlier || self.is_lost || exit.is_unobserved();
        let state = match &runs.state {
            RunState::Running { started_at } => made_up(Some(*started_at)),
            RunState::EndPending { started_at } => made_up(*started_at),
            RunState::Exited(exit) if is_kept(exit) => runs.state.clone(),
            RunState::Exited(_) => return None,
        };
        let lost = RunHistory { state, ..runs.clone() };
        self.is_lost = true;
        self.is_sandbox_lost |= is_sandbox_lost;
        Some(lost)
    }

    /// Continues from the status that an earlier worker reported of the latest run: the restart of
    /// the worker changes nothing about the container, nor about the probes of it that fail.
    pub(super) fn adopt(&mut self, status: &ContainerStatus, failures: Vec<ProbeFailure>) {
        if !self.is_running() {
            return;
        }
        let gate = |is_open: bool| if is_open { Gate::Open } else { Gate::Closed };
        self.startup = gate(status.started == Some(true));
        self.readiness = gate(status.ready);
        self.set_image(&status.image);
        self.failures = failures;
    }

    /// Applies the runs that the runtime reports, with the wait in which an earlier worker left the container.
    pub(super) fn resume(
        &mut self,
        record: &CrashRecord,
        runs: RunHistory,
        now: Instant,
        time: Timestamp,
    ) {
        let wait = record.wait();
        let is_counted = runs.attempt == record.attempt;
        let past = match &runs.state {
            RunState::Exited(exit) if is_counted => {
                Duration::try_from(time.duration_since(exit.finished_at)).unwrap_or_default()
            }
            // The earlier worker knew its end, which is pending for this one: the wait begins anew.
            RunState::EndPending { .. } if is_counted => Duration::ZERO,
            _ => wait,
        };
        let has_ended = !matches!(runs.state, RunState::Running { .. });
        self.crash.resume(wait, wait.saturating_sub(past), now);
        self.counted = Some(record.attempt);
        if is_counted && has_ended {
            // The end of this run was counted.
            self.runs = Some(runs);
        } else {
            self.observe(runs, now);
        }
    }

    /// The wait of the container for the next worker, if it has failed. A container that ended well, as an init
    /// container does, starts at once there.
    pub(super) fn crash_record(&self) -> Option<CrashRecord> {
        let state = self.runs.as_ref().map(|runs| &runs.state);
        if matches!(state, Some(RunState::Exited(exit)) if exit.succeeded()) {
            return None;
        }
        let (attempt, wait) = (self.counted?, self.crash.wait()?);
        Some(CrashRecord { attempt, wait_ms: u64::try_from(wait.as_millis()).unwrap_or(u64::MAX) })
    }

    /// Records the image of the latest run.
    pub(super) fn set_image(&mut self, image: &str) {
        if self.image.as_deref() != Some(image) {
            self.image = Some(image.into());
        }
    }

    /// Records the CPU and the memory of the latest run.
    pub(super) fn set_resources(&mut self, resources: ComputeResources) {
        self.resources = Some(resources);
    }

    /// The CPU and the memory of the latest run, where they are known.
    pub(super) fn resources(&self) -> Option<ComputeResources> {
        self.resources
    }

    /// Whether the latest run is known to have another image.
    pub(super) fn has_other_image(&self, image: &str) -> bool {
        self.image.as_deref().is_some_and(|runs| runs != image)
    }

    /// Forgets the failures of runs with another image than this one, as under a kubelet.
    pub(super) fn forget_failures_of_other_image(&mut self, image: &str) {
        if self.has_other_image(image) {
            self.crash.reset();
        }
    }

    /// The facts for the planner.
    pub(super) fn facts(&self, now: Instant) -> ContainerFacts {
        let run = match self.runs.as_ref().map(|runs| &runs.state) {
            None => Run::Never,
            Some(RunState::Running { .. }) => Run::Running,
            Some(RunState::EndPending { .. }) => Run::EndPending,
            Some(RunState::Exited(exit)) => {
                Run::Exited { code: exit.code, interrupted: exit.interrupted }
            }
        };
        ContainerFacts {
            run,
            in_earlier_sandbox: self.is_sandbox_lost,
            started: self.is_started(),
            unhealthy: self.unhealthy,
            stopping: self.stopping,
            blocked: self.crash.blocked(now),
            refused: self.start_error.as_ref().map(|(reason, _)| reason.clone()),
            retry_at: self.start_error.as_ref().map(|(_, at)| *at),
            run_image: self.image.clone(),
            ..ContainerFacts::default()
        }
    }

    /// The number of the latest run.
    pub(super) fn attempt(&self) -> Option<u32> {
        self.runs.as_ref().map(|runs| runs.attempt)
    }

    /// Whether the latest run runs.
    pub(super) fn is_running(&self) -> bool {
        self.runs.as_ref().is_some_and(RunHistory::is_running)
    }

    /// Whether the latest run is past its startup probe and postStart hook.
    pub(super) fn is_started(&self) -> bool {
        self.is_running() && self.post_started && self.startup == Gate::Open
    }

    /// Whether the container is ready.
    pub(super) fn is_ready(&self) -> bool {
        self.is_started() && self.readiness == Gate::Open && self.unhealthy.is_none()
    }

    /// Whether the readiness probe has succeeded, in this worker or in an earlier one.
    pub(super) fn is_readiness_open(&self) -> bool {
        self.readiness == Gate::Open
    }

    /// The time that the latest run has run by `now`; zero if it does not run.
    pub(super) fn age(&self, now: Timestamp) -> Duration {
        match self.runs.as_ref().map(|runs| &runs.state) {
            Some(RunState::Running { started_at }) => {
                Duration::try_from(now.duration_since(*started_at)).unwrap_or_default()
            }
            _ => Duration::ZERO,
        }
    }

    /// Whether the container was ever started.
    pub(super) fn has_run(&self) -> bool {
        self.runs.is_some()
    }

    /// The time by which the latest run has to end, because a probe or hook failed.
    pub(super) fn unhealthy(&self) -> Option<Instant> {
        self.unhealthy
    }

    /// The active probes.
    pub(super) fn probe_stage(&self) -> ProbeStage {
        self.probe_stage
    }

    /// Records that the probes of a stage were started. The gate of a missing probe is open.
    pub(super) fn set_probes(&mut self, stage: ProbeStage, probers: Vec<Prober>, gate: Gate) {
        self.probe_stage = stage;
        self.probers = probers;
        match stage {
            ProbeStage::Startup => self.startup = gate,
            ProbeStage::Steady => self.readiness = gate,
            ProbeStage::None => {}
        }
    }

    /// Records a finding of a probe. A failed startup or liveness probe ends the run by `deadline`.
    pub(super) fn set_finding(
        &mut self,
        attempt: u32,
        kind: ProbeKind,
        finding: ProbeFinding,
        deadline: Instant,
    ) {
        if self.attempt() != Some(attempt) || !self.is_running() {
            return;
        }
        let failure = match (kind, finding) {
            (ProbeKind::Startup, ProbeFinding::Healthy) => {
                self.startup = Gate::Open;
                None
            }
            (ProbeKind::Readiness, ProbeFinding::Healthy) => {
                self.readiness = Gate::Open;
                None
            }
            (ProbeKind::Liveness, ProbeFinding::Healthy) => None,
            (ProbeKind::Readiness, ProbeFinding::Unhealthy(failure)) => {
                self.readiness = Gate::Closed;
                Some(failure)
            }
            (ProbeKind::Startup | ProbeKind::Liveness, ProbeFinding::Unhealthy(failure)) => {
                self.unhealthy.get_or_insert(deadline);
                Some(failure)
            }
            // The gate is open if an earlier worker saw the probe succeed.
            (_, ProbeFinding::StillFailing(_)) if self.is_ready() => return,
            (_, ProbeFinding::StillFailing(failure)) => Some(failure),
        };
        self.failures.retain(|failure| failure.kind != kind);
        self.failures.extend(failure);
        self.failures.sort_unstable_by_key(|failure| failure.kind);
    }

    /// The probe of this kind, if it fails.
    pub(super) fn failure(&self, kind: ProbeKind) -> Option<&ProbeFailure> {
        self.failures.iter().find(|failure| failure.kind == kind)
    }

    /// The probes that fail while the container is not ready.
    pub(super) fn failing_probes(&self) -> &[ProbeFailure] {
        if self.is_ready() { &[] } else { &self.failures }
    }

    /// Records a start. With a postStart hook the container counts as started when the hook has
    /// ended.
    pub(super) fn begin_post_start(&mut self, pending: bool) {
        self.post_started = !pending;
    }

    /// Records the end of the postStart hook. A failed one ends the run by `deadline`.
    pub(super) fn end_post_start(&mut self, attempt: u32, succeeded: bool, deadline: Instant) {
        if self.attempt() != Some(attempt) || !self.is_running() {
            return;
        }
        self.post_started = succeeded;
        if !succeeded {
            self.unhealthy.get_or_insert(deadline);
        }
    }

    /// Records the end of the preStop hook.
    pub(super) fn end_pre_stop(&mut self, attempt: u32) {
        if self.attempt() == Some(attempt)
            && matches!(self.stopping, Some(Stopping::PreStop { .. }))
        {
            self.stopping = Some(Stopping::PreStop { done: true });
        }
    }

    /// Records a step of the container's end, and ends its probes.
    pub(super) fn set_stopping(&mut self, stopping: Stopping) {
        self.stopping = Some(stopping);
        self.probers.clear();
        self.readiness = Gate::Closed;
    }

    /// Records a failed start, which is tried again after the container's back-off.
    pub(super) fn fail_start(&mut self, reason: WaitReason, now: Instant) {
        self.crash.ended(now, Duration::ZERO);
        let retry_at = self.crash.blocked(now).map_or(now + START_AGAIN, |(until, _)| until);
        self.start_error = Some((reason, retry_at));
    }

    /// Records a start that found no runtime. The container has not failed: its back-off stays as it is.
    pub(super) fn put_off_start(&mut self, reason: WaitReason, now: Instant) {
        self.start_error = Some((reason, now + START_AGAIN));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::container::termination::StopSignal;

    fn runs(attempt: u32, state: RunState) -> RunHistory {
        RunHistory {
            attempt,
            sandbox_attempt: 0,
            state,
            previous: None,
            image_id: None,
            stop_signal: StopSignal::default(),
        }
    }

    #[test]
    fn a_pending_end_is_no_failure_and_no_run_and_counts_once_when_it_is_known() {
        let (now, time) = (Instant::now(), Timestamp::now());
        let mut tracker = ContainerTracker::new(&Settings::default());
        // The first failure has no wait.
        tracker.observe(runs(0, RunState::Exited(Exit::observed(1, None, time))), now);
        tracker.observe(runs(1, RunState::Running { started_at: time }), now);
        tracker.set_probes(ProbeStage::Startup, Vec::new(), Gate::Open);
        assert!(tracker.is_started());
        tracker.observe(runs(1, RunState::EndPending { started_at: Some(time) }), now);
        assert!(!tracker.is_running() && !tracker.is_started());
        assert_eq!(tracker.facts(now).run, Run::EndPending);
        assert_eq!((tracker.facts(now).blocked, tracker.probe_stage()), (None, ProbeStage::None));
        let ended = runs(1, RunState::Exited(Exit::observed(3, None, time)));
        for _ in 0..2 {
            tracker.observe(ended.clone(), now);
            assert_eq!(tracker.facts(now).run, Run::Exited { code: 3, interrupted: false });
            let wait = tracker.facts(now).blocked.map(|(_, wait)| wait.as_secs());
            assert_eq!(wait, Some(10), "one more failure");
        }
    }

    #[test]
    fn an_end_that_nothing_saw_is_made_up_once_the_runtime_has_the_run_no_more() {
        let (now, time) = (Instant::now(), Timestamp::now());
        let running = RunState::Running { started_at: time };
        let pending = RunState::EndPending { started_at: Some(time) };
        for unseen in [running, pending] {
            let mut tracker = ContainerTracker::new(&Settings::default());
            assert_eq!(tracker.lost_runs(false, false), None);
            tracker.observe(runs(0, unseen), now);
            let lost = tracker.lost_runs(false, false).expect("nothing says how it ended");
            let RunState::Exited(exit) = &lost.state else { panic!("it has ended: {lost:?}") };
            assert_eq!((exit.code, exit.reason.as_str()), (137, "ContainerStatusUnknown"));
            assert!(!exit.interrupted && exit.started_at == Some(time));
            tracker.observe(lost.clone(), now);
            assert_eq!(tracker.lost_runs(false, false), Some(lost), "it stays the same end");
            // An earlier worker has reported another one.
            let reported = runs(0, RunState::Exited(Exit::observed(3, None, time)));
            tracker.observe(reported.clone(), now);
            assert_eq!(tracker.lost_runs(false, false), Some(reported));
            tracker.observe(runs(1, RunState::Exited(Exit::observed(0, None, time))), now);
            assert_eq!(tracker.lost_runs(false, false), None);
        }
    }

    #[test]
    fn a_run_whose_sandbox_is_lost_keeps_its_end_and_was_in_an_earlier_sandbox() {
        let (now, time) = (Instant::now(), Timestamp::now());
        let mut tracker = ContainerTracker::new(&Settings::default());
        assert_eq!(tracker.lost_runs(true, false), None);
        assert!(!tracker.facts(now).in_earlier_sandbox, "it never ran");
        let done = runs(3, RunState::Exited(Exit::observed(0, None, time)));
        tracker.observe(done.clone(), now);
        assert_eq!(tracker.lost_runs(true, false), Some(done.clone()));
        assert!(tracker.facts(now).in_earlier_sandbox);
        // Another one is open.
        assert_eq!(tracker.lost_runs(false, false), Some(done));
        assert!(tracker.facts(now).in_earlier_sandbox);
        tracker.observe(runs(4, RunState::Running { started_at: time }), now);
        assert!(!tracker.facts(now).in_earlier_sandbox);
    }

    #[test]
    fn a_lost_run_stays_though_the_runtime_has_the_one_before_it() {
        let (now, time) = (Instant::now(), Timestamp::now());
        let mut tracker = ContainerTracker::new(&Settings::default());
        let done = runs(1, RunState::Exited(Exit::observed(0, None, time)));
        tracker.observe(done.clone(), now);
        assert_eq!(tracker.lost_runs(false, true), Some(done));
        tracker.observe(runs(2, RunState::Running { started_at: time }), now);
        let lost = tracker.lost_runs(false, true).expect("nothing says how it ended");
        assert_eq!(lost.attempt, 2);
        assert!(matches!(&lost.state, RunState::Exited(exit) if exit.is_unobserved()));
    }

    #[test]
    fn a_lost_run_that_the_runtime_has_again_runs() {
        let (now, time) = (Instant::now(), Timestamp::now());
        let running = || runs(0, RunState::Running { started_at: time });
        let mut tracker = ContainerTracker::new(&Settings::default());
        tracker.observe(running(), now);
        let lost = tracker.lost_runs(true, false).expect("nothing says how it ended");
        tracker.observe(lost, now);
        tracker.observe(running(), now);
        assert!(tracker.is_running() && !tracker.facts(now).in_earlier_sandbox);
        let exit = RunState::Exited(Exit::observed(0, None, time));
        tracker.observe(runs(0, exit), now);
        assert_eq!(tracker.lost_runs(false, false), None, "it is not lost any more");
    }

    #[test]
    fn a_wait_whose_end_is_pending_for_the_next_worker_begins_anew_and_counts_once() {
        let (now, time) = (Instant::now(), Timestamp::now());
        let mut tracker = ContainerTracker::new(&Settings::default());
        let record = CrashRecord { attempt: 5, wait_ms: 300_000 };
        let pending = runs(5, RunState::EndPending { started_at: None });
        tracker.resume(&record, pending, now, time);
        let whole = Some((now + record.wait(), record.wait()));
        assert_eq!((tracker.facts(now).run, tracker.facts(now).blocked), (Run::EndPending, whole));
        assert_eq!(
            tracker.crash_record(),
            Some(record.clone()),
            "so it is for the worker after it"
        );
        tracker.observe(runs(5, RunState::Exited(Exit::observed(1, None, time))), now);
        assert_eq!(tracker.facts(now).blocked, whole, "it was counted");
        // A run that the earlier worker did not know ended is one more.
        let mut tracker = ContainerTracker::new(&Settings::default());
        let pending = runs(6, RunState::EndPending { started_at: None });
        tracker.resume(&record, pending, now, time);
        assert_eq!(tracker.facts(now).blocked, None);
        tracker.observe(runs(6, RunState::Exited(Exit::observed(1, None, time))), now);
        assert_eq!(tracker.facts(now).blocked, whole);
    }

    #[test]
    fn a_start_that_found_no_runtime_is_tried_again_soon_and_is_no_failure() {
        let now = Instant::now();
        let reason = || WaitReason { reason: "CreateContainerError", message: "away".to_owned() };
        let mut tracker = ContainerTracker::new(&Settings::default());
        for _ in 0..5 {
            tracker.put_off_start(reason(), now);
            let facts = tracker.facts(now);
            assert_eq!((facts.retry_at, facts.blocked), (Some(now + START_AGAIN), None));
        }
        // The back-off begins with the first failure, which has no wait.
        tracker.fail_start(reason(), now);
        assert_eq!(tracker.facts(now).retry_at, Some(now + START_AGAIN));
        tracker.fail_start(reason(), now);
        let (until, _) = tracker.facts(now).blocked.expect("the second failure");
        assert_eq!(tracker.facts(now).retry_at, Some(until));
    }

    #[test]
    fn an_end_of_which_more_is_known_later_is_one_failure() {
        let (now, time) = (Instant::now(), Timestamp::now());
        let mut tracker = ContainerTracker::new(&Settings::default());
        let mut waits = Vec::new();
        for attempt in 0..4 {
            // First by its event, then by its status, which has words and another time.
            for message in [None, Some("more".to_owned())] {
                let exit = Exit {
                    finished_at: time + Duration::from_millis(message.iter().count() as u64),
                    message,
                    ..Exit::observed(1, None, time)
                };
                tracker.observe(runs(attempt, RunState::Exited(exit)), now);
            }
            waits.push(tracker.facts(now).blocked.map_or(0, |(_, wait)| wait.as_secs()));
        }
        assert_eq!(waits, [0, 10, 20, 40]);
    }
}
