//! An edge without sockets over two databases on disk, and a watch of it as a pod worker has one.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use headwater_edge::HubDialer;
use headwater_edge::{Chance, Clock, Edge, EdgeConfig, EdgeCounts, EdgeDependencies};
use headwater_proto::local::meta_server::Meta;
use headwater_proto::local::watch_event::Kind;
use headwater_proto::local::{WatchEvent, WatchRequest};
use headwater_rocks::{Budget, Role};
use headwater_store::schema;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tonic::{Request, Status};

use crate::counted::CountingEngine;
use crate::pods::node;

/// Until everything is done that an event leads to: the clock moves only when nothing is left to do
/// now. So short that no heartbeat comes into it.
const REST: Duration = Duration::from_millis(1);

/// The time limit of a notification, in paused time: it passes at once when no task has work.
const NOTIFIED_WITHIN: Duration = Duration::from_secs(60);

/// See the module.
pub(crate) struct WatchedEdge {
    pub(crate) state: Arc<CountingEngine>,
    pub(crate) outbox: Arc<CountingEngine>,
    watch: BoxStream<'static, Result<WatchEvent, Status>>,
    _tasks: JoinSet<()>,
    _meta: Box<dyn Any + Send>,
}

/// Time as the runtime has it.
#[derive(Debug)]
struct Still(Instant);

/// The same numbers every time.
#[derive(Debug, Default)]
struct Counting(AtomicU64);

impl Clock for Still {
    fn wall_ms(&self) -> i64 {
        0
    }

    fn monotonic_ms(&self) -> u64 {
        u64::try_from(self.0.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

impl Chance for Counting {
    fn draw(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

/// One thread, and a clock that moves when nothing is left to do.
pub(crate) fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_time().start_paused(true).build().expect("it needs nothing of the machine")
}

/// Lets everybody do what there is to do.
pub(crate) async fn rest() {
    sleep(REST).await;
}

impl WatchedEdge {
    /// An edge on empty disks that reaches its hub by `dial`; it has been watched from its first
    /// moment.
    pub(crate) async fn start(dial: HubDialer) -> Self {
        let database = |role, schema| Arc::new(CountingEngine::new(role, Budget::EDGE, schema));
        let state = database(Role::State, schema::NODE_STATE);
        let outbox = database(Role::Outbox, schema::OUTBOX);
        let hubs = [std::net::SocketAddr::from(([127, 0, 0, 1], 1))];
        let config = EdgeConfig::new(node(), hubs, "none".into());
        let seams = EdgeDependencies {
            clock: Arc::new(Still(Instant::now())),
            chance: Arc::new(Counting::default()),
            metrics: EdgeCounts::default(),
        };
        let edge = Edge::open(&config, state.clone(), outbox.clone(), seams, dial);
        let edge = edge.expect("opens");
        let mut tasks = JoinSet::new();
        for work in [edge.replica, edge.syncer, edge.outbox] {
            tasks.spawn(async move { work.await.expect("it goes on") });
        }
        tasks.spawn(edge.session);
        let request = WatchRequest { subscriber: "edged".to_owned(), ..WatchRequest::default() };
        let watch = edge.meta.watch(Request::new(request)).await.expect("a watch").into_inner();
        Self { state, outbox, watch: watch.boxed(), _tasks: tasks, _meta: Box::new(edge.meta) }
    }

    /// Reads the watch until it has delivered the whole view.
    pub(crate) async fn is_complete(&mut self) {
        while !self.next().await.complete {}
    }

    /// Reads the watch until it has delivered so many changes.
    pub(crate) async fn shows(&mut self, mut count: u64) {
        while count > 0 {
            let event = self.next().await;
            assert_eq!(event.kind(), Kind::Apply, "{event:?}");
            count -= 1;
        }
    }

    async fn next(&mut self) -> WatchEvent {
        let event =
            timeout(NOTIFIED_WITHIN, self.watch.next()).await.expect("no notification arrives");
        event.expect("the watch goes on").expect("the watch goes on")
    }
}
