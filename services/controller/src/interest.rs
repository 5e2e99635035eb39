//! Interest: which node needs which object, kept up to date as objects come and go.
//!
//! A node needs its Node, its pods and volume attachments, and what those name, directly or through another object
//! (pod -> claim -> volume -> secret), **whether or not it exists just now**: an object that is
//! deleted and created again finds its readers. Services, Endpoints and EndpointSlices are in the
//! shared stream instead. Each use is counted, so the interest shrinks when the last user leaves. A
//! change costs as much as it affects, independent of the number of nodes and objects.
//!
//! [`Interest`] is level-triggered: a change returns the entries that it may have affected, in the
//! order in which they must be published (what a pod names before the pod, and after it when the
//! pod leaves). [`Interest::desired`] returns the content that such an entry should have now. The
//! interest does not know what was published; the publisher compares.
//!
//! Which nodes get the shared stream is a setting ([`ClusterStream`]).
//!
//! An object that no node uses stays until its source deletes it: see [`Interest`].

mod cluster_stream;
mod shared;

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound::{self, Excluded, Unbounded};

use bytes::Bytes;
use headwater_event::{Applied, EntryKey, NodeName, ResourceKey, StreamId};
use headwater_object::Object;
use headwater_object::references::Reference;
use headwater_view::EntrySummary;

use self::cluster_stream::ClusterAssignments;
pub use self::cluster_stream::ClusterStream;
pub(crate) use self::shared::{SharedInterest, WeakInterest};
use crate::packed::{PackedObject, PayloadPacker};

/// The key of an entry, and its stream.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EntryId {
    /// The stream.
    pub stream: StreamId,
    /// The entry.
    pub key: EntryKey,
}

/// Every object, and which nodes use it.
///
/// Where the last user of an object leaves, the object stays. The manifest folder and the objects
/// socket list every object once, used or not, and send it again only when
/// it changes: no request makes them send it again. The object has to be here when the next pod names it.
/// It costs no more than one that was never used, and both are bounded by what a person or a program
/// gave the source. The picture shows them too.
///
/// A source that reads [`Wanted`](crate::Wanted) is another case (`forget_unused`). It sends
/// what is [missing](Interest::missing), also again, so an object that it sent is forgotten with its
/// last use. It is forgotten here and not by the source: a source that decides by `Wanted` and sends a
/// deletion is late, and deletes what a pod has named since.
#[derive(Debug, Default)]
pub struct Interest {
    objects: BTreeMap<ResourceKey, PackedObject>,
    packer: PayloadPacker,
    nodes: BTreeMap<NodeName, NodeInterest>,
    cluster: ClusterAssignments,
    /// For each object that some node uses, those nodes: the other direction of `uses`.
    users: HashMap<ResourceKey, Users>,
    /// The keys of `users` that are not in `objects`.
    missing: BTreeSet<ResourceKey>,
    /// Increases when `missing` changes, but for an object that comes: its source knows.
    missing_version: u64,
    /// Whether an object is forgotten with its last use.
    forgets_unused: bool,
    /// How many uses were visited, so that a test can measure the cost of a change.
    #[cfg(test)]
    visits: usize,
}

/// The nodes that use an object. Most objects are pods, and a pod has one.
#[derive(Debug)]
enum Users {
    One(NodeName),
    Many(BTreeSet<NodeName>),
}

/// What one node uses.
#[derive(Debug, Default)]
struct NodeInterest {
    /// Whether the node was declared.
    declared: bool,
    /// How many reasons the node's stream has: a declaration, a Node, each pod.
    reasons: usize,
    /// For each object that the node uses, how many objects of the node name it.
    uses: HashMap<ResourceKey, usize>,
}

/// Types that every node gets.
const SHARED_TYPES: [&str; 4] = ["service", "endpoints", "endpointslice", "namespace"];

impl Interest {
    /// No objects, no nodes.
    pub fn new() -> Self {
        Self::default()
    }

    /// No objects, no nodes; `setting` decides which nodes get the shared stream.
    pub fn with_cluster_stream(setting: ClusterStream) -> Self {
        Self { cluster: ClusterAssignments::new(setting), ..Self::default() }
    }

    /// From now on an object that no stream names is not kept: its source sends it again when it is
    /// [missing](Interest::missing).
    pub(crate) fn forget_unused(&mut self) {
        self.forgets_unused = true;
    }

    /// Notes whether programs of `node` read the shared stream.
    pub fn note_consumption(&mut self, node: &NodeName, consumes_cluster: bool) -> Vec<EntryId> {
        let may_differ = self.cluster.note(node, consumes_cluster);
        let entry = EntryId { stream: StreamId::node(node), key: EntryKey::Streams };
        if may_differ && self.nodes.contains_key(node) { vec![entry] } else { Vec::new() }
    }

    /// Declares that `node` exists: it has a stream even before it has a pod.
    pub fn declare(&mut self, node: &NodeName) -> Vec<EntryId> {
        let mut affected = Vec::new();
        if !self.nodes.get(node).is_some_and(|interest| interest.declared) {
            self.add_reason(node, &mut affected);
            self.nodes.entry(node.clone()).or_default().declared = true;
        }
        affected
    }

    /// Undoes [`Interest::declare`]. The stream stays while a Node or a pod needs it.
    pub fn withdraw(&mut self, node: &NodeName) -> Vec<EntryId> {
        let mut affected = Vec::new();
        if let Some(interest) = self.nodes.get_mut(node).filter(|interest| interest.declared) {
            interest.declared = false;
            self.remove_reason(node, &mut affected);
        }
        affected
    }

    /// Applies an object that came or changed.
    pub fn apply(&mut self, object: Object) -> Vec<EntryId> {
        let mut affected = Vec::new();
        let key = object.key().clone();
        let root = object.node().cloned();
        if self.forgets_unused && root.is_none() && !self.is_used(&key) {
            return affected;
        }
        let named = keys_of(object.references());
        let previous = self.store(object);
        self.missing.remove(&key);
        if is_shared(&key) {
            affected.push(EntryId { stream: StreamId::Cluster, key: key.into() });
            return affected;
        }
        let (previous_root, previously_named) =
            previous.as_ref().map_or((None, BTreeSet::new()), |old| (root_of(old), names(old)));
        for node in self.users_of(&key) {
            for added in named.difference(&previously_named) {
                self.acquire(&node, added, &mut affected);
            }
            affected.push(entry_of(&node, &key));
            for dropped in previously_named.difference(&named) {
                self.release(&node, dropped, &mut affected);
            }
        }
        if previous_root != root {
            if let Some(node) = root {
                self.add_root(&node, &key, &mut affected);
            }
            if let Some(node) = previous_root {
                self.remove_root(&node, &key, &mut affected);
            }
        }
        affected
    }

    /// Removes an object. An object of the same name with another UID stays.
    pub fn remove(&mut self, key: &ResourceKey, uid: &str) -> Vec<EntryId> {
        let mut affected = Vec::new();
        let Some(object) = self.objects.get(key) else { return affected };
        if object.head.uid() != uid {
            return affected;
        }
        if is_shared(key) {
            affected.push(EntryId { stream: StreamId::Cluster, key: key.clone().into() });
        }
        let (root, named) = (root_of(object), names(object));
        if let Some(node) = root {
            self.remove_root(&node, key, &mut affected);
        }
        for node in self.users_of(key) {
            affected.push(entry_of(&node, key));
            for name in &named {
                self.release(&node, name, &mut affected);
            }
        }
        self.objects.remove(key);
        if self.users.contains_key(key) {
            self.note_missing(key);
        }
        affected
    }

    /// The content that an entry of a stream should have now; `None` if it should be absent.
    ///
    /// `!snapshot-request` does not follow from objects and is always `None` here.
    pub fn desired(&self, stream: &StreamId, key: &EntryKey) -> Option<Applied> {
        if !self.is_desired(stream, key) {
            return None;
        }
        match (stream, key.resource()) {
            (_, Some(key)) => self.object(key).map(|object| object.to_applied()),
            (StreamId::Node(node), None) => Some(self.assigned_streams(node)),
            (StreamId::Cluster, None) => None,
        }
    }

    /// Whether an entry of a stream should exist now; costs less than [`Interest::desired`].
    pub fn is_desired(&self, stream: &StreamId, key: &EntryKey) -> bool {
        match (stream, key) {
            (_, EntryKey::SnapshotRequest) | (StreamId::Cluster, EntryKey::Streams) => false,
            (StreamId::Node(node), EntryKey::Streams) => self.nodes.contains_key(node),
            (StreamId::Cluster, EntryKey::Resource(key)) => {
                is_shared(key) && self.objects.contains_key(key)
            }
            (StreamId::Node(node), EntryKey::Resource(key)) => {
                let node = self.nodes.get(node);
                node.is_some_and(|interest| interest.uses.contains_key(key))
                    && self.objects.contains_key(key)
            }
        }
    }

    /// Every stream that should have entries.
    pub fn streams(&self) -> impl Iterator<Item = StreamId> {
        std::iter::once(StreamId::Cluster).chain(self.nodes.keys().map(StreamId::node))
    }

    /// The entries that `stream` should have and that `published` lacks or has otherwise, in an order
    /// in which they may be published: what a pod names before the pod. Those that it should have
    /// leave `published`.
    pub(crate) fn take_differing(
        &self,
        stream: &StreamId,
        published: &mut HashMap<EntryKey, EntrySummary>,
    ) -> Vec<EntryId> {
        let keys: Box<dyn Iterator<Item = &ResourceKey>> = match stream {
            StreamId::Cluster => Box::new(self.objects.keys().filter(|key| is_shared(key))),
            StreamId::Node(node) => match self.nodes.get(node) {
                Some(interest) => Box::new(interest.uses.keys()),
                None => return Vec::new(),
            },
        };
        let mut differing = Vec::new();
        for resource in keys {
            let Some(object) = self.objects.get(resource) else { continue };
            let key = EntryKey::from(resource.clone());
            if published.remove(&key).is_none_or(|published| !object.is_published_as(&published)) {
                differing.push(EntryId { stream: stream.clone(), key });
            }
        }
        differing.sort_by(|a, b| {
            let is_pod =
                |entry: &EntryId| entry.key.resource().is_some_and(|key| key.kind() == "pod");
            (is_pod(a), &a.key).cmp(&(is_pod(b), &b.key))
        });
        if let StreamId::Node(node) = stream
            && self.is_desired(stream, &EntryKey::Streams)
        {
            let may_stay = published
                .remove(&EntryKey::Streams)
                .is_some_and(|published| self.cluster.may_stay(node, published.object_hash));
            if !may_stay {
                differing.insert(0, EntryId { stream: stream.clone(), key: EntryKey::Streams });
            }
        }
        differing
    }

    /// How many objects there are.
    pub fn objects_count(&self) -> usize {
        self.objects.len()
    }

    /// The keys of all objects, in order.
    pub fn keys(&self) -> impl Iterator<Item = &ResourceKey> {
        self.objects.keys()
    }

    /// The keys of the objects from the bound `start` on, in order.
    pub fn keys_from(&self, start: Bound<&str>) -> impl Iterator<Item = &ResourceKey> + use<'_> {
        self.objects.range::<str, _>((start, Unbounded)).map(|(key, _)| key)
    }

    /// The object at `key`, if it exists.
    pub fn object(&self, key: &ResourceKey) -> Option<Object> {
        self.objects.get(key).map(PackedObject::unpack)
    }

    /// The object at `key` in its packed form, if it exists: to be unpacked without the interest.
    pub(crate) fn packed(&self, key: &ResourceKey) -> Option<&PackedObject> {
        self.objects.get(key)
    }

    /// The nodes that have a stream.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeName> {
        self.nodes.keys()
    }

    /// The nodes behind `after`, or all, that have a stream, in order.
    pub fn nodes_after(&self, after: Option<&NodeName>) -> impl Iterator<Item = &NodeName> {
        self.nodes.range((after.map_or(Unbounded, Excluded), Unbounded)).map(|(node, _)| node)
    }

    /// Whether `node` has a stream.
    pub fn has_stream(&self, node: &NodeName) -> bool {
        self.nodes.contains_key(node)
    }

    /// Whether the stream of some node, or the shared stream, names `key`.
    pub fn is_used(&self, key: &ResourceKey) -> bool {
        is_shared(key) || self.users.contains_key(key)
    }

    /// How many nodes use `key`.
    pub fn users_count(&self, key: &ResourceKey) -> usize {
        match self.users.get(key) {
            None => 0,
            Some(Users::One(_)) => 1,
            Some(Users::Many(nodes)) => nodes.len(),
        }
    }

    /// The objects that the stream of some node names and that do not exist, in order.
    pub fn missing(&self) -> impl Iterator<Item = &ResourceKey> {
        self.missing.iter()
    }

    /// The version of the set of [missing](Interest::missing) objects: it increases with each change of that set, but
    /// for an object that comes.
    pub fn missing_version(&self) -> u64 {
        self.missing_version
    }

    fn assigned_streams(&self, node: &NodeName) -> Applied {
        Applied {
            key: EntryKey::Streams,
            uid: String::new(),
            resource_version: String::new(),
            object: Bytes::from_static(self.cluster.streams_of(node)),
        }
    }

    /// Stores an object; returns the one that it replaces.
    fn store(&mut self, object: Object) -> Option<PackedObject> {
        let key = object.key().clone();
        self.objects.insert(key, self.packer.pack_object(object))
    }

    /// The streams that should have an object.
    pub(crate) fn streams_of(&self, key: &ResourceKey) -> Vec<StreamId> {
        let shared = is_shared(key).then_some(StreamId::Cluster);
        shared.into_iter().chain(self.users_of(key).iter().map(StreamId::node)).collect()
    }

    fn users_of(&self, key: &ResourceKey) -> Vec<NodeName> {
        self.users.get(key).map_or_else(Vec::new, Users::nodes)
    }

    /// Makes `key` a root of `node`: a pod of the node, or its Node.
    fn add_root(&mut self, node: &NodeName, key: &ResourceKey, affected: &mut Vec<EntryId>) {
        self.add_reason(node, affected);
        if !is_node(key) {
            self.acquire(node, key, affected);
        }
    }

    fn remove_root(&mut self, node: &NodeName, key: &ResourceKey, affected: &mut Vec<EntryId>) {
        if !is_node(key) {
            self.release(node, key, affected);
        }
        self.remove_reason(node, affected);
    }

    /// Adds a reason for the node's stream. The first one opens the stream: its assigned streams,
    /// then its Node.
    fn add_reason(&mut self, node: &NodeName, affected: &mut Vec<EntryId>) {
        let interest = self.nodes.entry(node.clone()).or_default();
        interest.reasons += 1;
        if interest.reasons == 1 {
            affected.push(EntryId { stream: StreamId::node(node), key: EntryKey::Streams });
            if let Some(key) = node_key(node) {
                self.acquire(node, &key, affected);
            }
        }
    }

    fn remove_reason(&mut self, node: &NodeName, affected: &mut Vec<EntryId>) {
        let Some(interest) = self.nodes.get_mut(node) else { return };
        interest.reasons = interest.reasons.saturating_sub(1);
        if interest.reasons == 0 {
            if let Some(key) = node_key(node) {
                self.release(node, &key, affected);
            }
            affected.push(EntryId { stream: StreamId::node(node), key: EntryKey::Streams });
            self.nodes.remove(node);
        }
    }

    /// Adds a use of `key` on `node`. The first use adds the object, and before it what the object
    /// names.
    fn acquire(&mut self, node: &NodeName, key: &ResourceKey, affected: &mut Vec<EntryId>) {
        #[cfg(test)]
        {
            self.visits += 1;
        }
        let uses = &mut self.nodes.entry(node.clone()).or_default().uses;
        let count = uses.entry(key.clone()).or_default();
        *count += 1;
        if *count > 1 {
            return;
        }
        match self.users.entry(key.clone()) {
            Entry::Occupied(mut users) => users.get_mut().insert(node.clone()),
            Entry::Vacant(none) => {
                none.insert(Users::One(node.clone()));
            }
        }
        let Some(object) = self.objects.get(key) else {
            self.note_missing(key);
            return;
        };
        for name in names(object) {
            self.acquire(node, &name, affected);
        }
        affected.push(entry_of(node, key));
    }

    /// Notes that some stream names an object that does not exist.
    fn note_missing(&mut self, key: &ResourceKey) {
        if self.missing.insert(key.clone()) {
            self.missing_version += 1;
        }
    }

    /// Removes a use of `key` on `node`. The last use removes the object, and after it what the
    /// object names.
    fn release(&mut self, node: &NodeName, key: &ResourceKey, affected: &mut Vec<EntryId>) {
        #[cfg(test)]
        {
            self.visits += 1;
        }
        let Some(interest) = self.nodes.get_mut(node) else { return };
        let Some(count) = interest.uses.get_mut(key) else { return };
        *count -= 1;
        if *count > 0 {
            return;
        }
        interest.uses.remove(key);
        let mut is_unused = false;
        if let Some(users) = self.users.get_mut(key)
            && users.remove(node)
        {
            self.users.remove(key);
            if self.missing.remove(key) {
                self.missing_version += 1;
            }
            is_unused = true;
        }
        let Some(object) = self.objects.get(key) else { return };
        affected.push(entry_of(node, key));
        let (is_root, names) = (root_of(object).is_some(), names(object));
        if self.forgets_unused && is_unused && !is_root {
            self.objects.remove(key);
        }
        for name in names {
            self.release(node, &name, affected);
        }
    }
}

impl Users {
    fn insert(&mut self, node: NodeName) {
        match self {
            Self::One(first) if *first == node => {}
            Self::One(first) => *self = Self::Many(BTreeSet::from([first.clone(), node])),
            Self::Many(nodes) => {
                nodes.insert(node);
            }
        }
    }

    /// Removes a node; `true`: no node is left.
    fn remove(&mut self, node: &NodeName) -> bool {
        match self {
            Self::One(only) => only == node,
            Self::Many(nodes) => {
                nodes.remove(node);
                nodes.is_empty()
            }
        }
    }

    fn nodes(&self) -> Vec<NodeName> {
        match self {
            Self::One(node) => vec![node.clone()],
            Self::Many(nodes) => nodes.iter().cloned().collect(),
        }
    }
}

/// The node whose root an object is: the node of a pod or of a volume attachment, or the one that a Node
/// describes.
fn root_of(object: &PackedObject) -> Option<NodeName> {
    object.head.node().cloned()
}

fn names(object: &PackedObject) -> BTreeSet<ResourceKey> {
    keys_of(object.head.references())
}

fn keys_of(references: &[Reference]) -> BTreeSet<ResourceKey> {
    references.iter().map(|reference| reference.key.clone()).collect()
}

fn is_shared(key: &ResourceKey) -> bool {
    SHARED_TYPES.contains(&key.kind())
}

fn is_node(key: &ResourceKey) -> bool {
    key.kind() == "node"
}

fn node_key(node: &NodeName) -> Option<ResourceKey> {
    // Every node name makes a key.
    ResourceKey::new(None, "node", node.as_str()).ok()
}

fn entry_of(node: &NodeName, key: &ResourceKey) -> EntryId {
    EntryId { stream: StreamId::node(node), key: key.clone().into() }
}

#[cfg(test)]
mod tests;
