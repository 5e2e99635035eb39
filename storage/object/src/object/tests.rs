//! The values that are accepted as objects, and the errors of the others.

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn pod(metadata: Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"nodeName": "gw-1", "containers": [{"name": "c", "image": "i"}]},
    })
}

fn reason(value: Value) -> String {
    let error = Object::from_value(value).expect_err("not acceptable");
    let mut text = error.to_string();
    let mut source = std::error::Error::source(&error);
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

#[test]
fn an_object_knows_what_others_ask_of_it() {
    let metadata = json!({"name": "web", "uid": "u-1", "resourceVersion": "7"});
    let object = Object::from_value(pod(metadata)).expect("a pod");
    assert_eq!(object.key().as_str(), "default/pod/web");
    assert_eq!((object.uid(), object.resource_version()), ("u-1", "7"));
    assert_eq!(object.node().map(NodeName::as_str), Some("gw-1"));
    assert_eq!(object.references()[0].key.as_str(), "default/serviceaccount/default");
    assert_eq!(object.value()["metadata"]["namespace"], "default");
    assert_eq!(object.value()["metadata"]["resourceVersion"], Value::Null);
    assert_eq!(object.versioned_value()["metadata"]["resourceVersion"], "7");
    assert_eq!(object.to_applied().object, object.payload());
    assert_eq!(object.to_applied().resource_version, "7");
}

#[test]
fn a_payload_read_back_is_the_same_object() {
    let object = Object::from_value(pod(json!({"name": "web"}))).expect("a pod");
    assert_eq!(Object::from_json(object.payload()).expect("a pod"), object);
}

#[test]
fn bytes_that_are_no_object_are_refused() {
    assert!(reason(json!(["a"])).contains("found a list"));
    assert!(reason(json!({"apiVersion": "v1"})).contains("no kind"));
    assert!(reason(json!({"kind": "Pod"})).contains("no apiVersion"));
    assert!(
        reason(json!({"apiVersion": "apps/v1", "kind": "Deployment"}))
            .contains("Deployment of apps/v1")
    );
    assert!(
        reason(json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}))
            .contains("not a replicated type")
    );
    assert_eq!(reason(pod(json!({"generateName": "web-"}))), "Pod without metadata.name");
    assert!(matches!(Object::from_json(b"{"), Err(ObjectError::Json(_))));
}

#[test]
fn names_that_kubernetes_refuses_are_refused() {
    assert!(reason(pod(json!({"name": "vttablet-{{uid}}"}))).contains("vttablet-{{uid}}"));
    assert!(reason(pod(json!({"name": "web", "namespace": "a.b"}))).contains("invalid namespace"));
    let service = |name| json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}});
    assert!(reason(service("a.b")).contains("a.b"));
    assert!(Object::from_value(service("a-b")).is_ok());
}

#[test]
fn a_field_of_the_wrong_type_is_named_by_its_path() {
    let mut wrong = pod(json!({"name": "web"}));
    wrong["spec"]["containers"][0]["env"] = json!([{"name": "A", "value": 5}]);
    let reason_given = reason(wrong);
    assert!(
        reason_given.starts_with("default/pod/web: spec.containers[0].env[0].value: "),
        "{reason_given}"
    );
    let empty = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": {"containers": []}});
    assert!(reason(empty).contains("at least one container"));
}

#[test]
fn no_reason_quotes_a_secret() {
    for data in
        [json!("hunter2"), json!({"password": "hunter2!"}), json!({"password": ["hunter2"]})]
    {
        let secret =
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": data});
        let reason = reason(secret);
        assert!(reason.starts_with("default/secret/s: data"), "{reason}");
        assert!(!reason.contains("hunter2"), "{reason}");
    }
}

#[test]
fn an_object_over_the_limit_of_kubernetes_is_refused_by_name() {
    let map = |bytes: usize| {
        json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "big"},
            "data": {"k": "x".repeat(bytes)},
        })
    };
    assert!(Object::from_value(map(OBJECT_BYTES_MAX - 200)).is_ok());
    assert!(matches!(
        Object::from_value(map(OBJECT_BYTES_MAX)),
        Err(ObjectError::TooLarge { key, .. }) if key.name() == "big"
    ));
}

/// JSON of every shape, with more of the field names that matter here.
fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-zA-Z0-9./{} -]{0,12}".prop_map(Value::from),
        Just(json!("v1")),
        Just(json!("Pod")),
        Just(json!("Secret")),
    ];
    let field = prop_oneof![
        Just("kind"),
        Just("apiVersion"),
        Just("metadata"),
        Just("name"),
        Just("namespace"),
        Just("spec"),
        Just("containers"),
        Just("volumes"),
        Just("env"),
        Just("data"),
        Just("stringData"),
        Just("status"),
        Just("conditions"),
        Just("readinessGates"),
    ];
    leaf.prop_recursive(5, 60, 6, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::hash_map(field.clone(), inner, 0..6).prop_map(|fields| {
                fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
            }),
        ]
    })
}

/// The object of a published payload.
fn published(payload: &Bytes, resource_version: &str) -> Result<Object, ObjectError> {
    let mut value = serde_json::from_slice(payload).expect("JSON");
    Object::from_published(payload, &ObjectHash::of(payload), resource_version, &mut value)
}

#[test]
fn a_published_payload_stays_unless_this_build_has_another() {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "a", "namespace": "shop", "uid": "u-1"},
        "spec": {"readinessGates": [{"conditionType": "lb"}]},
        "status": {"conditions": [{"type": "lb", "status": "True"}]},
    });
    // Its white space shows that it was not written again.
    let text = Bytes::from(serde_json::to_vec_pretty(&pod).expect("JSON"));
    let object = published(&text, "7").expect("an object");
    assert_eq!((object.payload(), object.resource_version(), object.uid()), (&text, "7", "u-1"));
    assert_eq!(*object.payload_hash(), ObjectHash::of(&text));

    let metadata = |field: &str, value: Value| {
        let mut metadata = json!({"name": "a", "namespace": "shop", "uid": "u-1"});
        metadata[field] = value;
        metadata
    };
    for (path, more, version) in [
        ("/status", json!({"phase": "Running", "conditions": pod["status"]["conditions"]}), ""),
        ("/metadata", metadata("namespace", json!("")), ""),
        ("/metadata", metadata("managedFields", json!([])), ""),
        ("/metadata", metadata("resourceVersion", json!("6")), "6"),
    ] {
        let mut older = pod.clone();
        *older.pointer_mut(path).expect("there") = more;
        let object = published(&older.to_string().into(), "").expect("an object");
        let mut expected = pod.clone();
        if older["metadata"]["namespace"] == "" {
            expected["metadata"]["namespace"] = json!("default");
        }
        assert_eq!(*object.payload(), canonical(&expected), "{older}");
        assert_eq!(*object.payload_hash(), ObjectHash::of(object.payload()));
        assert_eq!(object.resource_version(), version, "{older}");
    }
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "shop"},
        "stringData": {"a": "b"},
    });
    let secret = published(&secret.to_string().into(), "").expect("an object");
    assert_eq!(secret.value()["data"]["a"], "Yg==");
}

proptest! {
    #[test]
    fn no_value_panics(value in any_value(), spec in any_value(), data in any_value()) {
        let _ = Object::from_value(value.clone());
        let _ = published(&value.to_string().into(), "");
        for kind in ["Pod", "Secret", "PersistentVolume", "ServiceAccount"] {
            let value = json!({
                "apiVersion": "v1", "kind": kind,
                "metadata": {"name": "a", "namespace": "shop", "labels": value},
                "spec": spec, "data": data, "stringData": data, "status": spec,
            });
            let unchecked = published(&value.to_string().into(), "");
            if let Ok(object) = Object::from_value(value) {
                prop_assert_eq!(&unchecked.expect("a checked object"), &object);
                let again = published(object.payload(), "").expect("a checked object");
                prop_assert_eq!(again, object);
            }
        }
    }

    #[test]
    fn no_bytes_panic(bytes: Vec<u8>) {
        let _ = Object::from_json(&bytes);
    }
}

#[test]
fn an_object_of_a_cluster_keeps_unknown_fields_and_has_no_trace_of_the_write() {
    let pod = |version: &str, phase: &str| {
        json!({
            "metadata": {
                "name": "web", "namespace": "shop", "uid": "u-1", "resourceVersion": version,
                "managedFields": [{"manager": "kubectl", "time": version}],
                "annotations": {"kubectl.kubernetes.io/last-applied-configuration": version},
            },
            "spec": {"nodeName": "gw-1", "fieldOfTomorrow": {"a": 1}, "containers": []},
            "status": {"phase": phase},
        })
    };
    let pod_type = ObjectType::of("v1", "Pod").expect("known");
    let at = |version, phase| Object::of_cluster(pod_type, pod(version, phase)).expect("an object");
    let (first, second) = (at("7", "Pending"), at("8", "Running"));
    assert_eq!(first.payload(), second.payload(), "a write of the status changes nothing");
    assert_eq!((first.resource_version(), second.resource_version()), ("7", "8"));
    assert_eq!(first.key().as_str(), "shop/pod/web");
    assert_eq!(first.node().map(|node| node.as_str()), Some("gw-1"));
    assert_eq!(
        first.value(),
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "web", "namespace": "shop", "uid": "u-1"},
            "spec": {"nodeName": "gw-1", "fieldOfTomorrow": {"a": 1}, "containers": []},
        })
    );
}

#[test]
fn a_volume_attachment_belongs_to_the_node_in_its_spec_with_its_status() {
    let attachment = json!({
        "metadata": {"name": "csi-1", "uid": "u-1", "resourceVersion": "3"},
        "spec": {"attacher": "csi.example", "nodeName": "gw-1", "source": {}},
        "status": {"attached": true},
    });
    let attachment_type = ObjectType::named("volumeattachments").expect("known");
    let object = Object::of_cluster(attachment_type, attachment).expect("an object");
    assert_eq!(object.key().as_str(), "null/volumeattachment/csi-1");
    assert_eq!(object.node().map(|node| node.as_str()), Some("gw-1"));
    assert_eq!(object.value()["status"]["attached"], true);
}
