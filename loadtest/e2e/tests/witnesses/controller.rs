//! Memory of the controller: what one pod of a large fleet takes in the interest and in the manifest
//! source. A controller of a million pods takes a million times as much.

use std::collections::BTreeSet;
use std::path::PathBuf;

use allocation_counter::AllocationInfo;
use headwater_controller::source::manifest::{Folder, ObjectIdentity, Scan};
use headwater_controller::{Interest, PublishedObject, SourceEvent};
use headwater_event::{NodeName, ResourceKey};
use headwater_object::Object;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};

use crate::figure::{Figure, witness};

const NODES: u64 = 40;
const PODS: u64 = 100;

/// Its key, head and uses, and the payload as a patch to another one.
const INTEREST: Figure = Figure { what: "bytes of a pod in the interest", is: 998.0, within: 0.05 };
/// Its entry, and what was sent of it.
const MANIFEST: Figure =
    Figure { what: "bytes of a pod in the manifest source", is: 818.0, within: 0.05 };

/// A pod as real ones are: most of it is the same in each, and digests and settings differ.
fn pod(node: u64, n: u64) -> Value {
    let mut random = StdRng::seed_from_u64(node * PODS + n);
    let mut hex = |digits: usize| -> String {
        (0..digits).map(|_| char::from(b"0123456789abcdef"[random.random_range(0..16)])).collect()
    };
    let (template, image) = (hex(10), hex(64));
    let env: Vec<Value> =
        (0..8).map(|at| json!({"name": format!("SETTING_{at}"), "value": hex(8)})).collect();
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("pod-{node}-{n}"), "namespace": format!("team-{}", n % 40),
            "labels": {"app": "till", "tier": "edge", "pod-template-hash": template},
        },
        "spec": {
            "nodeName": format!("node-{node}"), "terminationGracePeriodSeconds": 30,
            "serviceAccountName": "till", "tolerations": [{"key": "edge", "operator": "Exists"}],
            "containers": [{
                "name": "main", "image": format!("registry.example/till@sha256:{image}"),
                "args": ["--config", "/etc/till/config.yaml", "--zone", format!("zone-{}", n % 9)],
                "env": env, "ports": [{"containerPort": 8080, "name": "http"}],
                "resources": {
                    "requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "128Mi"},
                },
                "livenessProbe": {
                    "httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 10,
                },
            }],
        },
    })
}

fn uid(n: u64) -> String {
    format!("00000000-0000-4000-8000-{n:012}")
}

/// Bytes that stay, for each pod.
fn for_each_pod(allocated: &AllocationInfo) -> f64 {
    allocated.bytes_current as f64 / (NODES * PODS) as f64
}

#[test]
fn a_pod_of_a_fleet_takes_so_much_of_the_interest() {
    let mut interest = Interest::new();
    let allocated = allocation_counter::measure(|| {
        for node in 0..NODES {
            for n in 0..PODS {
                let mut pod = pod(node, n);
                pod["metadata"]["uid"] = uid(node * PODS + n).into();
                interest.apply(Object::from_value(pod).expect("a pod"));
            }
        }
    });
    assert_eq!(interest.objects_count() as u64, NODES * PODS);
    witness([(INTEREST, for_each_pod(&allocated))]);
}

#[test]
fn a_pod_of_a_fleet_takes_so_much_of_the_manifest_source() {
    let nodes: BTreeSet<NodeName> = BTreeSet::new();
    let nothing = std::collections::BTreeMap::<ResourceKey, PublishedObject>::new();
    let mut count = 0;
    let mut identity = || {
        count += 1;
        ObjectIdentity { uid: uid(count), time: jiff::Timestamp::UNIX_EPOCH }
    };
    let file = |node: u64| {
        let pods: Vec<Value> = (0..PODS).map(|n| pod(node, n)).collect();
        let list = json!({"apiVersion": "v1", "kind": "List", "items": pods});
        (PathBuf::from(format!("node-{node}.json")), Ok(list.to_string()))
    };
    let mut folder = Folder::new("fleet", false);
    let mut listed = 0;
    let allocated = allocation_counter::measure(|| {
        let scan = Scan { files: (0..NODES).map(file).collect(), ..Scan::default() };
        let events = folder.update(scan, &nodes, &nothing, &mut identity).expect("a folder");
        listed = events.iter().filter(|event| matches!(event, SourceEvent::InitApply(_))).count();
    });
    assert_eq!(listed as u64, NODES * PODS);
    witness([(MANIFEST, for_each_pod(&allocated))]);
}
