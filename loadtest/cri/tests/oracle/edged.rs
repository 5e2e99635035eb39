//! The pod worker's requests: it runs on the twin, with a scripted edge.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use headwater_cri_lab::{Cgroup, Twin};
use serde_json::{Value, json};

use crate::bench::Bench;
use crate::canonical::{PodRequests, Reader};
use crate::cases::{NAMESPACE, objects};
use crate::recording::containers;

/// As the kubelet's settings have them.
const CLUSTER_DNS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 96, 0, 10));
const PODS_MAX: u32 = 1_000;

/// The time limit of all requests.
const ASKED_WITHIN: Duration = Duration::from_mins(10);

/// Between two looks.
const POLL: Duration = Duration::from_millis(100);

/// What the pod worker asks of the twin for the pods.
pub(crate) async fn requests(twin: &Twin, pods: &[Value]) -> BTreeMap<String, PodRequests> {
    let mut bench = Bench::new(twin.socket());
    let cgroup = Cgroup::claim();
    bench.cgroup_root = cgroup.name().to_owned();
    bench.cluster_dns = vec![CLUSTER_DNS];
    bench.settings.pods_max = PODS_MAX;
    for mut object in objects() {
        let metadata = &mut object["metadata"];
        metadata["uid"] = format!("u-{}", metadata["name"].as_str().expect("a name")).into();
        if !matches!(object["kind"].as_str(), Some("PersistentVolume" | "RuntimeClass")) {
            object["metadata"]["namespace"] = NAMESPACE.into();
        }
        bench.edge.apply(&object);
    }
    let root = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "kube-root-ca.crt", "namespace": NAMESPACE}, "data": {"ca.crt": "c"},
    });
    bench.edge.apply(&root);
    bench.edge.set_token(Some("token"));
    pods.iter().for_each(|pod| bench.edge.apply(pod));
    let edged = bench.edged().await;
    let name = |pod: &Value| pod["metadata"]["name"].as_str().expect("a name").to_owned();
    let uid = |pod: &Value| pod["metadata"]["uid"].as_str().expect("a UID").to_owned();
    let uids: BTreeMap<_, _> = pods.iter().map(|pod| (name(pod), uid(pod))).collect();
    let root = bench.edged_dir();
    let cgroup = format!("/{}/", cgroup.name());
    let reader = Reader::new(&[
        (&root.join("logs").display().to_string(), "LOGS"),
        (&root.display().to_string(), "ROOT"),
        (&cgroup, "CGROUP/"),
    ]);
    let deadline = Instant::now() + ASKED_WITHIN;
    let requests = loop {
        let requests = reader.by_pod(&twin.recorded(), &uids);
        let is_whole = |pod: &&Value| {
            requests.get(&name(pod)).map_or(0, |it| it.containers.len()) >= containers(pod)
        };
        let lacking: Vec<String> = pods.iter().filter(|pod| !is_whole(pod)).map(name).collect();
        if lacking.is_empty() {
            break requests;
        }
        let status = |pod| crate::fake_edge::latest_status(&bench.edge.operations(), pod);
        let is_late = Instant::now() > deadline;
        assert!(!is_late, "{lacking:?} lack containers; the first: {:?}", status(&lacking[0]));
        tokio::time::sleep(POLL).await;
    };
    edged.stop().await;
    requests
}
