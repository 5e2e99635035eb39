//! An object that many nodes use is in the log once in each partition.

use headwater_event::{BodyId, RecordKey};

use super::*;

/// Nodes that use the object, in two partitions.
const NODES: usize = 100;

/// The most bytes that a changed object adds to the log for each node that uses it, besides the
/// object itself.
const REFERENCE_BYTES_MAX: usize = 100;

impl World {
    /// The body records in the log, in order: the body, and whether the record retires it.
    async fn bodies(&self) -> Vec<(Partition, BodyId, bool)> {
        let records = records_of(&self.downstream).await.into_iter();
        let body = |stored: StoredRecord| match RecordKey::decode(&stored.record.key) {
            Ok(RecordKey::Body(id)) => Some((stored.partition, id, stored.record.value.is_none())),
            _ => None,
        };
        records.filter_map(body).collect()
    }

    /// The bodies that are not retired.
    async fn present_bodies(&self) -> BTreeSet<(Partition, BodyId)> {
        let mut present = BTreeSet::new();
        for (partition, id, is_retired) in self.bodies().await {
            if is_retired {
                present.remove(&(partition, id));
            } else {
                assert!(present.insert((partition, id)), "a number is used once");
            }
        }
        present
    }

    /// Waits until every node has the version `version` of the ConfigMap.
    async fn every_node_has(&self, version: u32) {
        until_true("the ConfigMap at every node", async || {
            let (_, follower) = self.read().await;
            let reader = StreamReader::new(&**follower.state().engine());
            (0..NODES).all(|node| {
                let stream = format!("node/n{node}").parse().expect("a stream");
                let key = "d/configmap/c".parse().expect("a key");
                let entry = reader.entry(&stream, &key).expect("readable");
                let wanted = shared(version).to_applied();
                entry.is_some_and(|entry| entry.object == wanted.object && entry.uid == wanted.uid)
            })
        })
        .await;
    }
}

fn pod_of(node: usize) -> Object {
    let mut pod = pod_value(&format!("p{node}"), "c");
    pod["spec"]["nodeName"] = format!("n{node}").into();
    object(pod)
}

fn shared(version: u32) -> Object {
    // No two of its parts are alike, so no compression makes it small.
    let part = |at: u32| {
        let hash = ObjectHash::of(format!("{version} {at}").as_bytes());
        hash.0.map(|byte| format!("{byte:02x}")).concat()
    };
    config("c", version, &(0..1000).map(part).collect::<String>())
}

fn record_bytes(records: &[StoredRecord]) -> usize {
    records.iter().map(|stored| stored.record.bytes()).sum()
}

#[tokio::test]
async fn a_changed_object_of_many_nodes_is_appended_once_in_each_partition() {
    let world = World::new();
    let running = world.start().await;
    running.list((0..NODES).map(pod_of).chain([shared(1)])).await;
    world.every_node_has(1).await;
    assert_eq!(world.present_bodies().await.len(), 2, "one body in each partition");

    let before = records_of(&world.downstream).await;
    running.set(shared(2)).await;
    world.every_node_has(2).await;
    let after = records_of(&world.downstream).await;
    assert_eq!(after.len() - before.len(), 2 + NODES);
    let object = shared(2).to_applied().object.len();
    let bytes = record_bytes(&after) - record_bytes(&before);
    assert!(bytes <= 2 * object + NODES * REFERENCE_BYTES_MAX, "{bytes} for {object}");
    running.controller.stop().await;
}

#[tokio::test]
async fn a_body_is_retired_once_nothing_refers_to_it_also_by_the_next_writer() {
    // The rounds in which bodies are retired follow each other quickly.
    let settings = MemorySettings { partitions: 2, replay_window_ms: 1, ..Default::default() };
    let world = World::with(settings);
    let running = world.start().await;
    running.list((0..NODES).map(pod_of).chain([shared(1)])).await;
    let first = world.present_bodies().await;
    running.set(shared(2)).await;
    world.every_node_has(2).await;
    until_true("the end of the first bodies", async || {
        let present = world.present_bodies().await;
        present.len() == 2 && present.is_disjoint(&first)
    })
    .await;
    let second = world.present_bodies().await;
    running.controller.stop().await;

    let again = world.elsewhere().start().await;
    again.list((0..NODES).map(pod_of).chain([shared(2)])).await;
    assert_eq!(world.present_bodies().await, second, "what is published is not appended again");
    again.set(shared(1)).await;
    world.every_node_has(1).await;
    until_true("the end of the former writer's bodies", async || {
        let present = world.present_bodies().await;
        present.len() == 2 && present.is_disjoint(&second)
    })
    .await;
    world.every_node_has(1).await;
    again.controller.stop().await;
}

#[tokio::test]
async fn a_failed_append_of_a_shared_object_loses_nothing() {
    for fault in [
        AppendFault::UnknownWritten,
        AppendFault::UnknownLost,
        // Some references without their body, and bodies without references.
        AppendFault::UnknownSome((0..NODES + 2).map(|at| at % 3 != 0).collect()),
        AppendFault::UnknownSome((0..NODES + 2).map(|at| at < 2).collect()),
    ] {
        let world = World::new();
        let running = world.start().await;
        running.list((0..NODES).map(pod_of).chain([shared(1)])).await;
        running.log.inject_fault(fault.clone());
        running.set(shared(2)).await;
        world.every_node_has(2).await;
        assert!(running.reconciled(1).await > WriterEpoch(1), "{fault:?}");
        running.controller.stop().await;
    }
}
