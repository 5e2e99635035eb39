//! Which pods have a worker. Pure: decided from the desired pods, the workers, and the pods that are
//! on this machine.

use std::collections::{BTreeMap, BTreeSet};

use headwater_event::ResourceKey;

pub use crate::desired::Completeness;
use crate::pod::{PodRecord, PodUid};

/// A change to the set of workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkerChange {
    /// Give this desired pod a worker.
    Add(ResourceKey),
    /// End the pod of this worker: it is not desired any more.
    Remove(PodUid),
    /// Give this pod, which is on the machine, a worker that ends it and cleans up.
    Orphan(PodRecord),
}

/// A pod that has a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkedPod {
    /// Its key.
    pub key: ResourceKey,
    /// Whether it comes from a file of the node.
    pub is_static: bool,
}

/// Compares the pods that should have a worker with those that have one.
///
/// A pod gets its worker only when nothing of another UID is left under its name. A pod that is
/// absent from the desired pods ends only if those of its origin are `complete`. A pod whose name
/// belongs to a desired pod of another UID is superseded, and ends in any case.
pub fn changes(
    desired: &BTreeMap<ResourceKey, PodUid>,
    workers: &BTreeMap<PodUid, WorkedPod>,
    found: &[PodRecord],
    complete: &Completeness,
) -> Vec<WorkerChange> {
    let mut changes = Vec::new();
    let mut occupied = BTreeSet::new();
    let superseded = |key: &ResourceKey, uid: &PodUid, is_static: bool| {
        let is_gone = match is_static {
            true => complete.files || complete.removed.contains(key),
            false => complete.view,
        };
        desired.get(key).map_or(is_gone, |d| d != uid)
    };
    for (uid, WorkedPod { key, is_static }) in workers {
        occupied.insert(key);
        if superseded(key, uid, *is_static) {
            changes.push(WorkerChange::Remove(uid.clone()));
        }
    }
    for record in found.iter().filter(|record| !workers.contains_key(&record.uid)) {
        if superseded(&record.key, &record.uid, record.is_static) {
            occupied.insert(&record.key);
            changes.push(WorkerChange::Orphan(record.clone()));
        }
    }
    for (key, uid) in desired {
        if !workers.contains_key(uid) && !occupied.contains(key) {
            changes.push(WorkerChange::Add(key.clone()));
        }
    }
    changes
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn key(name: &str) -> ResourceKey {
        ResourceKey::new(Some("shop"), "pod", name).expect("well-formed")
    }

    fn uid(text: &str) -> PodUid {
        PodUid::try_from(text.to_owned()).expect("plain")
    }

    fn record(name: &str, text: &str) -> PodRecord {
        PodRecord {
            uid: uid(text),
            key: key(name),
            grace_seconds: 30,
            seen_at: Timestamp::UNIX_EPOCH,
            seen_in_boot: None,
            is_static: false,
        }
    }

    const NOTHING: Completeness = of_view(false);
    const VIEW: Completeness = of_view(true);

    const fn of_view(view: bool) -> Completeness {
        Completeness { view, files: false, removed: BTreeSet::new() }
    }

    fn worked(name: &str) -> WorkedPod {
        WorkedPod { key: key(name), is_static: false }
    }

    #[test]
    fn a_desired_pod_without_a_worker_gets_one() {
        let desired = BTreeMap::from([(key("a"), uid("1"))]);
        let changes = changes(&desired, &BTreeMap::new(), &[], &NOTHING);
        assert_eq!(changes, [WorkerChange::Add(key("a"))]);
    }

    #[test]
    fn absence_before_the_first_complete_view_ends_nothing() {
        let workers = BTreeMap::from([(uid("1"), worked("a"))]);
        let found = [record("b", "2")];
        assert_eq!(changes(&BTreeMap::new(), &workers, &found, &NOTHING), []);
        assert_eq!(
            changes(&BTreeMap::new(), &workers, &found, &VIEW),
            [WorkerChange::Remove(uid("1")), WorkerChange::Orphan(record("b", "2"))]
        );
    }

    #[test]
    fn another_uid_under_the_same_name_is_a_removal_then_an_addition() {
        let desired = BTreeMap::from([(key("a"), uid("2"))]);
        let workers = BTreeMap::from([(uid("1"), worked("a"))]);
        assert_eq!(changes(&desired, &workers, &[], &NOTHING), [WorkerChange::Remove(uid("1"))]);
        // A pod that an earlier run of this process left under the name ends first, too.
        let found = [record("a", "1")];
        let left = changes(&desired, &BTreeMap::new(), &found, &NOTHING);
        assert_eq!(left, [WorkerChange::Orphan(record("a", "1"))]);
        assert_eq!(
            changes(&desired, &BTreeMap::new(), &[], &NOTHING),
            [WorkerChange::Add(key("a"))]
        );
    }

    #[test]
    fn a_desired_pod_that_is_on_the_machine_is_adopted() {
        let desired = BTreeMap::from([(key("a"), uid("1"))]);
        let found = [record("a", "1")];
        assert_eq!(
            changes(&desired, &BTreeMap::new(), &found, &VIEW),
            [WorkerChange::Add(key("a"))]
        );
    }

    #[test]
    fn a_static_pod_ends_with_its_file_and_no_other_pod_does() {
        let is_static = |record| PodRecord { is_static: true, ..record };
        let found = [is_static(record("a", "1")), record("b", "2")];
        let workers = BTreeMap::from([(uid("3"), WorkedPod { is_static: true, ..worked("c") })]);
        assert_eq!(
            changes(&BTreeMap::new(), &workers, &found, &VIEW),
            [WorkerChange::Orphan(record("b", "2"))]
        );
        // One file was seen to go, whatever becomes of the others.
        let removed = [key("c")].into();
        let one = Completeness { removed, ..NOTHING };
        let remove = [WorkerChange::Remove(uid("3"))];
        assert_eq!(changes(&BTreeMap::new(), &workers, &found, &one), remove);
        let files = Completeness { files: true, ..NOTHING };
        assert_eq!(
            changes(&BTreeMap::new(), &workers, &found, &files),
            [WorkerChange::Remove(uid("3")), WorkerChange::Orphan(is_static(record("a", "1")))]
        );
    }
}
