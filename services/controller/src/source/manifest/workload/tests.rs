//! The pods that each kind of workload unfolds to, and how they follow its changes.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::super::rollout::{LivePod, Phase, PodState, RolloutClock, RolloutContext};
use super::*;

fn workload(group: &str, kind: &str, spec: Value) -> Workload {
    read(group, kind, spec).expect("valid").expect("a workload")
}

fn read(group: &str, kind: &str, mut spec: Value) -> Result<Option<Workload>, WorkloadError> {
    if spec["template"].is_null() {
        spec["template"] = template("i:1");
        if kind == "Job" {
            spec["template"]["spec"]["restartPolicy"] = json!("Never");
        }
    }
    let value = json!({"metadata": {"name": "web"}, "spec": spec});
    Workload::read(group, kind, "shop", &value)
}

fn template(image: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": "web"}, "annotations": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": image}]},
    })
}

/// The claims and pods of a workload once it is rolled out, each claim before its pod.
fn expand(workload: &Workload) -> Vec<Value> {
    let nodes = ["n1", "n2"].map(|node| node.parse().expect("ok"));
    let mut live: Vec<LivePod> = Vec::new();
    loop {
        let rollout = workload.rule().roll(RolloutContext {
            pods: &live,
            is_leaving: &|| false,
            nodes: &nodes,
            names: &mut workload.pod_names(&nodes),
            clock: &mut RolloutClock::new(Timestamp::UNIX_EPOCH),
        });
        if rollout.pods.len() == live.len() {
            let objects = rollout.pods.iter().flat_map(|pod| {
                let mut objects = workload.claims(&pod.name);
                objects.push(workload.pod(&pod.name, pod.node.as_ref()));
                objects
            });
            return objects.collect();
        }
        let is_job = workload.kind() == "Job";
        live = rollout
            .pods
            .into_iter()
            .map(|pod| LivePod {
                name: pod.name,
                node: pod.node,
                is_current: true,
                created: None,
                ended: None,
                state: PodState {
                    phase: if is_job { Phase::Succeeded } else { Phase::Active },
                    ready_since: Some(Timestamp::UNIX_EPOCH),
                    ..PodState::default()
                },
            })
            .collect();
    }
}

fn names(objects: &[Value]) -> Vec<String> {
    objects.iter().map(|o| o["metadata"]["name"].as_str().expect("named").to_owned()).collect()
}

#[test]
fn every_kind_expands_to_its_number_of_valid_pods() {
    for (group, kind, spec, count) in [
        ("apps", "Deployment", json!({"replicas": 3}), 3),
        ("apps", "Deployment", json!({}), 1),
        ("extensions", "Deployment", json!({"replicas": 0}), 0),
        ("apps", "ReplicaSet", json!({"replicas": 2}), 2),
        ("extensions", "ReplicaSet", json!({"replicas": 2}), 2),
        ("", "ReplicationController", json!({"replicas": 2}), 2),
        ("apps", "StatefulSet", json!({"replicas": 2}), 2),
        ("apps", "DaemonSet", json!({"replicas": 7}), 2),
        ("extensions", "DaemonSet", json!({}), 2),
        ("batch", "Job", json!({}), 1),
        ("batch", "Job", json!({"completions": 4, "parallelism": 2}), 4),
        ("batch", "Job", json!({"parallelism": 2}), 2),
        ("batch", "Job", json!({"parallelism": 2, "suspend": true}), 0),
    ] {
        let workload = workload(group, kind, spec);
        let pods = expand(&workload);
        assert_eq!(pods.len(), count, "{}", workload.title());
        assert_eq!(pods, expand(&workload), "the same each time");
        let distinct: BTreeSet<String> = names(&pods).into_iter().collect();
        assert_eq!(distinct.len(), count);
        for pod in pods {
            let labels = pod["metadata"]["labels"].clone();
            let pod = Object::from_value(pod).expect("a valid pod");
            assert_eq!(pod.key().namespace(), Some("shop"));
            assert_eq!(labels["app"], "web");
            assert_eq!(pod.value()["metadata"]["annotations"]["a"], "b");
        }
    }
    for (group, kind) in [("batch", "CronJob"), ("serving.knative.dev", "Deployment"), ("", "Pod")]
    {
        assert_eq!(read(group, kind, json!({})).expect("not looked at"), None);
    }
}

#[test]
fn a_changed_template_brings_new_names_where_a_cluster_draws_them() {
    for (group, kind) in
        [("apps", "Deployment"), ("apps", "ReplicaSet"), ("apps", "DaemonSet"), ("batch", "Job")]
    {
        let old = names(&expand(&workload(group, kind, json!({"parallelism": 2}))));
        let mut new = json!({"parallelism": 2, "template": template("i:2")});
        if kind == "Job" {
            new["template"]["spec"]["restartPolicy"] = json!("Never");
        }
        let new = names(&expand(&workload(group, kind, new)));
        assert!(old.iter().all(|name| !new.contains(name)), "{kind}: {old:?} {new:?}");
    }
}

#[test]
fn a_deployment_scales_by_adding_and_dropping_its_last() {
    let three = names(&expand(&workload("apps", "Deployment", json!({"replicas": 3}))));
    let five = names(&expand(&workload("apps", "Deployment", json!({"replicas": 5}))));
    assert_eq!(three, five[..3]);
    assert!(three[0].starts_with("web-"));
}

#[test]
fn a_stateful_set_keeps_its_names_and_has_its_revision() {
    let revision = |pod: &Value| pod["metadata"]["labels"]["controller-revision-hash"].clone();
    let old =
        expand(&workload("apps", "StatefulSet", json!({"replicas": 2, "serviceName": "web"})));
    let new = expand(&workload(
        "apps",
        "StatefulSet",
        json!({"replicas": 2, "template": template("i:2")}),
    ));
    assert_eq!(names(&old), ["web-0", "web-1"]);
    assert_eq!(names(&old), names(&new));
    assert_ne!(revision(&old[0]), revision(&new[0]));
    assert_eq!(old[1]["spec"]["hostname"], "web-1");
    assert_eq!(old[1]["spec"]["subdomain"], "web");
    assert_eq!(old[1]["metadata"]["labels"]["apps.kubernetes.io/pod-index"], "1");
    let later = workload("apps", "StatefulSet", json!({"replicas": 2, "ordinals": {"start": 5}}));
    assert_eq!(names(&expand(&later)), ["web-5", "web-6"]);
}

#[test]
fn a_stateful_set_makes_claims_and_its_pods_use_them() {
    let mut template = template("i:1");
    template["spec"]["volumes"] =
        json!([{"name": "data", "emptyDir": {}}, {"name": "tmp", "emptyDir": {}}]);
    let objects = expand(&workload(
        "apps",
        "StatefulSet",
        json!({
            "replicas": 2,
            "template": template,
            "volumeClaimTemplates": [{
                "metadata": {"name": "data", "labels": {"app": "web"}},
                "spec": {"resources": {"requests": {"storage": "1Gi"}}},
            }],
        }),
    ));
    assert_eq!(names(&objects), ["data-web-0", "web-0", "data-web-1", "web-1"]);
    let claim = Object::from_value(objects[0].clone()).expect("a valid claim");
    assert_eq!(claim.key().as_str(), "shop/persistentvolumeclaim/data-web-0");
    assert_eq!(
        objects[3]["spec"]["volumes"],
        json!([
            {"name": "tmp", "emptyDir": {}},
            {"name": "data", "persistentVolumeClaim": {"claimName": "data-web-1"}},
        ])
    );
}

#[test]
fn a_daemon_sets_pods_name_their_nodes() {
    let pods = expand(&workload("apps", "DaemonSet", json!({})));
    let nodes: Vec<&Value> = pods.iter().map(|pod| &pod["spec"]["nodeName"]).collect();
    assert_eq!(nodes, ["n1", "n2"]);
}

#[test]
fn an_invalid_workload_has_one_notice_for_all_its_pods() {
    let reason = |spec: Value| {
        let error = read("apps", "StatefulSet", spec).expect_err("invalid");
        match std::error::Error::source(&error) {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        }
    };
    for count in [json!(-1), json!("3"), json!(1.5), json!(REPLICAS_MAX + 1)] {
        assert!(reason(json!({"replicas": count})).contains("spec.replicas"), "{count}");
    }
    assert!(reason(json!({"template": {"spec": {}}})).contains("no spec.template"));
    assert!(reason(json!({"template": {"spec": {"containers": []}}})).contains("at least one"));
    let wrong = json!({"template": {"spec": {"containers": [{"name": "c", "image": 7}]}}});
    assert!(reason(wrong).contains("spec.containers[0].image"));
    assert!(reason(json!({"volumeClaimTemplates": ["x"]})).contains("claims would be invalid"));
    let nameless = Workload::read("apps", "Deployment", "shop", &json!({"spec": {}}));
    assert!(matches!(nameless, Err(WorkloadError::Nameless { .. })));
    let invalid = json!({"metadata": {"name": "Web"}, "spec": {"template": template("i")}});
    assert!(matches!(
        Workload::read("apps", "Deployment", "shop", &invalid),
        Err(WorkloadError::Name { .. })
    ));
}

#[test]
fn a_thousand_replicas_have_a_thousand_names() {
    let pods = expand(&workload("apps", "ReplicaSet", json!({"replicas": REPLICAS_MAX})));
    let distinct: BTreeSet<String> = names(&pods).into_iter().collect();
    assert_eq!(distinct.len() as u64, REPLICAS_MAX);
}

#[test]
fn a_restart_policy_that_the_kind_does_not_allow_is_refused() {
    let with_policy = |group: &str, kind: &str, policy: Value| {
        let mut template = template("i:1");
        template["spec"]["restartPolicy"] = policy;
        read(group, kind, json!({ "template": template })).err().map(|error| error.to_string())
    };
    for policy in [json!(null), json!("Always")] {
        assert_eq!(with_policy("apps", "Deployment", policy.clone()), None);
        let refused = with_policy("batch", "Job", policy).expect("its pods would never complete");
        assert!(refused.contains("want OnFailure or Never"), "{refused}");
    }
    for policy in ["OnFailure", "Never"] {
        assert_eq!(with_policy("batch", "Job", json!(policy)), None);
        for kind in ["Deployment", "ReplicaSet", "StatefulSet", "DaemonSet"] {
            assert_eq!(
                with_policy("apps", kind, json!(policy)),
                Some(format!(
                    "{kind} \"web\": spec.template.spec.restartPolicy is \"{policy}\", want \
                     Always: its pods run until the workload changes"
                ))
            );
        }
    }
}
