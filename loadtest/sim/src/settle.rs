//! The end of a run: faults stop, and everything healthy converges (I10).

use std::collections::BTreeMap;
use std::sync::Arc;

use headwater_check::cluster_oracle::WantedObject;
use headwater_check::convergence::{self, End};
use headwater_event::{EntryKey, ResourceKey, StreamId};
use headwater_follow::Follower;
use headwater_store::MemoryEngine;
use headwater_view::{PodStatusFold, Selection, StreamReader};
use serde_json::Value;

use crate::frame::lock;
use crate::world::World;

/// How long convergence may take, virtual: back-offs, a silence noticed, a lost writer replaced,
/// and a MetaSync interval.
const SETTLES_WITHIN_MS: u64 = 600_000;

/// How often it is looked at.
const LOOK_EVERY_MS: u64 = 1_000;

/// More entries than any stream of a simulation has.
const ENTRIES_MAX: usize = 4_096;

/// Faults stop; waits until everything has converged, and says what has not.
pub(crate) async fn settle(world: &mut World) {
    world.frame.note("faults stop");
    heal(world).await;
    let until = world.frame.now_ms() + SETTLES_WITHIN_MS;
    let mut differs = Ok(());
    while world.frame.now_ms() < until && world.frame.first_broken().is_none() {
        world.pass(LOOK_EVERY_MS).await;
        world.restart_what_ended().await;
        start_what_is_off(world).await;
        differs = has_converged(world);
        if differs.is_ok() {
            break;
        }
    }
    if let Err(differs) = differs {
        for (which, controller) in world.controllers.iter().enumerate() {
            world.frame.note(format_args!("controller {which}: {:?}", controller.troubles()));
        }
        return world.frame.broken(format_args!("not converged: {differs}"));
    }
    if world.was_truncated {
        return;
    }
    // After compaction, a new fold must give the same state.
    world.weeks_pass().await;
    if let Err(differs) = folds_anew(world).await {
        world.frame.broken(format_args!("I9, I11 after compaction: {differs}"));
    }
}

async fn heal(world: &mut World) {
    world.frame.calm_down();
    world.downstream.set_available(true);
    world.upstream.set_available(true);
    world.heal_partitions();
    world.set_clocks();
    world.network.heal();
    world.cluster.heal();
    for index in 0..world.hubs.len() {
        world.hubs[index].downstream.handle.set_frozen(false);
        world.hubs[index].upstream.handle.set_frozen(false);
    }
    world.controllers.iter().for_each(|controller| controller.freeze(false));
    start_what_is_off(world).await;
}

/// What does not start, because of a fault that was still to come, is started again.
async fn start_what_is_off(world: &mut World) {
    for hub in world.hubs.iter_mut().filter(|hub| hub.handle.is_none()) {
        hub.start().await;
    }
    for controller in world.controllers.iter_mut().filter(|controller| !controller.is_on()) {
        controller.start().await;
    }
    for edge in 0..world.edges.len() {
        if !world.edges[edge].is_on() {
            world.switch_on(edge);
        }
    }
}

fn has_converged(world: &World) -> Result<(), String> {
    let auditor = lock(&world.auditor);
    for edge in &world.edges {
        let node = &edge.node;
        let durable = lock(&edge.state.durable);
        for stream in [StreamId::node(node), StreamId::Cluster] {
            let Some(end) = auditor.end(&stream) else { continue };
            let mut expected = End { seq: end.seq, hash: end.hash };
            let found = durable.streams.get(&stream).and_then(|held| {
                let at = held.at?;
                let is_this_log = Some(at.log_id) == auditor.log_id();
                is_this_log.then(|| End { seq: at.seq, hash: held.state.hash(&at.log_id) })
            });
            if let Some(found) = found
                && found.seq < expected.seq
                && found.hash == expected.hash
                && auditor.may_end_at(&stream, found.seq)
            {
                expected.seq = found.seq;
            }
            convergence::check(node, &stream, expected, found).map_err(|e| e.to_string())?;
            is_as_wanted(world, edge.state.as_ref(), &stream)
                .map_err(|differs| format!("I10 node {node}: {differs}"))?;
        }
        statuses_are_newest(world, edge)?;
    }
    Ok(())
}

/// Compares what a store shows of a stream with the cluster itself.
fn is_as_wanted(
    world: &World,
    store: &dyn headwater_store::Read,
    stream: &StreamId,
) -> Result<(), String> {
    let entries = StreamReader::new(store).entries(stream, Selection::All, None, ENTRIES_MAX);
    let entries = entries.map_err(|error| error.to_string())?;
    let mut found = BTreeMap::new();
    for (key, entry) in entries {
        let EntryKey::Resource(key) = key else { continue };
        // The identity of the cluster is always there.
        if key.kind() == "namespace" {
            continue;
        }
        if let Some(object) = world.cluster.object(&key)
            && *object.payload() != entry.object
        {
            return Err(format!("{stream}: {key} is not the cluster's newest"));
        }
        found.insert(key, entry.uid);
    }
    let wanted = world.cluster.wanted(stream).into_iter();
    let wanted: BTreeMap<ResourceKey, String> =
        wanted.map(|(key, object)| (key, object.uid)).collect();
    if found == wanted { Ok(()) } else { Err(format!("{stream}: {found:?}, wanted {wanted:?}")) }
}

/// Checks that the cloud's picture has the last status of each worker's pods, and of no other pod.
fn statuses_are_newest(world: &World, edge: &crate::edge::SimEdge) -> Result<(), String> {
    let node = &edge.node;
    let machine = lock(&edge.machine);
    let wanted = world.cluster.wanted(&StreamId::node(node));
    let pods = wanted.iter().filter(|(key, _)| key.kind() == "pod");
    let shown = world.cluster.statuses();
    for (key, WantedObject { uid, .. }) in pods {
        let Some((of, status)) = machine.reported.get(key) else {
            return Err(format!("node {node} has reported nothing of {key}"));
        };
        if of.as_str() != uid {
            return Err(format!("node {node} reports {key} {of}, not {uid}"));
        }
        for (which, controller) in world.controllers.iter().enumerate() {
            let found = PodStatusFold::status(&*controller.picture, node, key);
            let found = found.ok().flatten().map(|status| (status.uid, status.status));
            let expected = (uid.clone(), status.clone().into_bytes().into());
            if found.as_ref() != Some(&expected) {
                return Err(format!(
                    "I2 controller {which} shows of {key} at {node} {found:?}, reported was {expected:?}"
                ));
            }
        }
        let reported: Value = serde_json::from_str(status).map_err(|error| error.to_string())?;
        for field in ["phase", "message"] {
            let found = shown.get(key).map(|shown| &shown[field]);
            if found != Some(&reported[field]) {
                return Err(format!(
                    "the API shows {field} {found:?} of {key}, reported was {status}"
                ));
            }
        }
    }
    for (which, controller) in world.controllers.iter().enumerate() {
        let all = PodStatusFold::statuses(&*controller.picture, node, None, ENTRIES_MAX);
        let all = all.map_err(|error| error.to_string())?;
        if let Some((key, _)) = all.iter().find(|(key, _)| !wanted.contains_key(key)) {
            return Err(format!("controller {which} shows a status of {key}, which {node} lacks"));
        }
    }
    Ok(())
}

/// A reader without a store folds what compaction left to the same state.
async fn folds_anew(world: &World) -> Result<(), String> {
    let engine = Arc::new(MemoryEngine::new());
    let clock = world.frame.wall_clock();
    let log = world.downstream.handle();
    let mut follower = Follower::open(&log, engine.clone(), (), Arc::new(move || clock.now_ms()))
        .await
        .map_err(|error| error.to_string())?;
    while !follower.is_folded() {
        follower.next().await.map_err(|error| error.to_string())?;
    }
    let streams = world.nodes.iter().map(StreamId::node).chain([StreamId::Cluster]);
    for stream in streams {
        is_as_wanted(world, &*engine, &stream)?;
    }
    Ok(())
}
