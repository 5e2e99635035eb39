//! Unadapted manifests from practice: the objects that are taken, and the notices about the rest.
//!
//! They lie beside the repository, in `../shared/manifests`, and are not part of it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use headwater_controller::source::NoticeKind;
use headwater_controller::source::manifest::{Folder, ObjectIdentity, ScanLimits, scan};
use headwater_controller::{Notice, SourceEvent};
use headwater_event::NodeName;
use headwater_object::Object;
use jiff::Timestamp;

/// The outcome of a folder's first scan.
struct FirstScan {
    objects: Vec<Object>,
    notices: Vec<Notice>,
    /// How many events a second look gave.
    again: usize,
}

impl FirstScan {
    fn count(&self, kind: &str) -> usize {
        self.objects.iter().filter(|object| object.key().kind() == kind).count()
    }
}

/// Documents that describe an object once more: 51, but for six StorageClasses called `fast` and
/// four called `slow`, and a ServiceMonitor, which are only counted.
const DUPLICATES_IN_EXAMPLES: usize = 51 - 6 - 4 - 1;

/// Where the notices about something point, in the order of paths.
fn places(looked: &FirstScan, kind: NoticeKind) -> Vec<String> {
    let of_concern = looked.notices.iter().filter(|notice| notice.kind == kind);
    let place = |notice: &Notice| {
        let file = notice.file.as_deref().map(Path::to_string_lossy).unwrap_or_default();
        format!("{file}:{}", notice.line.unwrap_or_default())
    };
    of_concern.map(place).collect()
}

/// Every pod but those that wait is on a node, and no node has more than one pod more than another.
fn assert_spread(looked: &FirstScan, waiting: usize) {
    let pods = looked.objects.iter().filter(|object| object.key().kind() == "pod");
    let (placed, homeless): (Vec<_>, Vec<_>) =
        pods.map(|pod| pod.node()).partition(Option::is_some);
    assert_eq!(homeless.len(), waiting, "pods without a node");
    let mut loads = BTreeMap::<&NodeName, usize>::new();
    for node in placed.into_iter().flatten() {
        *loads.entry(node).or_default() += 1;
    }
    let most = loads.values().max().expect("pods");
    assert!(loads.len() == 3 && loads.values().all(|load| load + 1 >= *most), "{loads:?}");
}

/// Looks at a folder of manifests with three nodes; `None`, aloud, where it is absent.
fn look(name: &str) -> Option<FirstScan> {
    // Asked of cargo when the test runs: clones share what is built.
    let here = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo runs the tests");
    let folder = Path::new(&here).join("../../../shared/manifests").join(name);
    if !folder.is_dir() {
        assert!(std::env::var_os("CI").is_none(), "CI needs the manifests in {}", folder.display());
        eprintln!("SKIPPED: there are no manifests in {}", folder.display());
        return None;
    }
    let nodes: BTreeSet<NodeName> =
        (1..=3).map(|n| format!("node-{n}").parse().expect("a node name")).collect();
    let published: BTreeMap<_, _> = BTreeMap::new();
    let mut uid = 0;
    let mut identities = || {
        uid += 1;
        ObjectIdentity { uid: format!("uid-{uid}"), time: Timestamp::UNIX_EPOCH }
    };
    let mut state = Folder::new(name, false);
    let mut look = || {
        let scan = scan(&folder, &ScanLimits::default()).expect("readable");
        state.update(scan, &nodes, &published, &mut identities).expect("an ordinary folder")
    };
    let (mut objects, mut notices) = (Vec::new(), Vec::new());
    for event in look() {
        match event {
            SourceEvent::InitApply(object) => objects.push(object),
            SourceEvent::Notice(notice) => notices.push(notice),
            SourceEvent::Init | SourceEvent::InitDone => {}
            other => panic!("only a list at first, not {other:?}"),
        }
    }
    Some(FirstScan { objects, notices, again: look().len() })
}

/// What an object is for, and how many there are.
fn assert_counts(looked: &FirstScan, expected: &[(&str, usize)]) {
    let found: BTreeSet<&str> = looked.objects.iter().map(|object| object.key().kind()).collect();
    assert_eq!(found, expected.iter().map(|(kind, _)| *kind).collect());
    for (kind, count) in expected {
        assert_eq!(looked.count(kind), *count, "{kind}");
    }
}

#[test]
fn kubernetes_examples_are_taken_and_what_is_wrong_with_them_is_named() {
    let Some(looked) = look("kubernetes-examples") else { return };
    // Counted by another program too: bare pods, workloads by their replicas, four DaemonSets on
    // three nodes each, and of the 24 pods of four StatefulSets the first of each, with its claim: the
    // others wait until it is Ready.
    assert_counts(
        &looked,
        &[
            ("pod", 245 - 24 + 4),
            ("service", 45),
            ("endpoints", 2),
            ("secret", 9),
            ("configmap", 1),
            ("persistentvolume", 4),
            ("persistentvolumeclaim", 15 + 4),
            ("serviceaccount", 2),
        ],
    );
    let vitess = "_archived/storage/vitess";
    assert_eq!(
        places(&looked, NoticeKind::Unreadable),
        [
            "_archived/newrelic/newrelic-config-template.yaml:7",
            "_archived/newrelic-infrastructure/newrelic-config-template.yaml:7",
            &format!("{vitess}/etcd-controller-template.yaml:6"),
            &format!("{vitess}/etcd-service-template.yaml:7"),
            &format!("{vitess}/vtgate-controller-template.yaml:6"),
        ]
    );
    assert_eq!(
        places(&looked, NoticeKind::Invalid),
        [
            &format!("{vitess}/vttablet-pod-template.yaml:1"),
            "_archived/volumes/fibre_channel/fc.yaml:1",
            "databases/cassandra/image/files/cassandra.yaml:10",
            "databases/cassandra/java/src/test/resources/cassandra.yaml:18",
        ]
    );
    assert_eq!(
        places(&looked, NoticeKind::Doubtful),
        [
            "_archived/openshift-origin/etcd-controller.yaml:12",
            "_archived/openshift-origin/etcd-discovery-controller.yaml:12",
            "_archived/openshift-origin/openshift-controller.yaml:12",
            "_archived/persistent-volume-provisioning/quobyte/quobyte-admin-secret.yaml:9",
            // Unknown fields of volumes: misspelt, or never part of them.
            "_archived/volumes/rbd/rbd.yaml:25",
            "_archived/volumes/rbd/rbd.yaml:26",
            "_archived/volumes/scaleio/pod.yaml:17",
            "_archived/volumes/scaleio/sc-pvc.yaml:12",
            "_archived/volumes/storageos/storageos-pod.yaml:35",
            "_archived/volumes/storageos/storageos-pv.yaml:22",
        ]
    );
    assert_eq!(places(&looked, NoticeKind::Duplicate).len(), DUPLICATES_IN_EXAMPLES);
    assert_eq!(places(&looked, NoticeKind::NotReplicated).len(), 14, "kinds");
    // A hundred replicas ask for one port of the machine, and there are three machines.
    assert_eq!(places(&looked, NoticeKind::Unplaced), ["_archived/sysdig-cloud/sysdig-rc.yaml:3"]);
    let asks = |notice: &Notice| notice.text.ends_with("asking for port 6666/TCP");
    assert!(looked.notices.iter().any(asks), "{:?}", looked.notices);
    assert_spread(&looked, 100 - 3);
    assert_eq!(looked.again, 0, "a second scan sends nothing");
}

#[test]
fn online_boutique_is_taken_and_its_release_manifest_named_as_a_copy() {
    let Some(looked) = look("online-boutique") else { return };
    assert_counts(&looked, &[("pod", 12), ("service", 12), ("serviceaccount", 11)]);
    assert_eq!(places(&looked, NoticeKind::Duplicate).len(), 12 + 12 + 11);
    assert_eq!(places(&looked, NoticeKind::NotReplicated), ["kustomization.yaml:15"]);
    assert_eq!(looked.notices.len(), 12 + 12 + 11 + 1, "and nothing else is wrong");
    assert_spread(&looked, 0);
    assert_eq!(looked.again, 0, "a second scan sends nothing");
}
