//! MetaSync: what the cloud is told so that its picture of the node's pods is the node's.
//!
//! ```text
//!   statuses - orphans = snapshot;  snapshot - told = news
//!   no news:      nothing; after a start, the closing one
//!   news:         a report per pod, then the closing one with the snapshot's hash
//!   full is due:  a report for every pod, then the closing one: what is not named is gone
//! ```
//!
//! Full is due before the cloud was told anything under this identity, and when it asks.

use std::mem;

use headwater_event::{ReportBody, ReportId, ReportKey};
use headwater_store::EngineError;
use headwater_view::metasync::{self, Difference};

use super::{EdgeUpstream, unavailable};
use crate::meta::operation::OperationError;
use crate::upstream::outbox::OutboxFull;
use crate::upstream::pod_statuses::PodStatus;

impl EdgeUpstream {
    /// Derives the snapshot and puts what the cloud has not been told into the outbox. Tells
    /// whether there was any such thing.
    pub(super) fn meta_sync(&mut self) -> Result<Result<bool, OperationError>, EngineError> {
        self.is_dirty = false;
        if !self.complete {
            // Absence means nothing yet: no status is an orphan, and no snapshot is whole.
            let reason = "the node has not had its whole stream yet".to_owned();
            return Ok(Err(OperationError::Unavailable(reason)));
        }
        self.synced_ms = self.now_ms;
        for pod in mem::take(&mut self.suspects) {
            self.statuses.drop_orphan(&mut self.group.batch, &pod, &self.pods);
        }
        let full = self.full_is_due();
        if full && !self.is_settled() {
            return Ok(Ok(false));
        }
        let told = if full { self.say_all()? } else { self.say_news()? };
        match told {
            Ok(told) => {
                self.trouble = None;
                self.last_meta_sync_ms = self.around.clock.wall_ms();
                Ok(Ok(told))
            }
            Err(full) => {
                // Nothing is lost: the difference is there when there is room again.
                self.trouble = Some(full.to_string());
                Ok(Err(unavailable(&full)))
            }
        }
    }

    /// Whether the cloud must be told everything.
    pub(super) fn full_is_due(&self) -> bool {
        self.complete && self.issuer.base() != Some(self.requested)
    }

    /// Whether the pod worker has had its say about every pod, or long enough to have it. Once
    /// the cloud has had a snapshot of this disk, its statuses are those of the pods.
    fn is_settled(&self) -> bool {
        let settle = u64::try_from(self.settings.settle.as_millis()).unwrap_or(u64::MAX);
        self.issuer.base().is_some()
            || self.pods.keys().all(|pod| self.statuses.all().contains_key(pod))
            || self.complete_ms.is_some_and(|since| self.now_ms.saturating_sub(since) >= settle)
    }

    fn say_news(&mut self) -> Result<Result<bool, OutboxFull>, EngineError> {
        let news = self.statuses.news();
        if news.is_empty() && !self.closing_due {
            return Ok(Ok(false));
        }
        let full_since = self.issuer.full_since();
        match self.say(news)? {
            Ok(_) => Ok(self.close(full_since)?.map(|()| true)),
            Err(full) => Ok(Err(full)),
        }
    }

    fn say_all(&mut self) -> Result<Result<bool, OutboxFull>, EngineError> {
        for key in self.outbox.keys() {
            let is_of_gone_pod = matches!(&key, ReportKey::Resource(key)
                if key.kind() == "podstatus"
                    && !self.statuses.all().contains_key(&key.with_kind("pod")));
            if is_of_gone_pod {
                self.outbox.withdraw(&mut self.group.batch, &key);
            }
        }
        // The id of a snapshot without pods is one that no report has.
        let before = self.issuer.issue(&*self.around.engine)?;
        let first = match self.say(self.statuses.everything())? {
            Ok(first) => first.unwrap_or(before),
            Err(full) => return Ok(Err(full)),
        };
        if let Err(full) = self.close(Some(first))? {
            return Ok(Err(full));
        }
        self.statuses.tell_end(&mut self.group.batch);
        self.issuer.set_base(&mut self.group.batch, Some(self.requested), Some(first));
        Ok(Ok(true))
    }

    /// Reports what differs. Gives the id of the first report.
    fn say(
        &mut self,
        difference: Difference,
    ) -> Result<Result<Option<ReportId>, OutboxFull>, EngineError> {
        self.closing_due = true;
        let mut first = None;
        for pod in difference.changed {
            let Some(PodStatus { uid, status }) = self.statuses.all().get(&pod).cloned() else {
                continue;
            };
            let body = ReportBody::PodStatus { pod: pod.clone(), uid, status };
            let cause = self.causes.remove(&pod);
            match self.report(body, cause)? {
                Ok(id) => first.get_or_insert(id),
                Err(full) => return Ok(Err(full)),
            };
            self.statuses.tell(&mut self.group.batch, &pod);
        }
        for (pod, uid) in difference.removed {
            let body = ReportBody::PodStatusRemoved { pod: pod.clone(), uid };
            match self.report(body, None)? {
                Ok(id) => first.get_or_insert(id),
                Err(full) => return Ok(Err(full)),
            };
            self.statuses.tell_removed(&mut self.group.batch, &pod);
        }
        Ok(Ok(first))
    }

    /// Reports the end of the snapshot.
    fn close(
        &mut self,
        full_since: Option<ReportId>,
    ) -> Result<Result<(), OutboxFull>, EngineError> {
        let closed = metasync::close(self.statuses.snapshot(), full_since);
        let closing = self.report(ReportBody::SnapshotClosed(closed), None)?;
        self.closing_due = closing.is_err();
        Ok(closing.map(|_| ()))
    }
}
