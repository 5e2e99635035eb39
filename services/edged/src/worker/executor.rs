//! Carrying out what the planner said: the thin half of a worker.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, LifecycleHandler, Pod};
use tokio::time::Instant;
use tracing::{Instrument, Span};

use super::container_tracker::{ContainerTracker, Gate, ProbeStage};
use super::handler::{Handler, Target};
use super::plan::{Action, Fate, Stopping};
use super::probe;
use super::signal::{ProbeKind, Signal};
use super::{Worker, container_of};
use crate::container::WaitReason;
use crate::error_chain::error_chain;
use crate::metrics::RuntimeAction;
use crate::pod;
use crate::runtime::{RuntimeError, StopSignal};

/// What an action led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepOutcome {
    /// Something changed: look again.
    Again,
    /// What follows will be told, or is waited for.
    Wait,
    /// The pod is forgotten.
    Finished,
}

/// A step that a file stood in the way of is tried again after this.
const RETRY: Duration = Duration::from_secs(2);

/// A container that could not be signalled is signalled again after this.
const SIGNAL_RETRY: Duration = Duration::from_millis(100);

/// A postStart hook has no limit under a kubelet; this bounds one that hangs.
const POST_START_MAX: Duration = Duration::from_mins(10);

impl Worker {
    /// Carries out one action.
    pub(super) async fn act(&mut self, action: &Action, pod: &Pod, fate: Fate) -> StepOutcome {
        match action {
            Action::Start(name) => self.start(pod, name).await,
            Action::PreStop(name) => self.pre_stop(pod, name, fate),
            Action::Terminate(name) => self.signal(name, StopSignal::Terminate).await,
            Action::Kill(name) => self.signal(name, StopSignal::Kill).await,
            Action::AskDelete => {
                let trace = self.trace.clone();
                self.shared.reporter.delete(&self.record.key, &self.record.uid, trace).await;
                StepOutcome::Wait
            }
            Action::CleanUp => self.clean_up().await,
            Action::Leave => StepOutcome::Finished,
        }
    }

    /// Lays changed volumes out, so that running containers see them.
    pub(super) async fn update_volumes(&mut self) {
        let failed_lately = self.layout_error.as_ref().is_some_and(|(_, at)| Instant::now() < *at);
        let is_due = self.missing.is_none() && !self.is_laid_out;
        if !is_due || self.ended.is_some() || failed_lately {
            return;
        }
        let Ok(_permit) = self.shared.adding.acquire().await else { return };
        let (span, began) = (self.span("pod lay out"), Instant::now());
        let laid_out = self.shared.runtime.lay_out(&self.record, &self.volumes);
        let laid_out = laid_out.instrument(span.clone()).await;
        self.shared.metrics.acted(RuntimeAction::LayOut, began.elapsed(), &laid_out);
        match laid_out {
            Ok(()) => {
                go_on(&mut self.trace, &span);
                self.is_laid_out = true;
                self.layout_error = None;
            }
            Err(error) => {
                let message = error_chain(&error);
                tracing::warn!(pod = %self.record.key, message, "volumes cannot be laid out");
                let waiting = WaitReason { reason: "ContainerCreating", message };
                self.layout_error = Some((waiting, Instant::now() + RETRY));
            }
        }
    }

    async fn start(&mut self, pod: &Pod, name: &str) -> StepOutcome {
        let Ok(permit) = self.shared.adding.acquire().await else { return StepOutcome::Wait };
        let Some(container) = container_of(pod, name) else { return StepOutcome::Wait };
        let launch = match self.launch(pod, container) {
            Ok(launch) => launch,
            Err(waiting) => {
                self.refused.insert(name.to_owned(), waiting);
                return StepOutcome::Again;
            }
        };
        let again = self.tracked.get(name).and_then(|tracked| tracked.attempt()).is_some();
        // A container that fails by itself is no part of what brought the pod here.
        let span = if again { Span::none() } else { self.span("pod start") };
        let began = Instant::now();
        let starting = self.shared.runtime.start(&self.record, &launch);
        let result = starting.instrument(span.clone()).await;
        drop(permit);
        let now = Instant::now();
        self.shared.metrics.acted(
            RuntimeAction::Start,
            now.saturating_duration_since(began),
            &result,
        );
        go_on(&mut self.trace, &span);
        let settings = &self.shared.settings;
        let new = || Box::new(ContainerTracker::new(settings));
        let tracked = self.tracked.entry(name.to_owned()).or_insert_with(new);
        // A run that ended before it began is told by the runtime like any other.
        if let Err(error) = result {
            let message = error_chain(&error);
            tracing::warn!(pod = %self.record.key, container = name, message, "a start failed");
            if !matches!(error, RuntimeError::Start { .. }) {
                let waiting = WaitReason { reason: "CreateContainerError", message };
                tracked.start_failed(waiting, now);
            }
            return StepOutcome::Again;
        }
        self.shared.metrics.started(again);
        if let Some(runs) = self.shared.runtime.containers(&self.record.uid).remove(name) {
            tracked.observe(runs, now);
        }
        self.post_start(container);
        StepOutcome::Again
    }

    fn post_start(&mut self, container: &Container) {
        let hook = container.lifecycle.as_ref().and_then(|hooks| hooks.post_start.as_ref());
        let hook = self.hook(hook);
        let target = self.target(container);
        let Some(tracked) = self.tracked.get_mut(&container.name) else { return };
        tracked.post_start_pending(hook.is_some());
        let (Some(hook), Some(attempt)) = (hook, tracked.attempt()) else { return };
        let signals = self.signals.clone();
        let container = container.name.clone();
        tokio::spawn(async move {
            let result = hook.run(&target, POST_START_MAX).await;
            let signal = Signal::PostStart { container, attempt, result };
            let _ = signals.send(Box::new(signal)).await;
        });
    }

    fn pre_stop(&mut self, pod: &Pod, name: &str, fate: Fate) -> StepOutcome {
        let container = container_of(pod, name);
        let hook = container.and_then(|c| c.lifecycle.as_ref()?.pre_stop.as_ref());
        let hook = self.hook(hook);
        let target = container.map(|container| self.target(container));
        let timeout = match fate {
            Fate::End { deadline, .. } => deadline.saturating_duration_since(Instant::now()),
            Fate::Run => pod::grace(pod),
        };
        let Some(tracked) = self.tracked.get_mut(name) else { return StepOutcome::Wait };
        let (Some(hook), Some(target), Some(attempt)) = (hook, target, tracked.attempt()) else {
            tracked.stopping(Stopping::PreStop { done: true });
            return StepOutcome::Again;
        };
        tracked.stopping(Stopping::PreStop { done: false });
        let signals = self.signals.clone();
        let container = name.to_owned();
        let pod = self.record.key.clone();
        tokio::spawn(async move {
            if let Err(message) = hook.run(&target, timeout).await {
                tracing::warn!(%pod, container, message, "a preStop hook failed");
            }
            let _ = signals.send(Box::new(Signal::PreStop { container, attempt })).await;
        });
        StepOutcome::Wait
    }

    async fn signal(&mut self, name: &str, how: StopSignal) -> StepOutcome {
        let Ok(_permit) = self.shared.removing.acquire().await else { return StepOutcome::Wait };
        let interrupted = self.intent.shutdown.is_some();
        // That the machine stops is no part of what brought the pod here.
        let span = if interrupted { Span::none() } else { self.span("pod stop") };
        let began = Instant::now();
        let runtime = &self.shared.runtime;
        let signalling = runtime.signal(&self.record.uid, name, how, interrupted);
        let result = signalling.instrument(span.clone()).await;
        let since = Instant::now();
        self.shared.metrics.acted(
            RuntimeAction::Signal,
            since.saturating_duration_since(began),
            &result,
        );
        go_on(&mut self.trace, &span);
        if let Err(error) = result {
            // It has ended by now, which is told, or is not quite there yet.
            tracing::debug!(pod = %self.record.key, container = name, %error, "no signal sent");
            self.retry_at = Some(since + SIGNAL_RETRY);
            return StepOutcome::Wait;
        }
        if let Some(tracked) = self.tracked.get_mut(name) {
            tracked.stopping(match how {
                StopSignal::Terminate => Stopping::Terminated { since },
                StopSignal::Kill => Stopping::Killed { since },
            });
        }
        StepOutcome::Again
    }

    async fn clean_up(&mut self) -> StepOutcome {
        let Ok(_permit) = self.shared.removing.acquire().await else { return StepOutcome::Wait };
        let (span, began) = (self.span("pod clean up"), Instant::now());
        let removed = self.shared.runtime.remove(&self.record.uid).instrument(span).await;
        self.shared.metrics.acted(RuntimeAction::CleanUp, began.elapsed(), &removed);
        match removed {
            Ok(()) => {
                self.shared.reporter.forget(&self.record.uid).await;
                StepOutcome::Finished
            }
            Err(error) => {
                let message = error_chain(&error);
                tracing::warn!(pod = %self.record.key, message, "a pod cannot be cleaned up yet");
                self.retry_at = Some(Instant::now() + RETRY);
                StepOutcome::Wait
            }
        }
    }

    /// Starts the probes that are due: the startup probe first, then the others.
    pub(super) fn start_probes(&mut self, pod: &Pod) {
        let can_be_probed = self.shared.runtime.can_be_probed();
        for container in pod::all_containers(pod) {
            let target = self.target(container);
            let Some(tracked) = self.tracked.get_mut(&container.name) else { continue };
            let Some(attempt) = tracked.attempt() else { continue };
            let start = |kind| {
                let signals = self.signals.clone();
                let start = || probe::start(kind, container, &target, attempt, signals);
                can_be_probed.then(start).flatten()
            };
            let gate = |closed: bool| if closed { Gate::Closed } else { Gate::Open };
            if tracked.is_running() && tracked.probing() == ProbeStage::Nothing {
                let startup = start(ProbeKind::Startup);
                let closed = startup.is_some();
                let probers = startup.into_iter().collect();
                tracked.probes_started(ProbeStage::Startup, probers, gate(closed));
            }
            if tracked.is_started() && tracked.probing() == ProbeStage::Startup {
                let readiness = start(ProbeKind::Readiness);
                let closed = readiness.is_some();
                let liveness = start(ProbeKind::Liveness);
                let probers = readiness.into_iter().chain(liveness).collect();
                tracked.probes_started(ProbeStage::Steady, probers, gate(closed));
            }
        }
    }

    /// A step in the trace of the pod's last change, if that is in one.
    fn span(&self, name: &str) -> Span {
        let Some(trace) = &self.trace else { return Span::none() };
        let span = tracing::info_span!("pod act", otel.name = name, key = %self.record.key);
        headwater_telemetry::continue_from(&span, Some(trace));
        span
    }

    /// What a hook does, where the runtime can do it.
    fn hook(&self, hook: Option<&LifecycleHandler>) -> Option<Handler> {
        hook.and_then(Handler::of_hook).filter(|_| self.shared.runtime.can_be_probed())
    }

    fn target(&self, container: &Container) -> Target {
        Target {
            runtime: self.shared.runtime.clone(),
            pod: self.record.uid.clone(),
            container: container.name.clone(),
            ports: container.ports.clone().unwrap_or_default(),
            address: self.shared.address,
        }
    }
}

/// What follows in the trace follows from `span`, if that is in one.
fn go_on(trace: &mut Option<String>, span: &Span) {
    if let Some(here) = headwater_telemetry::traceparent(span) {
        *trace = Some(here);
    }
}
