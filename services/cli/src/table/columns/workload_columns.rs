//! The columns of workloads, as kubectl prints them.

use jiff::Timestamp;
use serde_json::Value;

use super::{list, pairs, text};
use crate::render;

/// The header of a workload's table; `None` for another type.
pub(super) fn header(kind: &str) -> Option<Vec<&'static str>> {
    Some(match kind {
        "deployment" => vec!["NAME", "READY", "UP-TO-DATE", "AVAILABLE", "AGE"],
        "statefulset" => vec!["NAME", "READY", "AGE"],
        "daemonset" => vec![
            "NAME",
            "DESIRED",
            "CURRENT",
            "READY",
            "UP-TO-DATE",
            "AVAILABLE",
            "NODE SELECTOR",
            "AGE",
        ],
        "replicaset" | "replicationcontroller" => {
            vec!["NAME", "DESIRED", "CURRENT", "READY", "AGE"]
        }
        "job" => vec!["NAME", "STATUS", "COMPLETIONS", "DURATION", "AGE"],
        _ => return None,
    })
}

/// The cells of a workload; `None` for another type.
pub(super) fn cells(kind: &str, object: &Value, now: Timestamp) -> Option<Vec<String>> {
    let number = |pointer: &str| object.pointer(pointer).and_then(Value::as_u64).unwrap_or(0);
    let count = |pointer: &str| number(pointer).to_string();
    let ready = || format!("{}/{}", number("/status/readyReplicas"), number("/spec/replicas"));
    let mut cells = vec![text(object, "/metadata/name")];
    match kind {
        "deployment" => cells.extend([
            ready(),
            count("/status/updatedReplicas"),
            count("/status/availableReplicas"),
        ]),
        "statefulset" => cells.push(ready()),
        "daemonset" => {
            let counts = [
                "desiredNumberScheduled",
                "currentNumberScheduled",
                "numberReady",
                "updatedNumberScheduled",
                "numberAvailable",
            ];
            cells.extend(counts.map(|field| count(&format!("/status/{field}"))));
            cells.push(pairs(object, "/spec/template/spec/nodeSelector"));
        }
        "replicaset" | "replicationcontroller" => cells.extend([
            count("/spec/replicas"),
            count("/status/replicas"),
            count("/status/readyReplicas"),
        ]),
        "job" => cells.extend([job_status(object).to_owned(), completions(object), {
            duration(object, now)
        }]),
        _ => return None,
    }
    cells.push(render::object_age(object, now));
    Some(cells)
}

fn job_status(job: &Value) -> &str {
    let condition = list(job, "/status/conditions").first();
    condition.and_then(|condition| condition["type"].as_str()).unwrap_or("Running")
}

/// `1/3`; of a Job without a number of completions `1/1`, or `0/1 of 4` where four run at once.
fn completions(job: &Value) -> String {
    let succeeded = job.pointer("/status/succeeded").and_then(Value::as_u64).unwrap_or(0);
    let spec = &job["spec"];
    match (spec["completions"].as_u64(), spec["parallelism"].as_u64()) {
        (Some(completions), _) => format!("{succeeded}/{completions}"),
        (None, Some(parallelism)) if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        (None, _) => format!("{succeeded}/1"),
    }
}

/// From the first pod to the end, or until now.
fn duration(job: &Value, now: Timestamp) -> String {
    let time = |field: &str| job["status"][field].as_str().and_then(|text| text.parse().ok());
    match (time("startTime"), time("completionTime")) {
        (None, _) => String::new(),
        (Some(began), ended) => render::age(began, ended.unwrap_or(now)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn row(kind: &str, mut object: Value) -> Vec<String> {
        object["metadata"] = json!({"name": "web"});
        cells(kind, &object, Timestamp::UNIX_EPOCH).expect("a workload")
    }

    #[test]
    fn a_row_has_the_counts_that_kubectl_prints() {
        let status = json!({"readyReplicas": 1, "updatedReplicas": 2, "availableReplicas": 1,
            "replicas": 3});
        let of = json!({"spec": {"replicas": 3}, "status": status});
        assert_eq!(row("deployment", of.clone())[1..4], ["1/3", "2", "1"]);
        assert_eq!(row("statefulset", of.clone())[1], "1/3");
        assert_eq!(row("replicaset", of)[1..4], ["3", "3", "1"]);
        let selector = json!({"spec": {"nodeSelector": {"gpu": "yes"}}});
        let status = json!({"desiredNumberScheduled": 2, "currentNumberScheduled": 2,
            "numberReady": 1, "updatedNumberScheduled": 2, "numberAvailable": 1});
        let of = json!({"spec": {"template": selector}, "status": status});
        assert_eq!(row("daemonset", of)[1..7], ["2", "2", "1", "2", "1", "gpu=yes"]);
    }

    #[test]
    fn a_job_shows_its_condition_completions_and_duration() {
        let status = json!({"succeeded": 1, "startTime": "1970-01-01T00:00:00Z",
            "completionTime": "1970-01-01T00:00:09Z",
            "conditions": [{"type": "Complete", "status": "True"}]});
        let of = json!({"spec": {"completions": 1}, "status": status});
        assert_eq!(row("job", of)[1..4], ["Complete", "1/1", "9s"]);
        let of = json!({"spec": {"parallelism": 4}, "status": {}});
        assert_eq!(row("job", of)[1..4], ["Running", "0/1 of 4", ""]);
    }
}
