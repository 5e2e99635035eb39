//! One test for each way in which an object can name another.

use serde_json::{Value, json};

use super::*;

/// The references of a pod `shop/web` with this spec, except its service account.
fn pod(spec: Value) -> Vec<(String, bool)> {
    let account = "shop/serviceaccount/default";
    let mut found = of("shop/pod/web", json!({ "spec": spec }));
    found.retain(|(key, _)| key != account);
    found
}

fn of(key: &str, object: Value) -> Vec<(String, bool)> {
    references(&key.parse().expect("well-formed"), &object)
        .into_iter()
        .map(|reference| (reference.key.to_string(), reference.required))
        .collect()
}

fn required(key: &str) -> Vec<(String, bool)> {
    vec![(key.to_owned(), true)]
}

fn optional(key: &str) -> Vec<(String, bool)> {
    vec![(key.to_owned(), false)]
}

#[test]
fn a_config_map_volume() {
    let spec = |optional| json!({"volumes": [{"configMap": {"name": "c", "optional": optional}}]});
    assert_eq!(pod(spec(Value::Null)), required("shop/configmap/c"));
    assert_eq!(pod(spec(Value::Bool(true))), optional("shop/configmap/c"));
}

#[test]
fn a_pod_of_the_namespace_null_names_objects_of_that_namespace() {
    let spec = json!({
        "imagePullSecrets": [{"name": "pull"}],
        "volumes": [{"secret": {"secretName": "s"}}, {"persistentVolumeClaim": {"claimName": "c"}}],
    });
    let named: Vec<String> =
        of("null/pod/web", json!({ "spec": spec })).into_iter().map(|(key, _)| key).collect();
    let expected = [
        "null/persistentvolumeclaim/c",
        "null/secret/pull",
        "null/secret/s",
        "null/serviceaccount/default",
    ];
    assert_eq!(named, expected);
}

#[test]
fn a_secret_volume() {
    let spec =
        |optional| json!({"volumes": [{"secret": {"secretName": "s", "optional": optional}}]});
    assert_eq!(pod(spec(Value::Bool(false))), required("shop/secret/s"));
    assert_eq!(pod(spec(Value::Bool(true))), optional("shop/secret/s"));
}

#[test]
fn the_sources_of_a_projected_volume() {
    let spec = json!({"volumes": [{"projected": {"sources": [
        {"configMap": {"name": "c"}},
        {"secret": {"name": "s", "optional": true}},
        {"serviceAccountToken": {"path": "token"}},
        {"downwardAPI": {}},
    ]}}]});
    let both = [required("shop/configmap/c"), optional("shop/secret/s")].concat();
    assert_eq!(pod(spec), both);
}

#[test]
fn a_claim() {
    let spec = json!({"volumes": [{"persistentVolumeClaim": {"claimName": "data"}}]});
    assert_eq!(pod(spec), required("shop/persistentvolumeclaim/data"));
}

#[test]
fn the_claim_of_a_generic_ephemeral_volume() {
    let spec = json!({"volumes": [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}}]});
    assert_eq!(pod(spec), required("shop/persistentvolumeclaim/web-scratch"));
}

#[test]
fn the_secret_of_a_csi_volume() {
    let spec = json!({"volumes": [{"csi": {"nodePublishSecretRef": {"name": "s"}}}]});
    assert_eq!(pod(spec), required("shop/secret/s"));
}

#[test]
fn the_driver_of_a_csi_volume() {
    let volume = json!({"csi": {"driver": "disk.example.com"}});
    assert_eq!(pod(json!({"volumes": [volume]})), optional("null/csidriver/disk.example.com"));
    let of_volume = of("null/persistentvolume/pv-1", json!({ "spec": volume }));
    assert_eq!(of_volume, optional("null/csidriver/disk.example.com"));
}

#[test]
fn the_secret_of_each_old_kind_of_volume() {
    for kind in SECRET_REF_VOLUMES {
        let spec = json!({"volumes": [{kind: {"secretRef": {"name": "s"}}}]});
        assert_eq!(pod(spec), required("shop/secret/s"), "{kind}");
    }
    let spec = json!({"volumes": [{"azureFile": {"secretName": "s"}}]});
    assert_eq!(pod(spec), required("shop/secret/s"));
}

#[test]
fn the_value_of_an_environment_variable_in_every_kind_of_container() {
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        let spec = json!({list: [{"env": [
            {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}},
            {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": true}}},
            {"name": "C", "value": "plain"},
        ]}]});
        let both = [required("shop/configmap/c"), optional("shop/secret/s")].concat();
        assert_eq!(pod(spec), both, "{list}");
    }
}

#[test]
fn a_whole_environment_in_every_kind_of_container() {
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        let spec = json!({list: [{"envFrom": [
            {"configMapRef": {"name": "c", "optional": true}},
            {"secretRef": {"name": "s"}},
        ]}]});
        let both = [optional("shop/configmap/c"), required("shop/secret/s")].concat();
        assert_eq!(pod(spec), both, "{list}");
    }
}

#[test]
fn an_image_pull_secret() {
    assert_eq!(pod(json!({"imagePullSecrets": [{"name": "s"}]})), optional("shop/secret/s"));
}

#[test]
fn a_runtime_class() {
    assert_eq!(pod(json!({"runtimeClassName": "kata"})), required("null/runtimeclass/kata"));
    assert_eq!(pod(json!({"runtimeClassName": ""})), []);
}

#[test]
fn the_service_account_named_or_implied() {
    let account = |spec| of("shop/pod/web", json!({ "spec": spec }));
    assert_eq!(account(json!({})), optional("shop/serviceaccount/default"));
    assert_eq!(account(json!({"serviceAccountName": "api"})), required("shop/serviceaccount/api"));
    assert_eq!(account(json!({"serviceAccount": "api"})), required("shop/serviceaccount/api"));
}

#[test]
fn a_service_account_names_secrets() {
    let account = json!({"secrets": [{"name": "token"}], "imagePullSecrets": [{"name": "pull"}]});
    let both = [optional("shop/secret/pull"), optional("shop/secret/token")].concat();
    assert_eq!(of("shop/serviceaccount/api", account), both);
}

#[test]
fn a_claim_names_its_volume() {
    let claim = json!({"spec": {"volumeName": "pv-1"}});
    assert_eq!(
        of("shop/persistentvolumeclaim/data", claim),
        required("null/persistentvolume/pv-1")
    );
    assert_eq!(of("shop/persistentvolumeclaim/data", json!({"spec": {}})), []);
}

#[test]
fn a_volume_names_secrets_in_its_own_namespace_or_that_of_its_claim() {
    let volume = |source| of("null/persistentvolume/pv-1", json!({ "spec": source }));
    assert_eq!(
        volume(json!({"csi": {"nodeStageSecretRef": {"name": "s", "namespace": "storage"}}})),
        required("storage/secret/s")
    );
    assert_eq!(
        volume(json!({"rbd": {"secretRef": {"name": "s"}}, "claimRef": {"namespace": "shop"}})),
        required("shop/secret/s")
    );
    assert_eq!(volume(json!({"azureFile": {"secretName": "s"}})), required("default/secret/s"));
}

#[test]
fn an_object_named_twice_is_required_if_either_reference_requires_it() {
    let spec = json!({
        "volumes": [{"configMap": {"name": "c", "optional": true}}],
        "containers": [{"envFrom": [{"configMapRef": {"name": "c"}}]}],
    });
    assert_eq!(pod(spec), required("shop/configmap/c"));
}

#[test]
fn what_makes_no_sense_names_nothing() {
    assert_eq!(pod(json!({"volumes": "none", "containers": {"env": 1}})), []);
    assert_eq!(pod(json!({"volumes": [7, {"configMap": {"name": "a/b"}}]})), []);
    assert_eq!(pod(Value::Null), []);
}
