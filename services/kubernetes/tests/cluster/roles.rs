//! The manifests of `ops/deploy/kubernetes`: what they grant, on paper and at a real API server.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use headwater_cluster::{ControlPlane, ControlPlaneSettings};
use headwater_kubernetes::{Access, ActAs, KubernetesSettings, rights};
use http::Method;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};

use crate::deployment::{ACCOUNT, KNOWN_WITHIN, NAMESPACE, USER, apply, deploy, folder, missing};
use crate::world::{Kubectl as _, POLL, node, only_api, pod};

const JSON: &str = "application/json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const MERGE: &str = "application/merge-patch+json";
const PODS: &str = "/api/v1/namespaces/default/pods";
const TOKEN: &str = "/api/v1/namespaces/default/serviceaccounts/default/token";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";

/// What the roles in `files` grant: verb, group, resource with subresource, namespace, name.
fn granted(files: &[PathBuf]) -> BTreeSet<[String; 5]> {
    let mut granted = BTreeSet::new();
    for file in files {
        let text = fs::read_to_string(file).expect("a manifest");
        let documents: Vec<Value> = serde_saphyr::from_multiple(&text).expect("YAML");
        for role in documents.iter().filter(|document| document["rules"].is_array()) {
            let namespace = role["metadata"]["namespace"].as_str().unwrap_or_default();
            for rule in role["rules"].as_array().expect("rules") {
                for name in names(&rule["resourceNames"]) {
                    for resource in texts(&rule["resources"]) {
                        for verb in texts(&rule["verbs"]) {
                            let group = texts(&rule["apiGroups"]).concat();
                            let right = [&verb, &group, &resource, namespace, &name];
                            granted.insert(right.map(ToOwned::to_owned));
                        }
                    }
                }
            }
        }
    }
    granted
}

/// Whether an edge's Node was there is noted on a disk of the controller.
#[test]
fn the_data_of_a_controller_outlives_its_pod() {
    let text = fs::read_to_string(deploy().join("base/controller.yaml")).expect("a manifest");
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text).expect("YAML");
    let [controller] = &*documents else { panic!("one object") };
    let spec = &controller["spec"];
    let pod = &spec["template"]["spec"];
    let mounts = pod["containers"][0]["volumeMounts"].as_array().expect("mounts");
    let data = mounts.iter().find(|mount| mount["mountPath"] == "/var/lib/headwater");
    let data = &data.expect("a data directory")["name"];
    let claims = spec["volumeClaimTemplates"].as_array().expect("claims");
    assert!(claims.iter().any(|claim| claim["metadata"]["name"] == *data), "{claims:?}");
    let volumes = pod["volumes"].as_array().expect("volumes");
    assert!(volumes.iter().all(|volume| volume["name"] != *data), "{volumes:?}");
}

fn texts(value: &Value) -> Vec<String> {
    let texts = value.as_array().into_iter().flatten().filter_map(Value::as_str);
    texts.map(ToOwned::to_owned).collect()
}

/// The names to which a rule is limited; an empty one for no limit.
fn names(value: &Value) -> Vec<String> {
    let names = texts(value);
    if names.is_empty() { vec![String::new()] } else { names }
}

#[test]
fn the_roles_grant_what_the_controller_uses_and_nothing_more() {
    for act_as in [ActAs::Node, ActAs::Controller] {
        let files = [deploy().join("base/reading.yaml"), folder(act_as).join("writing.yaml")];
        let used = rights(&KubernetesSettings::default(), act_as).into_iter().map(|right| {
            let slash = if right.subresource.is_empty() { "" } else { "/" };
            let resource = format!("{}{slash}{}", right.resource, right.subresource);
            [right.verb, right.group, resource, right.namespace, right.name]
        });
        let (used, granted) = (used.collect::<BTreeSet<_>>(), granted(&files));
        let missing: Vec<_> = used.difference(&granted).collect();
        let unused: Vec<_> = granted.difference(&used).collect();
        assert!(
            missing.is_empty() && unused.is_empty(),
            "{act_as:?} lacks {missing:?}, has {unused:?}"
        );
    }
}

/// The controller of the manifests at a real API server.
struct Account {
    client: Client,
}

impl Account {
    async fn of(cluster: &ControlPlane) -> Self {
        let file = cluster.kubeconfig_of_account(NAMESPACE, ACCOUNT).expect("a token");
        let kubeconfig = Kubeconfig::read_from(&file).expect("a kubeconfig");
        let options = KubeConfigOptions::default();
        let config = Config::from_custom_kubeconfig(kubeconfig, &options).await.expect("usable");
        Self { client: Client::try_from(config).expect("a client") }
    }

    /// Sends a request, as a node if one is named, and returns the status and the message.
    async fn send(
        &self,
        node: Option<&str>,
        method: Method,
        path: &str,
        form: &str,
        body: Value,
    ) -> (u16, String) {
        let mut request = http::Request::builder().method(method).uri(path);
        request = request.header("content-type", form);
        if let Some(node) = node {
            request = request.header("impersonate-user", format!("system:node:{node}"));
        }
        let request = request.body(body.to_string().into_bytes()).expect("a request");
        match self.client.request_text(request).await {
            Ok(_) => (200, String::new()),
            Err(kube::Error::Api(status)) => (status.code, status.message.clone()),
            Err(error) => panic!("{path}: {error}"),
        }
    }

    async fn patch(
        &self,
        node: Option<&str>,
        path: &str,
        form: &str,
        body: Value,
    ) -> (u16, String) {
        self.send(node, Method::PATCH, path, form, body).await
    }
}

/// A control plane with the manifests of one form, two edges, and a pod on each.
async fn deployed(act_as: ActAs) -> (ControlPlane, Account) {
    let cluster = ControlPlane::start(ControlPlaneSettings { audit: true, ..only_api() });
    let cluster = cluster.expect("a control plane");
    let file = apply(&cluster, act_as);
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    let bound = |name: &str, on: &str| {
        let mut pod = pod(name, on, "settings");
        pod["spec"]["serviceAccountName"] = json!("default");
        // As the admission of service accounts adds it: a node gets tokens that a pod mounts.
        let token = json!({"sources": [{"serviceAccountToken": {"path": "token"}}]});
        pod["spec"]["volumes"] = json!([{"name": "token", "projected": token}]);
        pod["spec"]["terminationGracePeriodSeconds"] = json!(0);
        pod["spec"]["tolerations"] = json!([toleration(Some(300))]);
        pod
    };
    cluster.create(&[account, node("gw-1", true), node("gw-2", true)]);
    cluster.create(&[bound("p1", "gw-1"), bound("p2", "gw-2")]);
    let account = Account::of(&cluster).await;
    // The server reads roles and policies by watches of its own.
    let access = Access::Kubeconfig { file, context: None };
    let connection = access.connect().await.expect("a client");
    let end = Instant::now() + KNOWN_WITHIN;
    let mut attempt = 0;
    loop {
        let missing = missing(&connection, act_as).await;
        // Another one each time: the policy admits a label that the pod got before the policy was known.
        let label = json!({"metadata": {"labels": {"attempt": attempt.to_string()}}});
        let (code, _) = account.patch(None, &format!("{PODS}/p1"), MERGE, label).await;
        if missing.is_empty() && code == 422 {
            return (cluster, account);
        }
        assert!(Instant::now() < end, "a label: {code}, missing {missing:?}");
        tokio::time::sleep(POLL).await;
        attempt += 1;
    }
}

fn toleration(seconds: Option<u32>) -> Value {
    let mut toleration = json!({
        "key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute",
    });
    if let Some(seconds) = seconds {
        toleration["tolerationSeconds"] = json!(seconds);
    }
    toleration
}

fn token_of(cluster: &ControlPlane, pod: &str) -> Value {
    let uid = cluster.run(&["get", "pod", pod, "-o", "jsonpath={.metadata.uid}"]);
    let bound = json!({"kind": "Pod", "apiVersion": "v1", "name": pod, "uid": uid});
    token(json!({"audiences": [], "boundObjectRef": bound}))
}

fn token(spec: Value) -> Value {
    json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec})
}

fn lease(node: &str) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": node},
        "spec": {"holderIdentity": node, "leaseDurationSeconds": 40},
    })
}

/// The mirror of a static pod of a node.
fn mirror(cluster: &ControlPlane, name: &str, on: &str) -> Value {
    let uid = cluster.run(&["get", "node", on, "-o", "jsonpath={.metadata.uid}"]);
    let owner = json!({
        "apiVersion": "v1", "kind": "Node", "name": on, "uid": uid, "controller": true,
    });
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "ownerReferences": [owner],
            "annotations": {"kubernetes.io/config.mirror": "h"},
        },
        "spec": {
            "nodeName": on, "containers": [{"name": "main", "image": "example.invalid/main"}],
        },
    })
}

/// Changes of the metadata of a pod.
fn metadata_changes() -> [(&'static str, Value); 4] {
    let owner = json!({
        "apiVersion": "v1", "kind": "Node", "name": "gw-2",
        "uid": "11111111-2222-4333-8444-555555555555",
    });
    [
        ("label", json!({"metadata": {"labels": {"a": "b"}}})),
        ("annotation", json!({"metadata": {"annotations": {"a": "b"}}})),
        ("finalizer", json!({"metadata": {"finalizers": ["a.example/b"]}})),
        ("owner", json!({"metadata": {"ownerReferences": [owner]}})),
    ]
}

/// Nothing but the tolerations of a pod may be changed.
async fn check_tolerations(account: &Account) {
    let path = format!("{PODS}/p1");
    let longer = json!({"spec": {"tolerations": [toleration(None)]}});
    let changed = account.patch(None, &path, MERGE, longer).await;
    assert_eq!(changed.0, 200, "tolerations: {}", changed.1);
    let of_spec = [
        (
            "image",
            json!({"spec": {"containers": [{"name": "main", "image": "example.invalid/x"}]}}),
        ),
        ("deadline", json!({"spec": {"activeDeadlineSeconds": 1}})),
    ];
    for (what, change) in of_spec.into_iter().chain(metadata_changes()) {
        let (code, message) = account.patch(None, &path, STRATEGIC, change).await;
        assert!(code == 422 && message.contains("may change the tolerations"), "{what}: {message}");
    }
}

/// A write of a status changes nothing else of a pod.
async fn check_status(account: &Account) {
    let path = format!("{PODS}/p1/status");
    for form in [STRATEGIC, MERGE] {
        // The server itself keeps the owners, whatever a write of a status has.
        let changes = metadata_changes().into_iter().filter(|(what, _)| *what != "owner");
        for (what, mut change) in changes {
            change["status"] = json!({"phase": "Running"});
            let (code, message) = account.patch(None, &path, form, change).await;
            assert!(code == 422 && message.contains("not its metadata"), "{what}: {message}");
        }
        let status = json!({"status": {"phase": "Running", "message": form}});
        let written = account.patch(None, &path, form, status).await;
        assert_eq!(written.0, 200, "{}", written.1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn as_one_node_the_controller_touches_nothing_of_another() {
    let (cluster, account) = deployed(ActAs::Node).await;
    check_tolerations(&account).await;
    let status = || json!({"status": {"phase": "Running"}});
    let ready = || json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    let zone = || json!({"metadata": {"labels": {"topology.kubernetes.io/zone": "b"}}});
    let (get, post, patch) = (Method::GET, Method::POST, Method::PATCH);
    let own = [
        (&patch, format!("{PODS}/p1/status"), STRATEGIC, status()),
        (&patch, "/api/v1/nodes/gw-1".to_owned(), MERGE, zone()),
        (&patch, "/api/v1/nodes/gw-1/status".to_owned(), STRATEGIC, ready()),
        (&post, LEASES.to_owned(), JSON, lease("gw-1")),
        (&patch, format!("{LEASES}/gw-1"), MERGE, json!({"spec": {"leaseDurationSeconds": 41}})),
        (&post, TOKEN.to_owned(), JSON, token_of(&cluster, "p1")),
        (&get, "/api/v1/nodes/gw-1".to_owned(), JSON, json!({})),
        (&Method::DELETE, format!("{PODS}/p1"), JSON, json!({"gracePeriodSeconds": 0})),
        (&post, PODS.to_owned(), JSON, mirror(&cluster, "m1", "gw-1")),
        (&Method::DELETE, format!("{PODS}/m1"), JSON, json!({"gracePeriodSeconds": 0})),
    ];
    let end = Instant::now() + KNOWN_WITHIN;
    for (method, path, form, body) in own {
        loop {
            let body = body.clone();
            let (code, message) =
                account.send(Some("gw-1"), method.clone(), &path, form, body).await;
            // The server checks a node's deletion against pods that it reads by a watch of its own.
            if code == 404 && Instant::now() < end {
                tokio::time::sleep(POLL).await;
                continue;
            }
            assert_eq!(code, 200, "as gw-1, {method} {path}: {message}");
            break;
        }
    }
    let role = || json!({"metadata": {"labels": {"node-role.kubernetes.io/other": ""}}});
    let secret = "/api/v1/namespaces/kube-system/secrets/any".to_owned();
    let others = [
        (&patch, format!("{PODS}/p2/status"), STRATEGIC, status()),
        (&patch, "/api/v1/nodes/gw-2".to_owned(), MERGE, zone()),
        (&patch, "/api/v1/nodes/gw-1".to_owned(), MERGE, role()),
        (&patch, "/api/v1/nodes/gw-2/status".to_owned(), STRATEGIC, ready()),
        (&post, LEASES.to_owned(), JSON, lease("gw-2")),
        (&post, TOKEN.to_owned(), JSON, token_of(&cluster, "p2")),
        (&get, secret, JSON, json!({})),
        (&Method::DELETE, format!("{PODS}/p2"), JSON, json!({})),
        (&post, PODS.to_owned(), JSON, pod("no-mirror", "gw-1", "settings")),
        (&post, PODS.to_owned(), JSON, mirror(&cluster, "m2", "gw-2")),
    ];
    for (method, path, form, body) in others {
        let (code, message) = account.send(Some("gw-1"), method.clone(), &path, form, body).await;
        assert_eq!(code, 403, "as gw-1, {method} {path}: {message}");
    }
    // As itself it has none of these rights.
    let itself = [
        (&patch, format!("{PODS}/p2/status"), STRATEGIC, status()),
        (&post, TOKEN.to_owned(), JSON, token_of(&cluster, "p2")),
        (&Method::DELETE, format!("{PODS}/p2"), JSON, json!({})),
    ];
    for (method, path, form, body) in itself {
        let (code, message) = account.send(None, method.clone(), &path, form, body).await;
        assert_eq!(code, 403, "as itself, {method} {path}: {message}");
    }
    let log = cluster.audit_log().expect("a log");
    let refused = log.refused(USER);
    assert!(
        refused.iter().any(|one| one.contains("p2/status as system:node:gw-1: 403")),
        "{refused:#?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn with_its_own_rights_the_controller_begins_no_deletion_and_gets_tokens_of_pods_alone() {
    let (cluster, account) = deployed(ActAs::Controller).await;
    check_tolerations(&account).await;
    check_status(&account).await;
    let status = json!({"status": {"phase": "Running"}});
    let pod_token = account.send(None, Method::POST, TOKEN, JSON, token_of(&cluster, "p1")).await;
    assert_eq!(pod_token.0, 200, "{}", pod_token.1);
    let unbound =
        account.send(None, Method::POST, TOKEN, JSON, token(json!({"audiences": []}))).await;
    assert!(unbound.1.contains("bound to a pod"), "{unbound:?}");
    let path = format!("{PODS}/p2");
    let begun = account.send(None, Method::DELETE, &path, JSON, json!({})).await;
    assert!(begun.1.contains("may confirm the deletion"), "{begun:?}");
    let pod_of_its_own = pod("no-mirror", "gw-1", "settings");
    let made = account.send(None, Method::POST, PODS, JSON, pod_of_its_own).await;
    assert!(made.1.contains("may create the mirrors"), "{made:?}");
    let made = account.send(None, Method::POST, PODS, JSON, mirror(&cluster, "m1", "gw-1")).await;
    assert_eq!(made.0, 200, "{}", made.1);
    let mirror = format!("{PODS}/m1");
    let gone = account.send(None, Method::DELETE, &mirror, JSON, json!({})).await;
    assert_eq!(gone.0, 200, "{}", gone.1);
    // A kubelet is to stop it within the grace period.
    cluster.run(&["delete", "pod", "p2", "--grace-period=30", "--wait=false"]);
    let confirmed =
        account.send(None, Method::DELETE, &path, JSON, json!({"gracePeriodSeconds": 0})).await;
    assert_eq!(confirmed.0, 200, "{}", confirmed.1);
    let as_node =
        account.patch(Some("gw-1"), &format!("{PODS}/p1/status"), STRATEGIC, status).await;
    assert_eq!(as_node.0, 403, "{}", as_node.1);
}
