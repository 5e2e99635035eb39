//! The objects of one kind that the controller has, and what of a new list or an event is news to it.
//!
//! Of each object there is a digest, not the object: some 200 bytes.

use std::collections::HashMap;

use headwater_event::{NodeName, ResourceKey};
use headwater_object::Object;

/// The objects of a kind that were sent and not deleted.
#[derive(Debug, Default)]
pub(crate) struct KindObjects {
    sent: HashMap<ResourceKey, SentObject>,
    /// The number of the newest list.
    list: u32,
    phase: Phase,
}

/// How far the first list of a kind is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It has not begun.
    #[default]
    Unlisted,
    /// It has begun.
    Listing,
    /// It was complete once.
    Listed,
}

/// What of a sent object decides about the next one of its key.
#[derive(Debug)]
struct SentObject {
    uid: Box<str>,
    payload: blake3::Hash,
    node: Option<NodeName>,
    /// The newest list that has it, from 1.
    list: u32,
    /// The order of the version that was requested by itself. Events until then are old.
    requested: Option<u64>,
    /// When it was sent, in milliseconds.
    sent_ms: u64,
    /// Whether some stream was seen to name it.
    was_used: bool,
}

/// Where an object came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A list or a watch.
    Watch,
    /// A request for it.
    Request,
}

impl KindObjects {
    /// How far the first list is.
    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    /// Whether an object was sent and not deleted.
    pub(crate) fn has(&self, key: &ResourceKey) -> bool {
        self.sent.contains_key(key)
    }

    /// When an object was sent.
    pub(crate) fn sent_ms(&self, key: &ResourceKey) -> Option<u64> {
        self.sent.get(key).map(|sent| sent.sent_ms)
    }

    /// How many objects were sent and not deleted.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.sent.len()
    }

    /// Begins a list. A list that was not complete counts for nothing.
    pub(crate) fn begin_list(&mut self) {
        self.list += 1;
        if self.phase == Phase::Unlisted {
            self.phase = Phase::Listing;
        }
    }

    /// Ends a list, of the state at the version `order`: returns the objects that it did not have, with
    /// their UIDs, and forgets them. An object that was requested stays if it is newer than the list.
    pub(crate) fn end_list(&mut self, order: Option<u64>) -> Vec<(ResourceKey, String)> {
        self.phase = Phase::Listed;
        let list = self.list;
        let is_newer = |sent: &SentObject| {
            sent.requested.zip(order).is_some_and(|(requested, order)| requested > order)
        };
        let is_gone = |sent: &SentObject| sent.list != list && !is_newer(sent);
        let mut gone: Vec<_> = self.sent.extract_if(|_, sent| is_gone(sent)).collect();
        gone.sort_by(|(a, _), (b, _)| a.cmp(b));
        gone.into_iter().map(|(key, sent)| (key, sent.uid.into())).collect()
    }

    /// Notes that the newest list has an object, though it cannot be carried as it is now. What was
    /// sent of it before stays.
    pub(crate) fn note_listed(&mut self, key: &ResourceKey) {
        if let Some(sent) = self.sent.get_mut(key) {
            sent.list = self.list;
        }
    }

    /// Whether an object of a watch is older than what was sent.
    pub(crate) fn is_old(&self, key: &ResourceKey, order: Option<u64>) -> bool {
        let requested = self.sent.get(key).and_then(|sent| sent.requested);
        requested.is_some_and(|requested| order.is_some_and(|order| order < requested))
    }

    /// Notes an object that is to be sent; `false` where it was sent as it is.
    pub(crate) fn note(
        &mut self,
        object: &Object,
        origin: Origin,
        order: Option<u64>,
        now_ms: u64,
    ) -> bool {
        let payload = blake3::hash(object.payload());
        let requested = order.filter(|_| origin == Origin::Request);
        let list = match (origin, self.sent.get(object.key())) {
            (Origin::Watch, _) => self.list,
            (Origin::Request, Some(sent)) => sent.list,
            (Origin::Request, None) => 0,
        };
        if let Some(sent) = self.sent.get_mut(object.key())
            && *sent.uid == *object.uid()
            && sent.payload == payload
            && origin == Origin::Watch
        {
            sent.list = self.list;
            sent.requested = None;
            return false;
        }
        let sent = SentObject {
            uid: object.uid().into(),
            payload,
            node: object.node().cloned(),
            list,
            requested,
            sent_ms: now_ms,
            was_used: self.sent.get(object.key()).is_some_and(|sent| sent.was_used),
        };
        self.sent.insert(object.key().clone(), sent);
        true
    }

    /// Forgets an object that was deleted. `false` where it was not sent, or was made again since, with
    /// another UID.
    pub(crate) fn delete(&mut self, key: &ResourceKey, uid: &str) -> bool {
        let is_sent = self.sent.get(key).is_some_and(|sent| *sent.uid == *uid);
        if is_sent {
            self.sent.remove(key);
        }
        is_sent
    }

    /// Forgets the objects of a node: returns them with their UIDs, in order.
    pub(crate) fn take_node(&mut self, node: &NodeName) -> Vec<(ResourceKey, String)> {
        let mut taken: Vec<_> =
            self.sent.extract_if(|_, sent| sent.node.as_ref() == Some(node)).collect();
        taken.sort_by(|(a, _), (b, _)| a.cmp(b));
        taken.into_iter().map(|(key, sent)| (key, sent.uid.into())).collect()
    }

    /// Forgets the objects that were used and are not any more. The controller has forgotten them.
    pub(crate) fn forget_unused(&mut self, is_used: impl Fn(&ResourceKey) -> bool) {
        self.sent.retain(|key, sent| {
            let is_used = is_used(key);
            let stays = is_used || !sent.was_used;
            sent.was_used = is_used;
            stays
        });
    }

    /// Forgets which versions were requested, because the history of the API went back.
    pub(crate) fn forget_versions(&mut self) {
        self.sent.values_mut().for_each(|sent| sent.requested = None);
    }
}
