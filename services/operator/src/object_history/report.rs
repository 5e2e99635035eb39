//! The reports of a pod's node, from the upstream log.

use std::collections::VecDeque;

use headwater_event::upstream::{ReportRecord, decode_report};
use headwater_event::{NodeName, Report, ReportBody, ReportId, ReportKey, ResourceKey};
use headwater_log::{CatchUpTarget, Log, start_cursors};
use headwater_proto::operator::StoryReport;
use serde_json::{Value, json};
use tonic::Status;

use super::super::internal;
use super::change;
use crate::pod_status::{list, pod_status};

/// Returns the newest reports of a pod, and the number of earlier ones in the log.
pub(super) async fn reports(
    log: &dyn Log,
    pod: &ResourceKey,
    most: usize,
) -> Result<(Vec<StoryReport>, u64), Status> {
    let failed = |error: headwater_log::ReadError| internal(&error);
    let cursors = start_cursors(log).await.map_err(failed)?;
    let mut ends = CatchUpTarget::ahead_of(log, &cursors).await.map_err(failed)?;
    let mut reader = log.read(cursors).await.map_err(failed)?;
    let mut history = ReportHistory { most, ..ReportHistory::default() };
    while !ends.is_reached() {
        let batch = reader.next().await.map_err(failed)?;
        for recorded in &batch.records {
            // Most records are of other pods: their values are not decoded.
            let Ok((_, ReportKey::Resource(key))) = ReportKey::decode(&recorded.record.key) else {
                continue;
            };
            if key.name() != pod.name() {
                continue;
            }
            let record = ReportRecord {
                key: recorded.record.key.clone(),
                value: recorded.record.value.clone(),
                header: recorded.record.header.clone(),
            };
            if let Ok(Some((node, report))) = decode_report(&record, None) {
                history.take(pod, &node, &report, recorded.time_ms);
            }
        }
        ends.pass(&batch.cursor);
    }
    Ok((history.newest.into(), history.earlier))
}

/// The newest reports of one pod.
#[derive(Default)]
struct ReportHistory {
    most: usize,
    newest: VecDeque<StoryReport>,
    earlier: u64,
    last: Option<(NodeName, ReportId)>,
    before: Value,
    summary: String,
}

impl ReportHistory {
    /// Ignores a report that is not later than the last one of the same node: it was sent twice.
    fn take(&mut self, pod: &ResourceKey, node: &NodeName, report: &Report, time_ms: i64) {
        let summary = match &report.body {
            ReportBody::PodStatus { pod: of, status, .. } if of == pod => {
                let now: Value = serde_json::from_slice(status).unwrap_or_default();
                let summary = summary(&now);
                let before = std::mem::replace(&mut self.before, now);
                if summary == self.summary {
                    format!("{summary} ({})", change::fields(&before, &self.before))
                } else {
                    self.summary.clone_from(&summary);
                    summary
                }
            }
            ReportBody::PodStatusRemoved { pod: of, .. } if of == pod => {
                "status removed".to_owned()
            }
            ReportBody::PodTerminated { pod: of, .. } if of == pod => {
                "every container has stopped: the pod may be removed".to_owned()
            }
            _ => return,
        };
        let id = report.id;
        if self.last.as_ref().is_some_and(|(of, last)| of == node && id <= *last) {
            return;
        }
        self.last = Some((node.clone(), id));
        if self.newest.len() == self.most {
            self.newest.pop_front();
            self.earlier += 1;
        }
        self.newest.push_back(StoryReport {
            time_ms,
            node: node.to_string(),
            boot: id.boot,
            seq: id.seq,
            summary,
        });
    }
}

/// Summarizes a status: `Running, 1 of 1 ready`.
fn summary(status: &Value) -> String {
    let pod = json!({"status": status});
    let containers = list(&pod, "/status/containerStatuses");
    let ready = containers.iter().filter(|container| container["ready"] == true).count();
    let restarts: i64 =
        containers.iter().filter_map(|container| container["restartCount"].as_i64()).sum();
    let mut summary = format!("{}, {ready} of {} ready", pod_status(&pod), containers.len());
    if restarts > 0 {
        summary.push_str(&format!(", {restarts} restarts"));
    }
    summary
}

#[cfg(test)]
mod tests {
    use headwater_event::Incarnation;

    use super::*;

    fn status(seq: u64, status: &Value) -> Report {
        Report {
            id: ReportId { incarnation: Incarnation(1), boot: 2, seq },
            body: ReportBody::PodStatus {
                pod: "d/pod/web".parse().expect("a key"),
                uid: "u".to_owned(),
                status: status.to_string().into(),
            },
            traceparent: None,
        }
    }

    #[test]
    fn the_last_reports_appear_once_each() {
        let (pod, node) = ("d/pod/web".parse().expect("a key"), "n".parse().expect("a name"));
        let running = json!({"phase": "Running", "containerStatuses": [
            {"ready": true, "restartCount": 2}]});
        let mut changed = running.clone();
        changed["conditions"] = json!([{"type": "Ready"}]);
        let mut history = ReportHistory { most: 2, ..ReportHistory::default() };
        for (seq, status_now) in
            [(1, json!({"phase": "Pending"})), (2, running.clone()), (2, running), (3, changed)]
        {
            history.take(&pod, &node, &status(seq, &status_now), 7);
        }
        let summaries: Vec<&str> =
            history.newest.iter().map(|report| report.summary.as_str()).collect();
        assert_eq!(
            summaries,
            ["Running, 1 of 1 ready, 2 restarts", "Running, 1 of 1 ready, 2 restarts (conditions)"]
        );
        assert_eq!(history.earlier, 1);
    }
}
