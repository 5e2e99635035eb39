//! A log in memory with its writer, and a hub that folds it into RocksDB.

use std::sync::Arc;

use headwater_event::{Applied, Assignment, EntryKey, Event, NodeName, ObjectHash, StreamId};
use headwater_follow::Follower;
use headwater_hub::{
    Hub, HubConfig, HubDependencies, HubHandle, HubLimits, HubMetrics, NoRequestHandler,
};
use headwater_log::{
    Claimant, Draft, Log, MemoryLog, MemorySettings, MetadataProposal, Writer,
    read_or_create_metadata,
};
use headwater_rocks::{Budget, Role};
use headwater_session::HubSettings;
use headwater_store::{MemoryEngine, schema};
use prometheus::Registry;
use uuid::Uuid;

use crate::counted::CountingEngine;
use crate::pods::{PODS, node, pod, stream};

/// See the module.
pub(crate) struct Cloud {
    pub(crate) hub: Arc<HubHandle>,
    pub(crate) store: Arc<CountingEngine>,
    writer: Writer,
    follower: Follower<()>,
    /// Changes made so far.
    changes: u64,
}

impl Cloud {
    /// A cloud that has the node and its pods, each once.
    pub(crate) async fn start() -> Self {
        let log = MemoryLog::new(MemorySettings::default());
        let clock: headwater_follow::WallClock = {
            let log = log.clone();
            Arc::new(move || log.now_ms())
        };
        let wish = MetadataProposal { previous: None, uuid: Uuid::from_u128(1) };
        read_or_create_metadata(&log, wish).await.expect("created");
        let published = Arc::new(MemoryEngine::new());
        let opening = Follower::open(&log, published, (), clock.clone());
        let mut follower = opening.await.expect("can be followed");
        while !follower.is_folded() {
            follower.next().await.expect("readable");
        }
        let shared: Arc<dyn Log> = Arc::new(log.clone());
        let claimant = Claimant::new(Uuid::from_u128(2));
        let writer = follower.take_over(&shared, &claimant).await.expect("nobody else claims");

        let store = Arc::new(CountingEngine::new(Role::Fold, Budget::CLOUD_PART, schema::HUB));
        let config = HubConfig {
            name: "hub".to_owned(),
            listen: ([127, 0, 0, 1], 1).into(),
            tls: None,
            settings: HubSettings::default(),
            limits: HubLimits::default(),
        };
        let seams = HubDependencies {
            downstream: shared,
            upstream: Arc::new(MemoryLog::new(MemorySettings::default())),
            engine: store.clone(),
            requests: Arc::new(NoRequestHandler),
            wall_clock: clock,
            metrics: HubMetrics::new(&Registry::new()).expect("a fresh registry"),
        };
        let hub = Hub::start_without_listener(config, seams, || 0.5).await.expect("starts");
        let mut cloud = Self { hub: Arc::new(hub), store, writer, follower, changes: 0 };
        cloud.append([(stream(), streams_of(&node(), []))]).await;
        cloud.append_changes(PODS).await;
        cloud.writer.reconciled().await.expect("appended");
        cloud
    }

    /// A cloud that also has these nodes, each with the shared stream, and an object of it.
    pub(crate) async fn of_fleet(nodes: &[NodeName], shared: Applied) -> Self {
        let mut cloud = Self::start().await;
        let streams = |node| (StreamId::node(node), streams_of(node, [StreamId::Cluster]));
        cloud.append(nodes.iter().map(streams)).await;
        cloud.append_shared(shared).await;
        cloud
    }

    /// The next `count` turns, in one append.
    pub(crate) async fn append_changes(&mut self, count: u64) {
        let turns = self.changes..self.changes + count;
        self.changes += count;
        self.append(turns.map(|turn| (stream(), pod(turn)))).await;
    }

    /// Appends an object of the shared stream.
    pub(crate) async fn append_shared(&mut self, applied: Applied) {
        self.append([(StreamId::Cluster, applied)]).await;
    }

    async fn append(&mut self, objects: impl IntoIterator<Item = (StreamId, Applied)>) {
        let mut drafts: Vec<Draft> = Vec::new();
        for (stream, applied) in objects {
            let held = self.follower.state_mut().entry_summary(&stream, &applied.key);
            // What is in the same append the writer knows by itself.
            let replaces: Option<ObjectHash> = held.expect("readable").map(|held| held.object_hash);
            let event = Event::Applied(applied);
            drafts.push(Draft { stream, event, replaces, traceparent: None, is_shared: false });
        }
        self.writer.append(drafts).await.expect("appended");
        while self.writer.in_flight() > 0 {
            let outcomes = self.follower.next().await.expect("readable").outcomes;
            outcomes.iter().for_each(|outcome| self.writer.observe(outcome));
        }
    }
}

/// The assigned streams of a node.
fn streams_of(node: &NodeName, shared: impl IntoIterator<Item = StreamId>) -> Applied {
    Applied {
        key: EntryKey::Streams,
        uid: String::new(),
        resource_version: String::new(),
        object: Assignment::new(node, shared).encode(),
    }
}
