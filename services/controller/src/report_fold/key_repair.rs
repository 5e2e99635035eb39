//! Appends the report that counts once more, behind a stale record of its key: see
//! [`super::stale_keys`].

use std::time::Duration;

use headwater_event::upstream::encode_report;
use headwater_event::{Report, ReportBody, ReportKey};
use headwater_log::{Append, AppendError, Record};
use headwater_store::{EngineError, Json, Read};
use headwater_view::{NodeStatuses, PodStatusFold};
use tokio::time::{Instant, sleep_until};

use super::ReportFold;
use super::stale_keys::{Key, Stale, StaleKeys};
use crate::picture::tables::NODES;

/// Reports, and bytes of them, in one append: a small fraction of what a log takes at once.
const REPAIRS_AT_ONCE: usize = 256;
const REPAIR_BYTES: usize = 1 << 20;

/// The wait before a failed append is tried again.
pub(super) const AGAIN_AFTER: Duration = Duration::from_secs(1);

impl ReportFold {
    /// Waits until this controller is the writer, and until `at`.
    pub(super) async fn until_writer(&self, at: Instant) {
        sleep_until(at).await;
        let mut progress = self.progress.clone();
        if progress.wait_for(|progress| progress.reconciled).await.is_err() {
            // The publisher has ended and will not write again.
            std::future::pending::<()>().await;
        }
    }

    /// Appends the newest report of each key that is due. Returns whether the log accepted them.
    pub(super) async fn repair(
        &self,
        keys: &mut StaleKeys,
        statuses: &PodStatusFold,
    ) -> Result<bool, EngineError> {
        let (mut appends, mut bytes) = (Vec::new(), 0);
        while appends.len() < REPAIRS_AT_ONCE && bytes < REPAIR_BYTES {
            let Some((key, stale)) = keys.next_due() else { break };
            let Some(report) = newest(&*self.engine, statuses, &key, &stale)? else { continue };
            // A report that was read under a key can be written under it.
            let Ok(encoded) = encode_report(&key.0, &report) else { continue };
            let (node, key, id) = (&key.0, &key.1, report.id);
            tracing::info!(%node, %key, newest = %id, stale = %stale.id, "an older report follows the newest one; appending the newest once more");
            let record = Record {
                key: encoded.key,
                value: encoded.value,
                header: encoded.header,
                traceparent: None,
            };
            bytes += record.bytes();
            appends.push(Append { partition: stale.partition, record });
        }
        if appends.is_empty() {
            return Ok(true);
        }
        match self.append_again(appends).await {
            Ok(repaired) => {
                self.metrics.repaired(repaired);
                Ok(true)
            }
            Err(error) => {
                tracing::warn!(%error, "the newest reports cannot be appended once more; trying again");
                keys.failed();
                Ok(false)
            }
        }
    }

    /// Appends reports, and returns how many. A report that the log refuses, because its limit is
    /// lower now than it was, is left out: it would be refused each time.
    async fn append_again(&self, appends: Vec<Append>) -> Result<usize, AppendError> {
        let count = appends.len();
        match self.log.append(appends.clone()).await {
            Ok(_) => return Ok(count),
            Err(AppendError::Rejected { .. }) => {}
            Err(error) => return Err(error),
        }
        let mut repaired = 0;
        for append in appends {
            let key = String::from_utf8_lossy(&append.record.key).into_owned();
            match self.log.append(vec![append]).await {
                Ok(_) => repaired += 1,
                Err(AppendError::Rejected { reason }) => {
                    tracing::error!(
                        key,
                        reason,
                        "the newest report of the key is left out: a new fold finds an older one until the node reports again"
                    );
                }
                Err(error) => return Err(error),
            }
        }
        Ok(repaired)
    }
}

/// The report that should be the last record of a key whose last record is `stale`.
fn newest(
    from: &dyn Read,
    statuses: &PodStatusFold,
    (node, key): &Key,
    stale: &Stale,
) -> Result<Option<Report>, EngineError> {
    let found = match key {
        ReportKey::Position | ReportKey::Registration => None,
        ReportKey::Snapshot => {
            let closing = statuses.node(node).and_then(NodeStatuses::closing);
            closing.map(|closing| (closing.id, ReportBody::SnapshotClosed(closing.closed)))
        }
        ReportKey::Resource(key) if key.kind() == "node" => NODES
            .get(from, node)?
            .map(|Json(report)| (report.id, ReportBody::Node { object: report.object.into() })),
        ReportKey::Resource(key) => {
            let pod = key.with_kind("pod");
            let known = PodStatusFold::newest(from, node, &pod)?;
            // The pod is long gone, and its removal is forgotten: the stale status is removed.
            let gone = || (stale.id, ReportBody::PodStatusRemoved { pod, uid: stale.uid.clone() });
            Some(known.unwrap_or_else(gone))
        }
    };
    Ok(found.map(|(id, body)| Report { id, body, traceparent: None }))
}
