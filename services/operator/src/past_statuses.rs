//! The statuses that nodes had reported by a past time, from the upstream log.
//!
//! The log keeps superseded reports for its replay window. So for a time within the window it has
//! the last report of each pod by then. The present rules decide which reports count.

use std::collections::BTreeMap;

use bytes::Bytes;
use headwater_event::upstream::{ReportRecord, decode_report};
use headwater_event::{NodeName, Report, ReportBody, ReportId, ResourceKey};
use headwater_log::{CatchUpTarget, Log, ReadError, StoredRecord, start_cursors};
use headwater_view::{NodeStatuses, ReportOutcome};
use serde_json::Value;

/// The last reports by a time.
#[derive(Default)]
pub(super) struct PastStatuses {
    rules: BTreeMap<NodeName, NodeStatuses>,
    statuses: BTreeMap<ResourceKey, BTreeMap<NodeName, (String, Bytes)>>,
    nodes: BTreeMap<NodeName, (ReportId, Bytes)>,
}

impl PastStatuses {
    /// Reads the reports that `log` had by `ms`, in milliseconds since the Unix epoch.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub(super) async fn read(log: &dyn Log, ms: i64) -> Result<Self, ReadError> {
        let cursors = start_cursors(log).await?;
        let mut ends = CatchUpTarget::ahead_of(log, &cursors).await?;
        let mut past = Self::default();
        let mut reader = log.read(cursors).await?;
        while !ends.is_reached() {
            let batch = reader.next().await?;
            batch.records.iter().filter(|recorded| recorded.time_ms <= ms).for_each(|recorded| {
                past.take(recorded);
            });
            ends.pass(&batch.cursor);
        }
        Ok(past)
    }

    /// Returns the status that its node had reported of the pod at `key` with this UID.
    pub(super) fn status(&self, key: &ResourceKey, node: &NodeName, uid: &str) -> Option<Value> {
        let (of, status) = self.statuses.get(key)?.get(node)?;
        (of == uid).then(|| serde_json::from_slice(status).ok()).flatten()
    }

    /// Returns the Node objects that the nodes had reported.
    pub(super) fn nodes(&self) -> impl Iterator<Item = (&NodeName, Value)> {
        self.nodes
            .iter()
            .filter_map(|(node, (_, object))| Some((node, serde_json::from_slice(object).ok()?)))
    }

    /// A record that cannot be decoded is ignored.
    fn take(&mut self, recorded: &StoredRecord) {
        let record = ReportRecord {
            key: recorded.record.key.clone(),
            value: recorded.record.value.clone(),
            header: recorded.record.header.clone(),
        };
        if let Ok(Some((node, report))) = decode_report(&record, None) {
            self.fold(node, report);
        }
    }

    fn fold(&mut self, node: NodeName, report: Report) {
        let rules = self.rules.entry(node.clone()).or_insert_with(|| NodeStatuses::new(&node));
        match rules.fold(report.id, &report.body) {
            ReportOutcome::StatusChanged(pod) | ReportOutcome::StatusUnchanged(pod) => {
                if let ReportBody::PodStatus { uid, status, .. } = report.body {
                    self.statuses.entry(pod).or_default().insert(node, (uid, status));
                }
            }
            ReportOutcome::Removed(pod) => self.forget(&pod, &node),
            ReportOutcome::Closed { dropped, .. } => {
                dropped.iter().for_each(|pod| self.forget(pod, &node));
            }
            ReportOutcome::NoChange | ReportOutcome::Stale => {
                if let ReportBody::Node { object } = report.body
                    && self.nodes.get(&node).is_none_or(|(id, _)| *id < report.id)
                {
                    self.nodes.insert(node, (report.id, object));
                }
            }
        }
    }

    fn forget(&mut self, pod: &ResourceKey, node: &NodeName) {
        if let Some(statuses) = self.statuses.get_mut(pod) {
            statuses.remove(node);
        }
    }
}

#[cfg(test)]
mod tests {
    use headwater_event::Incarnation;

    use super::*;

    fn status(seq: u64, phase: &str) -> Report {
        Report {
            id: ReportId { incarnation: Incarnation(1), boot: 1, seq },
            body: ReportBody::PodStatus {
                pod: "d/pod/web".parse().expect("a key"),
                uid: "u".to_owned(),
                status: format!(r#"{{"phase":"{phase}"}}"#).into(),
            },
            traceparent: None,
        }
    }

    #[test]
    fn the_last_report_counts_and_only_for_its_own_pod() {
        let (key, node) = ("d/pod/web".parse().expect("a key"), "n".parse().expect("a name"));
        let mut past = PastStatuses::default();
        let phase = |past: &PastStatuses, uid| {
            past.status(&key, &node, uid).map(|status| status["phase"].clone())
        };
        past.fold(node.clone(), status(2, "Running"));
        past.fold(node.clone(), status(1, "Pending"));
        assert_eq!(phase(&past, "u"), Some("Running".into()));
        assert_eq!(phase(&past, "other"), None);
        let removed = Report {
            body: ReportBody::PodStatusRemoved { pod: key.clone(), uid: "u".to_owned() },
            ..status(3, "")
        };
        past.fold(node.clone(), removed);
        assert_eq!(phase(&past, "u"), None);
    }

    #[test]
    fn a_node_is_as_it_last_reported_itself() {
        let node: NodeName = "n".parse().expect("a name");
        let mut past = PastStatuses::default();
        for (seq, object) in [(2, "\"new\""), (1, "\"old\"")] {
            let body = ReportBody::Node { object: Bytes::from(object) };
            past.fold(node.clone(), Report { body, ..status(seq, "") });
        }
        let nodes: Vec<_> = past.nodes().map(|(_, object)| object).collect();
        assert_eq!(nodes, ["new"]);
    }
}
