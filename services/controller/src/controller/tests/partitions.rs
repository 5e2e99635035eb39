//! A partition of the log that takes no appends: the others go on, and nothing is lost or doubled.

use super::*;

/// The partition that is away. The claim of an epoch needs the other one.
const AWAY: Partition = Partition(1);

/// Changes of each node while the partition is away.
const CHANGES: u32 = 50;

/// A node whose stream is in `partition`.
fn node_in(partition: Partition) -> String {
    let mut nodes = (0..100).map(|number| format!("n{number}"));
    let is_there = |node: &String| {
        let node: NodeName = node.parse().expect("a name");
        StreamId::node(&node).partition(2) == partition
    };
    nodes.find(is_there).expect("one of a hundred")
}

fn pod_of(node: &str) -> Object {
    let mut pod = pod_value(&format!("p-{node}"), &format!("c-{node}"));
    pod["spec"]["nodeName"] = node.into();
    object(pod)
}

fn config_of(node: &str, version: u32) -> Object {
    config(&format!("c-{node}"), version, &format!("x{version}"))
}

impl World {
    /// The data of the ConfigMap of a node, as each of its events has it.
    async fn data_of(&self, node: &str) -> Vec<String> {
        let (events, _) = self.read().await;
        let key = format!("d/configmap/c-{node}");
        let data = |event: &Envelope| match &event.event {
            Event::Applied(applied) if applied.key.to_string() == key => {
                let object: Value = serde_json::from_slice(&applied.object).expect("JSON");
                Some(object["data"]["k"].as_str().unwrap_or_default().to_owned())
            }
            _ => None,
        };
        events.iter().filter_map(data).collect()
    }

    async fn until_last(&self, node: &str, version: u32) {
        let expected = format!("x{version}");
        until_true(&format!("{expected} at {node}"), async || {
            self.data_of(node).await.last() == Some(&expected)
        })
        .await;
    }

    /// Each node has its pod and its ConfigMap, and every event counted once.
    async fn check_nodes(&self, nodes: &[&str]) {
        for node in nodes {
            let (pod, config) = (format!("d/pod/p-{node}"), format!("d/configmap/c-{node}"));
            self.check(&format!("node/{node}"), &[&pod, &config]).await;
        }
    }
}

impl Running {
    fn trouble(&self) -> Option<String> {
        self.controller.progress().borrow().trouble.clone()
    }

    fn partitions_away(&self) -> Option<f64> {
        metrics::value(&self.registry, "headwater_controller_partitions_away")
    }
}

#[tokio::test]
async fn a_partition_that_takes_no_appends_delays_no_other_and_loses_nothing() {
    for fault in [PartitionFault::Fails, PartitionFault::Hangs] {
        let world = World { group_events: 1, ..World::new() };
        let (healthy, away) = (node_in(Partition(0)), node_in(AWAY));
        let (healthy, away) = (healthy.as_str(), away.as_str());
        let running = world.start().await;
        let objects = [healthy, away].map(|node| [pod_of(node), config_of(node, 0)]);
        running.list(objects.into_iter().flatten()).await;
        let epoch = running.controller.progress().borrow().epoch;
        world.downstream.set_partition_fault(AWAY, Some(fault));
        for version in 1..=CHANGES {
            running.set(config_of(away, version)).await;
            running.set(config_of(healthy, version)).await;
        }
        world.until_last(healthy, CHANGES).await;
        until_true("it is shown", async || running.partitions_away() == Some(1.0)).await;
        let trouble = running.trouble().expect("shown");
        assert!(trouble.contains("partition 1"), "{trouble}");
        assert_eq!(world.data_of(away).await, ["x0"]);
        assert!(running.controller.progress().borrow().reconciled, "the others go on");

        world.downstream.set_partition_fault(AWAY, None);
        world.until_last(away, CHANGES).await;
        until_true("it is back", async || running.trouble().is_none()).await;
        // A partition that was only slow costs no epoch.
        let epochs = u64::from(fault == PartitionFault::Fails);
        running.reconciled(epoch.0 + epochs - 1).await;
        assert_eq!(world.newest_epoch().await.0, epoch.0 + epochs, "{fault:?}");
        running.set(config_of(away, CHANGES + 1)).await;
        world.until_last(away, CHANGES + 1).await;
        running.controller.stop().await;
        world.check_nodes(&[healthy, away]).await;
    }
}

#[tokio::test]
async fn a_controller_claims_a_log_of_which_a_partition_is_away() {
    let world = World::new();
    let (healthy, away) = (node_in(Partition(0)), node_in(AWAY));
    let (healthy, away) = (healthy.as_str(), away.as_str());
    let running = world.start().await;
    let objects = |version| [healthy, away].map(|node| [pod_of(node), config_of(node, version)]);
    running.list(objects(0).into_iter().flatten()).await;
    running.controller.stop().await;

    world.downstream.set_partition_fault(AWAY, Some(PartitionFault::Fails));
    let running = world.start().await;
    running.send([SourceEvent::Init]).await;
    running.send(objects(1).into_iter().flatten().map(SourceEvent::InitApply)).await;
    running.send([SourceEvent::InitDone]).await;
    world.until_last(healthy, 1).await;
    running.set(config_of(healthy, 2)).await;
    world.until_last(healthy, 2).await;
    assert!(!running.controller.progress().borrow().reconciled, "not everything is in the log");
    assert_eq!(world.data_of(away).await, ["x0"]);
    let (_, follower) = world.read().await;
    assert!(!follower.acceptance().is_reconciled());

    world.downstream.set_partition_fault(AWAY, None);
    let epoch = world.newest_epoch().await;
    running.reconciled(epoch.0).await;
    assert_eq!(world.data_of(away).await, ["x0", "x1"]);
    assert_eq!(running.trouble(), None);
    running.controller.stop().await;
    world.check_nodes(&[healthy, away]).await;
}

#[tokio::test(start_paused = true)]
async fn a_writer_keeps_the_log_while_the_partition_of_its_claim_is_away() {
    let timings = WriterTimings {
        heartbeat_interval: Duration::from_millis(200),
        heartbeats_missed: 4,
        ..WriterTimings::default()
    };
    let world = World { timings, ..World::new() };
    let (first, other) = (node_in(Partition(0)), node_in(AWAY));
    let (first, other) = (first.as_str(), other.as_str());
    let objects = || [first, other].map(|node| [pod_of(node), config_of(node, 0)]);
    let writing = world.start().await;
    writing.list(objects().into_iter().flatten()).await;
    let standby = world.elsewhere().start().await;
    standby.send([SourceEvent::Init]).await;
    standby.send(objects().into_iter().flatten().map(SourceEvent::InitApply)).await;
    standby.send([SourceEvent::InitDone]).await;
    let mut progress = standby.controller.progress();
    let stands_by = progress.wait_for(|now| now.is_standby);
    timeout(SOON, stands_by).await.expect("soon").expect("it runs");

    world.downstream.set_partition_fault(Partition(0), Some(PartitionFault::Hangs));
    let away = tokio::time::Instant::now();
    let mut version = 0;
    while away.elapsed() < 3 * timings.silence_max() {
        version += 1;
        writing.set(config_of(other, version)).await;
        world.until_last(other, version).await;
        tokio::time::sleep(timings.heartbeat_interval / 4).await;
    }
    world.downstream.set_partition_fault(Partition(0), None);
    writing.set(config_of(first, 1)).await;
    world.until_last(first, 1).await;
    assert_eq!(world.newest_epoch().await, WriterEpoch(1), "no standby took it over");
    writing.controller.stop().await;
    standby.controller.stop().await;
    world.check_nodes(&[first, other]).await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_waits_for_a_partition_leaves_the_log_to_no_standby() {
    let timings = WriterTimings {
        heartbeat_interval: Duration::from_millis(300),
        heartbeats_missed: 4,
        ..WriterTimings::default()
    };
    let world = World { timings, ..World::new() };
    let (healthy, away) = (node_in(Partition(0)), node_in(AWAY));
    let (healthy, away) = (healthy.as_str(), away.as_str());
    let objects = || [healthy, away].map(|node| [pod_of(node), config_of(node, 0)]);
    let first = world.start().await;
    first.list(objects().into_iter().flatten()).await;
    first.controller.stop().await;

    world.downstream.set_partition_fault(AWAY, Some(PartitionFault::Hangs));
    let before = world.newest_epoch().await;
    let mut running = Vec::new();
    for world in [world.clone(), world.elsewhere()] {
        let controller = world.start().await;
        controller.send([SourceEvent::Init]).await;
        controller.send(objects().into_iter().flatten().map(SourceEvent::InitApply)).await;
        controller.send([SourceEvent::InitDone]).await;
        // The other one starts while this claim waits for the partition.
        until_true("a claim", async || world.newest_epoch().await > before).await;
        running.push(controller);
    }
    let claimed = world.newest_epoch().await;
    let [writing, standby] = &running[..] else { panic!("two controllers") };
    let mut progress = standby.controller.progress();
    let stands_by = progress.wait_for(|now| now.is_standby);
    timeout(SOON, stands_by).await.expect("soon").expect("it runs");
    let since = tokio::time::Instant::now();
    let mut version = 0;
    while since.elapsed() < 3 * timings.silence_max() {
        version += 1;
        writing.set(config_of(healthy, version)).await;
        world.until_last(healthy, version).await;
        tokio::time::sleep(timings.heartbeat_interval / 4).await;
    }
    assert_eq!(world.newest_epoch().await, claimed, "they do not take turns");

    world.downstream.set_partition_fault(AWAY, None);
    writing.set(config_of(away, 1)).await;
    // The next probe of the partition comes within this time, which passes at once.
    tokio::time::sleep(SOON).await;
    world.until_last(away, 1).await;
    for controller in running {
        controller.controller.stop().await;
    }
    world.check_nodes(&[healthy, away]).await;
}

#[tokio::test]
async fn a_partition_that_returns_ends_no_epoch_while_the_next_one_cannot_be_claimed() {
    let settings = MemorySettings { partitions: 3, ..MemorySettings::default() };
    let world = World { group_events: 1, ..World::with(settings) };
    let node_of = |partition| {
        let mut nodes = (0..100).map(|number| format!("n{number}"));
        let is_there = |node: &String| {
            let node: NodeName = node.parse().expect("a name");
            StreamId::node(&node).partition(3) == Partition(partition)
        };
        nodes.find(is_there).expect("one of a hundred")
    };
    let [first, second, healthy] = [0, 1, 2].map(node_of);
    let nodes = [&*first, &*second, &*healthy];
    let running = world.start().await;
    running.list(nodes.map(|node| [pod_of(node), config_of(node, 0)]).into_iter().flatten()).await;
    let epoch = world.newest_epoch().await;
    for partition in [Partition(0), Partition(1)] {
        world.downstream.set_partition_fault(partition, Some(PartitionFault::Fails));
    }
    for node in nodes {
        running.set(config_of(node, 1)).await;
    }
    until_true("both are away", async || running.partitions_away() == Some(2.0)).await;
    world.downstream.set_partition_fault(Partition(1), None);
    // Longer than the first probes take.
    let since = Instant::now();
    let mut version = 1;
    while since.elapsed() < Duration::from_secs(2) {
        version += 1;
        running.set(config_of(&healthy, version)).await;
        world.until_last(&healthy, version).await;
    }
    assert_eq!(world.newest_epoch().await, epoch, "a claim needs partition 0");

    world.downstream.set_partition_fault(Partition(0), None);
    for node in [&*first, &*second] {
        world.until_last(node, 1).await;
    }
    running.reconciled(epoch.0).await;
    running.controller.stop().await;
    world.check_nodes(&nodes).await;
}
