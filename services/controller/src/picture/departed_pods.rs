//! The pods that have left the stream of their node: which node had which pod.
//!
//! A node reports a pod until it has ended it, which is longer than the pod is published, and a rollout waits for
//! that. But any node may report any pod. So the report of the node that had the pod counts, and no other one. The fold
//! of the downstream log derives a row for each such pod; a removal that the log does not have yet is in memory alone,
//! because a restart finds its pod published.
//!
//! Nothing says when a row is needed no longer, so the oldest make room. A wait whose row is lost ends early.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use headwater_event::{Envelope, Event, NodeName, ResourceKey, StreamId};
use headwater_object::Object;
use headwater_store::{EngineError, Folded, Read, Table, TableId};
use headwater_view::StreamState;

use crate::source::manifest::origin::{WORKLOAD_ANNOTATION, delays_rollout};

/// The pods that are remembered, about 250 bytes each: those of StatefulSets and Deployments that a fleet of ten
/// thousand nodes removes in the minutes that their ends take.
const DEPARTED_MAX: usize = 32_768;

/// A pod that left: its key, its node and its UID.
type DepartedPod = (ResourceKey, NodeName, String);

/// Of the database of what was published.
const DEPARTED: Table<DepartedPod, (), Folded> = Table::new(TableId::DepartedPods);

/// The pods that left, as the intake and the fold of the log note them. Clones are one.
#[derive(Clone, Debug, Default)]
pub(crate) struct DepartedPods(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// The nodes and UIDs of each pod.
    pods: BTreeMap<ResourceKey, BTreeSet<(NodeName, String)>>,
    /// The same, oldest first.
    order: VecDeque<DepartedPod>,
    /// What made room, and may still have a row.
    forgotten: Vec<DepartedPod>,
}

impl DepartedPods {
    /// Takes up the rows of an earlier run.
    ///
    /// # Errors
    /// As [`Read::scan`].
    pub(crate) fn load(&self, from: &dyn Read) -> Result<(), EngineError> {
        for row in DEPARTED.rows(from) {
            self.lock().add(row?.0, DEPARTED_MAX);
        }
        Ok(())
    }

    /// Notes that a pod leaves the objects of the sources.
    pub(crate) fn note_removal(&self, pod: &Object) {
        let Some(node) = pod.node() else { return };
        if may_be_waited_for(pod.payload()) {
            let pod = (pod.key().clone(), node.clone(), pod.uid().to_owned());
            self.lock().add(pod, DEPARTED_MAX);
        }
    }

    /// Derives the row of a pod that `envelope` removes or replaces; `state` still has it.
    ///
    /// # Errors
    /// When the engine cannot be read.
    pub(crate) fn derive(
        &self,
        envelope: &Envelope,
        state: &mut StreamState,
    ) -> Result<(), EngineError> {
        let (StreamId::Node(node), Some(entry)) = (&envelope.stream, envelope.event.key()) else {
            return Ok(());
        };
        let Some(key) = entry.resource().filter(|key| key.kind() == "pod") else { return Ok(()) };
        let Some(before) = state.entry_summary(&envelope.stream, entry)? else { return Ok(()) };
        if matches!(&envelope.event, Event::Applied(applied) if applied.uid == before.uid) {
            return Ok(());
        }
        let Some(pod) = state.entry(&envelope.stream, entry)? else { return Ok(()) };
        if !may_be_waited_for(&pod.object) {
            return Ok(());
        }
        let pod = (key.clone(), node.clone(), before.uid);
        state.batch().put(&DEPARTED, &pod, &());
        let mut departed = self.lock();
        departed.add(pod, DEPARTED_MAX);
        for forgotten in departed.forgotten.drain(..) {
            state.batch().delete(&DEPARTED, &forgotten);
        }
        Ok(())
    }

    /// The pods that left whose keys begin with `prefix`.
    pub(super) fn of(&self, prefix: &str) -> Vec<DepartedPod> {
        let state = self.lock();
        let start = (Bound::Included(prefix), Bound::Unbounded);
        let pods = state.pods.range::<str, _>(start);
        pods.take_while(|(key, _)| key.as_str().starts_with(prefix))
            .flat_map(|(key, bindings)| {
                bindings.iter().map(|(node, uid)| (key.clone(), node.clone(), uid.clone()))
            })
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code here panics while it holds the lock; a poisoned one is still whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn add(&mut self, pod: DepartedPod, max: usize) {
        let (key, node, uid) = pod.clone();
        if !self.pods.entry(key).or_default().insert((node, uid)) {
            return;
        }
        self.order.push_back(pod);
        while self.order.len() > max
            && let Some(oldest) = self.order.pop_front()
        {
            let (key, node, uid) = oldest.clone();
            if let Some(bindings) = self.pods.get_mut(&key) {
                bindings.remove(&(node, uid));
                if bindings.is_empty() {
                    self.pods.remove(&key);
                }
            }
            self.forgotten.push(oldest);
        }
    }
}

/// Whether a rollout may wait for the end of a pod. Few pods are parsed for it: most have no workload, or have not left.
fn may_be_waited_for(pod: &[u8]) -> bool {
    str::from_utf8(pod).is_ok_and(|text| text.contains(WORKLOAD_ANNOTATION))
        && serde_json::from_slice(pod).is_ok_and(|pod| delays_rollout(&pod))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn departed(name: &str, node: &str, uid: &str) -> DepartedPod {
        let key = format!("d/pod/{name}").parse().expect("a key");
        (key, node.parse().expect("a name"), uid.to_owned())
    }

    #[test]
    fn the_oldest_make_room_and_lose_their_rows() {
        let mut state = State::default();
        let [a, b, c] = ["a", "b", "c"].map(|name| departed(name, "n", "u"));
        for pod in [&a, &b, &a, &c] {
            state.add(pod.clone(), 2);
        }
        assert_eq!(state.order, [b, c]);
        assert_eq!((state.pods.len(), state.forgotten), (2, vec![a]));
    }

    #[test]
    fn a_prefix_selects_the_pods_of_a_workload_with_each_node_that_had_them() {
        let pods = DepartedPods::default();
        for (name, node) in [("db-1", "a"), ("db-1", "b"), ("db-2", "a"), ("dba-1", "a")] {
            pods.lock().add(departed(name, node, "u"), 9);
        }
        let found = pods.of("d/pod/db-").into_iter().map(|(key, node, _)| format!("{key} {node}"));
        assert_eq!(found.collect::<Vec<_>>(), ["d/pod/db-1 a", "d/pod/db-1 b", "d/pod/db-2 a"]);
        assert!(pods.of("e/pod/db-").is_empty());
    }
}
