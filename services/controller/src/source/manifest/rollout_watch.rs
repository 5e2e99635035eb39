//! When rollouts are decided anew: reports came that they wait for, a time came, or this controller
//! became the writer.

use std::collections::BTreeSet;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use headwater_event::{NodeName, ResourceKey};
use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::folder::Folder;
use crate::source::{PodReport, PodReports, ReportChanges, Takeover, WorkloadContext, WriterRole};

/// The least time between two decisions, so that the reports of many nodes are one. A decision looks at
/// the whole folder.
const DECISION_INTERVAL_MIN: Duration = Duration::from_millis(100);

/// How many times as long as a decision took the next one waits: at most a fifth of a core goes into
/// decisions.
const REST_FACTOR: u32 = 4;

/// How often a rollout that waits is decided anew without a report: a node that is no longer reachable
/// reports nothing.
const RECHECK: Duration = Duration::from_secs(10);

/// See the module.
pub(super) struct RolloutWatch {
    reports: Arc<dyn PodReports>,
    role: watch::Receiver<WriterRole>,
    is_writer: bool,
    /// A takeover that was not decided yet.
    takeover: Option<Takeover>,
    /// The epoch of the last takeover that was noted.
    noted_epoch: u64,
    /// The changes of the reports, while a rollout waits.
    changes: Option<Box<dyn ReportChanges>>,
    began: Instant,
}

/// The reports on pods that left, and on no other ones: a controller lists before it writes, and must not list a pod
/// that has to wait.
struct DepartureReports(Arc<dyn PodReports>);

/// What a decision is made by.
pub(super) struct Decision {
    pub(super) reports: Arc<dyn PodReports>,
    pub(super) takeover: Option<Takeover>,
}

impl RolloutWatch {
    pub(super) fn new(context: &WorkloadContext) -> Self {
        Self {
            reports: context.reports.clone(),
            role: context.role.clone(),
            is_writer: false,
            takeover: None,
            noted_epoch: 0,
            changes: None,
            began: Instant::now(),
        }
    }

    /// Whether a takeover waits for its decision.
    pub(super) fn has_takeover(&self) -> bool {
        self.takeover.is_some()
    }

    /// What the next decision is made by. A controller that does not write does not decide by the reports, but waits for
    /// the pods that left. A takeover waits for a look at the files (`is_look`).
    pub(super) fn decision(&mut self, is_look: bool) -> Decision {
        self.note_role();
        self.began = Instant::now();
        let reports: Arc<dyn PodReports> = match self.is_writer {
            true => self.reports.clone(),
            false => Arc::new(DepartureReports(self.reports.clone())),
        };
        Decision { reports, takeover: self.takeover.take_if(|_| is_look) }
    }

    /// Keeps a takeover that could not be decided for the next decision.
    pub(super) fn restore(&mut self, takeover: Option<Takeover>) {
        if self.takeover.is_none() {
            self.takeover = takeover;
        }
    }

    /// Returns when the rollouts of `folder` are to be decided anew. Cancel-safe.
    pub(super) async fn due(&mut self, folder: &Folder) {
        let rest = (self.began.elapsed() * REST_FACTOR).max(DECISION_INTERVAL_MIN);
        let may_decide_at = Instant::now() + rest;
        loop {
            self.note_role();
            if self.takeover.is_some() {
                return;
            }
            let is_waiting = self.is_writer && !folder.waiting().is_empty();
            if !is_waiting {
                self.changes = None;
            } else if self.changes.is_none() {
                self.changes = Some(self.reports.subscribe());
                // A report may have come before the subscription.
                sleep_until(may_decide_at).await;
                return;
            }
            let next_look = folder.next_look().filter(|_| self.is_writer);
            let Self { changes, role, .. } = self;
            tokio::select! {
                () = concerning(changes.as_mut(), folder) => {}
                () = time_of(next_look) => {}
                () = sleep(RECHECK), if is_waiting => {}
                result = role.changed() => match result {
                    Ok(()) => continue,
                    // The controller stops.
                    Err(_) => return pending().await,
                },
            }
            sleep_until(may_decide_at).await;
            return;
        }
    }

    fn note_role(&mut self) {
        let role = self.role.borrow_and_update().clone();
        let takeover = match role {
            WriterRole::Candidate | WriterRole::Standby => {
                self.is_writer = false;
                self.takeover = None;
                return;
            }
            WriterRole::Writer { takeover } => takeover,
        };
        self.is_writer = true;
        if let Some(takeover) = takeover.filter(|takeover| takeover.epoch > self.noted_epoch) {
            self.noted_epoch = takeover.epoch;
            self.takeover = Some(takeover);
        }
    }
}

impl PodReports for DepartureReports {
    fn report(&self, _: &ResourceKey, _: &Value) -> Option<PodReport> {
        None
    }

    fn reported(
        &self,
        namespace: &str,
        workload: &str,
        selects: &dyn Fn(&ResourceKey, &NodeName) -> bool,
    ) -> BTreeSet<ResourceKey> {
        self.0.reported(namespace, workload, selects)
    }

    fn subscribe(&self) -> Box<dyn ReportChanges> {
        self.0.subscribe()
    }
}

/// Returns once a report came that `folder` waits for, or that a node's connection may have changed.
async fn concerning(changes: Option<&mut Box<dyn ReportChanges>>, folder: &Folder) {
    let Some(changes) = changes else { return pending().await };
    while let Some(keys) = changes.next().await {
        if keys.iter().any(|key| key.kind() == "node" || folder.waiting().contains(key)) {
            return;
        }
    }
}

/// Returns at a time; never without one.
async fn time_of(at: Option<Timestamp>) {
    let Some(at) = at else { return pending().await };
    let wait = at.duration_since(Timestamp::now());
    // A time that is past is now.
    sleep(Duration::try_from(wait).unwrap_or_default()).await;
}
