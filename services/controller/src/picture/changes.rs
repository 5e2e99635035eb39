//! Which objects of the picture may have changed, so that who watches it looks at those alone.
//!
//! Both halves of the picture, the sources' and the reports', tell here what they changed once it
//! can be seen. While nobody watches nothing is group.

use std::collections::BTreeSet;
use std::sync::Arc;

use headwater_event::{EntryKey, NodeName, ResourceKey, StreamId};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};

use crate::interest::EntryId;

/// Keys that are told at once by name. A group of more says that anything may have changed: to
/// look at everything is then little more than to look at them one by one.
const KEYS_MAX: usize = 1_024;

/// Groups kept for a watch that does not ask just now; one that missed some looks at everything.
const KEPT_MAX: usize = 64;

/// Keys of a group; `None`: anything may have changed.
type Group = Option<Arc<[ResourceKey]>>;

/// What may have changed since it was asked last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PictureChange {
    /// These, and nothing else.
    Keys(BTreeSet<ResourceKey>),
    /// Anything.
    Everything,
}

/// Hears what changes from when it was asked for.
#[derive(Debug)]
pub struct ChangeSubscription(broadcast::Receiver<Group>);

/// Where changes are told.
#[derive(Clone, Debug)]
pub(crate) struct ChangeFeed(broadcast::Sender<Group>);

/// ChangeSubscription that cannot be seen yet.
#[derive(Debug)]
pub(crate) struct ChangeGroup(Option<Vec<ResourceKey>>);

impl ChangeSubscription {
    /// Waits for a change; gives all that there are by then. `None`: there will be no more. To
    /// give up the wait loses nothing.
    pub async fn next(&mut self) -> Option<PictureChange> {
        let mut changed = PictureChange::Keys(BTreeSet::new());
        changed.add(match self.0.recv().await {
            Ok(group) => group,
            Err(RecvError::Lagged(_)) => None,
            Err(RecvError::Closed) => return None,
        });
        loop {
            changed.add(match self.0.try_recv() {
                Ok(group) => group,
                Err(TryRecvError::Lagged(_)) => None,
                Err(TryRecvError::Empty | TryRecvError::Closed) => return Some(changed),
            });
        }
    }
}

impl PictureChange {
    fn add(&mut self, group: Group) {
        match (group, self) {
            (Some(group), Self::Keys(keys)) => keys.extend(group.iter().cloned()),
            (Some(_), Self::Everything) => {}
            (None, changed) => *changed = Self::Everything,
        }
    }
}

impl ChangeFeed {
    /// Nobody listens yet.
    pub(crate) fn new() -> Self {
        Self(broadcast::Sender::new(KEPT_MAX))
    }

    /// Hears what is told from now on.
    pub(crate) fn subscribe(&self) -> ChangeSubscription {
        ChangeSubscription(self.0.subscribe())
    }

    /// Begins to gather changes, before the first is made.
    pub(crate) fn begin(&self) -> ChangeGroup {
        // Who comes in between hears that anything may have changed.
        ChangeGroup((self.0.receiver_count() > 0).then(Vec::new))
    }

    /// Tells what was group, now that it can be seen.
    pub(crate) fn publish(&self, group: ChangeGroup) {
        if group.0.as_ref().is_none_or(|keys| !keys.is_empty()) {
            // Without anybody who listens there is nobody to tell.
            let _ = self.0.send(group.0.map(Arc::from));
        }
    }

    /// Tells that anything may have changed.
    pub(crate) fn publish_everything(&self) {
        self.publish(ChangeGroup(None));
    }
}

impl ChangeGroup {
    /// The object at `key` may have changed.
    pub(crate) fn object(&mut self, key: &ResourceKey) {
        match &mut self.0 {
            Some(keys) if keys.len() < KEYS_MAX => keys.push(key.clone()),
            keys => *keys = None,
        }
    }

    /// What is shown of `node` may have changed.
    pub(crate) fn node(&mut self, node: &NodeName) {
        // Every node name makes a key.
        if self.0.is_some()
            && let Ok(key) = ResourceKey::new(None, "node", node.as_str())
        {
            self.object(&key);
        }
    }

    /// The nodes whose streams came or went by a change: they are shown for as long.
    pub(crate) fn nodes_of(&mut self, affected: &[EntryId]) {
        for entry in affected {
            if let (StreamId::Node(node), EntryKey::Streams) = (&entry.stream, &entry.key) {
                self.node(node);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn key(name: &str) -> ResourceKey {
        format!("d/pod/{name}").parse().expect("a key")
    }

    fn tell(feed: &ChangeFeed, names: &[&str]) {
        let mut group = feed.begin();
        names.iter().for_each(|name| group.object(&key(name)));
        feed.publish(group);
    }

    fn heard(changes: &mut ChangeSubscription) -> Option<PictureChange> {
        changes.next().now_or_never().map(|changed| changed.expect("the feed is there"))
    }

    #[test]
    fn all_that_changed_meanwhile_is_heard_at_once() {
        let feed = ChangeFeed::new();
        tell(&feed, &["nobody-hears"]);
        let mut changes = feed.subscribe();
        assert_eq!(heard(&mut changes), None);
        tell(&feed, &["a", "b"]);
        tell(&feed, &[]);
        tell(&feed, &["b", "c"]);
        let keys = ["a", "b", "c"].map(key).into();
        assert_eq!(heard(&mut changes), Some(PictureChange::Keys(keys)));
        assert_eq!(heard(&mut changes), None);
        drop(feed);
        assert_eq!(changes.next().now_or_never(), Some(None));
    }

    #[test]
    fn who_comes_while_changes_are_gathered_misses_none() {
        let feed = ChangeFeed::new();
        let mut group = feed.begin();
        group.object(&key("a"));
        let mut changes = feed.subscribe();
        feed.publish(group);
        assert_eq!(heard(&mut changes), Some(PictureChange::Everything));
    }

    #[test]
    fn more_than_is_kept_is_anything() {
        let feed = ChangeFeed::new();
        let mut changes = feed.subscribe();
        let names: Vec<String> = (0..=KEYS_MAX).map(|number| format!("p{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        tell(&feed, &names[1..]);
        let all = names[1..].iter().map(|name| key(name)).collect();
        assert_eq!(heard(&mut changes), Some(PictureChange::Keys(all)));
        tell(&feed, &names);
        tell(&feed, &["a"]);
        assert_eq!(heard(&mut changes), Some(PictureChange::Everything));
        (0..=KEPT_MAX).for_each(|_| tell(&feed, &["a"]));
        assert_eq!(heard(&mut changes), Some(PictureChange::Everything));
        tell(&feed, &["a"]);
        assert_eq!(heard(&mut changes), Some(PictureChange::Keys([key("a")].into())));
    }
}
