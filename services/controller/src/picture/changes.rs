//! Which objects of the picture may have changed, so that a reader reads only those.
//!
//! The publisher changes the objects, the fold of reports changes the statuses. Both publish the
//! keys of what they changed once the change is visible. Subscribers never delay them: a subscriber
//! that is slow gets [`PictureChange::Everything`]. Changes of objects do not wake a subscriber to
//! reports alone.

use std::collections::BTreeSet;
use std::sync::Arc;

use headwater_event::{EntryKey, NodeName, ResourceKey, StreamId};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};

use crate::interest::EntryId;

/// Keys that a group names. A larger group means that anything may have changed: reading everything
/// then costs little more than reading each object.
const KEYS_MAX: usize = 1_024;

/// Groups kept for a subscriber that is busy. A subscriber that missed a group reads everything.
const KEPT_MAX: usize = 64;

/// The keys of a group; `None`: anything may have changed.
type Group = Option<Arc<[ResourceKey]>>;

/// What may have changed since a subscriber last asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PictureChange {
    /// These objects, and no others.
    Keys(BTreeSet<ResourceKey>),
    /// Anything: read everything.
    Everything,
}

/// Receives the changes since it was made.
#[derive(Debug)]
pub struct ChangeSubscription(broadcast::Receiver<Group>);

/// Sends changes to the subscribers.
#[derive(Clone, Debug)]
pub(crate) struct ChangeFeed {
    all: broadcast::Sender<Group>,
    /// What nodes report, and their presence.
    reports: broadcast::Sender<Group>,
    /// Whether the groups of this feed are of the objects of sources.
    is_of_objects: bool,
}

/// Changes that subscribers cannot see yet.
#[derive(Debug)]
pub(crate) struct ChangeGroup(Option<Vec<ResourceKey>>);

impl ChangeSubscription {
    /// Waits for a change, and returns all changes so far as one; `None` after the controller ended.
    /// Cancel-safe.
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
    /// A feed without subscribers, of what nodes report.
    pub(crate) fn new() -> Self {
        let (all, reports) = (broadcast::Sender::new(KEPT_MAX), broadcast::Sender::new(KEPT_MAX));
        Self { all, reports, is_of_objects: false }
    }

    /// The feed of the objects of sources, with the same subscribers.
    pub(crate) fn of_objects(&self) -> Self {
        Self { is_of_objects: true, ..self.clone() }
    }

    /// Subscribes to the changes from now on.
    pub(crate) fn subscribe(&self) -> ChangeSubscription {
        ChangeSubscription(self.all.subscribe())
    }

    /// Subscribes to the changes from now on, but for those of the objects of sources.
    pub(crate) fn subscribe_to_reports(&self) -> ChangeSubscription {
        ChangeSubscription(self.reports.subscribe())
    }

    /// Whether there is a subscriber.
    pub(crate) fn is_watched(&self) -> bool {
        self.all.receiver_count() > 0 || (!self.is_of_objects && self.reports.receiver_count() > 0)
    }

    /// Begins a group, before its first change is made. Without subscribers it stays empty.
    pub(crate) fn begin(&self) -> ChangeGroup {
        // A subscriber that comes before the group is published gets `Everything`.
        ChangeGroup(self.is_watched().then(Vec::new))
    }

    /// Publishes a group, whose changes are visible now.
    pub(crate) fn publish(&self, group: ChangeGroup) {
        if group.0.as_ref().is_none_or(|keys| !keys.is_empty()) {
            let group: Group = group.0.map(Arc::from);
            // Without subscribers the group is discarded.
            if !self.is_of_objects {
                let _ = self.reports.send(group.clone());
            }
            let _ = self.all.send(group);
        }
    }

    /// Publishes that anything may have changed.
    pub(crate) fn publish_everything(&self) {
        self.publish(ChangeGroup(None));
    }
}

impl ChangeGroup {
    /// Adds an object that may have changed.
    pub(crate) fn object(&mut self, key: &ResourceKey) {
        match &mut self.0 {
            Some(keys) if keys.len() < KEYS_MAX => keys.push(key.clone()),
            keys => *keys = None,
        }
    }

    /// Adds a node that may have changed.
    pub(crate) fn node(&mut self, node: &NodeName) {
        // Every node name makes a key.
        if self.0.is_some()
            && let Ok(key) = ResourceKey::new(None, "node", node.as_str())
        {
            self.object(&key);
        }
    }

    /// Adds the nodes whose streams a change opened or closed: the picture has a Node for each.
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

    fn publish(feed: &ChangeFeed, names: &[&str]) {
        let mut group = feed.begin();
        names.iter().for_each(|name| group.object(&key(name)));
        feed.publish(group);
    }

    fn received(changes: &mut ChangeSubscription) -> Option<PictureChange> {
        changes.next().now_or_never().map(|changed| changed.expect("the feed is there"))
    }

    #[test]
    fn a_subscriber_gets_all_changes_since_it_asked_as_one() {
        let feed = ChangeFeed::new();
        publish(&feed, &["before"]);
        let mut changes = feed.subscribe();
        assert_eq!(received(&mut changes), None);
        publish(&feed, &["a", "b"]);
        publish(&feed, &[]);
        publish(&feed, &["b", "c"]);
        let keys = ["a", "b", "c"].map(key).into();
        assert_eq!(received(&mut changes), Some(PictureChange::Keys(keys)));
        assert_eq!(received(&mut changes), None);
        drop(feed);
        assert_eq!(changes.next().now_or_never(), Some(None));
    }

    #[test]
    fn a_subscriber_that_comes_while_a_group_is_made_misses_none() {
        let feed = ChangeFeed::new();
        let mut group = feed.begin();
        group.object(&key("a"));
        let mut changes = feed.subscribe();
        feed.publish(group);
        assert_eq!(received(&mut changes), Some(PictureChange::Everything));
    }

    #[test]
    fn a_subscriber_to_reports_gets_no_changes_of_objects() {
        let feed = ChangeFeed::new();
        let (mut all, mut reports) = (feed.subscribe(), feed.subscribe_to_reports());
        let change = |name: &str| Some(PictureChange::Keys([key(name)].into()));
        publish(&feed.of_objects(), &["object"]);
        feed.of_objects().publish_everything();
        assert_eq!(received(&mut all), Some(PictureChange::Everything));
        assert_eq!(received(&mut reports), None);
        publish(&feed, &["report"]);
        assert_eq!(
            (received(&mut all), received(&mut reports)),
            (change("report"), change("report"))
        );
        drop(all);
        assert!(feed.is_watched() && !feed.of_objects().is_watched());
        publish(&feed, &["report"]);
        assert_eq!(received(&mut reports), change("report"));
    }

    #[test]
    fn more_than_is_kept_becomes_everything() {
        let feed = ChangeFeed::new();
        let mut changes = feed.subscribe();
        let names: Vec<String> = (0..=KEYS_MAX).map(|number| format!("p{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        publish(&feed, &names[1..]);
        let all = names[1..].iter().map(|name| key(name)).collect();
        assert_eq!(received(&mut changes), Some(PictureChange::Keys(all)));
        publish(&feed, &names);
        publish(&feed, &["a"]);
        assert_eq!(received(&mut changes), Some(PictureChange::Everything));
        (0..=KEPT_MAX).for_each(|_| publish(&feed, &["a"]));
        assert_eq!(received(&mut changes), Some(PictureChange::Everything));
        publish(&feed, &["a"]);
        assert_eq!(received(&mut changes), Some(PictureChange::Keys([key("a")].into())));
    }
}
