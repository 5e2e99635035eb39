//! Objects that are requested by themselves: one that a pod names and that was not needed before, and
//! the pods of a node that was not an edge node before.
//!
//! An answer and the watch of its kind have no common order. What a watch says of an object while a
//! request for it is on its way is newer than the watch was at its start, so the answer does not count
//! for that object. What a watch says later may be older than the answer: see
//! [`KindObjects::is_old`](crate::kind_objects::KindObjects::is_old). A list that ends meanwhile may be
//! newer than the answer, which then does not count at all: the request is repeated.

use std::collections::{BTreeSet, HashMap, HashSet};

use headwater_event::{NodeName, ResourceKey};

use crate::kind::Kind;

/// A request for objects.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Fetch {
    /// An object.
    Object(Kind, ResourceKey),
    /// The pods of a node.
    PodsOf(NodeName),
    /// All volume attachments. The API does not select them by node.
    Attachments,
}

impl Fetch {
    /// The kind of the requested objects.
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Object(kind, _) => *kind,
            Self::PodsOf(_) => Kind::Pod,
            Self::Attachments => Kind::VolumeAttachment,
        }
    }
}

/// The most requests on their way. More would only queue at the API server.
pub(crate) const FETCHES_MAX: usize = 16;

/// The requests that wait and those on their way.
#[derive(Debug, Default)]
pub(crate) struct Fetches {
    waiting: BTreeSet<Fetch>,
    /// The requests on their way.
    running: HashMap<Fetch, RunningFetch>,
    /// The objects that do not exist, or that may not be read, as far as the last answer goes.
    absent: HashSet<ResourceKey>,
}

/// What happened since a request was sent.
#[derive(Debug, Default)]
struct RunningFetch {
    /// The objects of which a watch spoke.
    newer: HashSet<ResourceKey>,
    /// Whether a list of the kind ended.
    is_outdated: bool,
}

impl Fetches {
    /// Adds a request. One for an object that is on its way, or known to be absent, is not repeated.
    pub(crate) fn add(&mut self, fetch: Fetch) {
        if let Fetch::Object(_, key) = &fetch
            && (self.absent.contains(key) || self.running.contains_key(&fetch))
        {
            return;
        }
        self.waiting.insert(fetch);
    }

    /// The next request to send, if more may be on their way.
    pub(crate) fn start(&mut self) -> Option<Fetch> {
        if self.running.len() >= FETCHES_MAX {
            return None;
        }
        let free = self.waiting.iter().find(|fetch| !self.running.contains_key(*fetch)).cloned()?;
        self.waiting.remove(&free);
        self.running.insert(free.clone(), RunningFetch::default());
        Some(free)
    }

    /// Ends a request: returns the objects of which a watch spoke meanwhile; `None` where the answer does
    /// not count, and the request is repeated.
    pub(crate) fn end(&mut self, fetch: &Fetch) -> Option<HashSet<ResourceKey>> {
        let ended = self.running.remove(fetch).unwrap_or_default();
        if ended.is_outdated {
            self.waiting.insert(fetch.clone());
            return None;
        }
        Some(ended.newer)
    }

    /// Whether the answer to a request on its way does not count, at all or for the object at `key`.
    pub(crate) fn is_outdated(&self, fetch: &Fetch, key: &ResourceKey) -> bool {
        let running = self.running.get(fetch);
        running.is_some_and(|running| running.is_outdated || running.newer.contains(key))
    }

    /// Notes that the history of the API went back: an answer may be of the lost one.
    pub(crate) fn note_lost_history(&mut self) {
        self.running.values_mut().for_each(|running| running.is_outdated = true);
    }

    /// Notes that a list of a kind has ended.
    pub(crate) fn note_list(&mut self, kind: Kind) {
        for (_, running) in self.running.iter_mut().filter(|(fetch, _)| fetch.kind() == kind) {
            running.is_outdated = true;
        }
    }

    /// Notes that the watch of a kind spoke of an object, of a node if it has one.
    pub(crate) fn note(&mut self, kind: Kind, key: &ResourceKey, node: Option<&NodeName>) {
        self.absent.remove(key);
        if self.running.is_empty() && self.waiting.is_empty() {
            return;
        }
        let fetch = match (kind, node) {
            (Kind::Pod, Some(node)) => Fetch::PodsOf(node.clone()),
            (Kind::VolumeAttachment, _) => Fetch::Attachments,
            _ => Fetch::Object(kind, key.clone()),
        };
        if let Some(running) = self.running.get_mut(&fetch) {
            running.newer.insert(key.clone());
        }
    }

    /// Notes that a request for an object is not needed any more.
    pub(crate) fn cancel(&mut self, kind: Kind, key: &ResourceKey) {
        if !self.waiting.is_empty() {
            self.waiting.remove(&Fetch::Object(kind, key.clone()));
        }
    }

    /// Notes that an object does not exist, or may not be read.
    pub(crate) fn note_absent(&mut self, key: ResourceKey) {
        self.absent.insert(key);
    }

    /// Forgets that an object does not exist, or may not be read.
    pub(crate) fn forget_absent(&mut self, key: &ResourceKey) {
        self.absent.remove(key);
    }

    /// Forgets absent objects that are not missing.
    pub(crate) fn retain_absent(&mut self, missing: &BTreeSet<ResourceKey>) {
        self.absent.retain(|key| missing.contains(key));
    }

    /// Whether no request waits or is on its way.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.running.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> ResourceKey {
        text.parse().expect("a key")
    }

    #[test]
    fn an_answer_names_what_a_watch_said_meanwhile() {
        let mut fetches = Fetches::default();
        let node: NodeName = "gw-1".parse().expect("a name");
        let fetch = Fetch::PodsOf(node.clone());
        fetches.add(fetch.clone());
        fetches.note(Kind::Pod, &key("d/pod/before"), Some(&node));
        assert_eq!(fetches.start(), Some(fetch.clone()));
        fetches.note(Kind::Pod, &key("d/pod/a"), Some(&node));
        fetches.note(Kind::Pod, &key("d/pod/b"), Some(&"gw-2".parse().expect("a name")));
        assert_eq!(fetches.end(&fetch), Some(HashSet::from([key("d/pod/a")])));
        assert!(fetches.is_empty());
    }

    #[test]
    fn an_answer_that_may_be_older_than_a_list_does_not_count() {
        let mut fetches = Fetches::default();
        fetches.add(Fetch::Attachments);
        assert_eq!(fetches.start(), Some(Fetch::Attachments));
        fetches.note_list(Kind::Pod);
        fetches.note_list(Kind::VolumeAttachment);
        assert_eq!(fetches.end(&Fetch::Attachments), None);
        assert_eq!(fetches.start(), Some(Fetch::Attachments));
        fetches.note_list(Kind::Pod);
        assert_eq!(fetches.end(&Fetch::Attachments), Some(HashSet::new()));
    }

    #[test]
    fn a_node_that_comes_again_is_requested_again_after_the_answer() {
        let mut fetches = Fetches::default();
        fetches.add(Fetch::Attachments);
        assert_eq!(fetches.start(), Some(Fetch::Attachments));
        fetches.add(Fetch::Attachments);
        assert_eq!(fetches.start(), None, "one at a time");
        fetches.end(&Fetch::Attachments);
        assert_eq!(fetches.start(), Some(Fetch::Attachments));
    }

    #[test]
    fn an_absent_object_is_requested_once_until_a_watch_speaks_of_it() {
        let mut fetches = Fetches::default();
        let (c, fetch) =
            (key("d/configmap/c"), Fetch::Object(Kind::ConfigMap, key("d/configmap/c")));
        fetches.note_absent(c.clone());
        fetches.add(fetch.clone());
        assert_eq!(fetches.start(), None);
        fetches.note(Kind::ConfigMap, &c, None);
        fetches.add(fetch.clone());
        assert_eq!(fetches.start(), Some(fetch));
    }

    #[test]
    fn at_most_a_number_of_requests_is_on_its_way() {
        let mut fetches = Fetches::default();
        for n in 0..2 * FETCHES_MAX {
            fetches.add(Fetch::Object(Kind::Secret, key(&format!("d/secret/s{n}"))));
        }
        let started: Vec<Fetch> = std::iter::from_fn(|| fetches.start()).collect();
        assert_eq!(started.len(), FETCHES_MAX);
        fetches.end(&started[0]);
        assert!(fetches.start().is_some());
    }
}
