//! Watches: subscriptions to the view, each with a bounded queue of its own.
//!
//! Watches receive only durable changes. The replica never waits for a watch: one that does not keep
//! up is ended, and its subscriber watches again. Other watches are not affected.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use headwater_event::ResourceKey;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use crate::meta::cluster_consumers::ClusterWatch;
use crate::meta::object::Object;
use crate::meta::operation::Operation;
use crate::meta::routing::Group;
use crate::meta::worker::WorkerWatch;

/// The most items that wait for one watch: a burst of every object of a node, several times.
pub const WATCH_ITEMS_MAX: usize = 4_096;

/// The most bytes of objects that wait for one watch, without its listings. Watches share the
/// objects' memory, so this bounds what the slowest watch keeps alive.
pub const WATCH_BYTES_MAX: usize = 8 << 20;

/// The most open watches: each of the few programs of a node needs one.
pub const WATCHES_MAX: usize = 64;

/// The most listings that wait for one watch: the first, and one that an advance in parts caused
/// before the subscriber took the first. Each has the size of all that the watch sees.
const LISTINGS_MAX: usize = 2;

/// The bounds of watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchSettings {
    /// See [`WATCH_ITEMS_MAX`].
    pub items_max: usize,
    /// See [`WATCH_BYTES_MAX`].
    pub bytes_max: usize,
    /// See [`WATCHES_MAX`].
    pub watches_max: usize,
}

/// What a watch receives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WatchItem {
    /// All objects that the watch sees. If `complete`, the node has no others.
    Listing { objects: Vec<Object>, complete: bool },
    /// An object was added or changed.
    Applied { object: Object, traceparent: Option<String> },
    /// An object was removed.
    Removed { key: ResourceKey, uid: String, traceparent: Option<String> },
    /// An operation for the group.
    Operation(Operation),
}

/// Which objects a watch sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Filter {
    pub(crate) group: Group,
    /// Only these types; empty: all types of the group.
    pub(crate) types: Vec<String>,
    /// Only this namespace; `None`: every one.
    pub(crate) namespace: Option<String>,
}

/// The receiving end of a watch.
#[derive(Debug)]
pub(crate) struct Watch {
    items: mpsc::Receiver<WatchItem>,
    waiting: Arc<QueueUsage>,
    /// Counts the watch for as long as it is open.
    _count: Option<WatchCount>,
}

/// What the edge counts open watches for.
#[derive(Debug)]
#[expect(dead_code, reason = "each is held until the watch ends")]
pub(crate) enum WatchCount {
    /// The watch reads the shared stream.
    Cluster(ClusterWatch),
    /// The watch is that of the pod worker.
    Worker(WorkerWatch),
}

/// How full the queue of a watch is.
#[derive(Debug, Default)]
struct QueueUsage {
    bytes: AtomicUsize,
    listings: AtomicUsize,
}

/// The number of open watches is at its bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} watches are open, which is the most; end one first")]
pub(crate) struct TooManyWatches(usize);

/// The sending ends of all watches. The owner of the replica holds them.
#[derive(Debug)]
pub(crate) struct Watchers {
    settings: WatchSettings,
    watchers: Vec<Watcher>,
    /// How many watches were ended because they lagged.
    lagged: Arc<AtomicU64>,
}

#[derive(Debug)]
struct Watcher {
    filter: Filter,
    items: mpsc::Sender<WatchItem>,
    waiting: Arc<QueueUsage>,
    lagged: Arc<AtomicU64>,
}

impl Default for WatchSettings {
    fn default() -> Self {
        Self { items_max: WATCH_ITEMS_MAX, bytes_max: WATCH_BYTES_MAX, watches_max: WATCHES_MAX }
    }
}

impl Filter {
    /// Whether the watch sees objects under `key`.
    pub(crate) fn sees(&self, key: &ResourceKey) -> bool {
        self.sees_type(key.kind())
            && self.namespace.as_deref().is_none_or(|namespace| key.namespace() == Some(namespace))
    }

    fn sees_type(&self, kind: &str) -> bool {
        self.group.sees(kind)
            && (self.types.is_empty() || self.types.iter().any(|of_watch| of_watch == kind))
    }
}

impl Watch {
    /// Counts the watch until it ends.
    pub(crate) fn counted(self, count: Option<WatchCount>) -> Self {
        Self { _count: count, ..self }
    }

    /// Waits for the next item; `None`: the watch did not keep up, or the edge stops.
    pub(crate) async fn next(&mut self) -> Option<WatchItem> {
        let item = self.items.recv().await?;
        self.waiting.take(&item);
        Some(item)
    }
}

#[cfg(test)]
impl Watch {
    /// The next item in the queue.
    pub(crate) fn try_next(&mut self) -> Option<WatchItem> {
        let item = self.items.try_recv().ok()?;
        self.waiting.take(&item);
        Some(item)
    }
}

impl Watchers {
    pub(crate) fn new(settings: WatchSettings) -> Self {
        Self { settings, watchers: Vec::new(), lagged: Arc::default() }
    }

    /// Opens a watch whose first item is `listing`.
    pub(crate) fn open(
        &mut self,
        filter: Filter,
        listing: WatchItem,
    ) -> Result<Watch, TooManyWatches> {
        self.watchers.retain(|watcher| !watcher.items.is_closed());
        if self.watchers.len() >= self.settings.watches_max {
            return Err(TooManyWatches(self.watchers.len()));
        }
        let (sender, items) = mpsc::channel(self.settings.items_max.max(1));
        let waiting = Arc::new(QueueUsage::default());
        let lagged = Arc::clone(&self.lagged);
        let watcher = Watcher { filter, items: sender, waiting: Arc::clone(&waiting), lagged };
        if watcher.send(listing, &self.settings) {
            self.watchers.push(watcher);
        }
        Ok(Watch { items, waiting, _count: None })
    }

    /// How many watches are open. A watch that its subscriber dropped counts until the next item.
    pub(crate) fn len(&self) -> usize {
        self.watchers.len()
    }

    /// How many watches were ended because they lagged, since the start.
    pub(crate) fn lagged(&self) -> u64 {
        self.lagged.load(Ordering::Relaxed)
    }

    /// Sends an item to every watch that sees `key`.
    pub(crate) fn send(&mut self, key: &ResourceKey, item: &WatchItem) {
        let settings = self.settings;
        self.watchers
            .retain(|watcher| !watcher.filter.sees(key) || watcher.send(item.clone(), &settings));
    }

    /// Sends every watch the listing of its filter.
    pub(crate) fn list<E>(
        &mut self,
        mut listing: impl FnMut(&Filter) -> Result<WatchItem, E>,
    ) -> Result<(), E> {
        let mut kept = Vec::with_capacity(self.watchers.len());
        for watcher in self.watchers.drain(..) {
            if watcher.send(listing(&watcher.filter)?, &self.settings) {
                kept.push(watcher);
            }
        }
        self.watchers = kept;
        Ok(())
    }

    /// Delivers an operation to the watches of a group. Returns how many took it.
    pub(crate) fn deliver(&mut self, group: Group, operation: &Operation) -> usize {
        let (settings, mut taken) = (self.settings, 0);
        self.watchers.retain(|watcher| {
            if watcher.filter.group != group {
                return true;
            }
            let took = watcher.send(WatchItem::Operation(operation.clone()), &settings);
            taken += usize::from(took);
            took
        });
        taken
    }
}

impl Watcher {
    /// Queues an item. False: the subscriber has left, or the watch is ended because it lags.
    fn send(&self, item: WatchItem, settings: &WatchSettings) -> bool {
        let queued = self.waiting.add(&item, settings.bytes_max)
            && match self.items.try_send(item) {
                Ok(()) => true,
                Err(TrySendError::Closed(_)) => return false,
                Err(TrySendError::Full(_)) => false,
            };
        if !queued {
            self.lagged.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(group = %self.filter.group, "a watch lags and is ended");
        }
        queued
    }
}

impl QueueUsage {
    /// Counts an item before it is sent, because the receiver subtracts it as soon as it arrives.
    /// False: there is no room.
    fn add(&self, item: &WatchItem, bytes_max: usize) -> bool {
        if matches!(item, WatchItem::Listing { .. }) {
            // A listing is needed whole, whatever its size.
            return self.listings.fetch_add(1, Ordering::Relaxed) < LISTINGS_MAX;
        }
        let bytes = item.bytes();
        self.bytes.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) <= bytes_max
    }

    fn take(&self, item: &WatchItem) {
        if matches!(item, WatchItem::Listing { .. }) {
            self.listings.fetch_sub(1, Ordering::Relaxed);
        }
        self.bytes.fetch_sub(item.bytes(), Ordering::Relaxed);
    }
}

impl WatchItem {
    /// The bytes that count against the bound.
    fn bytes(&self) -> usize {
        match self {
            Self::Listing { .. } | Self::Removed { .. } => 0,
            Self::Applied { object, .. } => object.object.len(),
            Self::Operation(operation) => operation.content.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: WatchSettings = WatchSettings { items_max: 3, bytes_max: 10, watches_max: 2 };

    fn all_of(group: Group) -> Filter {
        Filter { group, types: Vec::new(), namespace: None }
    }

    fn listing() -> WatchItem {
        WatchItem::Listing { objects: Vec::new(), complete: true }
    }

    fn key(text: &str) -> ResourceKey {
        text.parse().expect("a key")
    }

    fn applied(text: &str, bytes: usize) -> (ResourceKey, WatchItem) {
        let object = Object {
            key: key(text),
            uid: "u".to_owned(),
            resource_version: "1".to_owned(),
            object: vec![b'x'; bytes].into(),
        };
        (key(text), WatchItem::Applied { object, traceparent: None })
    }

    #[test]
    fn a_filter_sees_its_group_types_and_namespace() {
        let mut filter = all_of(Group::Edged);
        assert!(filter.sees(&key("a/pod/x")) && filter.sees(&key("null/node/x")));
        assert!(!filter.sees(&key("a/service/x")), "that is the mesh's");
        filter.namespace = Some("a".to_owned());
        assert!(filter.sees(&key("a/pod/x")));
        assert!(!filter.sees(&key("b/pod/x")) && !filter.sees(&key("null/node/x")));
        filter.types = vec!["pod".to_owned(), "service".to_owned()];
        assert!(!filter.sees(&key("a/secret/x")) && !filter.sees(&key("a/service/x")));
    }

    #[tokio::test]
    async fn a_watch_that_lags_is_ended_and_no_other() {
        let mut watchers = Watchers::new(SMALL);
        let mut slow = watchers.open(all_of(Group::Edged), listing()).expect("room");
        let mut quick = watchers.open(all_of(Group::Edged), listing()).expect("room");
        assert_eq!(quick.next().await, Some(listing()));
        for turn in 0..4 {
            let (key, item) = applied("a/pod/x", 2);
            watchers.send(&key, &item);
            assert_eq!(quick.next().await, Some(item), "turn {turn}");
        }
        let mut seen = 0;
        while slow.next().await.is_some() {
            seen += 1;
        }
        assert_eq!(seen, 3, "the listing and two changes fit its queue; then it ended");
    }

    #[tokio::test]
    async fn bytes_that_wait_are_bounded_until_they_are_taken() {
        let mut watchers = Watchers::new(SMALL);
        let mut watch = watchers.open(all_of(Group::Edged), listing()).expect("room");
        watch.next().await.expect("the listing");
        let (key, item) = applied("a/pod/x", 8);
        for _ in 0..3 {
            watchers.send(&key, &item);
            assert_eq!(watch.next().await, Some(item.clone()));
        }
        watchers.send(&key, &item);
        watchers.send(&key, &item);
        assert_eq!(watch.next().await, Some(item));
        assert_eq!(watch.next().await, None, "16 bytes are more than 10");
    }

    #[tokio::test]
    async fn listings_that_wait_are_bounded() {
        let mut watchers = Watchers::new(SMALL);
        let mut watch = watchers.open(all_of(Group::Edged), listing()).expect("room");
        let list = |watchers: &mut Watchers| {
            watchers.list(|_| Ok::<_, std::convert::Infallible>(listing())).expect("lists");
        };
        list(&mut watchers);
        for _ in 0..2 {
            assert_eq!(watch.next().await, Some(listing()));
        }
        for _ in 0..3 {
            list(&mut watchers);
        }
        for _ in 0..2 {
            assert_eq!(watch.next().await, Some(listing()));
        }
        assert_eq!(watch.next().await, None, "a third would be too much");
    }

    #[test]
    fn watches_are_bounded_and_the_ended_do_not_count() {
        let mut watchers = Watchers::new(SMALL);
        let first = watchers.open(all_of(Group::Edged), listing()).expect("room");
        let _second = watchers.open(all_of(Group::Mesh), listing()).expect("room");
        let refused = watchers.open(all_of(Group::Mesh), listing()).expect_err("no room");
        assert_eq!(refused, TooManyWatches(2));
        drop(first);
        watchers.open(all_of(Group::Mesh), listing()).expect("room again");
    }
}
