//! Requests of a node over mTLS, all parts as processes: from its local API over a hub to the writer of the
//! log, and to the next writer after that one has died.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use headwater_cluster::ControlPlaneSettings;
use headwater_e2e::authority::Authority;
use headwater_e2e::fleet::{CONTROLLER, Fleet};
use headwater_e2e::local_api::operate;
use headwater_e2e::running::WAIT;
use headwater_proto::local::Failure;
use headwater_proto::local::failure::Code;
use headwater_proto::local::operation::Verb;
use headwater_proto::local::operation_result::Outcome;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use serde_json::{Value, json};

use crate::world::{USER, create, deployed, kubectl, node};

/// Few, so that a claim in each is quick.
const PARTITIONS: u32 = 3;

const TWO: [&str; 2] = ["first", "second"];

/// What is not in the log, so that every `get` of it goes to the API server.
const ABSENT: &str = "default/configmap/absent";

const ACCOUNT: &str = "default/serviceaccount/robot";

const SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";

/// Between two tries after the death of the writer.
const TRY_EVERY: Duration = Duration::from_millis(100);

/// Requests work again within 3 s of the claim of the next writer, which are 30 tries; on a busy machine the claim itself
/// takes as long again, and more.
const TRIES_MAX: usize = 100;

/// A pod that names a ConfigMap which is not there, and two tokens.
fn pod() -> Value {
    let token =
        |audience: &str| json!({"serviceAccountToken": {"path": audience, "audience": audience}});
    let sources = json!([token("vault"), token("bank")]);
    let absent = json!([{"configMapRef": {"name": "absent", "optional": true}}]);
    let container = json!({"name": "main", "image": "example.invalid/main", "envFrom": absent});
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
        "spec": {
            "nodeName": "gw-1", "serviceAccountName": "robot", "containers": [container],
            "volumes": [{"name": "tokens", "projected": {"sources": sources}}],
        },
    })
}

fn signing_request() -> Value {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
    params.distinguished_name.push(DnType::CommonName, "system:node:gw-1");
    let key = KeyPair::generate().expect("a key");
    let pem = params.serialize_request(&key).expect("a request").pem().expect("PEM");
    let usages = ["client auth", "digital signature"];
    json!({"spec": {"request": BASE64_STANDARD.encode(pem), "signerName": SIGNER, "usages": usages}})
}

/// Sends a request to the local API of an edge. Returns the first object of the answer.
fn ask(socket: &Path, verb: Verb, resource: &str, content: &str) -> Result<Value, Failure> {
    match operate(socket, verb, resource, content) {
        Outcome::Failure(failure) => Err(failure),
        Outcome::Objects(found) => {
            Ok(serde_json::from_slice(&found.objects[0].object).expect("JSON"))
        }
        other => panic!("{other:?}"),
    }
}

/// The token of the pod for an audience.
fn token(socket: &Path, uid: &str, audience: &str) -> Result<String, Failure> {
    let bound = json!({"kind": "Pod", "apiVersion": "v1", "name": "web", "uid": uid});
    let body = json!({"spec": {"audiences": [audience], "boundObjectRef": bound}});
    let answer = ask(socket, Verb::Token, ACCOUNT, &body.to_string())?;
    Ok(answer["status"]["token"].as_str().expect("a token").to_owned())
}

fn writes(fleet: &Fleet, name: &str) -> bool {
    fleet.part(name).status().is_some_and(|status| status["stands_by"] == false)
}

#[test]
fn requests_go_over_tls_to_the_writer_and_to_the_next_one_after_its_death() {
    let only_api = ControlPlaneSettings { parts: Vec::new(), ..ControlPlaneSettings::default() };
    let (cluster, kubeconfig) = deployed(only_api);
    create(&cluster, &node("gw-1"));
    let robot =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}});
    create(&cluster, &robot);
    let web = create(&cluster, &pod());
    let uid = web["metadata"]["uid"].as_str().expect("a UID");

    let authority = Authority::new();
    let heartbeats = authority.settings(CONTROLLER);
    let mut fleet = Fleet::on_one_broker(PARTITIONS);
    for name in TWO {
        let mut more = authority.issue("controller", name);
        more.extend(["--listen", "127.0.0.1:0", "--config", &heartbeats].map(str::to_owned));
        fleet.add_kubernetes_controller(name, &kubeconfig, &more);
    }
    let as_str = |args: Vec<String>| args.leak().iter().map(String::as_str).collect::<Vec<_>>();
    fleet.add_hub_with("hub", &as_str(authority.issue("hub", "hub")));
    let hub = fleet.hub_address("hub");
    fleet.add_edge_with("gw-1", &[hub], &as_str(authority.issue("node", "gw-1")));
    let socket = fleet.part("gw-1").data().join("nodes/gw-1/edge.sock");
    let get = || ask(&socket, Verb::Query, ABSENT, "").expect_err("it is absent");
    fleet.wait_for("an answer of the API server", |_| {
        (socket.exists() && get().code() == Code::NotFound).then_some(())
    });

    fleet.wait_for("the pod at the edge", |fleet| {
        let pods = fleet.part("gw-1").text(&["get", "pods", "-o", "name"])?;
        pods.lines().any(|line| line == "pod/web").then_some(())
    });

    // A token that the API server issued for this pod, and a certificate that it has a request for.
    let vault = token(&socket, uid, "vault").expect("a token");
    let review = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
        "spec": {"token": vault, "audiences": ["vault"]},
    });
    let reviewed = create(&cluster, &review);
    let user = &reviewed["status"]["user"];
    assert_eq!(user["username"], "system:serviceaccount:default:robot", "{}", reviewed["status"]);
    assert_eq!(user["extra"]["authentication.kubernetes.io/pod-uid"][0], uid);
    let body = signing_request();
    let certificate = "null/certificatesigningrequest/csr-gw-1";
    let signed = ask(&socket, Verb::Csr, certificate, &body.to_string()).expect("an answer");
    assert_eq!(signed["spec"]["username"], "system:node:gw-1");
    let stored = kubectl(&cluster, &["get", "csr", "csr-gw-1", "-o", "jsonpath={.spec.request}"]);
    assert_eq!(body["spec"]["request"], stored.as_str());

    let writer = fleet.wait_for("a writer and a standby", |fleet| {
        let both = TWO.iter().all(|name| fleet.part(name).status().is_some());
        let [first, second] = TWO.map(|name| writes(fleet, name));
        (both && first != second).then_some(if first { 0 } else { 1 })
    });
    let next = TWO[1 - writer];
    fleet.part_mut(TWO[writer]).kill();
    let (killed, mut claimed, mut tries) = (Instant::now(), None, 0);
    loop {
        let failure = get();
        if failure.code() == Code::NotFound {
            break;
        }
        assert_eq!(failure.code(), Code::Unavailable, "{}", failure.message);
        assert!(failure.message.contains("controller"), "words: {}", failure.message);
        if claimed.is_none() && writes(&fleet, next) {
            claimed = Some(Instant::now());
        }
        tries += usize::from(claimed.is_some());
        assert!(killed.elapsed() < WAIT, "{}\n{}", failure.message, fleet.outputs());
        thread::sleep(TRY_EVERY);
    }
    let back = claimed.map(|claimed| claimed.elapsed()).unwrap_or_default();
    println!(
        "back {back:?} and {tries} tries after the claim was seen, {:?} after the kill",
        killed.elapsed()
    );
    assert!(tries <= TRIES_MAX, "{tries} tries in {back:?} after the claim");
    // The edge keeps the first token; the second one comes by the new writer.
    assert_eq!(token(&socket, uid, "vault").expect("kept"), vault);
    token(&socket, uid, "bank").expect("a token by the next writer");
    let log = cluster.audit_log().expect("an audit log");
    assert_eq!(log.refused(USER), [""; 0]);
}
