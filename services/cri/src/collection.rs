//! Runs and sandboxes that nothing needs any more.

use std::collections::BTreeSet;

use headwater_edged::pod::PodUid;
use headwater_edged::runtime::RuntimeError;

use crate::client::CallError;
use crate::knowledge::{Fact, Knowledge, Run};
use crate::proto::RemoveContainerRequest;
use crate::runtime::CriRuntime;

/// What is to be removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Leavings {
    /// Runs by id.
    runs: Vec<(String, Run)>,
    /// The ids of sandboxes.
    sandboxes: Vec<String>,
}

/// The runs that have ended but the newest `keep` of each container, and sandboxes that are not ready and that no run
/// is in after that. The newest sandbox of a pod has the number from which the next one counts, and stays. Of a pod that
/// is not known, all that has ended goes; what runs of it ends first, by its worker. Pure.
fn leavings(knowledge: &Knowledge, keep: usize, known: &BTreeSet<PodUid>) -> Leavings {
    let mut left = Leavings::default();
    for pod in knowledge.pods() {
        let is_known = known.contains(&pod);
        let mut staying = BTreeSet::new();
        for container in knowledge.containers(&pod) {
            let (mut ended, other): (Vec<_>, Vec<_>) = knowledge
                .runs_of(&pod, container)
                .into_iter()
                .partition(|(_, run)| run.has_ended());
            staying.extend(other.into_iter().map(|(_, run)| run.sandbox.as_str()));
            // The newest run has the number from which the next one counts.
            let kept = if is_known { keep.max(1) } else { 0 };
            let newest = ended.split_off(ended.len().saturating_sub(kept));
            staying.extend(newest.into_iter().map(|(_, run)| run.sandbox.as_str()));
            left.runs.extend(ended.into_iter().map(|(id, run)| (id.to_owned(), run.clone())));
        }
        let mut sandboxes = knowledge.sandboxes_of(&pod);
        if is_known {
            sandboxes.pop();
        }
        sandboxes.retain(|(id, sandbox)| !sandbox.is_ready && !staying.contains(id));
        left.sandboxes.extend(sandboxes.into_iter().map(|(id, _)| id.to_owned()));
    }
    left
}

impl CriRuntime {
    /// See [`headwater_edged::runtime::Runtime::collect`].
    pub(crate) async fn collect_leavings(
        &self,
        keep: usize,
        known: &BTreeSet<PodUid>,
    ) -> Result<(), RuntimeError> {
        let inner = self.inner();
        let (left, mut gone) =
            inner.with(|knowledge| (leavings(knowledge, keep, known), knowledge.pods()));
        let mut failed = None;
        for (id, run) in left.runs {
            let request = RemoveContainerRequest { container_id: id.clone() };
            let removed = inner.client.remove_container(request).await.map(drop);
            match removed.or_else(CallError::done_if_absent) {
                Ok(()) => {
                    let Run { pod, container, attempt, log, .. } = &run;
                    inner.files.remove_run(pod, log, container, *attempt, inner.log_files_max);
                    inner.learn(Fact::Removed { id });
                }
                Err(error) => failed = Some(error),
            }
        }
        for id in left.sandboxes {
            if let Err(error) = self.remove_sandbox(&id).await {
                failed = Some(error);
            }
        }
        let here = inner.with(Knowledge::pods);
        gone.retain(|pod| !known.contains(pod) && !here.contains(pod));
        for pod in &gone {
            if let Err(error) = inner.cgroups.remove(pod).await {
                tracing::warn!(%error, %pod, "the cgroup of a pod that is gone stays");
            }
        }
        inner.files.remove_other_logs(here).await?;
        match failed {
            Some(error) => Err(RuntimeError::Sandbox { cause: error.to_string() }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use jiff::Timestamp;

    use super::*;
    use crate::knowledge::{Phase, Sandbox};

    fn uid(name: &str) -> PodUid {
        PodUid::try_from(name.to_owned()).expect("a UID")
    }

    /// The knowledge of sandboxes (pod, number, ready) and runs (pod, container, number, sandbox, ended).
    fn knowledge(
        sandboxes: &[(&str, u32, bool)],
        runs: &[(&str, &str, u32, u32, bool)],
    ) -> Knowledge {
        let mut knowledge = Knowledge::default();
        for (pod, attempt, is_ready) in sandboxes {
            let sandbox = Sandbox {
                pod: uid(pod),
                attempt: *attempt,
                is_ready: *is_ready,
                is_closed: false,
                addresses: Vec::new(),
            };
            knowledge.fold(Fact::Sandbox(format!("{pod}-{attempt}"), sandbox));
        }
        for (pod, container, attempt, sandbox, has_ended) in runs {
            let started_at = Timestamp::UNIX_EPOCH;
            let run = Run {
                pod: uid(pod),
                container: (*container).to_owned(),
                attempt: *attempt,
                sandbox: format!("{pod}-{sandbox}"),
                image_id: None,
                log: PathBuf::new(),
                falls_back_to_logs: false,
                is_oom: false,
                process_end: None,
                phase: Phase::Running { started_at },
            };
            let id = format!("{pod}-{container}-{attempt}");
            knowledge.fold(Fact::Run(id.clone(), run));
            if *has_ended {
                knowledge.fold(Fact::Exit { id, code: 0, at: started_at });
            }
        }
        knowledge
    }

    #[test]
    fn one_ended_run_stays_for_each_container_and_nothing_of_a_pod_that_is_gone() {
        let known = BTreeSet::from([uid("a"), uid("b")]);
        let of = |sandboxes: &[_], runs: &[_]| {
            let left = leavings(&knowledge(sandboxes, runs), 1, &known);
            let runs = left.runs.into_iter().map(|(id, _)| id);
            runs.chain(left.sandboxes).collect::<Vec<_>>().join(" ")
        };
        let one = [("a", 0, true)];
        for (expected, sandboxes, runs) in [
            ("", &one[..], &[("a", "x", 0, 0, false)][..]),
            ("", &one, &[("a", "x", 0, 0, true), ("a", "x", 1, 0, false)]),
            ("", &one, &[("a", "x", 0, 0, true), ("a", "y", 0, 0, true)]),
            (
                "a-x-0 a-x-1",
                &one,
                &[("a", "x", 0, 0, true), ("a", "x", 1, 0, true), ("a", "x", 2, 0, true)],
            ),
            // The number of the newest sandbox is needed, ready or not.
            ("", &[("a", 0, false)], &[]),
            ("a-0", &[("a", 0, false), ("a", 1, false)], &[]),
            ("", &[("a", 0, false), ("a", 1, true)], &[("a", "x", 0, 0, true)]),
            (
                "a-x-0 a-0",
                &[("a", 0, false), ("a", 1, true)],
                &[("a", "x", 0, 0, true), ("a", "x", 1, 1, true)],
            ),
            ("gone-x-0 gone-0", &[("gone", 0, false)], &[("gone", "x", 0, 0, true)]),
            // A pod without a record gets one, and its worker ends what runs.
            (
                "gone-x-0",
                &[("gone", 0, true)],
                &[("gone", "x", 0, 0, true), ("gone", "y", 0, 0, false)],
            ),
            ("", &[("gone", 0, false)], &[("gone", "x", 0, 0, false)]),
        ] {
            assert_eq!(of(sandboxes, runs), expected, "{sandboxes:?} {runs:?}");
        }
    }
}
