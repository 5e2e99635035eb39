//! A file with a static pod. Pure: from its bytes to the pod.
//!
//! The rules are a kubelet's (`pkg/kubelet/config/common.go`): the pod's name ends with the node's, its UID is a hash of
//! what the file says, and it names no object of a cluster, because the node has them from a cloud alone.

use std::collections::BTreeSet;

use headwater_event::{NodeName, ResourceKey};
use k8s_openapi::api::core::v1::{Pod, PodSpec, Volume};
use serde::Deserialize as _;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::pod::{self, PodUid};

/// The largest file: an API server takes no larger object (etcd's `--max-request-bytes`).
pub(super) const FILE_BYTES_MAX: u64 = 1_572_864;

/// The nodes of YAML and their depth: no pod has as many.
const NODES_MAX: usize = 100_000;
const DEPTH_MAX: usize = 64;

/// A static pod.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PodFile {
    /// The pod's UID: another one if the file says something else.
    pub(crate) uid: PodUid,
    /// The object, as a cloud would send it.
    pub(crate) object: Value,
}

/// A file that has no static pod.
#[derive(Debug, thiserror::Error)]
pub(super) enum PodFileError {
    #[error("it is larger than {FILE_BYTES_MAX} bytes")]
    TooLarge,
    #[error("it is no YAML or JSON: {0}")]
    Syntax(String),
    #[error("it has {0} documents; a file has one pod")]
    Documents(usize),
    #[error("it has apiVersion {api_version} and kind {kind}; a static pod has v1 and Pod")]
    Kind { api_version: String, kind: String },
    #[error("its pod is malformed: {0}")]
    Malformed(#[source] serde_json::Error),
    #[error("its pod has no metadata.name")]
    NoName,
    #[error("its pod has no name that can be used on this node: {0}")]
    Name(#[source] headwater_event::KeyError),
    #[error("its pod has no containers")]
    NoContainers,
    #[error("its pod has a container named {0:?} twice")]
    SameContainer(String),
    #[error("its pod has a container with the name {0:?}, which is no name of a container")]
    ContainerName(String),
    #[error("its pod names {0} of a cluster, which a static pod may not")]
    Reference(&'static str),
}

impl PodFile {
    /// The pod in the `text` of a file on `node`, and its key.
    pub(super) fn parse(node: &NodeName, text: &[u8]) -> Result<(ResourceKey, Self), PodFileError> {
        if u64::try_from(text.len()).is_ok_and(|bytes| bytes > FILE_BYTES_MAX) {
            return Err(PodFileError::TooLarge);
        }
        let mut object = read(text)?;
        check_kind(&object)?;
        let uid = uid_of(node, &object);
        complete(&mut object, node, &uid)?;
        let pod = Pod::deserialize(&object).map_err(PodFileError::Malformed)?;
        check_containers(&pod)?;
        if let Some(what) = pod.spec.as_ref().and_then(|spec| named(spec, &pod)) {
            return Err(PodFileError::Reference(what));
        }
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let key = ResourceKey::new(Some(pod::namespace(&pod)), "pod", name);
        Ok((key.map_err(PodFileError::Name)?, Self { uid, object }))
    }
}

fn read(text: &[u8]) -> Result<Value, PodFileError> {
    let text =
        std::str::from_utf8(text).map_err(|error| PodFileError::Syntax(error.to_string()))?;
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! { max_nodes: NODES_MAX, max_depth: DEPTH_MAX },
        legacy_octal_numbers: true,
        with_snippet: false,
    };
    let documents: Vec<Value> = serde_saphyr::from_multiple_with_options(text, options)
        .map_err(|error| PodFileError::Syntax(error.to_string()))?;
    let mut documents: Vec<Value> = documents.into_iter().filter(|it| !it.is_null()).collect();
    match (documents.pop(), documents.len()) {
        (Some(object), 0) => Ok(object),
        (Some(_), others) => Err(PodFileError::Documents(others + 1)),
        (None, _) => Err(PodFileError::Documents(0)),
    }
}

fn check_kind(object: &Value) -> Result<(), PodFileError> {
    let text = |field: &str| object[field].as_str().unwrap_or("none").to_owned();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    if (api_version.as_str(), kind.as_str()) == ("v1", "Pod") {
        Ok(())
    } else {
        Err(PodFileError::Kind { api_version, kind })
    }
}

/// Sets what the node decides, and removes what only an API server writes.
fn complete(object: &mut Value, node: &NodeName, uid: &PodUid) -> Result<(), PodFileError> {
    let name = object["metadata"]["name"].as_str().filter(|name| !name.is_empty());
    let name = format!("{}-{node}", name.ok_or(PodFileError::NoName)?);
    if let Value::Object(fields) = &mut *object {
        fields.remove("status");
    }
    let Some(Value::Object(metadata)) = object.get_mut("metadata") else {
        return Err(PodFileError::NoName);
    };
    for field in [
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "finalizers",
        "generateName",
        "managedFields",
        "ownerReferences",
        "resourceVersion",
    ] {
        metadata.remove(field);
    }
    // A field without a value is not there.
    metadata.retain(|_, value| !value.is_null());
    metadata.insert("name".to_owned(), name.into());
    metadata.insert("uid".to_owned(), uid.as_str().into());
    metadata.entry("namespace").or_insert_with(|| "default".into());
    let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
    if !annotations.is_object() {
        // The one of the wrong type is named below.
        return Ok(());
    }
    annotations["kubernetes.io/config.source"] = "file".into();
    annotations["kubernetes.io/config.hash"] = uid.as_str().into();
    if let Some(Value::Object(spec)) = object.get_mut("spec") {
        spec.insert("nodeName".to_owned(), node.as_str().into());
        // No taint of the node takes the pod away.
        let stays = json!({"operator": "Exists", "effect": "NoExecute"});
        let tolerations = spec.entry("tolerations").or_insert_with(|| json!([]));
        if let Some(tolerations) = tolerations.as_array_mut().filter(|all| !all.contains(&stays)) {
            tolerations.push(stays);
        }
    }
    Ok(())
}

/// The UID of a pod whose file says `object`. The form of the text, its comments and the file's name do not count.
fn uid_of(node: &NodeName, object: &Value) -> PodUid {
    let mut hasher = blake3::Hasher::new();
    hasher.update(node.as_str().as_bytes()).update(b"\0").update(object.to_string().as_bytes());
    let mut bytes = [0; 16];
    hasher.finalize_xof().fill(&mut bytes);
    let uid = uuid::Builder::from_custom_bytes(bytes).into_uuid();
    PodUid::try_from(Uuid::to_string(&uid)).expect("a UUID is plain")
}

fn check_containers(pod: &Pod) -> Result<(), PodFileError> {
    if pod::main_containers(pod).is_empty() {
        return Err(PodFileError::NoContainers);
    }
    let mut names = BTreeSet::new();
    for container in pod::every_container(pod) {
        let name = container.name.clone();
        if !pod::is_plain_name(&name) {
            return Err(PodFileError::ContainerName(name));
        }
        if !names.insert(name.clone()) {
            return Err(PodFileError::SameContainer(name));
        }
    }
    Ok(())
}

/// What the pod names of a cluster, if anything.
fn named(spec: &PodSpec, pod: &Pod) -> Option<&'static str> {
    let is_set = |name: &Option<String>| name.as_ref().is_some_and(|name| !name.is_empty());
    if is_set(&spec.service_account_name) || is_set(&spec.service_account) {
        return Some("a ServiceAccount");
    }
    if pod::pull_secrets(spec).next().is_some() {
        return Some("a Secret");
    }
    if spec.resource_claims.as_ref().is_some_and(|claims| !claims.is_empty()) {
        return Some("a ResourceClaim");
    }
    let mut volumes = spec.volumes.iter().flatten();
    volumes.find_map(named_by_volume).or_else(|| {
        pod::every_container(pod).find_map(|container| {
            let from = container.env_from.iter().flatten();
            let whole = from.map(|from| (from.config_map_ref.is_some(), from.secret_ref.is_some()));
            let values = container.env.iter().flatten().filter_map(|env| env.value_from.as_ref());
            let values = values
                .map(|from| (from.config_map_key_ref.is_some(), from.secret_key_ref.is_some()));
            whole.chain(values).find_map(|named| match named {
                (true, _) => Some("a ConfigMap"),
                (_, true) => Some("a Secret"),
                _ => None,
            })
        })
    })
}

fn named_by_volume(volume: &Volume) -> Option<&'static str> {
    let sources = volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten());
    let projected = sources.into_iter().find_map(|source| {
        if source.config_map.is_some() {
            Some("a ConfigMap")
        } else if source.secret.is_some() {
            Some("a Secret")
        } else if source.service_account_token.is_some() {
            Some("a token of a ServiceAccount")
        } else {
            source.cluster_trust_bundle.as_ref().map(|_| "a ClusterTrustBundle")
        }
    });
    let driver = volume.csi.as_ref();
    if volume.config_map.is_some() {
        Some("a ConfigMap")
    } else if volume.secret.is_some()
        || driver.is_some_and(|driver| driver.node_publish_secret_ref.is_some())
    {
        Some("a Secret")
    } else if volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some() {
        Some("a PersistentVolumeClaim")
    } else {
        projected
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POD: &str = "
apiVersion: v1
kind: Pod
metadata:
  name: web
spec:
  containers:
  - name: main
    image: busybox
";

    fn parse(text: &str) -> Result<(ResourceKey, PodFile), PodFileError> {
        PodFile::parse(&"gw-1".parse().expect("a name"), text.as_bytes())
    }

    fn uid(text: &str) -> PodUid {
        parse(text).expect("a pod").1.uid
    }

    #[test]
    fn a_pod_has_the_name_of_its_node_and_a_uid_of_what_the_file_says() {
        let (key, pod) = parse(POD).expect("a pod");
        assert_eq!(key.to_string(), "default/pod/web-gw-1");
        assert_eq!(pod.object["metadata"]["name"], "web-gw-1");
        assert_eq!(pod.object["metadata"]["uid"], pod.uid.as_str());
        assert_eq!(pod.object["spec"]["nodeName"], "gw-1");
        let stays = json!([{"operator": "Exists", "effect": "NoExecute"}]);
        assert_eq!(pod.object["spec"]["tolerations"], stays);
        let annotations = &pod.object["metadata"]["annotations"];
        assert_eq!(annotations["kubernetes.io/config.source"], "file");
        assert!(pod::is_critical(&Pod::deserialize(&pod.object).expect("a pod")));
        let commented = format!("# a comment\n---{POD}");
        assert_eq!(uid(&commented), pod.uid, "the form does not count");
        let json = json!({
            "kind": "Pod", "apiVersion": "v1", "metadata": {"name": "web"},
            "spec": {"containers": [{"image": "busybox", "name": "main"}]},
        });
        assert_eq!(uid(&json.to_string()), pod.uid, "nor does JSON");
        assert_ne!(uid(&POD.replace("busybox", "nginx")), pod.uid);
        let other = PodFile::parse(&"gw-2".parse().expect("a name"), POD.as_bytes());
        assert_ne!(other.expect("a pod").1.uid, pod.uid, "another node has another pod");
    }

    #[test]
    fn a_file_cannot_say_what_only_an_api_server_says() {
        let text = POD.replace(
            "  name: web\n",
            "  name: web\n  uid: mine\n  deletionTimestamp: 2026-01-01T00:00:00Z\n  namespace: shop\n",
        );
        let (key, pod) = parse(&format!("{text}status: {{phase: Failed}}\n")).expect("a pod");
        assert_eq!(key.to_string(), "shop/pod/web-gw-1");
        assert_ne!(pod.uid.as_str(), "mine");
        assert!(pod.object["metadata"]["deletionTimestamp"].is_null());
        assert!(pod.object["status"].is_null());
    }

    #[test]
    fn a_field_without_a_value_is_not_there() {
        let text = POD.replace("  name: web\n", "  name: web\n  namespace:\n  annotations:\n");
        let (key, pod) = parse(&text).expect("a pod");
        assert_eq!(key.to_string(), "default/pod/web-gw-1");
        assert_eq!(pod.object["metadata"]["annotations"]["kubernetes.io/config.source"], "file");
        assert_eq!(pod.object["spec"]["nodeName"], "gw-1");
    }

    #[test]
    fn what_is_no_static_pod_is_refused_by_its_cause() {
        let with = |from: &str, to: &str| POD.replace(from, to);
        let in_spec = |text: &str| format!("{POD}  {text}\n");
        let in_container = |text: &str| format!("{POD}    {text}\n");
        for (text, cause) in [
            (String::new(), "it has 0 documents"),
            (format!("{POD}---{POD}"), "it has 2 documents"),
            ("{".to_owned(), "it is no YAML or JSON"),
            (with("Pod", "Deployment"), "apiVersion v1 and kind Deployment"),
            ("[]".to_owned(), "apiVersion none and kind none"),
            (with("  name: web", "  labels: {}"), "no metadata.name"),
            (with("name: web", "name: a/b"), "no name that can be used"),
            (with("name: main", "name: ../x"), "no name of a container"),
            (format!("{POD}  - {{name: main}}\n"), "\"main\" twice"),
            (
                with("  containers:\n  - name: main\n    image: busybox\n", "  {}\n"),
                "no containers",
            ),
            (with("image: busybox", "image: [1]"), "malformed"),
            (in_spec("serviceAccountName: builder"), "names a ServiceAccount"),
            (in_spec("imagePullSecrets: [{name: s}]"), "names a Secret"),
            (in_spec("volumes: [{name: v, configMap: {name: c}}]"), "names a ConfigMap"),
            (
                in_spec("volumes: [{name: v, persistentVolumeClaim: {claimName: c}}]"),
                "names a PersistentVolumeClaim",
            ),
            (
                in_spec(
                    "volumes: [{name: v, projected: {sources: [{serviceAccountToken: {path: t}}]}}]",
                ),
                "names a token",
            ),
            (
                in_spec("volumes: [{name: v, csi: {driver: d, nodePublishSecretRef: {name: s}}}]"),
                "names a Secret",
            ),
            (in_container("envFrom: [{secretRef: {name: s}}]"), "names a Secret"),
            (
                in_container("env: [{name: A, valueFrom: {configMapKeyRef: {name: c, key: k}}}]"),
                "names a ConfigMap",
            ),
        ] {
            let error = parse(&text).expect_err(&text).to_string();
            assert!(error.contains(cause), "{text}: {error}");
        }
        let large = " ".repeat(2 << 20);
        assert!(matches!(parse(&large), Err(PodFileError::TooLarge)));
    }

    #[test]
    fn values_of_the_pod_itself_are_no_references() {
        let env = "    env: [{name: A, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]\n";
        let volumes = "  volumes: [{name: v, hostPath: {path: /etc}}, {name: w, emptyDir: {}}]\n";
        parse(&format!("{POD}{env}{volumes}")).expect("a pod");
    }
}
