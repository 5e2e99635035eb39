//! A fake of the edge's local API: the test writes its view and reads its operations.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::Stream;
use headwater_proto::local::failure::Code;
use headwater_proto::local::meta_server::{Meta, MetaServer};
use headwater_proto::local::operation::Verb;
use headwater_proto::local::operation_result::Outcome;
use headwater_proto::local::watch_event::Kind;
use headwater_proto::local::{
    Done, EdgeStatus, Failure, Object, Objects, Operation, OperationResult, StatusRequest,
    WatchEvent, WatchRequest,
};
use serde_json::{Value, json};
use tokio::net::UnixListener;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_stream::wrappers::{ReceiverStream, UnixListenerStream};
use tonic::{Request, Response, Status};

/// What is awaited comes within this, or the test fails. It is long enough for a busy machine, and shorter than the minute
/// after which a pod worker looks again at everything: what comes only by that look fails the test.
pub(crate) const DEADLINE: Duration = Duration::from_secs(45);

/// An edge; it goes away when this is dropped.
pub(crate) struct FakeEdge {
    state: Arc<Mutex<State>>,
    operations: watch::Receiver<Vec<Operation>>,
    stop: Option<oneshot::Sender<()>>,
}

struct State {
    objects: BTreeMap<String, Object>,
    complete: bool,
    failing: BTreeSet<String>,
    /// The token of every ServiceAccount; `None`: there is no cloud.
    token: Option<String>,
    watchers: Vec<mpsc::Sender<Result<WatchEvent, Status>>>,
    operations: watch::Sender<Vec<Operation>>,
}

struct Service(Arc<Mutex<State>>);

impl Drop for FakeEdge {
    fn drop(&mut self) {
        // Connections go, too, and not only the listener.
        let _ = self.stop.take().map(|stop| stop.send(()));
        self.state.lock().expect("not poisoned").watchers.clear();
    }
}

impl FakeEdge {
    /// An edge at `socket` that holds these objects.
    pub(crate) fn start(socket: &Path, objects: &[Value], complete: bool) -> Self {
        let (sender, operations) = watch::channel(Vec::new());
        let objects = objects.iter().map(object).map(|o| (o.key.clone(), o)).collect();
        let state = State {
            objects,
            complete,
            failing: BTreeSet::new(),
            token: None,
            watchers: Vec::new(),
            operations: sender,
        };
        let state = Arc::new(Mutex::new(state));
        let _ = std::fs::remove_file(socket);
        let listener = UnixListener::bind(socket).expect("the socket is free");
        let (stop, stopped) = oneshot::channel::<()>();
        let service = MetaServer::new(Service(state.clone()));
        let server = tonic::transport::Server::builder()
            .add_service(service)
            .serve_with_incoming_shutdown(UnixListenerStream::new(listener), async {
                let _ = stopped.await;
            });
        tokio::spawn(server);
        Self { state, operations, stop: Some(stop) }
    }

    /// The view now has this object.
    pub(crate) fn apply(&self, value: &Value) {
        let object = object(value);
        let mut state = self.state.lock().expect("not poisoned");
        state.objects.insert(object.key.clone(), object.clone());
        state.send(event(Kind::Apply, Some(object)));
    }

    /// The view no longer has this object.
    pub(crate) fn delete(&self, key: &str) {
        let mut state = self.state.lock().expect("not poisoned");
        let object = state.objects.remove(key).expect("the object is there");
        state.send(event(Kind::Delete, Some(object)));
    }

    /// Sends a new listing to every watcher.
    pub(crate) fn list_again(&self, complete: bool) {
        let mut state = self.state.lock().expect("not poisoned");
        state.complete = complete;
        for event in state.listing() {
            state.send(event);
        }
    }

    /// Operations on this resource fail from now on, or no longer.
    pub(crate) fn fail(&self, resource: &str, fails: bool) {
        let mut state = self.state.lock().expect("not poisoned");
        if fails {
            state.failing.insert(resource.to_owned());
        } else {
            state.failing.remove(resource);
        }
    }

    /// Requests for tokens have this one as their answer from now on, or no answer of a cloud.
    pub(crate) fn set_token(&self, token: Option<&str>) {
        self.state.lock().expect("not poisoned").token = token.map(str::to_owned);
    }

    /// Sends an operation to the subscriber.
    pub(crate) fn ask(&self, operation: Operation) {
        let mut event = event(Kind::Operation, None);
        event.operation = Some(operation);
        self.state.lock().expect("not poisoned").send(event);
    }

    /// Waits until the subscriber watches. What [`ask`](Self::ask) or [`list_again`](Self::list_again) sends before that
    /// is lost.
    pub(crate) async fn watched(&self) {
        let is_watched = || !self.state.lock().expect("not poisoned").watchers.is_empty();
        let watched = async {
            while !is_watched() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(DEADLINE, watched).await.expect("the pod worker watches");
    }

    /// Every operation so far.
    pub(crate) fn operations(&self) -> Vec<Operation> {
        self.operations.borrow().clone()
    }

    /// Waits until `found` finds something among the operations.
    pub(crate) async fn until<T>(
        &self,
        what: &str,
        mut found: impl FnMut(&[Operation]) -> Option<T>,
    ) -> T {
        let mut operations = self.operations.clone();
        let wait = async {
            loop {
                if let Some(found) = found(&operations.borrow_and_update()) {
                    return found;
                }
                operations.changed().await.expect("the edge lives");
            }
        };
        match tokio::time::timeout(DEADLINE, wait).await {
            Ok(found) => found,
            Err(_) => {
                let last: Vec<_> = self.operations().iter().rev().take(6).map(words).collect();
                panic!("waited {DEADLINE:?} for {what}; the last operations: {last:#?}");
            }
        }
    }

    /// Waits until the pod's latest status is as wanted.
    pub(crate) async fn until_status(
        &self,
        name: &str,
        what: &str,
        wanted: impl Fn(&Value) -> bool,
    ) -> Value {
        self.until(what, |all| latest_status(all, name).filter(|status| wanted(status))).await
    }

    /// Waits for the first status of the pod after so many operations.
    pub(crate) async fn status_after(&self, operations: usize, name: &str) -> Value {
        let status = |all: &[Operation]| {
            statuses(all.get(operations..).unwrap_or_default(), name).into_iter().next()
        };
        self.until("the next status", status).await
    }
}

/// The latest status of the pod of that name in namespace `shop`.
pub(crate) fn latest_status(operations: &[Operation], name: &str) -> Option<Value> {
    statuses(operations, name).pop()
}

/// Every reported status of that pod, the latest last.
pub(crate) fn statuses(operations: &[Operation], name: &str) -> Vec<Value> {
    let resource = format!("shop/podstatus/{name}");
    let is_status = |one: &&Operation| one.resource == resource && one.verb() != Verb::Delete;
    operations
        .iter()
        .filter(is_status)
        .map(|operation| {
            let content: Value = serde_json::from_slice(&operation.content).expect("JSON");
            content["status"].clone()
        })
        .collect()
}

/// The delete that was asked for, if it was.
pub(crate) fn asked_delete(operations: &[Operation], name: &str) -> Option<Value> {
    let resource = format!("shop/pod/{name}");
    let asked = operations.iter().find(|o| o.verb() == Verb::Delete && o.resource == resource)?;
    Some(serde_json::from_slice(&asked.content).expect("JSON"))
}

fn words(operation: &Operation) -> String {
    let content = String::from_utf8_lossy(&operation.content);
    format!("{:?} {} {content}", operation.verb(), operation.resource)
}

fn event(kind: Kind, object: Option<Object>) -> WatchEvent {
    WatchEvent { kind: kind.into(), object, ..WatchEvent::default() }
}

fn object(value: &Value) -> Object {
    let kind = value["kind"].as_str().expect("a kind").to_lowercase();
    let metadata = &value["metadata"];
    let namespace = metadata["namespace"].as_str().unwrap_or("null");
    Object {
        key: format!("{namespace}/{kind}/{}", metadata["name"].as_str().expect("a name")),
        uid: metadata["uid"].as_str().unwrap_or_default().to_owned(),
        resource_version: String::new(),
        object: serde_json::to_vec(value).expect("JSON").into(),
    }
}

impl State {
    fn listing(&self) -> Vec<WatchEvent> {
        let mut events = vec![event(Kind::Init, None)];
        events.extend(self.objects.values().map(|o| event(Kind::InitApply, Some(o.clone()))));
        let mut done = event(Kind::InitDone, None);
        done.complete = self.complete;
        events.push(done);
        events
    }

    fn token_answer(&self) -> Outcome {
        let Some(token) = &self.token else {
            let message = "no connection to the cloud".to_owned();
            return Outcome::Failure(Failure { code: Code::Unavailable.into(), message });
        };
        let answer = json!({"spec": {"expirationSeconds": 3600}, "status": {
            "token": token, "expirationTimestamp": "2026-01-01T00:00:00Z"}});
        let object = answer.to_string().into_bytes().into();
        Outcome::Objects(Objects { objects: vec![Object { object, ..Object::default() }] })
    }

    fn send(&mut self, event: WatchEvent) {
        self.watchers.retain(|watcher| match watcher.try_send(Ok(event.clone())) {
            Ok(()) => true,
            Err(mpsc::error::TrySendError::Closed(_)) => false,
            Err(mpsc::error::TrySendError::Full(_)) => {
                panic!("the test sends too many events at once")
            }
        });
    }
}

#[tonic::async_trait]
impl Meta for Service {
    async fn operate(
        &self,
        request: Request<Operation>,
    ) -> Result<Response<OperationResult>, Status> {
        let operation = request.into_inner();
        let id = operation.id.clone();
        let state = self.0.lock().expect("not poisoned");
        if state.failing.contains(&operation.resource) {
            let failure = Failure { code: Code::Internal.into(), message: "disk full".to_owned() };
            let outcome = Some(Outcome::Failure(failure));
            return Ok(Response::new(OperationResult { id, outcome }));
        }
        let is_token = operation.verb() == Verb::Token;
        state.operations.send_modify(|all| all.push(operation));
        if is_token {
            let outcome = Some(state.token_answer());
            return Ok(Response::new(OperationResult { id, outcome }));
        }
        let outcome = Some(Outcome::Done(Done { unchanged: false }));
        Ok(Response::new(OperationResult { id, outcome }))
    }

    type WatchStream = Pin<Box<dyn Stream<Item = Result<WatchEvent, Status>> + Send>>;

    async fn watch(
        &self,
        request: Request<WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        assert_eq!(request.into_inner().subscriber, "edged");
        let (events, stream) = mpsc::channel(4096);
        let mut state = self.0.lock().expect("not poisoned");
        for event in state.listing() {
            events.try_send(Ok(event)).expect("room for the listing");
        }
        state.watchers.push(events);
        Ok(Response::new(Box::pin(ReceiverStream::new(stream))))
    }

    async fn status(&self, _: Request<StatusRequest>) -> Result<Response<EdgeStatus>, Status> {
        Ok(Response::new(EdgeStatus::default()))
    }
}
