//! The cloud's picture: the objects of the sources with what the edges report of them.

pub(crate) mod changes;
mod connection;
mod departed_pods;
mod filter;
mod merge;
pub(crate) mod node_event;
mod page;
mod pod_reports;
mod presence;
pub(crate) mod registrations;
mod reported;
pub(crate) mod tables;
mod workload_counts;

use std::collections::BTreeMap;
use std::sync::Arc;

use headwater_event::{NodeName, NodeProgress, ResourceKey};
use headwater_object::Object;
use headwater_store::{Engine, EngineError, Json};
use headwater_view::PodStatusFold;
use jiff::Timestamp;
use serde_json::{Value, json};

use self::changes::ChangeFeed;
use self::merge::merge;
use self::node_event::EventDiscards;
use self::registrations::RegistrationNotes;
use self::tables::{LoggedProgress, NODE_PROGRESS, NODES, TERMINATIONS};
use crate::interest::SharedInterest;
use crate::source::SharedWorkloads;

pub use self::changes::{ChangeSubscription, PictureChange};
pub(crate) use self::departed_pods::DepartedPods;
pub use self::filter::Filter;
pub use self::node_event::NodeEvent;
pub use self::page::{PageOutline, PicturePage};
pub(crate) use self::pod_reports::PictureReports;
pub use self::presence::{NodePresence, PresenceLink, PresenceReceiver};
pub use self::reported::{ReportedNode, ReportedPod};

/// Reads the cloud's picture.
#[derive(Clone)]
pub struct Picture {
    interest: SharedInterest,
    engine: Arc<dyn Engine>,
    changes: ChangeFeed,
    presence: PresenceReceiver,
    workloads: SharedWorkloads,
    event_discards: EventDiscards,
    registrations: RegistrationNotes,
}

/// The report of a node that all containers of a pod under deletion have stopped. The pod may be
/// bound to another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Termination {
    /// The node that reported it.
    pub node: NodeName,
    /// The pod.
    pub pod: ResourceKey,
    /// The UID of the pod.
    pub uid: String,
}

impl Picture {
    pub(crate) fn new(
        interest: SharedInterest,
        engine: Arc<dyn Engine>,
        changes: ChangeFeed,
        presence: PresenceReceiver,
        workloads: SharedWorkloads,
    ) -> Self {
        let event_discards = EventDiscards::default();
        let registrations = RegistrationNotes::default();
        Self { interest, engine, changes, presence, workloads, event_discards, registrations }
    }

    /// The Events that are needed no longer.
    pub(crate) fn event_discards(&self) -> EventDiscards {
        self.event_discards.clone()
    }

    /// Subscribes to the keys of objects that may have changed. A Node also changes without an event
    /// here: it stops being Ready some time after its last contact.
    pub fn changes(&self) -> ChangeSubscription {
        self.changes.subscribe()
    }

    /// As [`Picture::changes`], but only of what nodes report and of their presence: the objects of the sources
    /// change unnoticed.
    pub fn report_changes(&self) -> ChangeSubscription {
        self.changes.subscribe_to_reports()
    }

    /// Whether the changes have a subscriber.
    #[cfg(test)]
    pub(crate) fn is_watched(&self) -> bool {
        self.changes.is_watched()
    }

    /// The objects that `filter` selects, in key order, with their statuses; [`Picture::page`] reads
    /// them in parts. `now_ms` decides which nodes are reachable.
    ///
    /// # Errors
    /// When the picture cannot be read.
    pub fn objects(
        &self,
        filter: &Filter<'_>,
        now_ms: i64,
    ) -> Result<BTreeMap<ResourceKey, Value>, EngineError> {
        let mut found = BTreeMap::new();
        let mut after = None;
        loop {
            let PicturePage { objects, next } = self.page(filter, after.as_ref(), now_ms)?;
            found.extend(objects);
            match next {
                Some(next) => after = Some(next),
                None => return Ok(found),
            }
        }
    }

    /// One object, as [`Picture::objects`] returns it.
    ///
    /// # Errors
    /// When the picture cannot be read.
    pub fn merged_object(
        &self,
        key: &ResourceKey,
        now_ms: i64,
    ) -> Result<Option<Value>, EngineError> {
        if key.kind() == "event" {
            return Ok(self.event(key)?.map(|event| event.event));
        }
        let node: Option<NodeName> =
            if key.kind() == "node" { key.name().parse().ok() } else { None };
        let (object, has_stream) = {
            let interest = self.interest.read();
            let has_stream = node.as_ref().is_some_and(|node| interest.has_stream(node));
            (interest.packed(key).cloned(), has_stream)
        };
        let object = object.map(|object| object.unpack().versioned_value());
        let from = self.engine.snapshot();
        let object = match (object, &node) {
            (None, Some(node)) if has_stream || NODES.get(&*from, node)?.is_some() => {
                Some(bare_node(node.as_str()))
            }
            (object, _) => object,
        };
        let Some(mut object) = object else { return Ok(None) };
        merge(&*from, &self.presence, key, &mut object, now_ms)?;
        Ok(Some(object))
    }

    /// A pod that no source has any longer, while its node still has it: the node reports its status
    /// until it has ended the pod. `last` is the pod as it was. `None`: it is gone.
    ///
    /// # Errors
    /// When the picture cannot be read.
    pub fn ending_pod(
        &self,
        key: &ResourceKey,
        last: &Value,
        now_ms: i64,
    ) -> Result<Option<Value>, EngineError> {
        let text = |pointer| last.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let (node, uid) = (text("/spec/nodeName").parse::<NodeName>(), text("/metadata/uid"));
        let Some(node) = node.ok().filter(|_| key.kind() == "pod") else { return Ok(None) };
        let reported = PodStatusFold::status(&*self.engine, &node, key)?;
        let Some(reported) = reported.filter(|reported| reported.uid == uid) else {
            return Ok(None);
        };
        let mut pod = last.clone();
        if let Ok(status) = serde_json::from_slice(&reported.status) {
            pod["status"] = status;
        }
        Ok(Some(as_deleted(pod, now_ms)))
    }

    /// One object, as its source has it.
    pub fn object(&self, key: &ResourceKey) -> Option<Object> {
        let object = self.interest.read().packed(key).cloned();
        object.map(|object| object.unpack())
    }

    /// The nodes that have a stream.
    pub fn nodes(&self) -> Vec<NodeName> {
        self.interest.read().nodes().cloned().collect()
    }

    /// The last position record of each node; connection and last contact as of `now_ms`.
    ///
    /// # Errors
    /// When the picture cannot be read.
    pub fn node_progress(
        &self,
        now_ms: i64,
    ) -> Result<BTreeMap<NodeName, NodeProgress>, EngineError> {
        let from = self.engine.snapshot();
        let progress = NODE_PROGRESS.rows(&*from).map(|row| {
            let (node, Json(LoggedProgress { mut progress, .. })) = row?;
            let connection = self.presence.connection(&node, Some(&progress), now_ms);
            progress.connected = connection.is_reachable;
            progress.contact_ms = connection.contact_ms.unwrap_or(progress.contact_ms);
            Ok((node, progress))
        });
        progress.collect()
    }

    /// Whether `node` and its worker live, as hubs send it. [`Picture::changes`] names the Node when
    /// that changes.
    pub fn node_presence(&self, node: &NodeName) -> NodePresence {
        // An unreadable position is as none: it only replaces what an older hub does not send.
        self.presence.presence(node, || {
            NODE_PROGRESS
                .get(&*self.engine, node)
                .ok()
                .flatten()
                .map(|Json(logged)| logged.progress)
        })
    }

    /// Whether `node` is connected at `now_ms`, and its worker runs.
    fn is_reachable(&self, node: &NodeName, now_ms: i64) -> Result<bool, EngineError> {
        let progress = NODE_PROGRESS.get(&*self.engine, node)?.map(|Json(logged)| logged.progress);
        Ok(self.presence.connection(node, progress.as_ref(), now_ms).runs_pods())
    }

    /// Every termination that nodes reported, by node and pod.
    ///
    /// # Errors
    /// When the picture cannot be read.
    pub fn terminations(&self) -> Result<Vec<Termination>, EngineError> {
        let rows = TERMINATIONS.rows(&*self.engine);
        rows.map(|row| row.map(|((node, pod), uid)| Termination { node, pod, uid })).collect()
    }

    /// The UID of `pod`, if `node` reported that all its containers have stopped.
    ///
    /// # Errors
    /// When the picture cannot be read.
    pub fn termination(
        &self,
        node: &NodeName,
        pod: &ResourceKey,
    ) -> Result<Option<String>, EngineError> {
        TERMINATIONS.get(&*self.engine, &(node.clone(), pod.clone()))
    }
}

/// The pod as one whose deletion was requested, since `now_ms` unless it was before.
pub fn as_deleted(mut pod: Value, now_ms: i64) -> Value {
    let time = Timestamp::from_millisecond(now_ms).unwrap_or(Timestamp::UNIX_EPOCH);
    if let Some(metadata) = pod["metadata"].as_object_mut() {
        metadata.entry("deletionTimestamp").or_insert_with(|| format!("{time:.0}").into());
    }
    pod
}

fn key_of_node(node: &NodeName) -> Option<ResourceKey> {
    // Every node name makes a key.
    ResourceKey::new(None, "node", node.as_str()).ok()
}

/// The Node object of a node that no source describes.
fn bare_node(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_keeps_to_its_namespace_but_not_for_cluster_scoped_objects() {
        let key = |text: &str| text.parse::<ResourceKey>().expect("a key");
        let filter = Filter { kind: "", namespace: "shop", name: "" };
        assert!(filter.matches(&key("shop/pod/a")) && !filter.matches(&key("other/pod/a")));
        assert!(filter.matches(&key("null/node/a")));
        assert!(!Filter { kind: "pod", ..filter }.matches(&key("shop/secret/a")));
    }
}
