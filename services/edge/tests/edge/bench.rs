//! An edge under test, and its clients.

use std::future::Future;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use headwater_edge::BackoffSettings;
use headwater_edge::{
    Chance, Clock, Edge, EdgeConfig, EdgeDependencies, EdgeHandle, EdgeStatus, HubAddress,
};
use headwater_event::{NodeName, ReportBody, Seq, StreamId};
use headwater_proto::local::failure::Code;
use headwater_proto::local::meta_client::MetaClient;
use headwater_proto::local::operation::Verb;
use headwater_proto::local::operation_result::Outcome;
use headwater_proto::local::watch_event::Kind;
use headwater_proto::local::{Object, Operation, WatchEvent, WatchRequest};
use headwater_store::{MemoryEngine, Survival};
use hyper_util::rt::TokioIo;
use tempfile::TempDir;
use tokio::net::UnixStream;
use tonic::Streaming;
use tonic::transport::{Channel, Endpoint};

/// How long a condition may take before the test fails.
const PATIENCE: Duration = Duration::from_secs(20);

/// How often a condition is checked.
const POLL: Duration = Duration::from_millis(5);

/// A running edge with its engines.
pub(crate) struct Bench {
    pub(crate) edge: EdgeHandle,
    pub(crate) state: Arc<MemoryEngine>,
    pub(crate) outbox: Arc<MemoryEngine>,
    pub(crate) config: EdgeConfig,
    pub(crate) meta: Meta,
    dir: TempDir,
}

/// The local API.
#[derive(Clone)]
pub(crate) struct Meta {
    client: MetaClient<Channel>,
}

/// A watch.
pub(crate) struct Watching {
    events: Streaming<WatchEvent>,
}

#[derive(Debug)]
struct Counting(AtomicU64);

impl Chance for Counting {
    fn draw(&self) -> u64 {
        // Spread over all bits: callers use it as a nonce, and as a share of a wait.
        self.0.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }
}

pub(crate) fn node() -> NodeName {
    "gw-1".parse().expect("a node name")
}

pub(crate) fn private() -> StreamId {
    StreamId::node(&node())
}

pub(crate) fn dependencies(seed: u64) -> EdgeDependencies {
    EdgeDependencies {
        chance: Arc::new(Counting(AtomicU64::new(seed))),
        ..EdgeDependencies::default()
    }
}

fn addresses(hubs: &[SocketAddr]) -> Vec<HubAddress> {
    hubs.iter().copied().map(HubAddress::from).collect()
}

impl Bench {
    /// An edge with empty engines.
    pub(crate) async fn start(hubs: &[SocketAddr]) -> Self {
        Self::over(hubs, MemoryEngine::new(), MemoryEngine::new(), 1).await
    }

    /// An edge over these engines.
    pub(crate) async fn over(
        hubs: &[SocketAddr],
        state: MemoryEngine,
        outbox: MemoryEngine,
        seed: u64,
    ) -> Self {
        Self::with(addresses(hubs), state, outbox, dependencies(seed)).await
    }

    /// An edge with empty engines, and this clock.
    pub(crate) async fn with_clock(hubs: &[SocketAddr], clock: Arc<dyn Clock>) -> Self {
        let dependencies = EdgeDependencies { clock, ..dependencies(1) };
        Self::with(addresses(hubs), MemoryEngine::new(), MemoryEngine::new(), dependencies).await
    }

    async fn with(
        hubs: Vec<HubAddress>,
        state: MemoryEngine,
        outbox: MemoryEngine,
        dependencies: EdgeDependencies,
    ) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let socket = dir.path().join("edge.sock");
        let mut config = EdgeConfig::new(node(), hubs, socket);
        config.settings.session.backoff = BackoffSettings {
            base: Duration::from_millis(5),
            cap: Duration::from_millis(40),
            ..BackoffSettings::default()
        };
        let (state, outbox) = (Arc::new(state), Arc::new(outbox));
        let edge = Edge::start(config.clone(), state.clone(), outbox.clone(), dependencies)
            .await
            .expect("starts");
        let meta = Meta { client: MetaClient::new(channel(&config.socket).await) };
        Self { edge, state, outbox, config, meta, dir }
    }

    /// Loses power, and starts again on what was synced.
    pub(crate) async fn crash(self) -> Self {
        let (state, outbox) =
            (self.state.crash(Survival::Synced), self.outbox.crash(Survival::Synced));
        // The crashed engines fail every write, so the edge reports nothing new.
        self.edge.stop().await;
        drop(self.dir);
        Self::with(self.config.hubs, state, outbox, dependencies(1_000)).await
    }

    /// Loses power, and starts again on what was synced, with these hubs and this clock.
    pub(crate) async fn crash_with(self, hubs: &[SocketAddr], clock: Arc<dyn Clock>) -> Self {
        let (state, outbox) =
            (self.state.crash(Survival::Synced), self.outbox.crash(Survival::Synced));
        self.edge.stop().await;
        drop(self.dir);
        let dependencies = EdgeDependencies { clock, ..dependencies(1_000) };
        Self::with(addresses(hubs), state, outbox, dependencies).await
    }

    pub(crate) async fn status(&self) -> EdgeStatus {
        self.edge.status().await.expect("runs")
    }

    /// Waits until the edge's status satisfies the condition.
    pub(crate) async fn until(
        &self,
        what: &str,
        is_so: impl Fn(&EdgeStatus) -> bool,
    ) -> EdgeStatus {
        eventually(what, || async {
            let status = self.status().await;
            is_so(&status).then_some(status)
        })
        .await
    }

    /// Waits until the edge has the stream durably up to `seq`.
    pub(crate) async fn until_durable(&self, stream: &StreamId, seq: Seq) -> EdgeStatus {
        self.until(&format!("{stream} to be durable at {seq}"), |status| {
            status.streams.iter().any(|found| found.stream == *stream && found.durable >= seq)
        })
        .await
    }
}

impl Meta {
    /// Sends an operation.
    pub(crate) async fn ask(
        &self,
        source: &str,
        verb: Verb,
        resource: &str,
        content: &str,
    ) -> Outcome {
        let operation = Operation {
            id: "op".to_owned(),
            parent_id: String::new(),
            source: source.to_owned(),
            verb: verb.into(),
            resource: resource.to_owned(),
            content: Bytes::copy_from_slice(content.as_bytes()),
        };
        let result = self.client.clone().operate(operation).await.expect("answered").into_inner();
        assert_eq!(result.id, "op", "the caller's id comes back");
        result.outcome.expect("an outcome")
    }

    /// Sends an operation that must succeed. Returns whether it changed anything.
    pub(crate) async fn done(
        &self,
        source: &str,
        verb: Verb,
        resource: &str,
        content: &str,
    ) -> bool {
        match self.ask(source, verb, resource, content).await {
            Outcome::Done(done) => !done.unchanged,
            other => panic!("{verb:?} {resource} should be done: {other:?}"),
        }
    }

    /// Sends an operation that must fail. Returns the code.
    pub(crate) async fn refused(
        &self,
        source: &str,
        verb: Verb,
        resource: &str,
        content: &str,
    ) -> Code {
        match self.ask(source, verb, resource, content).await {
            Outcome::Failure(failure) => failure.code(),
            other => panic!("{verb:?} {resource} should be refused: {other:?}"),
        }
    }

    /// Queries objects.
    pub(crate) async fn objects(&self, source: &str, resource: &str) -> Vec<Object> {
        match self.ask(source, Verb::Query, resource, "").await {
            Outcome::Objects(objects) => objects.objects,
            other => panic!("{resource} should be found: {other:?}"),
        }
    }

    /// Reports the phase of a pod. Returns whether it changed.
    pub(crate) async fn report(&self, pod: &str, uid: &str, phase: &str) -> bool {
        let content = format!(r#"{{"uid":"{uid}","status":{{"phase":"{phase}"}}}}"#);
        self.done("edged", Verb::Update, &format!("d/podstatus/{pod}"), &content).await
    }

    /// Watches what a group sees.
    pub(crate) async fn watch(&self, subscriber: &str) -> Watching {
        let request = WatchRequest { subscriber: subscriber.to_owned(), ..WatchRequest::default() };
        let events = self.client.clone().watch(request).await.expect("watches").into_inner();
        Watching { events }
    }

    /// The client itself.
    pub(crate) fn client(&self) -> MetaClient<Channel> {
        self.client.clone()
    }
}

impl Watching {
    /// The next event.
    pub(crate) async fn next(&mut self) -> WatchEvent {
        tokio::time::timeout(PATIENCE, self.events.message())
            .await
            .expect("an event comes")
            .expect("the watch works")
            .expect("the watch goes on")
    }

    /// Reads a listing. Returns its keys and whether it is complete.
    pub(crate) async fn listing(&mut self) -> (Vec<String>, bool) {
        let mut event = self.next().await;
        while event.kind() != Kind::Init {
            event = self.next().await;
        }
        let mut keys = Vec::new();
        loop {
            let event = self.next().await;
            match event.kind() {
                Kind::InitApply => keys.push(event.object.expect("an object").key),
                Kind::InitDone => return (keys, event.complete),
                other => panic!("{other:?} has no place in a listing"),
            }
        }
    }

    /// Reads on to the next complete listing.
    pub(crate) async fn complete_listing(&mut self) -> Vec<String> {
        loop {
            if let (keys, true) = self.listing().await {
                return keys;
            }
        }
    }

    /// The next event, and the key of its object.
    pub(crate) async fn change(&mut self) -> (Kind, String) {
        let event = self.next().await;
        (event.kind(), event.object.expect("an object").key)
    }
}

/// Waits until `look` returns a value.
pub(crate) async fn eventually<T, F: Future<Output = Option<T>>>(
    what: &str,
    mut look: impl FnMut() -> F,
) -> T {
    let waits = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(POLL).await;
        }
    };
    match tokio::time::timeout(PATIENCE, waits).await {
        Ok(found) => found,
        Err(_) => panic!("waited {PATIENCE:?} in vain for {what}"),
    }
}

/// Waits until the hub has appended a matching report.
pub(crate) async fn reported(
    hub: &crate::hub::Hub,
    what: &str,
    is_it: impl Fn(&ReportBody) -> bool,
) {
    eventually(what, || async {
        hub.reports().iter().any(|report| is_it(&report.body)).then_some(())
    })
    .await;
}

pub(crate) async fn channel(socket: &Path) -> Channel {
    let socket = socket.to_owned();
    Endpoint::from_static("http://edge.local")
        .connect_with_connector(tower::service_fn(move |_| {
            let socket = socket.clone();
            async move { UnixStream::connect(socket).await.map(TokioIo::new) }
        }))
        .await
        .expect("the local API answers")
}
