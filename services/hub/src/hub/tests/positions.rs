//! How many positions a hub appends, and whom it has as connected.

use headwater_event::{ConnectedNode, NodeName, NodeState, Offset, Partition, PresenceUpdate};
use headwater_log::{MemorySettings, UpstreamLog};
use headwater_session::message::EdgeHeartbeat;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::*;
use crate::presence::PresenceFeed;

/// How often an edge of an earlier version sends a heartbeat.
const HEARTBEAT: Duration = Duration::from_secs(20);

/// Edges without a disk that are connected, and send only heartbeats.
struct IdleFleet {
    edges: Vec<mpsc::Sender<IncomingMessage>>,
    closed: u32,
    lacks_worker: bool,
}

impl IdleFleet {
    async fn connect(hub: &HubHandle, nodes: &[&str]) -> Self {
        let mut edges = Vec::new();
        for node in nodes {
            let (sender, messages) = mpsc::channel(8);
            let mut replies = hub.open_session(ReceiverStream::new(messages).boxed());
            tokio::spawn(async move { while replies.next().await.is_some() {} });
            let hello = EdgeMessage::Hello(hello(identity(node, 1, 1), Vec::new()));
            sender.send(Ok(hello.into())).await.expect("the session is there");
            edges.push(sender);
        }
        Self { edges, closed: 0, lacks_worker: false }
    }

    /// Lets time pass. Each heartbeat is of a later snapshot of the same statuses.
    async fn idle(&mut self, during: Duration, outbox_depth: u64) {
        for _ in 0..during.as_secs() / HEARTBEAT.as_secs() {
            tokio::time::sleep(HEARTBEAT).await;
            self.closed += 1;
            let meta_sync_ms = i64::from(self.closed);
            let heartbeat = EdgeHeartbeat {
                outbox_depth,
                time_ms: meta_sync_ms,
                meta_sync_ms,
                consumes_cluster: Some(false),
                lacks_worker: self.lacks_worker,
            };
            for edge in &self.edges {
                let message = EdgeMessage::Heartbeat(heartbeat.clone());
                edge.send(Ok(message.into())).await.expect("the session is there");
            }
        }
        // The hub has handled the last heartbeat.
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
}

fn node(name: &str) -> NodeName {
    name.parse().expect("a name")
}

pub(super) async fn start_paused(cloud: &TestCloud) -> HubHandle {
    let engine = Arc::new(MemoryEngine::new());
    let dependencies = dependencies(&cloud.logs(), &engine, &Registry::new());
    let config = config(HubSettings::default(), HubLimits::default());
    let hub = Hub::start_without_listener(config, dependencies, || 0.5).await.expect("starts");
    while !hub.view().is_reconciled() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    hub
}

#[tokio::test(start_paused = true)]
async fn a_topic_of_positions_made_again_gets_the_position_of_each_connected_node() {
    let nodes = ["a", "b"];
    let cloud = TestCloud::new(&nodes).await;
    let positions = MemoryLog::new(MemorySettings::default());
    let reports = Arc::new(cloud.upstream.handle());
    let upstream = UpstreamLog::new(reports, Arc::new(positions.clone()));
    let engine = Arc::new(MemoryEngine::new());
    let dependencies = HubDependencies {
        upstream: Arc::new(upstream),
        ..dependencies(&cloud.logs(), &engine, &Registry::new())
    };
    let config = config(HubSettings::default(), HubLimits::default());
    let hub = Hub::start_without_listener(config, dependencies, || 0.5).await.expect("starts");
    while !hub.view().is_reconciled() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let high = async || positions.bounds(Partition(0)).await.expect("there").high;
    let mut fleet = IdleFleet::connect(&hub, &nodes).await;
    fleet.idle(Duration::from_secs(60), 0).await;
    assert!(high().await >= Offset(2));
    positions.recreate(1);
    assert_eq!(high().await, Offset(0));
    // The next positions of idle nodes are due minutes later.
    fleet.idle(Duration::from_secs(60), 0).await;
    assert!(high().await >= Offset(2), "the topic has no position of a node");
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_fleet_appends_twelve_positions_a_node_and_hour_and_a_change_soon() {
    let nodes = ["a", "b", "c", "d"];
    let cloud = TestCloud::new(&nodes).await;
    let hub = start_paused(&cloud).await;
    let mut fleet = IdleFleet::connect(&hub, &nodes).await;
    // The welcome and the first snapshot are changes.
    fleet.idle(Duration::from_secs(60), 0).await;
    let count = async || {
        let mut count = 0;
        for name in nodes {
            count += cloud.positions(&node(name)).await.len();
        }
        count
    };
    let before = count().await;
    assert!(before >= nodes.len(), "each node has a position once it is connected");
    fleet.idle(Duration::from_secs(3600), 0).await;
    let idle = count().await - before;
    assert!((11 * nodes.len()..=12 * nodes.len()).contains(&idle), "{idle} in an hour");

    fleet.idle(HEARTBEAT, 7).await;
    for name in nodes {
        let last = cloud.positions(&node(name)).await.pop().expect("there");
        assert_eq!(last.outbox_depth, 7, "a change is appended soon");
    }
    hub.stop().await;
}

/// The next two connected nodes.
async fn connected(presence: &mut PresenceFeed) -> Vec<ConnectedNode> {
    let mut connected = Vec::new();
    while connected.len() < 2 {
        if let PresenceUpdate::Connected(nodes) = presence.next().await {
            connected.extend(nodes);
        }
    }
    connected
}

#[tokio::test(start_paused = true)]
async fn a_node_has_drained_once_its_outbox_was_empty_in_this_session() {
    let cloud = TestCloud::new(&["a", "b"]).await;
    let hub = start_paused(&cloud).await;
    let mut presence = hub.view().presence();
    for _ in 0..2 {
        let mut fleet = IdleFleet::connect(&hub, &["a", "b"]).await;
        for (depth, has_drained) in [(4, false), (0, true)] {
            fleet.idle(HEARTBEAT, depth).await;
            let state = Some(NodeState { lacks_worker: false, has_drained });
            let expected = ["a", "b"].map(|name| ConnectedNode { node: node(name), state });
            assert_eq!(connected(&mut presence).await, expected);
        }
        drop(fleet);
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn nodes_are_present_while_they_send_and_leave_before_their_sessions_end() {
    let cloud = TestCloud::new(&["a", "b"]).await;
    let hub = start_paused(&cloud).await;
    let mut presence = hub.view().presence();
    assert_eq!(presence.next().await, PresenceUpdate::Complete);
    let mut fleet = IdleFleet::connect(&hub, &["a", "b"]).await;
    fleet.idle(HEARTBEAT * 3, 0).await;
    let in_state = |lacks_worker, has_drained| {
        let state = Some(NodeState { lacks_worker, has_drained });
        ["a", "b"].map(|name| ConnectedNode { node: node(name), state }).to_vec()
    };
    assert_eq!(connected(&mut presence).await, in_state(false, true));
    // Their workers die, and come back.
    for lacks_worker in [true, false] {
        fleet.lacks_worker = lacks_worker;
        fleet.idle(HEARTBEAT, 3).await;
        assert_eq!(connected(&mut presence).await, in_state(lacks_worker, true));
    }
    // One leaves, the other one falls silent.
    drop(fleet.edges.pop());
    let mut gone = Vec::new();
    while gone.len() < 2 {
        if let PresenceUpdate::Disconnected(nodes) = presence.next().await {
            gone.extend(nodes);
        }
    }
    let (left, silent) = (&gone[0], &gone[1]);
    assert_eq!((&left.node, left.silent_for), (&node("b"), Duration::ZERO));
    assert_eq!(silent.node, node("a"));
    assert_eq!(hub.hub.sessions.count(), 1, "its session is not over yet");
    drop(fleet);
    hub.stop().await;
}
