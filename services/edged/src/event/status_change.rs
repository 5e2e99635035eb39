//! The occurrences that follow from the change of a pod's status. Pure.
//!
//! The status of before outlives the pod worker, so that a restart reports nothing twice.

use headwater_event::ResourceKey;
use k8s_openapi::api::core::v1::{ContainerStatus, PodStatus};

use super::{Occurrence, Severity, Subject};
use crate::pod::{PodUid, container_statuses};
use crate::worker::status::{RESIZE_IN_PROGRESS, RESIZE_PENDING};

/// What happened to the pod between two statuses of it.
pub(crate) fn occurrences(
    pod: &ResourceKey,
    uid: &PodUid,
    before: Option<&PodStatus>,
    after: &PodStatus,
) -> Vec<Occurrence> {
    let occurrence =
        |container: Option<&str>, severity, reason: &str, message: String| Occurrence {
            about: Subject::Pod {
                key: pod.clone(),
                uid: uid.clone(),
                container: container.map(str::to_owned),
            },
            severity,
            reason: reason.to_owned(),
            message,
        };
    let mut found = Vec::new();
    let reason_before = before.and_then(|status| status.reason.as_deref());
    if let Some(reason) = after.reason.as_deref().filter(|reason| Some(*reason) != reason_before) {
        let message = after.message.clone().unwrap_or_else(|| format!("The pod fails: {reason}"));
        found.push(occurrence(None, Severity::Warning, reason, message));
    }
    for (severity, reason, message) in resizes(before, after) {
        found.push(occurrence(None, severity, reason, message));
    }
    for container in container_statuses(after) {
        let name = container.name.as_str();
        let earlier =
            before.and_then(|status| container_statuses(status).find(|it| it.name == name));
        let event = |severity, reason, message| occurrence(Some(name), severity, reason, message);
        let waits = |status: &ContainerStatus| {
            let waiting = status.state.as_ref()?.waiting.as_ref()?;
            Some((waiting.reason.clone()?, waiting.message.clone().unwrap_or_default()))
        };
        let killed = |status: &ContainerStatus| {
            let states = [&status.state, &status.last_state].into_iter().flatten();
            let mut ends = states.filter_map(|state| state.terminated.as_ref());
            let oom = ends.find(|end| end.reason.as_deref() == Some("OOMKilled"))?;
            oom.container_id.clone()
        };
        if let Some(run) =
            killed(container).filter(|run| earlier.and_then(killed).as_ref() != Some(run))
        {
            tracing::debug!(pod = %pod, run, "a container was killed for its memory");
            let message = format!("Container {name} took more memory than it may, and was killed");
            found.push(event(Severity::Warning, "OOMKilling", message));
        }
        let waiting = waits(container);
        if let Some((reason, message)) =
            waiting.clone().filter(|_| waiting != earlier.and_then(waits))
        {
            match &*reason {
                "CrashLoopBackOff" => {
                    let message = format!(
                        "Back-off restarting failed container {name} in pod {}_{}({uid})",
                        pod.name(),
                        pod.namespace().unwrap_or_default(),
                    );
                    found.push(event(Severity::Warning, "BackOff", message));
                }
                "ImagePullBackOff" => {
                    let message = format!("Back-off pulling image \"{}\"", container.image);
                    found.push(event(Severity::Normal, "BackOff", message));
                    found.push(event(Severity::Warning, "Failed", format!("Error: {reason}")));
                }
                // The pull before has an Event with the words.
                "ErrImagePull" | "RegistryUnavailable" | "SignatureValidationFailed" => {
                    found.push(event(Severity::Warning, "Failed", format!("Error: {reason}")));
                }
                "InvalidImageName" | "ImageInspectError" | "ErrImageNeverPull" => {
                    let of_image = match &*reason {
                        "ErrImageNeverPull" => "ErrImageNeverPull",
                        _ => "InspectFailed",
                    };
                    found.push(event(Severity::Warning, of_image, message));
                    found.push(event(Severity::Warning, "Failed", format!("Error: {reason}")));
                }
                // Others are usual, or the failure before has an Event.
                _ if reason.starts_with("Create") || reason.starts_with("Err") => {
                    let text = if message.is_empty() { reason.clone() } else { message };
                    found.push(event(Severity::Warning, "Failed", format!("Error: {text}")));
                }
                _ => {}
            }
        }
        let known = earlier.map(started_runs).unwrap_or_default();
        for _ in started_runs(container).iter().filter(|run| !known.contains(run)) {
            found.push(event(Severity::Normal, "Started", format!("Started container {name}")));
        }
    }
    found
}

/// What happened to the change of a pod's resources, with the reasons of a kubelet
/// (`pkg/kubelet/allocation/allocation_manager.go`).
fn resizes(before: Option<&PodStatus>, after: &PodStatus) -> Vec<(Severity, &'static str, String)> {
    let find = |status: &PodStatus, kind: &str| {
        let conditions = status.conditions.iter().flatten();
        let mut own = conditions.filter(|condition| condition.type_ == kind);
        own.next().map(|it| (it.reason.clone(), it.message.clone().unwrap_or_default()))
    };
    let of = |kind| (before.and_then(|before| find(before, kind)), find(after, kind));
    let mut found = Vec::new();
    let (pending_before, pending) = of(RESIZE_PENDING);
    let is_new = pending != pending_before;
    if let Some((reason, message)) = pending.clone().filter(|_| is_new) {
        let is_infeasible = reason.as_deref() == Some("Infeasible");
        let reason = if is_infeasible { "ResizeInfeasible" } else { "ResizeDeferred" };
        found.push((Severity::Warning, reason, format!("Pod resize: {message}")));
    }
    match of(RESIZE_IN_PROGRESS) {
        (None, Some(_)) => {
            found.push((Severity::Normal, "ResizeStarted", "Pod resize started".to_owned()));
        }
        (Some(_), None) if after.phase.as_deref() == Some("Running") => {
            found.push((Severity::Normal, "ResizeCompleted", "Pod resize completed".to_owned()));
        }
        _ => {}
    }
    found
}

/// The runs of a container that have started, as far as the status names them. One may have ended before any status
/// showed it running.
fn started_runs(status: &ContainerStatus) -> Vec<&str> {
    let states = [&status.last_state, &status.state].into_iter().flatten();
    let started = states.filter_map(|state| match (&state.running, &state.terminated) {
        (Some(_), _) => status.container_id.as_deref(),
        (None, Some(end)) => end.started_at.as_ref().and(end.container_id.as_deref()),
        (None, None) => None,
    });
    started.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn status(reason: Option<&str>, state: Value, last: Value) -> PodStatus {
        serde_json::from_value(json!({
            "phase": "Running", "reason": reason,
            "containerStatuses": [{
                "name": "main", "image": "web:1", "imageID": "", "ready": false,
                "restartCount": 1, "containerID": "headwater://u/main/1",
                "state": state, "lastState": last,
            }],
        }))
        .expect("a status")
    }

    fn reasons(before: Option<&PodStatus>, after: &PodStatus) -> Vec<String> {
        let pod = "d/pod/p".parse().expect("a key");
        let uid = PodUid::try_from("u".to_owned()).expect("a UID");
        let found = occurrences(&pod, &uid, before, after);
        let line = |it: Occurrence| format!("{} {}: {}", it.severity.name(), it.reason, it.message);
        found.into_iter().map(line).collect()
    }

    #[test]
    fn each_change_of_a_status_that_a_kubelet_tells_is_told_once() {
        let waiting = |reason: &str, message: &str| json!({"waiting": {"reason": reason, "message": message}});
        let oom = json!({"terminated": {
            "exitCode": 137, "reason": "OOMKilled", "containerID": "headwater://u/main/0",
        }});
        let running = json!({"running": {"startedAt": "2026-01-01T00:00:00Z"}});
        let ended = |run: &str, started_at: Option<&str>| json!({"terminated": {"exitCode": 0, "containerID": run, "startedAt": started_at}});
        for (after, expected) in [
            (status(None, waiting("ContainerCreating", ""), json!(null)), vec![]),
            (
                status(None, waiting("CrashLoopBackOff", "back-off 10s"), json!(null)),
                vec!["Warning BackOff: Back-off restarting failed container main in pod p_d(u)"],
            ),
            (
                status(None, waiting("ImagePullBackOff", "it is away"), json!(null)),
                vec![
                    "Normal BackOff: Back-off pulling image \"web:1\"",
                    "Warning Failed: Error: ImagePullBackOff",
                ],
            ),
            (
                status(None, waiting("ErrImagePull", "401 Unauthorized"), json!(null)),
                vec!["Warning Failed: Error: ErrImagePull"],
            ),
            (
                status(None, waiting("RegistryUnavailable", "it is away"), json!(null)),
                vec!["Warning Failed: Error: RegistryUnavailable"],
            ),
            (
                status(None, waiting("InvalidImageName", "no name"), json!(null)),
                vec!["Warning InspectFailed: no name", "Warning Failed: Error: InvalidImageName"],
            ),
            (
                status(None, waiting("ErrImageNeverPull", "not here"), json!(null)),
                vec![
                    "Warning ErrImageNeverPull: not here",
                    "Warning Failed: Error: ErrImageNeverPull",
                ],
            ),
            (
                status(None, waiting("CreateContainerConfigError", "no secret"), json!(null)),
                vec!["Warning Failed: Error: no secret"],
            ),
            (
                status(None, running.clone(), json!(null)),
                vec!["Normal Started: Started container main"],
            ),
            (
                status(None, running, oom),
                vec![
                    "Warning OOMKilling: Container main took more memory than it may, and was killed",
                    "Normal Started: Started container main",
                ],
            ),
            // It had ended before any status showed it running; another one never started.
            (
                status(
                    None,
                    ended("headwater://u/main/1", Some("2026-01-01T00:00:00Z")),
                    json!(null),
                ),
                vec!["Normal Started: Started container main"],
            ),
            (status(None, ended("headwater://u/main/1", None), json!(null)), vec![]),
            (
                status(Some("Evicted"), json!({}), json!(null)),
                vec!["Warning Evicted: The pod fails: Evicted"],
            ),
        ] {
            assert_eq!(reasons(None, &after), expected);
            assert_eq!(reasons(Some(&after), &after), Vec::<String>::new(), "told once");
        }
    }

    #[test]
    fn each_run_has_one_event_of_its_start() {
        let run = |number: u32| format!("headwater://u/main/{number}");
        let ended = |number: u32| {
            let at = "2026-01-01T00:00:00Z";
            json!({"terminated": {"exitCode": 1, "containerID": run(number), "startedAt": at}})
        };
        let waits = json!({"waiting": {"reason": "ContainerCreating"}});
        let running = json!({"running": {"startedAt": "2026-01-01T00:00:00Z"}});
        let started = "Normal Started: Started container main";
        // The runs 1 and 2; the second one is never seen running.
        let shown = [
            (status(None, waits.clone(), json!(null)), 0),
            (status(None, running, json!(null)), 1),
            (status(None, ended(1), json!(null)), 0),
            (status(None, waits, ended(1)), 0),
            (status(None, ended(2), ended(1)), 1),
        ];
        for pair in shown.windows(2) {
            let [(before, _), (after, count)] = pair else { panic!("two") };
            assert_eq!(reasons(Some(before), after), vec![started; *count]);
        }
    }

    #[test]
    fn a_change_of_resources_is_followed_from_its_wait_to_its_end() {
        let of = |conditions: Value| -> PodStatus {
            serde_json::from_value(json!({"phase": "Running", "conditions": conditions}))
                .expect("a status")
        };
        let pending = |reason: &str| {
            let (kind, message) = ("PodResizePending", "no room");
            of(json!([{"type": kind, "status": "True", "reason": reason, "message": message}]))
        };
        let in_progress = of(json!([{"type": "PodResizeInProgress", "status": "True"}]));
        let none = of(json!([]));
        for (before, after, expected) in [
            (&none, &pending("Deferred"), Some("Warning ResizeDeferred: Pod resize: no room")),
            (&pending("Deferred"), &pending("Deferred"), None),
            (
                &pending("Deferred"),
                &pending("Infeasible"),
                Some("Warning ResizeInfeasible: Pod resize: no room"),
            ),
            (&pending("Deferred"), &in_progress, Some("Normal ResizeStarted: Pod resize started")),
            (&in_progress, &none, Some("Normal ResizeCompleted: Pod resize completed")),
        ] {
            let found = reasons(Some(before), after);
            assert_eq!(found, expected.into_iter().collect::<Vec<_>>(), "{before:?} {after:?}");
        }
    }
}
