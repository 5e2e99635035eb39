//! Requests of nodes: the fold responds first and checks bodies, then the handler of the composition.

use std::collections::VecDeque;
use std::sync::Mutex;

use bytes::Bytes;
use headwater_event::request::REQUEST_BODY_BYTES_MAX;
use headwater_event::{AnswerBody, NodeRequest, RequestVerb, WriterAddress};
use headwater_log::Claimant;
use headwater_object::SigningRequest;
use headwater_session::message::{Request, RequestError};
use uuid::Uuid;

use super::*;
use edge::Wire;

/// Responds in order with what a test gives it, and then never. Keeps the requests.
#[derive(Default)]
struct ScriptedHandler {
    outcomes: Mutex<VecDeque<Result<AnswerBody, RequestError>>>,
    requests: Mutex<Vec<NodeRequest>>,
}

#[tonic::async_trait]
impl RequestHandler for ScriptedHandler {
    async fn handle(&self, request: NodeRequest) -> Result<AnswerBody, RequestError> {
        self.requests.lock().expect("whole").push(request);
        let outcome = self.outcomes.lock().expect("whole").pop_front();
        match outcome {
            Some(outcome) => outcome,
            None => std::future::pending().await,
        }
    }
}

/// A pod that names a ConfigMap.
const POD: &str =
    r#"{"spec":{"volumes":[{"name":"v","configMap":{"name":"absent"}}],"containers":[]}}"#;

/// A hub that hands requests to `handler`, and a session of node `a`.
async fn session(
    cloud: &TestCloud,
    handler: &Arc<ScriptedHandler>,
    limits: HubLimits,
) -> (HubHandle, Wire) {
    let engine = Arc::new(MemoryEngine::new());
    let dependencies = HubDependencies {
        requests: handler.clone(),
        ..dependencies(&cloud.logs(), &engine, &Registry::new())
    };
    let hub = Hub::start(config(settings(), limits), dependencies).await.expect("starts");
    until_true("complete fold", async || hub.view().is_reconciled()).await;
    let wire = dial(hub.address()).await.expect("a session");
    let hello = hello(identity("a", 1, 1), Vec::new());
    wire.0.send(EdgeMessage::Hello(hello).into()).await.expect("sent");
    (hub, wire)
}

/// The outcome of a request of node `a` over `wire`.
async fn request(
    wire: &mut Wire,
    id: u64,
    key: &str,
    timeout_ms: u64,
) -> Result<AnswerBody, RequestError> {
    let key = key.parse().expect("a key");
    ask(wire, Request::get(id, timeout_ms, key)).await
}

/// The outcome of a request over `wire`.
pub(super) async fn ask(
    (sender, receiver): &mut Wire,
    request: Request,
) -> Result<AnswerBody, RequestError> {
    let id = request.id;
    sender.send(EdgeMessage::Request(request).into()).await.expect("sent");
    loop {
        let message = timeout(SOON, receiver.message()).await.expect("soon").expect("a session");
        let message = HubMessage::try_from(message.expect("a message")).expect("well-formed");
        if let HubMessage::Response(response) = message {
            assert_eq!(response.id, id);
            return response.outcome;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_fold_responds_first_and_then_the_handler() {
    let mut cloud = TestCloud::new(&["a", "b"]).await;
    cloud.set("node/a", "held", Some("{\"metadata\":{\"name\":\"held\"}}".to_owned())).await;
    cloud.set("node/b", "foreign", Some("{}".to_owned())).await;
    cloud.set_key("node/a", "d/pod/web", Some(POD.to_owned())).await;
    let handler = Arc::new(ScriptedHandler::default());
    let unavailable = || RequestError::Unavailable("away".to_owned());
    let forbidden = || RequestError::Forbidden("why".to_owned());
    handler.outcomes.lock().expect("whole").extend([
        Ok(Bytes::from_static(b"{\"fresh\":1}").into()),
        Err(RequestError::NotFound),
        Err(forbidden()),
        Err(unavailable()),
    ]);
    let (hub, mut wire) = session(&cloud, &handler, limits()).await;

    let held = request(&mut wire, 1, "d/configmap/held", 1_000).await;
    let whole = r#"{"metadata":{"resourceVersion":"1","name":"held"}}"#;
    assert_eq!(held.as_deref(), Ok(whole.as_bytes()), "its version travels beside it");
    let foreign = request(&mut wire, 2, "d/configmap/foreign", 1_000).await;
    assert_eq!(foreign, Err(RequestError::Forbidden(RequestError::NOT_NAMED.to_owned())));
    assert!(handler.requests.lock().expect("whole").is_empty(), "neither reached the handler");

    let absent = "d/configmap/absent";
    let fresh = request(&mut wire, 3, absent, 1_000).await;
    assert_eq!(fresh.as_deref(), Ok(&b"{\"fresh\":1}"[..]));
    assert_eq!(request(&mut wire, 4, absent, 1_000).await, Err(RequestError::NotFound));
    assert_eq!(request(&mut wire, 5, absent, 1_000).await, Err(forbidden()));
    assert_eq!(request(&mut wire, 6, absent, 1_000).await, Err(unavailable()));
    let late = request(&mut wire, 7, absent, 20).await;
    let Err(RequestError::Unavailable(reason)) = late else { panic!("{late:?}") };
    assert!(reason.contains("did not answer within"), "{reason}");
    let requests = handler.requests.lock().expect("whole").clone();
    assert_eq!(requests.len(), 5);
    assert!(requests.iter().all(|request| request.node.as_str() == "a"));
    assert!(requests.iter().all(|request| request.key.to_string() == absent));
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_beyond_the_bound_of_a_node_fail_at_once() {
    let mut cloud = TestCloud::new(&["a"]).await;
    cloud.set_key("node/a", "d/pod/web", Some(POD.to_owned())).await;
    let handler = Arc::new(ScriptedHandler::default());
    let limits = HubLimits { node_requests_max: 1, ..limits() };
    let (hub, mut wire) = session(&cloud, &handler, limits).await;
    let key = || "d/configmap/absent".parse().expect("a key");
    let held = Request::get(1, u64::MAX, key());
    wire.0.send(EdgeMessage::Request(held).into()).await.expect("sent");
    until_true("request in flight", async || !handler.requests.lock().expect("whole").is_empty())
        .await;
    let beyond = request(&mut wire, 2, "d/configmap/absent", 1_000).await;
    let Err(RequestError::TooMany(reason)) = beyond else { panic!("{beyond:?}") };
    assert!(reason.contains("of this node"), "{reason}");
    hub.stop().await;
}

/// A pod with a token in a projected volume.
pub(super) const POD_WITH_TOKEN: &str = r#"{"metadata":{"uid":"u1"},"spec":{"serviceAccountName":"robot",
    "volumes":[{"name":"t","projected":{"sources":[
    {"serviceAccountToken":{"path":"token","audience":"vault"}}]}}],"containers":[]}}"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_fold_checks_the_body_of_a_request() {
    let mut cloud = TestCloud::new(&["a", "b"]).await;
    for node in ["node/a", "node/b"] {
        let pod = POD_WITH_TOKEN.replace("u1", if node == "node/a" { "u1" } else { "u2" });
        cloud.set_key(node, &format!("d/pod/of-{}", &node[5..]), Some(pod)).await;
    }
    let handler = Arc::new(ScriptedHandler::default());
    let token = || Bytes::from_static(b"{\"status\":{\"token\":\"t\"}}");
    handler.outcomes.lock().expect("whole").push_back(Ok(token().into()));
    let (hub, mut wire) = session(&cloud, &handler, limits()).await;
    let claim = |id, pod: &str, uid: &str, audience: &str| {
        let body = format!(
            r#"{{"spec":{{"audiences":["{audience}"],"boundObjectRef":
            {{"kind":"Pod","apiVersion":"v1","name":"{pod}","uid":"{uid}"}}}}}}"#
        );
        let key = "d/serviceaccount/robot".parse().expect("a key");
        let verb = Some(RequestVerb::Token);
        Request { verb, body: body.into(), ..Request::get(id, 1_000, key) }
    };
    for (id, pod, uid, audience, why) in [
        (1, "of-b", "u2", "vault", "has no pod d/pod/of-b"),
        (2, "of-a", "u2", "vault", "another UID"),
        (3, "of-a", "u1", "https://else", "for this audience"),
    ] {
        let outcome = ask(&mut wire, claim(id, pod, uid, audience)).await;
        let Err(RequestError::Forbidden(reason)) = outcome else { panic!("{outcome:?}") };
        assert!(reason.contains(why), "{reason}");
    }
    let csr = Request {
        verb: Some(RequestVerb::Csr),
        body: Bytes::from_static(b"{}"),
        ..Request::get(4, 1_000, "null/certificatesigningrequest/c".parse().expect("a key"))
    };
    let outcome = ask(&mut wire, csr).await;
    assert!(matches!(outcome, Err(RequestError::Invalid(_))), "{outcome:?}");
    assert!(handler.requests.lock().expect("whole").is_empty(), "none reached the handler");
    let outcome = ask(&mut wire, claim(5, "of-a", "u1", "vault")).await;
    assert_eq!(outcome.as_deref(), Ok(&*token()));
    assert_eq!(handler.requests.lock().expect("whole").len(), 1);
    hub.stop().await;
}

/// A request of node `a` for a certificate that has `bytes` bytes as the hub sends it on. Blanks before the PEM fill it
/// up.
fn csr(id: u64, bytes: usize) -> Request {
    const BLANKS: &str = "ICAg"; // Three blanks in base64.
    let body = tls::signing_request("a");
    let of = |blanks: usize, letters: usize| {
        let mut body: serde_json::Value = serde_json::from_str(&body).expect("JSON");
        let request = body["spec"]["request"].as_str().expect("a text");
        body["spec"]["request"] = (BLANKS.repeat(blanks) + request).into();
        let key = format!("null/certificatesigningrequest/{}", "c".repeat(letters));
        let request = Request::get(id, 5_000, key.parse().expect("a key"));
        Request { verb: Some(RequestVerb::Csr), body: body.to_string().into(), ..request }
    };
    let least = of(0, 1);
    let node = "a".parse().expect("a name");
    let checked = SigningRequest::parse(&node, &least.key, &least.body).expect("allowed");
    let missing = bytes - checked.body().len();
    of(missing / BLANKS.len(), 1 + missing % BLANKS.len())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_grows_too_long_is_refused_and_the_largest_is_sent_on() {
    let cloud = TestCloud::new(&["a"]).await;
    let handler = Arc::new(ScriptedHandler::default());
    handler.outcomes.lock().expect("whole").push_back(Ok(Bytes::from_static(b"{}").into()));
    let (hub, mut wire) = session(&cloud, &handler, limits()).await;
    let too_long = csr(1, REQUEST_BODY_BYTES_MAX + 1);
    assert!(too_long.body.len() < REQUEST_BODY_BYTES_MAX, "it grows when it is written anew");
    let outcome = ask(&mut wire, too_long).await;
    let why = "the body of the csr has 2097153 bytes, want at most 2097152".to_owned();
    assert_eq!(outcome, Err(RequestError::Invalid(why)));
    assert!(handler.requests.lock().expect("whole").is_empty(), "it did not reach the handler");

    let outcome = ask(&mut wire, csr(2, REQUEST_BODY_BYTES_MAX)).await;
    assert_eq!(outcome.as_deref(), Ok(&b"{}"[..]));
    let bodies = handler.requests.lock().expect("whole").clone();
    assert_eq!(bodies[0].body.len(), REQUEST_BODY_BYTES_MAX);
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_knows_where_the_active_writer_listens_with_each_claim() {
    let logs = logs();
    let claim = async |address: Option<&str>| {
        let address = address.map(str::to_owned);
        let claimant = Claimant { address: address.clone(), ..Claimant::new(Uuid::new_v4()) };
        let epoch = TestCloud::claimed_by(claimant, &logs, None).await.writer.epoch();
        address.map(|address| WriterAddress { epoch, address })
    };
    let mut claimed = claim(Some("controller-1:7443")).await;
    let hub = start(&logs, &Arc::new(MemoryEngine::new()), settings(), limits()).await;
    let mut writer = hub.view().writer_address();
    // The second writer starts again with its address, as a pod does that keeps its name.
    for next in [Some("controller-2:7443"), Some("controller-2:7443"), None] {
        let seen = timeout(SOON, writer.wait_for(|writer| *writer == claimed)).await;
        seen.expect("the claim is seen").expect("the hub runs");
        claimed = claim(next).await;
    }
    until_true("writer without an address", async || writer.borrow().is_none()).await;
    hub.stop().await;
}
