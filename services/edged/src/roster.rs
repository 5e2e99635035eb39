//! Which pods have a worker: pure, from the desired state, the workers and what the runtime found.

use std::collections::{BTreeMap, BTreeSet};

use headwater_event::ResourceKey;

use crate::pod::{PodRecord, PodUid};

/// A change to the set of workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Give this desired pod a worker.
    Add(ResourceKey),
    /// The pod of this worker is wanted no more.
    Remove(PodUid),
    /// Give what was found a worker that ends it and cleans up.
    Orphan(PodRecord),
}

/// Compares what should have a worker with what has one.
///
/// A pod gets its worker only when nothing of another UID is left under its name. What is absent
/// from the desired state ends only if `absence_counts`; what stands under the name of a desired
/// pod is known to be outlived, and ends in any case.
pub fn steps(
    desired: &BTreeMap<ResourceKey, PodUid>,
    workers: &BTreeMap<PodUid, ResourceKey>,
    found: &[PodRecord],
    absence_counts: bool,
) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut occupied = BTreeSet::new();
    let outlived =
        |key: &ResourceKey, uid: &PodUid| desired.get(key).map_or(absence_counts, |d| d != uid);
    for (uid, key) in workers {
        occupied.insert(key);
        if outlived(key, uid) {
            steps.push(Step::Remove(uid.clone()));
        }
    }
    for record in found.iter().filter(|record| !workers.contains_key(&record.uid)) {
        if outlived(&record.key, &record.uid) {
            occupied.insert(&record.key);
            steps.push(Step::Orphan(record.clone()));
        }
    }
    for (key, uid) in desired {
        if !workers.contains_key(uid) && !occupied.contains(key) {
            steps.push(Step::Add(key.clone()));
        }
    }
    steps
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
        }
    }

    #[test]
    fn a_desired_pod_without_a_worker_gets_one() {
        let desired = BTreeMap::from([(key("a"), uid("1"))]);
        let steps = steps(&desired, &BTreeMap::new(), &[], false);
        assert_eq!(steps, [Step::Add(key("a"))]);
    }

    #[test]
    fn absence_before_the_first_complete_view_ends_nothing() {
        let workers = BTreeMap::from([(uid("1"), key("a"))]);
        let found = [record("b", "2")];
        assert_eq!(steps(&BTreeMap::new(), &workers, &found, false), []);
        assert_eq!(
            steps(&BTreeMap::new(), &workers, &found, true),
            [Step::Remove(uid("1")), Step::Orphan(record("b", "2"))]
        );
    }

    #[test]
    fn another_uid_under_the_same_name_is_a_removal_then_an_addition() {
        let desired = BTreeMap::from([(key("a"), uid("2"))]);
        let workers = BTreeMap::from([(uid("1"), key("a"))]);
        assert_eq!(steps(&desired, &workers, &[], false), [Step::Remove(uid("1"))]);
        // What an earlier life of this process left under the name goes first, too.
        let found = [record("a", "1")];
        let left = steps(&desired, &BTreeMap::new(), &found, false);
        assert_eq!(left, [Step::Orphan(record("a", "1"))]);
        assert_eq!(steps(&desired, &BTreeMap::new(), &[], false), [Step::Add(key("a"))]);
    }

    #[test]
    fn what_the_runtime_found_of_a_desired_pod_is_adopted() {
        let desired = BTreeMap::from([(key("a"), uid("1"))]);
        let found = [record("a", "1")];
        assert_eq!(steps(&desired, &BTreeMap::new(), &found, true), [Step::Add(key("a"))]);
    }
}
