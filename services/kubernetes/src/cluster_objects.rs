//! Which objects of a cluster the controller gets, over all kinds. No request is sent here.
//!
//! - **Edge nodes** are the Nodes that the selector lists. A node that comes brings its pods and volume
//!   attachments: their earlier events were dropped, so they are requested. A node that
//!   leaves takes them with it.
//! - **Named objects** are sent while a stream names them. Until the first list is complete, that is what
//!   the objects sent so far name; afterwards, what the controller wants. An object that is wanted and
//!   was dropped before is requested.
//! - **An object that cannot be carried** leaves what was sent of it before in place, and is named as
//!   long as that holds. A Secret of a type that no list has counts as absent, and is named while it is missing.
//!
//! Nothing depends on the order of two watches, because none exists.

use std::collections::{BTreeMap, BTreeSet};

use headwater_controller::Wanted;
use headwater_event::{NodeName, ResourceKey};
use headwater_object::Object;
use headwater_telemetry::error_chain;

use crate::failure::REFUSALS_MAX;
use crate::fetches::{Fetch, Fetches};
use crate::kind::{Kind, Usage};
use crate::kind_objects::{KindObjects, Origin, Phase};
use crate::raw_object::RawObject;
use crate::reflector::Step;

/// What the controller is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// An object came or changed.
    Apply(Object),
    /// An object is gone.
    Delete { key: ResourceKey, uid: String },
}

/// The answer to a [`Fetch`].
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum FetchAnswer {
    /// The objects; of a request for one object none where it does not exist.
    Objects(Vec<RawObject>),
    /// The API server refuses: a right is missing, or the kind is not served.
    Refused,
}

/// The objects that the streams of the nodes name.
pub(crate) trait Uses {
    /// Whether a stream names an object.
    fn is_used(&self, key: &ResourceKey) -> bool;
}

impl Uses for Wanted {
    fn is_used(&self, key: &ResourceKey) -> bool {
        Wanted::is_used(self, key)
    }
}

/// How long an object may be on its way to the controller, where it counts as missing meanwhile, in
/// milliseconds.
const DELIVERY_MS: u64 = 2000;

/// The most objects that are named because they cannot be carried.
const UNFIT_MAX: usize = 1000;

/// See the module.
pub(crate) struct ClusterObjects<U> {
    uses: U,
    kinds: BTreeMap<Kind, KindObjects>,
    fetches: Fetches,
    /// The requests that were refused.
    refused: BTreeSet<Fetch>,
    /// How often in a row those of a kind were repeated.
    refusals: BTreeMap<Kind, u32>,
    /// What the objects sent so far name; `None` once the first list is complete.
    named: Option<NamedObjects>,
    /// The objects that cannot be carried, and why.
    unfit: BTreeMap<(Kind, String), UnfitObject>,
    /// The objects that are missing and of a type that the controller leaves out, with their names and types.
    left_out: BTreeMap<ResourceKey, String>,
    /// Whether `unfit` has changed since [`ClusterObjects::take_unfit_change`].
    unfit_changed: bool,
    /// Whether an object that is missing may still be on its way to the controller.
    awaits_delivery: bool,
    now_ms: u64,
}

/// The objects that those of the first list name.
#[derive(Debug, Default)]
struct NamedObjects {
    keys: BTreeSet<ResourceKey>,
    /// Those of which it is not known yet whether a list has them.
    unchecked: Vec<ResourceKey>,
}

#[derive(Debug)]
struct UnfitObject {
    reason: String,
    /// Whether the newest list has the object, or a watch spoke of it since.
    is_listed: bool,
}

impl<U: Uses> ClusterObjects<U> {
    /// No objects yet.
    pub(crate) fn new(uses: U) -> Self {
        Self {
            uses,
            kinds: BTreeMap::new(),
            fetches: Fetches::default(),
            refused: BTreeSet::new(),
            refusals: BTreeMap::new(),
            left_out: BTreeMap::new(),
            named: Some(NamedObjects::default()),
            unfit: BTreeMap::new(),
            unfit_changed: false,
            awaits_delivery: false,
            now_ms: 0,
        }
    }

    /// Sets the time, which only goes forward.
    pub(crate) fn set_now(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
    }

    /// Applies what the list or the watch of a kind says.
    pub(crate) fn step(&mut self, kind: Kind, step: Step) -> Vec<Change> {
        match step {
            Step::Init => {
                self.objects(kind).begin_list();
                self.unfit.iter_mut().filter(|((of, _), _)| *of == kind).for_each(|(_, unfit)| {
                    unfit.is_listed = false;
                });
                Vec::new()
            }
            Step::InitDone { order } => {
                self.fetches.note_list(kind);
                let gone = self.objects(kind).end_list(order);
                let before = self.unfit.len();
                self.unfit.retain(|(of, _), unfit| *of != kind || unfit.is_listed);
                self.unfit_changed |= self.unfit.len() != before;
                gone.into_iter().flat_map(|(key, uid)| self.gone(kind, key, uid)).collect()
            }
            Step::InitApply(raw) | Step::Apply(raw) => self.apply(kind, raw),
            Step::Delete(raw) => self.delete(kind, &raw),
        }
    }

    /// Applies the answer to a request.
    pub(crate) fn fetched(&mut self, fetch: &Fetch, answer: FetchAnswer) -> Vec<Change> {
        let Some(newer) = self.fetches.end(fetch) else { return Vec::new() };
        let kind = fetch.kind();
        let objects = match answer {
            FetchAnswer::Objects(objects) => {
                self.refusals.remove(&kind);
                objects
            }
            // The state of the kind names the reason.
            FetchAnswer::Refused => {
                self.refused.insert(fetch.clone());
                Vec::new()
            }
        };
        let objects = self.without_left_out(kind, fetch, objects);
        if let Fetch::Object(_, key) = fetch
            && objects.is_empty()
            && !newer.contains(key)
        {
            self.fetches.note_absent(key.clone());
        }
        let mut changes = Vec::new();
        for raw in objects {
            // An object without a key is named when its watch speaks of it.
            let Ok(key) = raw.key(kind) else { continue };
            if !newer.contains(&key) && self.is_needed(kind, &key, raw.node().as_ref()) {
                changes.extend(self.send(kind, raw, Origin::Request));
            }
        }
        changes
    }

    /// Takes over what an earlier run published of a kind that cannot be listed now.
    pub(crate) fn carry_over(&mut self, kind: Kind, object: Object) -> Option<Change> {
        let is_needed = match kind.usage() {
            Usage::Shared | Usage::EdgeNode | Usage::Named => true,
            Usage::OfNode => object.node().is_some_and(|node| self.is_edge(node)),
        };
        if !is_needed || self.has(kind, object.key()) {
            return None;
        }
        let now_ms = self.now_ms;
        self.objects(kind).note(&object, Origin::Watch, None, now_ms);
        self.note_named(&object);
        Some(Change::Apply(object))
    }

    /// Requests what the objects sent so far name and what was not sent. Returns whether nothing is on
    /// its way: then the first list is complete.
    pub(crate) fn complete(&mut self, can_be_read: impl Fn(Kind) -> bool) -> bool {
        let named = self.named.as_mut().map(|named| std::mem::take(&mut named.unchecked));
        for key in named.into_iter().flatten() {
            if let Some(kind) = Kind::of_key(key.kind())
                && kind.usage() == Usage::Named
                && can_be_read(kind)
                && !self.has(kind, &key)
            {
                self.fetches.add(Fetch::Object(kind, key));
            }
        }
        self.fetches.is_empty()
    }

    /// Ends the first list. From now on the controller says what is named.
    pub(crate) fn end_first_list(&mut self) {
        self.named = None;
    }

    /// Looks at what the controller misses, and requests it.
    pub(crate) fn look(&mut self, missing: Vec<ResourceKey>) {
        if self.named.is_some() {
            return;
        }
        let missing: BTreeSet<ResourceKey> = missing.into_iter().collect();
        self.fetches.retain_absent(&missing);
        let before = self.left_out.len();
        self.left_out.retain(|key, _| missing.contains(key));
        self.unfit_changed |= self.left_out.len() != before;
        self.awaits_delivery = false;
        for key in missing {
            let Some(kind) = Kind::of_key(key.kind()) else { continue };
            if kind.usage() != Usage::Named {
                continue;
            }
            let sent_ms = self.objects(kind).sent_ms(&key);
            if sent_ms.is_some_and(|sent_ms| self.now_ms < sent_ms + DELIVERY_MS) {
                self.awaits_delivery = true;
            } else {
                self.fetches.add(Fetch::Object(kind, key));
            }
        }
    }

    /// Whether [`ClusterObjects::look`] has to be called again although nothing changes.
    pub(crate) fn awaits_delivery(&self) -> bool {
        self.awaits_delivery
    }

    /// Forgets named objects that the controller has forgotten.
    pub(crate) fn forget_unused(&mut self) {
        if self.named.is_some() {
            return;
        }
        let uses = &self.uses;
        for (kind, objects) in &mut self.kinds {
            if kind.usage() == Usage::Named {
                objects.forget_unused(|key| uses.is_used(key));
            }
        }
    }

    /// Asks again for objects that did not exist or could not be read when they were requested. An open watch is not
    /// authorized again: what a node had before its watch spoke of it comes by a request alone.
    pub(crate) fn forget_absent(&mut self) {
        self.fetches.retain_absent(&BTreeSet::new());
        for fetch in std::mem::take(&mut self.refused) {
            self.repeat(fetch);
        }
    }

    /// Repeats the requests that were refused, for the first times: a server that has just started refuses what it allows
    /// some seconds later. Returns whether [`ClusterObjects::look`] has to be called.
    pub(crate) fn retry_refused(&mut self) -> bool {
        let lasts = |fetch: &Fetch| {
            self.refusals.get(&fetch.kind()).is_some_and(|refusals| *refusals >= REFUSALS_MAX)
        };
        let again: Vec<Fetch> =
            self.refused.iter().filter(|fetch| !lasts(fetch)).cloned().collect();
        let kinds: BTreeSet<Kind> = again.iter().map(Fetch::kind).collect();
        for kind in kinds {
            *self.refusals.entry(kind).or_default() += 1;
        }
        let has_some = !again.is_empty();
        for fetch in again {
            self.refused.remove(&fetch);
            self.repeat(fetch);
        }
        has_some
    }

    /// Repeats a request that was refused. An object is requested again if it is missing.
    fn repeat(&mut self, fetch: Fetch) {
        let is_needed = match &fetch {
            Fetch::PodsOf(node) => self.is_edge(node),
            Fetch::Attachments => true,
            Fetch::Object(_, key) => {
                self.fetches.forget_absent(key);
                false
            }
        };
        if is_needed {
            self.fetches.add(fetch);
        }
    }

    /// Forgets which versions are newer than others: the history of the API went back, and everything is
    /// listed anew.
    pub(crate) fn forget_versions(&mut self) {
        self.kinds.values_mut().for_each(KindObjects::forget_versions);
        self.fetches.note_lost_history();
        self.forget_absent();
    }

    /// The objects in the answer to a request on its way of which no list and no watch has spoken since.
    pub(crate) fn newest<'a>(
        &'a self,
        fetch: &'a Fetch,
        objects: &'a [RawObject],
    ) -> impl Iterator<Item = &'a RawObject> {
        let is_newest = |raw: &RawObject| {
            raw.key(fetch.kind()).is_ok_and(|key| !self.fetches.is_outdated(fetch, &key))
        };
        objects.iter().filter(move |raw| is_newest(raw))
    }

    /// The next request to send.
    pub(crate) fn next_fetch(&mut self) -> Option<Fetch> {
        self.fetches.start()
    }

    /// Whether [`ClusterObjects::unfit`] may have changed since the last call. There may be a thousand, and an event comes
    /// often.
    pub(crate) fn take_unfit_change(&mut self) -> bool {
        std::mem::take(&mut self.unfit_changed)
    }

    /// The objects that cannot be carried, in words.
    pub(crate) fn unfit(&self) -> impl Iterator<Item = String> {
        let unfit = self.unfit.iter().map(|((_, name), unfit)| format!("{name}: {}", unfit.reason));
        unfit.chain(self.left_out.values().cloned())
    }

    fn apply(&mut self, kind: Kind, raw: RawObject) -> Vec<Change> {
        let key = match raw.key(kind) {
            Ok(key) => key,
            Err(error) => {
                self.note_unfit(kind, raw.described(kind), error_chain(&error));
                return Vec::new();
            }
        };
        let node = raw.node();
        self.fetches.note(kind, &key, node.as_ref());
        if !self.is_needed(kind, &key, node.as_ref()) {
            return Vec::new();
        }
        self.send(kind, raw, Origin::Watch)
    }

    /// Sends an object unless the controller has it as it is.
    fn send(&mut self, kind: Kind, raw: RawObject, origin: Origin) -> Vec<Change> {
        let (order, name, now_ms) = (raw.order(), raw.described(kind), self.now_ms);
        let Ok(key) = raw.key(kind) else { return Vec::new() };
        let objects = self.objects(kind);
        if origin == Origin::Watch && objects.is_old(&key, order) {
            objects.note_listed(&key);
            return Vec::new();
        }
        let object = match raw.into_object(kind) {
            Ok(object) => object,
            Err(error) => {
                objects.note_listed(&key);
                self.note_unfit(kind, name, error_chain(&error));
                return Vec::new();
            }
        };
        let is_new = !objects.has(&key);
        let is_news = objects.note(&object, origin, order, now_ms);
        self.forget_unfit(kind, name);
        self.fetches.cancel(kind, &key);
        if !is_news {
            return Vec::new();
        }
        self.note_named(&object);
        if let (true, Kind::Node, Some(node)) = (is_new, kind, object.node()) {
            self.add_node(node.clone());
        }
        vec![Change::Apply(object)]
    }

    fn delete(&mut self, kind: Kind, raw: &RawObject) -> Vec<Change> {
        self.forget_unfit(kind, raw.described(kind));
        let Ok(key) = raw.key(kind) else { return Vec::new() };
        self.fetches.note(kind, &key, raw.node().as_ref());
        let is_sent = self.objects(kind).delete(&key, raw.uid());
        // A named object may be with the controller although it was forgotten here.
        let may_be_there = kind.usage() == Usage::Named && self.uses.is_used(&key);
        if is_sent || (may_be_there && !self.has(kind, &key)) {
            return self.gone(kind, key, raw.uid().to_owned());
        }
        Vec::new()
    }

    /// The objects in an answer but those of types that are left out. Neither lists nor watches have these, so they count as
    /// absent, and are named.
    fn without_left_out(
        &mut self,
        kind: Kind,
        fetch: &Fetch,
        objects: Vec<RawObject>,
    ) -> Vec<RawObject> {
        let Fetch::Object(_, key) = fetch else { return objects };
        let left_out = objects.iter().find(|raw| kind.leaves_out(raw)).map(|raw| {
            let of_type = raw.value()["type"].as_str().unwrap_or_default();
            format!(
                "{}: pods name it, and no edge gets Secrets of the type {of_type}; make it anew with another type",
                raw.described(kind)
            )
        });
        let Some(text) = left_out else {
            self.unfit_changed |= self.left_out.remove(key).is_some();
            return objects;
        };
        let known = self.left_out.get(key);
        let has_room = known.is_some() || self.left_out.len() < UNFIT_MAX;
        if has_room && known != Some(&text) {
            self.left_out.insert(key.clone(), text);
            self.unfit_changed = true;
        }
        Vec::new()
    }

    /// Notes what an object of the first list names.
    fn note_named(&mut self, object: &Object) {
        let Some(named) = &mut self.named else { return };
        for reference in object.references() {
            if named.keys.insert(reference.key.clone()) {
                named.unchecked.push(reference.key.clone());
            }
        }
    }

    /// The changes that follow from the end of an object.
    fn gone(&mut self, kind: Kind, key: ResourceKey, uid: String) -> Vec<Change> {
        let mut changes = Vec::new();
        if kind == Kind::Node
            && let Ok(node) = key.name().parse()
        {
            for of_node in [Kind::Pod, Kind::VolumeAttachment] {
                let taken = self.objects(of_node).take_node(&node);
                changes.extend(taken.into_iter().map(|(key, uid)| Change::Delete { key, uid }));
            }
        }
        changes.push(Change::Delete { key, uid });
        changes
    }

    /// Requests the objects of a node whose events were dropped before it was an edge node.
    fn add_node(&mut self, node: NodeName) {
        if self.objects(Kind::Pod).phase() != Phase::Unlisted {
            self.fetches.add(Fetch::PodsOf(node));
        }
        if self.objects(Kind::VolumeAttachment).phase() != Phase::Unlisted {
            self.fetches.add(Fetch::Attachments);
        }
    }

    /// Whether the controller needs an object.
    fn is_needed(&self, kind: Kind, key: &ResourceKey, node: Option<&NodeName>) -> bool {
        match kind.usage() {
            Usage::Shared | Usage::EdgeNode => true,
            Usage::OfNode => node.is_some_and(|node| self.is_edge(node)),
            Usage::Named => {
                self.named.as_ref().is_some_and(|named| named.keys.contains(key))
                    || self.has(kind, key)
                    || self.uses.is_used(key)
            }
        }
    }

    fn is_edge(&self, node: &NodeName) -> bool {
        let key = ResourceKey::new(None, Kind::Node.name(), node.as_str());
        key.is_ok_and(|key| self.has(Kind::Node, &key))
    }

    fn has(&self, kind: Kind, key: &ResourceKey) -> bool {
        self.kinds.get(&kind).is_some_and(|objects| objects.has(key))
    }

    fn objects(&mut self, kind: Kind) -> &mut KindObjects {
        self.kinds.entry(kind).or_default()
    }

    fn note_unfit(&mut self, kind: Kind, name: String, reason: String) {
        let key = (kind, name);
        if self.unfit.len() < UNFIT_MAX || self.unfit.contains_key(&key) {
            self.unfit.insert(key, UnfitObject { reason, is_listed: true });
            self.unfit_changed = true;
        }
    }

    fn forget_unfit(&mut self, kind: Kind, name: String) {
        self.unfit_changed |= self.unfit.remove(&(kind, name)).is_some();
    }
}

#[cfg(test)]
mod tests;
