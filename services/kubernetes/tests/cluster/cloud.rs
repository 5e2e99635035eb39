//! Requests of nodes at a real API server: answered as the node, and refused by the server's own rules.

use std::future::Future;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use headwater_cluster::Part;
use headwater_controller::Cloud;
use headwater_event::{NodeRequest, RequestError, RequestVerb};
use headwater_kubernetes::{Access, ActAs, KubernetesCloud};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use serde_json::{Value, json};

use crate::world::{Kubectl as _, POLL, config, control_plane, node, object};

const SOON: Duration = Duration::from_secs(60);

pub(crate) fn request(node: &str, verb: RequestVerb, key: &str, body: Value) -> NodeRequest {
    NodeRequest {
        node: node.parse().expect("a name"),
        timeout: SOON,
        verb,
        key: key.parse().expect("a key"),
        body: body.to_string().into(),
    }
}

pub(crate) fn get(node: &str, key: &str) -> NodeRequest {
    request(node, RequestVerb::Get, key, Value::Null)
}

pub(crate) fn token(node: &str, pod: &str, uid: &str, audience: &str) -> NodeRequest {
    let bound = json!({"kind": "Pod", "apiVersion": "v1", "name": pod, "uid": uid});
    let spec =
        json!({"audiences": [audience], "expirationSeconds": 3_600, "boundObjectRef": bound});
    let body = json!({"spec": spec});
    request(node, RequestVerb::Token, "default/serviceaccount/robot", body)
}

/// A pod with a ConfigMap and a token.
fn pod(name: &str, on: &str, config: &str) -> Value {
    let sources = json!([
        {"configMap": {"name": config}},
        {"serviceAccountToken": {"path": "token", "audience": "vault"}},
    ]);
    let container = json!({"name": "main", "image": "example.invalid/main"});
    let spec = json!({
        "nodeName": on, "serviceAccountName": "robot", "containers": [container],
        "volumes": [{"name": "all", "projected": {"sources": sources}}],
    });
    object("v1", "Pod", name, json!({"spec": spec}))
}

pub(crate) fn csr(node: &str) -> Value {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
    params.distinguished_name.push(DnType::CommonName, format!("system:node:{node}"));
    let key = KeyPair::generate().expect("a key");
    let pem = params.serialize_request(&key).expect("a request").pem().expect("PEM");
    json!({"spec": {
        "request": BASE64_STANDARD.encode(pem),
        "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
        "usages": ["client auth", "digital signature"],
    }})
}

pub(crate) async fn json_of(
    cloud: &KubernetesCloud,
    request: NodeRequest,
) -> Result<Value, RequestError> {
    let answer = cloud.respond(request).await?;
    Ok(serde_json::from_slice(&answer).expect("JSON"))
}

/// Waits for an answer: the server's rules for nodes follow its objects a moment later.
async fn until_ok<F>(mut ask: impl FnMut() -> F) -> Value
where
    F: Future<Output = Result<Value, RequestError>>,
{
    let end = Instant::now() + SOON;
    loop {
        match ask().await {
            Ok(answer) => return answer,
            Err(error) => assert!(Instant::now() < end, "{error}"),
        }
        tokio::time::sleep(POLL).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_gets_what_it_may_and_the_server_refuses_the_rest() {
    let mut cluster = control_plane();
    cluster.create(&[
        node("gw-1", true),
        node("gw-2", true),
        object("v1", "ServiceAccount", "robot", json!({})),
        config("one", "1"),
        config("two", "2"),
        pod("web", "gw-1", "one"),
        pod("db", "gw-2", "two"),
    ]);
    let uid = |pod: &str| cluster.run(&["get", "pod", pod, "-o", "jsonpath={.metadata.uid}"]);
    let (web, db) = (uid("web"), uid("db"));
    let access = Access::Kubeconfig { file: cluster.kubeconfig().to_owned(), context: None };
    let connection = access.connect().await.expect("a client");
    let cloud = KubernetesCloud::new(connection, ActAs::Node);

    let found = until_ok(|| json_of(&cloud, get("gw-1", "default/configmap/one"))).await;
    assert_eq!(found["data"]["k"], "1");
    assert!(found["metadata"]["managedFields"].is_null() && found["metadata"]["uid"].is_string());
    let own = until_ok(|| json_of(&cloud, get("gw-1", "null/node/gw-1"))).await;
    assert_eq!(own["metadata"]["name"], "gw-1");
    let issued = until_ok(|| json_of(&cloud, token("gw-1", "web", &web, "vault"))).await;
    assert!(issued["status"]["token"].as_str().is_some_and(|token| token.split('.').count() == 3));
    assert_eq!(issued["spec"]["audiences"], json!(["vault"]));
    until_ok(|| json_of(&cloud, token("gw-2", "db", &db, "vault"))).await;

    // As the other node, which the server does not allow.
    for refused in [
        get("gw-1", "default/configmap/two"),
        get("gw-1", "default/secret/any"),
        get("gw-1", "null/node/gw-2"),
        token("gw-1", "db", &db, "vault"),
        token("gw-1", "web", &web, "https://else"),
    ] {
        let outcome = json_of(&cloud, refused.clone()).await;
        assert!(matches!(outcome, Err(RequestError::Forbidden(_))), "{refused:?}: {outcome:?}");
    }
    let outcome = json_of(&cloud, token("gw-1", "web", &db, "vault")).await;
    let is_refused = matches!(outcome, Err(RequestError::Conflict(_) | RequestError::Forbidden(_)));
    assert!(is_refused, "another UID: {outcome:?}");

    // A certificate: the same request again returns what is there.
    let (name, body) = ("null/certificatesigningrequest/csr-gw-1", csr("gw-1"));
    let ask = |body: &Value| request("gw-1", RequestVerb::Csr, name, body.clone());
    for _ in 0..2 {
        let found = json_of(&cloud, ask(&body)).await.expect("created, then found");
        assert_eq!(found["spec"]["username"], "system:node:gw-1");
        assert_eq!(found["spec"]["request"], body["spec"]["request"]);
    }
    let outcome = json_of(&cloud, ask(&csr("gw-1"))).await;
    assert!(matches!(outcome, Err(RequestError::Conflict(_))), "{outcome:?}");
    let outcome = json_of(&cloud, ask(&csr("gw-2"))).await;
    assert!(matches!(outcome, Err(RequestError::Forbidden(_))), "{outcome:?}");

    // A server that does not answer, and none.
    let soon = |node| NodeRequest { timeout: Duration::from_millis(300), ..get(node, name) };
    let one =
        || NodeRequest { key: "default/configmap/one".parse().expect("a key"), ..soon("gw-1") };
    cluster.part(Part::ApiServer).freeze().expect("frozen");
    let outcome = json_of(&cloud, one()).await;
    let Err(RequestError::Unavailable(reason)) = outcome else { panic!("{outcome:?}") };
    assert!(reason.contains("did not answer within 270 ms"), "{reason}");
    cluster.part(Part::ApiServer).thaw().expect("runs");
    cluster.stop().expect("it stops");
    let outcome = json_of(&cloud, one()).await;
    let Err(RequestError::Unavailable(reason)) = outcome else { panic!("{outcome:?}") };
    assert!(reason.starts_with("https://") || reason.contains("did not answer"), "{reason}");
}
