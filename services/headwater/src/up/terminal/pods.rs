//! The announcements of pods in `up`: a summary at first, then changes.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// The most names in one line: they fit a terminal's width.
const NAMES_SHOWN_MAX: usize = 5;

/// The most reasons below a summary; each may apply to many pods.
const REASONS_SHOWN_MAX: usize = 10;

/// The state of one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Pod {
    /// Its node has not reported it yet, or is starting it.
    Starting,
    /// It runs, or has succeeded.
    Running,
    /// It does not run yet, for this reason.
    Waiting(String),
    /// It failed and does not restart.
    Failed(String),
}

/// The states of all pods, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Pods(BTreeMap<String, Pod>);

/// The pods as they were last printed.
#[derive(Debug, Default)]
pub(super) struct PodAnnouncements {
    pods: Option<Pods>,
    /// The pods that were announced as not running. A pod that starts and stops often is announced
    /// once.
    unsteady: BTreeSet<String>,
}

impl Pods {
    /// Derives the states from the statuses of pods.
    pub(super) fn of<'v>(objects: impl IntoIterator<Item = &'v Value>) -> Self {
        Self(objects.into_iter().map(|object| (name(object), pod(object))).collect())
    }

    /// Returns the number of pods.
    pub(super) fn all(&self) -> usize {
        self.0.len()
    }

    /// Returns the number of pods that run or have succeeded.
    pub(super) fn running(&self) -> usize {
        self.0.values().filter(|pod| **pod == Pod::Running).count()
    }

    /// Whether no pod is starting.
    pub(super) fn are_settled(&self) -> bool {
        !self.0.values().any(|pod| *pod == Pod::Starting)
    }

    /// Returns the reasons why pods do not run, with the number of pods for each.
    fn reasons(&self) -> BTreeMap<String, usize> {
        let mut reasons = BTreeMap::new();
        for pod in self.0.values() {
            let reason = match pod {
                Pod::Waiting(reason) => format!("waiting: {reason}"),
                Pod::Failed(reason) => format!("failed: {reason}"),
                Pod::Starting | Pod::Running => continue,
            };
            *reasons.entry(reason).or_default() += 1;
        }
        reasons
    }

    fn summary(&self, nodes: usize) -> String {
        format!("{} of {} pods run on {nodes} nodes", self.running(), self.all())
    }
}

impl PodAnnouncements {
    /// Returns the lines to print: a summary at first, then changes.
    pub(super) fn news(&mut self, now: Pods, nodes: usize) -> Vec<String> {
        let Some(before) = self.pods.replace(now.clone()) else {
            let mut lines = vec![now.summary(nodes)];
            let reasons = now.reasons();
            let more = reasons.len().saturating_sub(REASONS_SHOWN_MAX);
            let shown = reasons.into_iter().take(REASONS_SHOWN_MAX);
            lines.extend(shown.map(|(reason, count)| format!("  {count} {reason}")));
            if more > 0 {
                lines.push(format!("  and {more} more reasons: headwater get pods -A"));
            }
            return lines;
        };
        self.unsteady.retain(|name| now.0.contains_key(name));
        let added = now.0.keys().filter(|name| !before.0.contains_key(*name)).cloned();
        let removed = before.0.keys().filter(|name| !now.0.contains_key(*name)).cloned();
        let mut lines = Vec::new();
        lines.extend(line("added", added.collect()));
        lines.extend(line("removed", removed.collect()));
        let mut stopped = Vec::new();
        for (name, pod) in &now.0 {
            let (Pod::Waiting(reason) | Pod::Failed(reason)) = pod else { continue };
            if before.0.get(name) != Some(pod) && self.unsteady.insert(name.clone()) {
                stopped.push(format!("{name} ({reason})"));
            }
        }
        lines.extend(line("not running", stopped));
        if !lines.is_empty() {
            lines.push(now.summary(nodes));
        }
        lines
    }
}

/// `WHAT: NAME, NAME and N more`, if there is a name.
pub(super) fn line(what: &str, mut names: Vec<String>) -> Option<String> {
    let more = names.len().saturating_sub(NAMES_SHOWN_MAX);
    names.truncate(NAMES_SHOWN_MAX);
    let names = names.join(", ");
    match (names.is_empty(), more) {
        (true, _) => None,
        (false, 0) => Some(format!("{what}: {names}")),
        (false, more) => Some(format!("{what}: {names} and {more} more")),
    }
}

/// The pod's name, with its namespace unless that is the default one.
fn name(pod: &Value) -> String {
    let text = |pointer| pod.pointer(pointer).and_then(Value::as_str);
    let name = text("/metadata/name").unwrap_or_default();
    match text("/metadata/namespace") {
        None | Some("default") => name.to_owned(),
        Some(namespace) => format!("{namespace}/{name}"),
    }
}

fn pod(object: &Value) -> Pod {
    let text = |pointer| object.pointer(pointer).and_then(Value::as_str);
    let reason = waiting_reason(object);
    match (text("/status/phase"), reason) {
        (Some("Failed"), _) => {
            Pod::Failed(text("/status/reason").unwrap_or("a container failed").to_owned())
        }
        (Some("Succeeded"), _) => Pod::Running,
        (_, Some(reason)) => Pod::Waiting(reason),
        (Some("Running"), None) => Pod::Running,
        _ => Pod::Starting,
    }
}

/// The reason why a pod waits, as its node reports it.
fn waiting_reason(pod: &Value) -> Option<String> {
    let mut statuses = ["/status/initContainerStatuses", "/status/containerStatuses"]
        .iter()
        .filter_map(|list| pod.pointer(list)?.as_array())
        .flatten();
    statuses.find_map(|status| {
        let waiting = status.pointer("/state/waiting")?;
        let reason = waiting["reason"].as_str()?;
        let message = waiting["message"].as_str();
        let passing = matches!(reason, "ContainerCreating" | "PodInitializing");
        match message {
            None if passing => None,
            None => Some(reason.to_owned()),
            Some(message) => Some(format!("{reason}: {message}")),
        }
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pods(statuses: &[(&str, Value)]) -> Pods {
        let objects: Vec<Value> = statuses
            .iter()
            .map(|(name, status)| json!({"metadata": {"name": name}, "status": status}))
            .collect();
        Pods::of(&objects)
    }

    fn running() -> Value {
        json!({"phase": "Running"})
    }

    fn looping() -> Value {
        json!({"phase": "Running", "containerStatuses": [
            {"state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}}]})
    }

    #[test]
    fn first_the_whole_then_what_changed() {
        let mut announcements = PodAnnouncements::default();
        let first = pods(&[("a", running()), ("b", looping()), ("c", json!({"phase": "Failed"}))]);
        assert!(first.are_settled());
        assert_eq!(
            announcements.news(first.clone(), 2),
            [
                "1 of 3 pods run on 2 nodes",
                "  1 failed: a container failed",
                "  1 waiting: CrashLoopBackOff: back-off 10s",
            ]
        );
        assert!(announcements.news(first, 2).is_empty(), "no news");
        assert_eq!(
            announcements.news(pods(&[("a", running()), ("d", running())]), 2),
            ["added: d", "removed: b, c", "2 of 2 pods run on 2 nodes"]
        );
    }

    #[test]
    fn a_pod_that_appears_and_leaves_has_one_line() {
        let mut announcements = PodAnnouncements::default();
        announcements.news(pods(&[("a", running())]), 1);
        let stopped = announcements.news(pods(&[("a", looping())]), 1);
        assert_eq!(stopped[0], "not running: a (CrashLoopBackOff: back-off 10s)");
        assert!(announcements.news(pods(&[("a", running())]), 1).is_empty());
        assert!(announcements.news(pods(&[("a", looping())]), 1).is_empty());
    }

    #[test]
    fn a_pod_at_work_is_not_settled() {
        let creating = json!({"phase": "Pending", "containerStatuses": [
            {"state": {"waiting": {"reason": "ContainerCreating"}}}]});
        assert!(!pods(&[("a", creating)]).are_settled());
        assert!(!pods(&[("a", json!({}))]).are_settled());
        assert!(pods(&[]).are_settled());
    }

    #[test]
    fn a_line_stays_a_line() {
        let names = |count| (1..=count).map(|n| format!("p{n}")).collect();
        assert_eq!(line("added", names(0)), None);
        assert_eq!(line("added", names(2)).as_deref(), Some("added: p1, p2"));
        assert_eq!(
            line("added", names(7)).as_deref(),
            Some("added: p1, p2, p3, p4, p5 and 2 more")
        );
    }
}
