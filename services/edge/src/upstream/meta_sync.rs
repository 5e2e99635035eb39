//! MetaSync: reports to the cloud until it has the node's pod status snapshot.
//!
//! ```text
//!   statuses - orphans = snapshot;  snapshot - reported = difference
//!   no difference:     nothing; once after every start, the end of a snapshot
//!   a difference:      a report per pod, then the end with the snapshot's hash
//!   full snapshot due: a report for every pod, then the end: a pod without a report is gone
//! ```
//!
//! A full snapshot is due when the cloud has none of this identity, and when the cloud requests
//! one. A status that the cloud never takes is no part of any snapshot until it changes.

use std::collections::BTreeMap;

use headwater_event::{ReportBody, ReportId, ReportKey, ResourceKey};
use headwater_view::metasync::{self, Difference};

use super::pod_statuses::{PodStatus, PodStatuses};
use super::pod_view::PodView;
use super::report_cause::ReportCause;
use super::report_writer::{ReportError, ReportWriter};
use super::{StatusesOf, UpstreamSettings, ViewChange};
use crate::meta::object::Object;
use crate::meta::operation::OperationError;

/// The pods, their statuses, and when the difference is to be reported.
pub(super) struct MetaSync {
    settings: UpstreamSettings,
    pub(super) view: PodView,
    pub(super) statuses: PodStatuses,
    /// The traces of status changes that are not reported yet.
    causes: BTreeMap<ResourceKey, ReportCause>,
    /// Whether the snapshot may differ from what was reported.
    is_due: bool,
    /// Whether the end of a snapshot is due even without a difference: behind reports of statuses,
    /// and once after every start. From its hash the cloud learns that this disk is an old copy,
    /// whose outbox and base have been superseded.
    end_is_due: bool,
    /// Why the last difference was not reported.
    pub(super) trouble: Option<String>,
    now_ms: u64,
    /// When the snapshot was last derived, on the monotonic clock.
    synced_ms: u64,
    /// The same on the wall clock; 0: never.
    pub(super) last_ms: i64,
}

/// What a run came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// A difference was reported.
    Reported,
    /// There was no difference.
    Equal,
    /// A full snapshot waits for the pod worker.
    Unsettled,
}

impl MetaSync {
    pub(super) fn new(settings: UpstreamSettings, statuses: PodStatuses) -> Self {
        Self {
            settings,
            view: PodView::new(settings.end_wait),
            statuses,
            causes: BTreeMap::new(),
            is_due: false,
            end_is_due: true,
            trouble: None,
            now_ms: 0,
            synced_ms: 0,
            last_ms: 0,
        }
    }

    /// Applies a change of the view.
    pub(super) fn apply(&mut self, change: ViewChange) {
        let statuses = self.statuses.all();
        match &change {
            ViewChange::Listed { pods, .. } => {
                self.view.suspects = statuses.keys().cloned().collect();
                self.causes.retain(|pod, _| pods.contains_key(pod));
            }
            ViewChange::PodGone { pod, uid } if self.view.has(pod, uid) => {
                self.causes.remove(pod);
            }
            _ => {}
        }
        self.is_due |= self.view.apply(change, self.now_ms, |pod| statuses.contains_key(pod));
    }

    /// Stores a pod's status. True: it changed.
    ///
    /// # Errors
    /// When the node does not have the pod.
    pub(super) fn set_status(
        &mut self,
        writer: &mut ReportWriter,
        pod: ResourceKey,
        status: PodStatus,
        cause: Option<String>,
    ) -> Result<bool, OperationError> {
        self.view.check(&pod, &status.uid)?;
        if let Some(cause) = ReportCause::of(&pod, cause) {
            self.causes.insert(pod.clone(), cause);
        }
        let changed = self.statuses.set(&mut writer.batch, pod, status);
        self.is_due |= changed;
        Ok(changed)
    }

    /// Removes a pod's status; with `uid`, only that of the very pod. True: there was one.
    pub(super) fn remove_status(
        &mut self,
        writer: &mut ReportWriter,
        pod: &ResourceKey,
        uid: Option<&str>,
    ) -> bool {
        let is_meant = |status: &PodStatus| uid.is_none_or(|uid| uid == status.uid);
        if !self.statuses.all().get(pod).is_some_and(is_meant) {
            return false;
        }
        self.view.has_ended(pod);
        let removed = self.statuses.remove(&mut writer.batch, pod);
        self.is_due |= removed;
        removed
    }

    /// Looks up statuses.
    pub(super) fn find(&self, of: &StatusesOf) -> Vec<Object> {
        let object = |(pod, status): (&ResourceKey, &PodStatus)| Object {
            key: pod.with_kind("podstatus"),
            uid: status.uid.clone(),
            resource_version: String::new(),
            object: status.status.clone(),
        };
        let all = self.statuses.all();
        match of {
            StatusesOf::Pod(pod) => all.get_key_value(pod).map(object).into_iter().collect(),
            StatusesOf::Namespace(None) => all.iter().map(object).collect(),
            StatusesOf::Namespace(namespace) => all
                .iter()
                .filter(|(pod, _)| pod.namespace() == namespace.as_deref())
                .map(object)
                .collect(),
        }
    }

    /// Advances the clock. A run is due by the interval, and when a full snapshot may have waited
    /// for the pod worker long enough.
    pub(super) fn tick(&mut self, writer: &ReportWriter, now_ms: u64) {
        self.now_ms = self.now_ms.max(now_ms);
        let interval = u64::try_from(self.settings.sync_interval.as_millis()).unwrap_or(u64::MAX);
        self.is_due |= self.view.end_waits(self.now_ms);
        self.is_due |= self.now_ms - self.synced_ms >= interval || self.full_is_due(writer);
    }

    /// Whether a run is due.
    pub(super) fn is_due(&self) -> bool {
        self.is_due
    }

    /// The outbox was issued anew: what it held of the snapshot is to be reported again.
    pub(super) fn reissued(&mut self) {
        self.is_due = true;
    }

    /// The cloud never takes the report of `key`. A status is not reported again before it changes.
    pub(super) fn refused(&mut self, key: &ReportKey) {
        let ReportKey::Resource(key) = key else { return };
        if key.kind() == "podstatus" {
            self.is_due |= self.statuses.refuse(&key.with_kind("pod"));
        }
    }

    /// The outbox has more room: a difference that found none is due again.
    pub(super) fn has_room(&mut self) {
        self.is_due |= self.trouble.is_some();
    }

    /// Derives the snapshot and reports the difference. True: there was one. `now_ms` is the wall
    /// clock.
    ///
    /// # Errors
    /// The refusal, when the view is incomplete or the outbox is full; else as the engine.
    pub(super) fn run(
        &mut self,
        writer: &mut ReportWriter,
        wall_ms: impl FnOnce() -> i64,
    ) -> Result<Result<bool, OperationError>, headwater_store::EngineError> {
        self.is_due = false;
        if !self.view.complete {
            // Absence means nothing yet: no status is an orphan, and no snapshot is whole.
            let reason = "the node has not received its whole stream yet".to_owned();
            return Ok(Err(OperationError::Unavailable(reason)));
        }
        self.synced_ms = self.now_ms;
        match self.report_difference(writer) {
            Ok(Outcome::Unsettled) => Ok(Ok(false)),
            Ok(outcome) => {
                self.trouble = None;
                self.last_ms = wall_ms();
                Ok(Ok(outcome == Outcome::Reported))
            }
            // Nothing is lost: the difference is still there when the outbox has room again.
            Err(error) => {
                let refusal = error.refusal()?;
                self.trouble = Some(refusal.to_string());
                Ok(Err(refusal))
            }
        }
    }

    fn report_difference(&mut self, writer: &mut ReportWriter) -> Result<Outcome, ReportError> {
        for pod in std::mem::take(&mut self.view.suspects) {
            self.statuses.drop_orphan(&mut writer.batch, &pod, &self.view.pods);
        }
        if self.full_is_due(writer) {
            if !self.is_settled(writer) {
                return Ok(Outcome::Unsettled);
            }
            self.report_all(writer)?;
            return Ok(Outcome::Reported);
        }
        let difference = self.statuses.difference();
        if difference.is_empty() && !self.end_is_due {
            return Ok(Outcome::Equal);
        }
        let full_since = writer.issuer.full_since();
        self.report_each(writer, difference)?;
        self.report_end(writer, full_since)?;
        Ok(Outcome::Reported)
    }

    /// Whether a full snapshot is due.
    fn full_is_due(&self, writer: &ReportWriter) -> bool {
        self.view.complete && writer.issuer.base() != Some(self.view.requested)
    }

    /// Whether the pod worker has reported every pod, or had enough time to. Once the cloud has a
    /// snapshot of this disk, the stored statuses are those of the pods.
    fn is_settled(&self, writer: &ReportWriter) -> bool {
        let settle = u64::try_from(self.settings.settle.as_millis()).unwrap_or(u64::MAX);
        let waited = |since: u64| self.now_ms.saturating_sub(since) >= settle;
        writer.issuer.base().is_some()
            || self.view.pods.keys().all(|pod| self.statuses.all().contains_key(pod))
            || self.view.complete_ms.is_some_and(waited)
    }

    /// Reports a full snapshot.
    fn report_all(&mut self, writer: &mut ReportWriter) -> Result<(), ReportError> {
        for key in writer.outbox.keys() {
            let is_of_gone_pod = matches!(&key, ReportKey::Resource(key)
                if key.kind() == "podstatus"
                    && !self.statuses.all().contains_key(&key.with_kind("pod")));
            if is_of_gone_pod {
                writer.outbox.withdraw(&mut writer.batch, &key);
            }
        }
        // A snapshot without pods begins at an id that no report has.
        let before = writer.next_id()?;
        let first = self.report_each(writer, self.statuses.everything())?.unwrap_or(before);
        self.report_end(writer, Some(first))?;
        self.statuses.full_reported(&mut writer.batch);
        writer.issuer.set_base(&mut writer.batch, Some(self.view.requested), Some(first));
        Ok(())
    }

    /// Reports each pod of a difference. Returns the id of the first report.
    fn report_each(
        &mut self,
        writer: &mut ReportWriter,
        difference: Difference,
    ) -> Result<Option<ReportId>, ReportError> {
        self.end_is_due = true;
        let mut first = None;
        for pod in difference.changed {
            let Some(PodStatus { uid, status }) = self.statuses.all().get(&pod).cloned() else {
                continue;
            };
            let body = ReportBody::PodStatus { pod: pod.clone(), uid, status };
            let id = writer.report(body, self.causes.remove(&pod))?;
            first.get_or_insert(id);
            self.statuses.reported(&mut writer.batch, &pod);
        }
        for (pod, uid) in difference.removed {
            let body = ReportBody::PodStatusRemoved { pod: pod.clone(), uid };
            let id = writer.report(body, None)?;
            first.get_or_insert(id);
            self.statuses.removal_reported(&mut writer.batch, &pod);
        }
        Ok(first)
    }

    /// Reports the end of the snapshot.
    fn report_end(
        &mut self,
        writer: &mut ReportWriter,
        full_since: Option<ReportId>,
    ) -> Result<(), ReportError> {
        self.end_is_due = true;
        let end = metasync::close(self.statuses.snapshot(), full_since);
        writer.report(ReportBody::SnapshotClosed(end), None)?;
        self.end_is_due = false;
        Ok(())
    }
}
