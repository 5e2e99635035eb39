//! The failures of probes that keep a container from being ready, as the pod's status names them.

use std::str::FromStr as _;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::PodStatus;

use super::signal::ProbeKind;

/// The condition of a pod whose probes fail: a line of its message for each of them. A condition of
/// our own, which is absent while no probe fails.
pub(crate) const PROBE_FAILING: &str = "headwater/ProbeFailing";

/// The bytes of a probe's answer that a status has.
const ANSWER_BYTES_MAX: usize = 512;

/// A probe that fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProbeFailure {
    /// The probe.
    pub(crate) kind: ProbeKind,
    /// The time of the first failure after the last success, in whole seconds, as a status has it.
    pub(crate) since: Timestamp,
    /// The last answer, on one line.
    pub(crate) answer: String,
}

impl ProbeFailure {
    /// A failure with this answer, which is brought on one line of a bounded length.
    pub(crate) fn new(kind: ProbeKind, since: Timestamp, answer: &str) -> Self {
        let words: Vec<&str> = answer.split_whitespace().collect();
        let mut answer = words.join(" ");
        answer.truncate(answer.floor_char_boundary(ANSWER_BYTES_MAX));
        let since = Timestamp::from_second(since.as_second()).unwrap_or(since);
        Self { kind, since, answer }
    }

    /// The line of a status that names this failure of a container.
    pub(crate) fn line(&self, container: &str) -> String {
        let Self { kind, since, answer } = self;
        format!("container {container}: {} probe has failed since {since}: {answer}", kind.name())
    }

    /// Reads a line that [`Self::line`] made: the container and its failure.
    fn of_line(line: &str) -> Option<(&str, Self)> {
        let (container, rest) = line.strip_prefix("container ")?.split_once(": ")?;
        let (kind, rest) = rest.split_once(" probe has failed since ")?;
        let kind = ProbeKind::ALL.into_iter().find(|one| one.name() == kind)?;
        let (since, answer) = rest.split_once(": ")?;
        let since = Timestamp::from_str(since).ok()?;
        Some((container, Self { kind, since, answer: answer.to_owned() }))
    }

    /// The failures that a status has of this container.
    pub(super) fn of_status(status: &PodStatus, container: &str) -> Vec<Self> {
        let conditions = status.conditions.as_deref().unwrap_or_default();
        let condition = conditions.iter().find(|condition| condition.type_ == PROBE_FAILING);
        let message = condition.and_then(|condition| condition.message.as_deref());
        let failures = message.unwrap_or_default().lines().filter_map(Self::of_line);
        failures.filter(|(name, _)| *name == container).map(|(_, failure)| failure).collect()
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::PodCondition;

    use super::*;

    fn failure(kind: ProbeKind, answer: &str) -> ProbeFailure {
        let since = "2026-01-02T03:04:05.678Z".parse().expect("a time");
        ProbeFailure::new(kind, since, answer)
    }

    #[test]
    fn a_status_names_the_probe_its_answer_and_its_first_failure() {
        let line = failure(ProbeKind::Readiness, "command exited with 1: no\n\tdatabase\n");
        assert_eq!(
            line.line("main"),
            "container main: readiness probe has failed since 2026-01-02T03:04:05Z: command exited \
             with 1: no database"
        );
    }

    #[test]
    fn a_worker_reads_the_failures_of_its_containers_back() {
        let main = [
            failure(ProbeKind::Readiness, "HTTP probe failed with statuscode: 503"),
            failure(ProbeKind::Liveness, "no response in 1s"),
        ];
        let side = failure(ProbeKind::Startup, "cannot connect to 127.0.0.1:1: refused");
        let lines = [main[0].line("main"), side.line("side"), main[1].line("main")];
        let condition = PodCondition {
            type_: PROBE_FAILING.to_owned(),
            message: Some(lines.join("\n")),
            ..PodCondition::default()
        };
        let status = PodStatus { conditions: Some(vec![condition]), ..PodStatus::default() };
        assert_eq!(ProbeFailure::of_status(&status, "main"), main);
        assert_eq!(ProbeFailure::of_status(&status, "side"), [side]);
        assert_eq!(ProbeFailure::of_status(&status, "other"), []);
        assert_eq!(ProbeFailure::of_status(&PodStatus::default(), "main"), []);
    }

    #[test]
    fn an_answer_is_bounded() {
        let long = failure(ProbeKind::Liveness, &"ä".repeat(1_000));
        assert_eq!(long.answer.len(), ANSWER_BYTES_MAX);
    }
}
