//! The results of probes, counted for readers beside the pod workers.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::signal::ProbeKind;
use crate::pod::PodUid;

/// The results of all probes of a node. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProbeTotals(Arc<Mutex<BTreeMap<PodUid, PodCounters>>>);

/// The counters of one pod, which leave the totals with this.
#[derive(Debug)]
pub(crate) struct PodProbeTotals {
    totals: ProbeTotals,
    pod: PodUid,
}

/// The counter of one probe. It goes on when its container starts again.
#[derive(Debug, Default)]
pub(crate) struct ProbeCounter {
    successes: AtomicU64,
    failures: AtomicU64,
}

/// The results of one probe, since its pod got its worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeTotal {
    /// The pod.
    pub pod: PodUid,
    /// The container.
    pub container: String,
    /// `Startup`, `Readiness` or `Liveness`.
    pub kind: &'static str,
    /// How often the container answered well.
    pub successes: u64,
    /// How often it did not, or not in time.
    pub failures: u64,
}

type PodCounters = BTreeMap<(String, ProbeKind), Arc<ProbeCounter>>;

impl ProbeTotals {
    /// The counters of a pod.
    pub(crate) fn pod(&self, pod: &PodUid) -> PodProbeTotals {
        PodProbeTotals { totals: self.clone(), pod: pod.clone() }
    }

    /// The results of every probe, by pod and container.
    pub(crate) fn list(&self) -> Vec<ProbeTotal> {
        let pods = self.lock();
        let counters = pods.iter().flat_map(|(pod, counters)| {
            counters.iter().map(move |((container, kind), counter)| ProbeTotal {
                pod: pod.clone(),
                container: container.clone(),
                kind: kind.title(),
                successes: counter.successes.load(Ordering::Relaxed),
                failures: counter.failures.load(Ordering::Relaxed),
            })
        });
        counters.collect()
    }

    /// The map is whole after a panic: each change of it is one insertion or removal.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<PodUid, PodCounters>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PodProbeTotals {
    /// The counter of a container's probe.
    pub(crate) fn counter(&self, container: &str, kind: ProbeKind) -> Arc<ProbeCounter> {
        let mut pods = self.totals.lock();
        let counters = pods.entry(self.pod.clone()).or_default();
        counters.entry((container.to_owned(), kind)).or_default().clone()
    }
}

impl Drop for PodProbeTotals {
    fn drop(&mut self) {
        self.totals.lock().remove(&self.pod);
    }
}

impl ProbeCounter {
    /// Counts a result.
    pub(crate) fn count(&self, is_success: bool) {
        let counter = if is_success { &self.successes } else { &self.failures };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_counts_on_over_the_runs_of_its_container_until_the_pod_leaves() {
        let totals = ProbeTotals::default();
        let uid = |text: &str| PodUid::try_from(text.to_owned()).expect("a UID");
        let (first, second) = (totals.pod(&uid("1")), totals.pod(&uid("2")));
        first.counter("main", ProbeKind::Liveness).count(true);
        first.counter("main", ProbeKind::Liveness).count(false);
        second.counter("main", ProbeKind::Readiness).count(true);
        let total = |pod: &str, kind, successes, failures| ProbeTotal {
            pod: uid(pod),
            container: "main".to_owned(),
            kind,
            successes,
            failures,
        };
        let of_second = total("2", "Readiness", 1, 0);
        assert_eq!(totals.list(), [total("1", "Liveness", 1, 1), of_second.clone()]);
        drop(first);
        assert_eq!(totals.list(), [of_second]);
    }
}
