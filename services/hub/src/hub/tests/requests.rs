//! Requests of nodes: the fold responds first, then the handler of the composition.

use std::collections::VecDeque;
use std::sync::Mutex;

use bytes::Bytes;
use headwater_log::Claimant;
use headwater_session::message::{Request, RequestError};
use uuid::Uuid;

use super::*;
use crate::requests::{NodeRequest, NodeRequestError};
use edge::Wire;

/// Responds in order with what a test gives it, and then never. Keeps the requests.
#[derive(Default)]
struct ScriptedHandler {
    outcomes: Mutex<VecDeque<Result<Bytes, NodeRequestError>>>,
    requests: Mutex<Vec<NodeRequest>>,
}

#[tonic::async_trait]
impl RequestHandler for ScriptedHandler {
    async fn handle(&self, request: &NodeRequest) -> Result<Bytes, NodeRequestError> {
        self.requests.lock().expect("whole").push(request.clone());
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

/// The outcome of a request of node `a` over `wire`.
async fn request(
    (sender, receiver): &mut Wire,
    id: u64,
    key: &str,
    timeout_ms: u64,
) -> Result<Bytes, RequestError> {
    let key = key.parse().expect("a key");
    let request = Request { id, timeout_ms, key };
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
    cloud.set("node/a", "held", Some("{\"held\":1}".to_owned())).await;
    cloud.set("node/b", "foreign", Some("{}".to_owned())).await;
    cloud.set_key("node/a", "d/pod/web", Some(POD.to_owned())).await;
    let handler = Arc::new(ScriptedHandler::default());
    let unavailable = || NodeRequestError::Unavailable("away".to_owned());
    handler.outcomes.lock().expect("whole").extend([
        Ok(Bytes::from_static(b"{\"fresh\":1}")),
        Err(NodeRequestError::NotFound),
        Err(NodeRequestError::Forbidden),
        Err(unavailable()),
    ]);
    let engine = Arc::new(MemoryEngine::new());
    let dependencies = HubDependencies {
        requests: handler.clone(),
        ..dependencies(&cloud.logs(), &engine, &Registry::new())
    };
    let hub = Hub::start(config(settings(), limits()), dependencies).await.expect("starts");
    until_true("complete fold", async || hub.view().is_reconciled()).await;
    let mut wire = dial(hub.address()).await.expect("a session");
    let hello = hello(identity("a", 1, 1), Vec::new());
    wire.0.send(EdgeMessage::Hello(hello).into()).await.expect("sent");

    let held = request(&mut wire, 1, "d/configmap/held", 1_000).await;
    assert_eq!(held.as_deref(), Ok(&b"{\"held\":1}"[..]));
    let foreign = request(&mut wire, 2, "d/configmap/foreign", 1_000).await;
    assert_eq!(foreign, Err(RequestError::Forbidden));
    assert!(handler.requests.lock().expect("whole").is_empty(), "neither reached the handler");

    let absent = "d/configmap/absent";
    let fresh = request(&mut wire, 3, absent, 1_000).await;
    assert_eq!(fresh.as_deref(), Ok(&b"{\"fresh\":1}"[..]));
    assert_eq!(request(&mut wire, 4, absent, 1_000).await, Err(RequestError::NotFound));
    assert_eq!(request(&mut wire, 5, absent, 1_000).await, Err(RequestError::Forbidden));
    assert_eq!(request(&mut wire, 6, absent, 1_000).await, Err(unavailable().into()));
    let late = request(&mut wire, 7, absent, 20).await;
    assert_eq!(late, Err(NodeRequestError::DeadlineExceeded.into()));
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
    let dependencies = HubDependencies {
        requests: handler.clone(),
        ..dependencies(&cloud.logs(), &Arc::new(MemoryEngine::new()), &Registry::new())
    };
    let limits = HubLimits { node_requests_max: 1, ..limits() };
    let hub = Hub::start(config(settings(), limits), dependencies).await.expect("starts");
    until_true("complete fold", async || hub.view().is_reconciled()).await;
    let mut wire = dial(hub.address()).await.expect("a session");
    let hello = hello(identity("a", 1, 1), Vec::new());
    wire.0.send(EdgeMessage::Hello(hello).into()).await.expect("sent");
    let key = || "d/configmap/absent".parse().expect("a key");
    let held = Request { id: 1, timeout_ms: u64::MAX, key: key() };
    wire.0.send(EdgeMessage::Request(held).into()).await.expect("sent");
    until_true("request in flight", async || !handler.requests.lock().expect("whole").is_empty())
        .await;
    let beyond = request(&mut wire, 2, "d/configmap/absent", 1_000).await;
    let Err(RequestError::Unavailable(reason)) = beyond else { panic!("{beyond:?}") };
    assert!(reason.contains("too many requests of this node"), "{reason}");
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_knows_where_the_active_writer_listens() {
    let logs = logs();
    let claimant = |address: Option<&str>| Claimant {
        address: address.map(str::to_owned),
        ..Claimant::new(Uuid::new_v4())
    };
    let first = claimant(Some("controller-1:7443"));
    let _first = TestCloud::claimed_by(first, &logs, None).await;
    let hub = start(&logs, &Arc::new(MemoryEngine::new()), settings(), limits()).await;
    let address = || hub.view().writer_address().borrow().clone();
    until_true("address", async || address().as_deref() == Some("controller-1:7443")).await;
    let second = claimant(Some("controller-2:7443"));
    let second = TestCloud::claimed_by(second, &logs, None).await;
    until_true("new address", async || address().as_deref() == Some("controller-2:7443")).await;
    drop(second);
    let _third = TestCloud::claimed_by(claimant(None), &logs, None).await;
    until_true("writer without an address", async || address().is_none()).await;
    hub.stop().await;
}
