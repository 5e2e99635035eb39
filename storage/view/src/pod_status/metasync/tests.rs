//! MetaSync: a difference applied to its base gives the snapshot it was made of.

use headwater_event::NodeName;
use proptest::prelude::*;

use super::*;
use crate::pod_status::StatusDigest;

fn node() -> NodeName {
    "gw-1".parse().expect("a node name")
}

fn snapshot(pods: &[(u8, u8)]) -> PodStatusSnapshot {
    let mut snapshot = PodStatusSnapshot::new(&node());
    for (pod, status) in pods {
        let pod = format!("ns/pod/p{pod}").parse().expect("well-formed");
        snapshot.set(pod, StatusDigest::of("uid", &[*status]));
    }
    snapshot
}

fn apply(
    mut cloud: PodStatusSnapshot,
    difference: &Difference,
    current: &PodStatusSnapshot,
) -> PodStatusSnapshot {
    for pod in &difference.changed {
        let digest = current.get(pod).expect("what changed is there").clone();
        assert!(cloud.set(pod.clone(), digest), "{pod} had not changed");
    }
    for (pod, uid) in &difference.removed {
        assert_eq!(cloud.remove(pod).expect("what left was there").uid, *uid);
    }
    cloud
}

fn pods() -> impl Strategy<Value = Vec<(u8, u8)>> {
    proptest::collection::vec((0u8..12, 0u8..4), 0..12)
}

proptest! {
    #[test]
    fn a_difference_turns_one_snapshot_into_the_other(a in pods(), b in pods()) {
        let (a, b) = (snapshot(&a), snapshot(&b));
        let difference = diff(&a, &b);
        prop_assert_eq!(difference.is_empty(), a == b);
        prop_assert_eq!(a == b, a.hash() == b.hash());
        let became = apply(a, &difference, &b);
        prop_assert_eq!(&became, &b);
        prop_assert_eq!(became.hash(), b.hash());
        prop_assert!(diff(&became, &b).is_empty(), "the difference of equal snapshots is empty");
        prop_assert_eq!(full(&b).changed.len(), b.len());
    }

    #[test]
    fn the_hash_does_not_depend_on_the_order(mut pods in proptest::collection::btree_map(0u8..40, 0u8..4, 0..20).prop_map(Vec::from_iter)) {
        let forward = snapshot(&pods);
        pods.reverse();
        prop_assert_eq!(forward.hash(), snapshot(&pods).hash());
    }
}

#[test]
fn another_pod_of_the_same_name_or_another_node_is_another_snapshot() {
    let pod: ResourceKey = "ns/pod/p".parse().expect("well-formed");
    let of = |node: &str, uid: &str| {
        let mut snapshot = PodStatusSnapshot::new(&node.parse().expect("a node name"));
        snapshot.set(pod.clone(), StatusDigest::of(uid, b"{}"));
        snapshot.hash()
    };
    assert_ne!(of("a", "1"), of("a", "2"));
    assert_ne!(of("a", "1"), of("b", "1"));
}

#[test]
fn a_closing_stays_full_until_the_full_one_is_acknowledged() {
    let first = ReportId { boot: 2, seq: 7, ..ReportId::default() };
    let current = snapshot(&[(1, 1), (2, 1)]);
    let closed = close(&current, Some(first));
    assert!(closed.full);
    assert_eq!((closed.first, closed.pods, closed.hash), (first, 2, current.hash()));
    assert!(!close(&current, None).full);
}
