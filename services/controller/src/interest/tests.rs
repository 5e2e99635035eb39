//! How interest grows, shrinks, and what that costs.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn object(kind: &str, name: &str, more: Value) -> Object {
    let mut value = json!({
        "apiVersion": "v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "d", "uid": format!("uid-{name}")},
    });
    for (field, content) in more.as_object().expect("fields") {
        value[field] = content.clone();
    }
    Object::from_value(value).expect("a valid object")
}

/// A pod on `node` that names each secret in its environment.
fn pod(name: &str, node: &str, secrets: &[&str]) -> Object {
    let env: Vec<Value> = secrets.iter().map(|s| json!({"secretRef": {"name": s}})).collect();
    spec_pod(name, node, json!({"containers": [{"name": "c", "envFrom": env}]}))
}

fn spec_pod(name: &str, node: &str, mut spec: Value) -> Object {
    spec["nodeName"] = node.into();
    if spec["containers"].is_null() {
        spec["containers"] = json!([{"name": "main"}]);
    }
    object("Pod", name, json!({ "spec": spec }))
}

fn secret(name: &str) -> Object {
    object("Secret", name, json!({}))
}

fn text(affected: &[EntryId]) -> Vec<String> {
    affected.iter().map(|a| format!("{} {}", a.stream, a.key)).collect()
}

fn remove(interest: &mut Interest, object: &Object) -> Vec<String> {
    text(&interest.remove(object.key(), object.uid()))
}

/// The keys that a stream is to have now, by asking for each.
fn wanted(interest: &Interest, stream: &str) -> Vec<String> {
    let stream: StreamId = stream.parse().expect("a stream");
    let mut keys: Vec<String> = interest
        .objects
        .keys()
        .filter(|key| interest.desired(&stream, &(*key).clone().into()).is_some())
        .map(ToString::to_string)
        .collect();
    keys.sort();
    keys
}

#[test]
fn a_pod_of_the_namespace_null_brings_no_secret_of_the_default_namespace_to_its_node() {
    let metadata = |namespace: &str, name: &str| json!({"name": name, "namespace": namespace, "uid": format!("{namespace}-{name}")});
    let token = |namespace: &str| {
        object("Secret", "token", json!({"metadata": metadata(namespace, "token")}))
    };
    let mut interest = Interest::new();
    let node = "a".parse().expect("ok");
    interest.declare(&node);
    interest.apply(token("default"));
    let spec = json!({
        "nodeName": "a",
        "containers": [{"name": "c", "envFrom": [{"secretRef": {"name": "token"}}]}],
    });
    interest.apply(object("Pod", "p", json!({"metadata": metadata("null", "p"), "spec": spec})));
    assert_eq!(wanted(&interest, "node/a"), ["null/pod/p"]);
    interest.apply(token("null"));
    assert_eq!(wanted(&interest, "node/a"), ["null/pod/p", "null/secret/token"]);
}

#[test]
fn a_node_gets_its_streams_its_node_and_its_pods() {
    let mut interest = Interest::new();
    assert_eq!(text(&interest.declare(&"a".parse().expect("ok"))), ["node/a !streams"]);
    assert_eq!(text(&interest.declare(&"a".parse().expect("ok"))), [""; 0]);
    let streams = interest.desired(&StreamId::node(&"a".parse().expect("ok")), &EntryKey::Streams);
    assert_eq!(streams.expect("assigned").object, r#"["cluster"]"#);
    assert_eq!(text(&interest.apply(object("Node", "a", json!({})))), ["node/a null/node/a"]);
    assert_eq!(text(&interest.apply(pod("p", "a", &[]))), ["node/a d/pod/p"]);
    assert_eq!(wanted(&interest, "node/a"), ["d/pod/p", "null/node/a"]);
    assert_eq!(
        interest.streams().map(|s| s.to_string()).collect::<Vec<_>>(),
        ["cluster", "node/a"]
    );
}

#[test]
fn what_a_pod_names_comes_before_it_and_leaves_after_it() {
    let mut interest = Interest::new();
    interest.declare(&"a".parse().expect("ok"));
    assert_eq!(text(&interest.apply(secret("s"))), [""; 0], "nobody needs it yet");
    let p = pod("p", "a", &["s", "absent"]);
    assert_eq!(text(&interest.apply(p.clone())), ["node/a d/secret/s", "node/a d/pod/p"]);
    assert_eq!(remove(&mut interest, &p), ["node/a d/pod/p", "node/a d/secret/s"]);
    assert!(wanted(&interest, "node/a").is_empty());
}

#[test]
fn an_object_leaves_with_its_last_user() {
    let mut interest = Interest::new();
    interest.apply(secret("s"));
    let (p, q) = (pod("p", "a", &["s"]), pod("q", "a", &["s"]));
    interest.apply(p.clone());
    assert_eq!(text(&interest.apply(q.clone())), ["node/a d/pod/q"]);
    assert_eq!(remove(&mut interest, &p), ["node/a d/pod/p"]);
    assert_eq!(wanted(&interest, "node/a"), ["d/pod/q", "d/secret/s"]);
    assert_eq!(
        remove(&mut interest, &q),
        ["node/a d/pod/q", "node/a d/secret/s", "node/a !streams"],
        "the last pod of an undeclared node closes its stream"
    );
    assert_eq!(interest.nodes().count(), 0);
    assert!(interest.users.is_empty());
}

#[test]
fn a_config_map_deleted_and_made_again_finds_its_pods() {
    let mut interest = Interest::new();
    let map = object("ConfigMap", "c", json!({}));
    let mounts = json!({"volumes": [{"name": "v", "configMap": {"name": "c"}}]});
    interest.apply(map.clone());
    interest.apply(spec_pod("p", "a", mounts.clone()));
    interest.apply(spec_pod("q", "b", mounts));
    let both = ["node/a d/configmap/c", "node/b d/configmap/c"];
    assert_eq!(remove(&mut interest, &map), both);
    assert_eq!(wanted(&interest, "node/a"), ["d/pod/p"]);
    assert_eq!(text(&interest.apply(map)), both);
    assert_eq!(wanted(&interest, "node/b"), ["d/configmap/c", "d/pod/q"]);
}

#[test]
fn a_removal_of_another_uid_is_not_meant() {
    let mut interest = Interest::new();
    let p = pod("p", "a", &[]);
    interest.apply(p.clone());
    assert!(interest.remove(p.key(), "an-older-uid").is_empty());
    assert_eq!(wanted(&interest, "node/a"), ["d/pod/p"]);
}

#[test]
fn a_pod_that_moves_takes_along_what_it_names() {
    let mut interest = Interest::new();
    interest.apply(secret("s"));
    interest.apply(pod("p", "a", &["s"]));
    interest.declare(&"b".parse().expect("ok"));
    assert_eq!(
        text(&interest.apply(pod("p", "b", &["s"]))),
        [
            "node/a d/pod/p",
            "node/b d/secret/s",
            "node/b d/pod/p",
            "node/a d/pod/p",
            "node/a d/secret/s",
            "node/a !streams",
        ]
    );
    assert!(wanted(&interest, "node/a").is_empty());
    assert_eq!(wanted(&interest, "node/b"), ["d/pod/p", "d/secret/s"]);
}

#[test]
fn a_pod_that_names_other_objects_now_swaps_them() {
    let mut interest = Interest::new();
    interest.apply(secret("old"));
    interest.apply(secret("new"));
    interest.apply(pod("p", "a", &["old"]));
    assert_eq!(
        text(&interest.apply(pod("p", "a", &["new"]))),
        ["node/a d/secret/new", "node/a d/pod/p", "node/a d/secret/old"]
    );
}

#[test]
fn a_claim_brings_its_volume_and_the_volumes_secret_whenever_it_binds() {
    let mut interest = Interest::new();
    let claim = |volume: Value| {
        object("PersistentVolumeClaim", "data", json!({"spec": {"volumeName": volume}}))
    };
    let csi = json!({"driver": "x", "volumeHandle": "h",
        "nodePublishSecretRef": {"name": "s", "namespace": "d"}});
    interest.apply(secret("s"));
    interest.apply(object("PersistentVolume", "pv", json!({"spec": {"csi": csi}})));
    interest.apply(claim(Value::Null));
    let mounts =
        json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]});
    interest.apply(spec_pod("p", "a", mounts));
    assert_eq!(wanted(&interest, "node/a"), ["d/persistentvolumeclaim/data", "d/pod/p"]);
    assert_eq!(
        text(&interest.apply(claim("pv".into()))),
        [
            "node/a d/secret/s",
            "node/a null/persistentvolume/pv",
            "node/a d/persistentvolumeclaim/data"
        ]
    );
    assert_eq!(
        remove(&mut interest, &claim(Value::Null)),
        [
            "node/a d/persistentvolumeclaim/data",
            "node/a null/persistentvolume/pv",
            "node/a d/secret/s"
        ]
    );
}

#[test]
fn a_service_account_brings_its_pull_secrets() {
    let mut interest = Interest::new();
    interest.apply(secret("pull"));
    interest.apply(object(
        "ServiceAccount",
        "default",
        json!({"imagePullSecrets": [{"name": "pull"}]}),
    ));
    assert_eq!(
        text(&interest.apply(pod("p", "a", &[])))[1..],
        ["node/a d/secret/pull", "node/a d/serviceaccount/default", "node/a d/pod/p"]
    );
}

/// Each way in which a pod can name a Secret or ConfigMap, through the whole of interest: the
/// walk itself is tested where it lives.
#[test]
fn every_way_of_naming_an_object_brings_it() {
    let with = |list: &str, container: Value| json!({list: [container]});
    let env = |kind: &str| json!({"name": "c", "env": [{"name": "E", "valueFrom": {kind: {"name": "x", "key": "k"}}}]});
    let env_from = |kind: &str| json!({"name": "c", "envFrom": [{kind: {"name": "x"}}]});
    let volume = |source: Value| {
        let mut volume = source;
        volume["name"] = "v".into();
        json!({"volumes": [volume]})
    };
    let mut ways = vec![
        ("Secret", volume(json!({"secret": {"secretName": "x"}}))),
        ("ConfigMap", volume(json!({"configMap": {"name": "x"}}))),
        ("Secret", volume(json!({"projected": {"sources": [{"secret": {"name": "x"}}]}}))),
        ("ConfigMap", volume(json!({"projected": {"sources": [{"configMap": {"name": "x"}}]}}))),
        ("Secret", volume(json!({"csi": {"driver": "y", "nodePublishSecretRef": {"name": "x"}}}))),
        ("Secret", json!({"imagePullSecrets": [{"name": "x"}]})),
        ("ServiceAccount", json!({"serviceAccountName": "x"})),
        ("RuntimeClass", json!({"runtimeClassName": "x"})),
        ("PersistentVolumeClaim", volume(json!({"persistentVolumeClaim": {"claimName": "x"}}))),
    ];
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        ways.push(("Secret", with(list, env("secretKeyRef"))));
        ways.push(("ConfigMap", with(list, env("configMapKeyRef"))));
        ways.push(("Secret", with(list, env_from("secretRef"))));
        ways.push(("ConfigMap", with(list, env_from("configMapRef"))));
    }
    for (kind, spec) in ways {
        let mut interest = Interest::new();
        let more = match kind {
            "RuntimeClass" => json!({"apiVersion": "node.k8s.io/v1", "handler": "h"}),
            _ => json!({}),
        };
        let named = object(kind, "x", more);
        interest.apply(spec_pod("p", "a", spec.clone()));
        let entry = format!("node/a {}", named.key());
        assert_eq!(text(&interest.apply(named)), [entry], "{spec}");
    }
}

#[test]
fn services_and_endpoints_are_shared() {
    let mut interest = Interest::new();
    for kind in ["Service", "Endpoints"] {
        let shared = object(kind, "x", json!({}));
        let entry = format!("cluster {}", shared.key());
        assert_eq!(text(&interest.apply(shared.clone())).join(" "), entry);
        assert_eq!(wanted(&interest, "cluster"), [shared.key().as_str()]);
        assert_eq!(remove(&mut interest, &shared), [entry]);
    }
    assert!(wanted(&interest, "cluster").is_empty());
}

#[test]
fn a_pod_without_a_node_is_in_no_interest() {
    let mut interest = Interest::new();
    interest.apply(secret("s"));
    let mut value = pod("p", "a", &["s"]).value();
    value["spec"].as_object_mut().expect("a spec").remove("nodeName");
    assert!(interest.apply(Object::from_value(value).expect("a pod")).is_empty());
    assert_eq!(
        text(&interest.apply(pod("p", "a", &["s"]))).last().expect("some"),
        "node/a d/pod/p"
    );
}

#[test]
fn a_declared_node_keeps_its_stream_until_it_is_withdrawn() {
    let mut interest = Interest::new();
    let node: NodeName = "a".parse().expect("ok");
    interest.declare(&node);
    let p = pod("p", "a", &[]);
    interest.apply(p.clone());
    assert_eq!(remove(&mut interest, &p), ["node/a d/pod/p"]);
    assert_eq!(text(&interest.withdraw(&node)), ["node/a !streams"]);
    assert!(interest.withdraw(&node).is_empty());
}

#[test]
fn a_change_costs_what_it_reaches_however_many_nodes_there_are() {
    let cost = |nodes: usize| {
        let mut interest = Interest::new();
        for n in 0..nodes {
            interest.apply(secret(&format!("s{n}")));
            for p in 0..3 {
                interest.apply(pod(&format!("p{n}-{p}"), &format!("n{n}"), &[&format!("s{n}")]));
            }
        }
        interest.visits = 0;
        let mut affected = interest.apply(secret("s1")).len();
        affected += interest.apply(pod("p1-0", "n1", &["s1", "s2"])).len();
        affected += interest.apply(pod("new", "n1", &["s1"])).len();
        affected += interest.remove(&"d/pod/new".parse().expect("ok"), "uid-new").len();
        (interest.visits, affected)
    };
    assert_eq!(cost(10), cost(1000));
}

/// What each node is to have, worked out anew from all objects.
fn from_scratch(objects: &BTreeMap<ResourceKey, Object>) -> BTreeMap<String, BTreeSet<String>> {
    let mut wanted: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for pod in objects.values().filter(|object| object.key().kind() == "pod") {
        let node = pod.node().expect("assigned").to_string();
        let mut open = vec![pod.key().clone()];
        while let Some(key) = open.pop() {
            let Some(object) = objects.get(&key) else { continue };
            open.extend(object.references().iter().map(|reference| reference.key.clone()));
            wanted.entry(node.clone()).or_default().insert(key.to_string());
        }
    }
    wanted
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn interest_kept_up_to_date_equals_interest_from_scratch(
        steps in proptest::collection::vec((0u8..4, 0u8..5, 0u8..3, 0u8..4, any::<bool>()), 1..60)
    ) {
        let mut interest = Interest::new();
        let mut objects = BTreeMap::new();
        for (kind, name, node, named, removes) in steps {
            let (name, named) = (format!("o{name}"), format!("o{named}"));
            let object = match kind {
                0 => spec_pod(&name, &format!("n{node}"), json!({
                    "serviceAccountName": named,
                    "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": named}}],
                })),
                1 => object("PersistentVolumeClaim", &name, json!({"spec": {"volumeName": named}})),
                2 => object("ServiceAccount", &name, json!({"secrets": [{"name": named}]})),
                _ => secret(&name),
            };
            if removes {
                interest.remove(object.key(), object.uid());
                objects.remove(object.key());
            } else {
                interest.apply(object.clone());
                objects.insert(object.key().clone(), object);
            }
            let unknown = interest.users.keys().filter(|key| !objects.contains_key(*key));
            prop_assert_eq!(interest.missing.clone(), unknown.cloned().collect::<BTreeSet<_>>());
            let expected = from_scratch(&objects);
            for n in 0..3 {
                let node = format!("n{n}");
                let keys: BTreeSet<String> = wanted(&interest, &format!("node/{node}")).into_iter().collect();
                prop_assert_eq!(keys, expected.get(&node).cloned().unwrap_or_default());
            }
        }
    }

    #[test]
    fn every_entry_that_changed_was_named(
        steps in proptest::collection::vec((0u8..3, 0u8..3, 0u8..3, any::<bool>()), 1..40)
    ) {
        let mut interest = Interest::new();
        for (kind, name, other, removes) in steps {
            let (name, other) = (format!("o{name}"), format!("o{other}"));
            let object = match kind {
                0 => pod(&name, "n", &[&other]),
                1 => spec_pod(&name, "n", json!({"serviceAccountName": other})),
                _ => secret(&name),
            };
            let before = wanted(&interest, "node/n");
            let affected = if removes {
                interest.remove(object.key(), object.uid())
            } else {
                interest.apply(object)
            };
            let after = wanted(&interest, "node/n");
            for key in before.iter().chain(&after).filter(|k| before.contains(k) != after.contains(k)) {
                prop_assert!(text(&affected).contains(&format!("node/n {key}")), "{}", key);
            }
        }
    }
}

#[test]
fn an_object_of_a_source_that_sends_what_is_used_goes_with_its_last_use() {
    let mut interest = Interest::new();
    interest.forget_unused();
    assert_eq!(text(&interest.apply(secret("s"))), [""; 0], "no stream names it");
    assert_eq!(interest.objects_count(), 0);
    interest.apply(pod("p", "a", &["s"]));
    interest.apply(pod("q", "b", &["s"]));
    let missing: Vec<String> = interest.missing().map(ToString::to_string).collect();
    assert!(missing.contains(&"d/secret/s".to_owned()), "{missing:?}");
    assert_eq!(text(&interest.apply(secret("s"))), ["node/a d/secret/s", "node/b d/secret/s"]);
    remove(&mut interest, &pod("p", "a", &["s"]));
    assert!(interest.object(secret("s").key()).is_some(), "another node names it");
    let removed = remove(&mut interest, &pod("q", "b", &["s"]));
    assert!(removed.contains(&"node/b d/secret/s".to_owned()), "{removed:?}");
    assert_eq!(interest.objects_count(), 0);
    assert_eq!(wanted(&interest, "node/b"), [""; 0]);
    interest.apply(object("Service", "web", json!({})));
    assert_eq!(wanted(&interest, "cluster"), ["d/service/web"], "shared objects stay");
}

#[test]
fn a_volume_attachment_is_for_the_node_in_its_spec() {
    let attachment = json!({"spec": {
        "attacher": "csi.example", "nodeName": "a", "source": {"persistentVolumeName": "v"},
    }});
    let mut value = attachment;
    for (field, content) in [
        ("apiVersion", json!("storage.k8s.io/v1")),
        ("kind", json!("VolumeAttachment")),
        ("metadata", json!({"name": "csi-1", "uid": "u"})),
    ] {
        value[field] = content;
    }
    let mut interest = Interest::new();
    interest.apply(Object::from_value(value).expect("a valid object"));
    assert_eq!(wanted(&interest, "node/a"), ["null/volumeattachment/csi-1"]);
}

#[test]
fn a_pod_whose_objects_are_all_there_changes_nothing_of_what_is_missing() {
    let mut interest = Interest::new();
    interest.apply(pod("p", "a", &["s"]));
    let first = interest.missing_version();
    assert!(first > 0, "the secret of the first pod is missing");
    interest.apply(secret("s"));
    for n in 0..10 {
        interest.apply(pod(&format!("p{n}"), "a", &["s"]));
    }
    remove(&mut interest, &pod("p3", "a", &["s"]));
    assert_eq!(interest.missing_version(), first, "no source has to look");
    interest.apply(pod("q", "a", &["t"]));
    let second = interest.missing_version();
    assert!(second > first, "another secret is missing");
    remove(&mut interest, &pod("q", "a", &["t"]));
    let third = interest.missing_version();
    assert!(third > second, "and no stream names it any more");
    remove(&mut interest, &secret("s"));
    assert!(interest.missing_version() > third, "what pods name was removed");
}
