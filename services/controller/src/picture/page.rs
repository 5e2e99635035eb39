//! One page of a list of the picture. A list of any size takes the memory of a page, and the
//! publisher waits for no more than the keys of one, or one object.
//!
//! What takes time needs no lock of the publisher: a page is outlined first, and then filled.

use std::collections::BTreeSet;

use headwater_event::{NodeName, ResourceKey};
use headwater_store::{EngineError, Json, Read};
use serde_json::Value;

use super::merge::merge;
use super::node_event::is_expired;
use super::tables::{EVENTS, NODES};
use super::{Filter, Picture, bare_node, key_of_node};
use crate::packed::PackedObject;

/// Keys that one page visits, selected or not: bounds how long the interest is locked. A page visits few that it does
/// not select, see [`Filter::visited_keys`].
const PAGE_KEYS_MAX: usize = 1024;

/// Objects of one page.
const PAGE_OBJECTS_MAX: usize = 256;

/// Bytes of the objects of one page, as their sources have them; one object may exceed it.
const PAGE_BYTES_MAX: usize = 1 << 20;

/// What the keys of nodes begin with.
const FIRST_NODE_KEY: &str = "null/node/";

/// One page of a list.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PicturePage {
    /// The objects in key order, with their statuses.
    pub objects: Vec<(ResourceKey, Value)>,
    /// The key after which the next page begins; `None` after the last page.
    pub next: Option<ResourceKey>,
}

/// The next page of a list, before its objects are read: all that the lock of the publisher is for.
#[derive(Debug)]
pub struct PageOutline {
    /// The selected keys, with the objects that the sources have of them.
    entries: Vec<(ResourceKey, Option<PackedObject>)>,
    /// The key after which the page behind the last entry begins.
    next: Option<ResourceKey>,
}

impl PageOutline {
    /// The key after which the next page begins, where this one selects nothing and others may.
    pub fn skips_to(&self) -> Option<&ResourceKey> {
        self.next.as_ref().filter(|_| self.entries.is_empty())
    }

    /// Whether the page is [filled](Picture::fill) without a lock that others wait for. A Node takes that of the presence, and an
    /// Event that of the publisher, each for a moment: at a low priority the moment may be long.
    pub fn takes_no_lock(&self) -> bool {
        self.entries.iter().all(|(key, _)| !matches!(key.kind(), "node" | "event"))
    }
}

impl Picture {
    /// The objects that `filter` selects after the key `after`, as they are now: the next page of a
    /// list. A page without objects may have a next one. `now_ms` decides which nodes are
    /// reachable.
    ///
    /// # Errors
    /// When the picture cannot be read.
    pub fn page(
        &self,
        filter: &Filter<'_>,
        after: Option<&ResourceKey>,
        now_ms: i64,
    ) -> Result<PicturePage, EngineError> {
        self.fill(self.outline(filter, after)?, now_ms)
    }

    /// The first and short part of [`Picture::page`]. The publisher waits for it.
    ///
    /// # Errors
    /// When the picture cannot be read.
    pub fn outline(
        &self,
        filter: &Filter<'_>,
        after: Option<&ResourceKey>,
    ) -> Result<PageOutline, EngineError> {
        let mut keys = self.keys(&*self.engine, filter, after)?;
        let mut next = None;
        if keys.len() > PAGE_KEYS_MAX {
            keys.pop_last();
            next = keys.last().cloned();
        }
        let mut keys = keys.into_iter().filter(|key| filter.matches(key));
        // The publisher waits for one object at a time.
        let packed = |key: ResourceKey| {
            let object = self.interest.read().packed(&key).cloned();
            (key, object)
        };
        let entries: Vec<_> = keys.by_ref().take(PAGE_OBJECTS_MAX).map(packed).collect();
        if keys.next().is_some() {
            next = entries.last().map(|(key, _)| key.clone());
        }
        Ok(PageOutline { entries, next })
    }

    /// The second and long part of [`Picture::page`], which may run at a low priority if it
    /// [takes no lock](PageOutline::takes_no_lock): no publisher waits for it.
    ///
    /// # Errors
    /// When the picture cannot be read.
    pub fn fill(&self, outline: PageOutline, now_ms: i64) -> Result<PicturePage, EngineError> {
        let from = self.engine.snapshot();
        let mut objects = Vec::new();
        let (mut bytes, mut last) = (0, None);
        let mut entries = outline.entries.into_iter();
        while bytes < PAGE_BYTES_MAX
            && let Some((key, object)) = entries.next()
        {
            last = Some(key.clone());
            if key.kind() == "event" {
                let Some(Json(report)) = EVENTS.get(&*from, &key)? else { continue };
                bytes += report.object.len();
                let is_expired = is_expired(report.logged_ms, now_ms);
                let event = (!is_expired).then(|| self.node_event(key.clone(), report)).flatten();
                objects.extend(event.map(|event| (key, event.event)));
                continue;
            }
            let mut value = match object {
                Some(object) => {
                    let object = object.unpack();
                    bytes += object.payload().len();
                    object.versioned_value()
                }
                None if key.kind() == "node" => bare_node(key.name()),
                // It has gone meanwhile.
                None => continue,
            };
            merge(&*from, &self.presence, &key, &mut value, now_ms)?;
            objects.push((key, value));
        }
        let next = match entries.next() {
            Some(_) => last,
            None => outline.next,
        };
        Ok(PicturePage { objects, next })
    }

    /// The next keys after `after`, one more than a page visits if there are so many: those of objects,
    /// and of nodes that no source describes.
    fn keys(
        &self,
        from: &dyn Read,
        filter: &Filter<'_>,
        after: Option<&ResourceKey>,
    ) -> Result<BTreeSet<ResourceKey>, EngineError> {
        let max = PAGE_KEYS_MAX + 1;
        if filter.kind == "event" {
            let events = EVENTS.chunk(from, after, max)?;
            return Ok(events.into_iter().map(|(key, _)| key).collect());
        }
        let mut keys = {
            let interest = self.interest.read();
            filter.visited_keys(|start| interest.keys_from(start), after, max)
        };
        if filter.selects_nodes()
            && let Some(after) = node_after(after)
        {
            let nodes = self.selected_nodes(from, filter, after.as_ref(), max)?;
            keys.extend(nodes.iter().filter_map(key_of_node));
        }
        // Each part has the smallest of its keys, so the smallest of all are complete.
        Ok(keys.into_iter().take(max).collect())
    }

    /// The next nodes after `after` that the filter selects: those with a report or a stream.
    fn selected_nodes(
        &self,
        from: &dyn Read,
        filter: &Filter<'_>,
        after: Option<&NodeName>,
        max: usize,
    ) -> Result<BTreeSet<NodeName>, EngineError> {
        if filter.name.is_empty() {
            let reported = NODES.chunk(from, after, max)?.into_iter().map(|(node, _)| node);
            let mut nodes: BTreeSet<NodeName> = reported.collect();
            nodes.extend(self.interest.read().nodes_after(after).take(max).cloned());
            return Ok(nodes);
        }
        let node = filter.name.parse::<NodeName>().ok();
        let Some(node) = node.filter(|node| after.is_none_or(|after| node > after)) else {
            return Ok(BTreeSet::new());
        };
        let is_known = self.interest.read().has_stream(&node) || NODES.get(from, &node)?.is_some();
        Ok(is_known.then_some(node).into_iter().collect())
    }
}

/// After which node the nodes behind the key `after` begin, `None` for the first; `None` when no
/// node is behind it.
#[expect(clippy::option_option, reason = "the caller skips the nodes, or starts at the first")]
fn node_after(after: Option<&ResourceKey>) -> Option<Option<NodeName>> {
    let Some(after) = after else { return Some(None) };
    if after.namespace().is_none() && after.kind() == "node" {
        return after.name().parse().ok().map(Some);
    }
    (after.as_str() < FIRST_NODE_KEY).then_some(None)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use headwater_event::{Cursor, LeaderEpoch, Offset, Partition, TopicId};
    use headwater_object::Object;
    use headwater_store::{Batch, Durability, Folded, MemoryEngine};
    use serde_json::json;

    use super::*;
    use crate::interest::SharedInterest;
    use crate::picture::PresenceReceiver;
    use crate::picture::changes::ChangeFeed;
    use crate::picture::tables::NodeReport;
    use crate::source::SharedWorkloads;

    fn config(name: &str, bytes: usize) -> Object {
        config_in("d", name, bytes)
    }

    fn config_in(namespace: &str, name: &str, bytes: usize) -> Object {
        Object::from_value(json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": namespace, "uid": name},
            "data": {"k": "x".repeat(bytes)},
        }))
        .expect("an object")
    }

    /// ConfigMaps before and behind the nodes in key order, nodes with a stream, and nodes that only
    /// reported themselves.
    fn picture(count: usize, bytes: usize) -> (Picture, Vec<String>) {
        let interest = SharedInterest::default();
        let engine = Arc::new(MemoryEngine::new());
        let mut batch = Batch::<Folded>::new();
        let mut keys = Vec::new();
        for number in 0..count {
            let object = config(&format!("c{number}"), bytes);
            keys.push(object.key().to_string());
            interest.write().apply(object);
            let declared: NodeName = format!("a{number}").parse().expect("a name");
            interest.write().declare(&declared);
            let reported: NodeName = format!("b{number}").parse().expect("a name");
            let report = NodeReport {
                id: Default::default(),
                object: "{}".into(),
                first_ms: 0,
                partition: None,
            };
            batch.put(&NODES, &reported, &Json(report));
            keys.extend([declared, reported].map(|node| format!("null/node/{node}")));
        }
        let cursor = Cursor {
            partition: Partition(0),
            next: Offset(0),
            leader_epoch: LeaderEpoch::default(),
            topic: TopicId(uuid::Uuid::nil()),
        };
        batch.commit(&*engine, &[cursor], Durability::Buffered).expect("written");
        keys.sort();
        let (changes, presence) = (ChangeFeed::new(), PresenceReceiver::new(ChangeFeed::new()));
        let workloads = SharedWorkloads::default();
        (Picture::new(interest, engine, changes, presence, workloads), keys)
    }

    fn pages(picture: &Picture, filter: &Filter<'_>) -> Vec<PicturePage> {
        let mut pages: Vec<PicturePage> = Vec::new();
        loop {
            let after = pages.last().and_then(|page| page.next.clone());
            pages.push(picture.page(filter, after.as_ref(), 0).expect("readable"));
            if pages.last().is_some_and(|page| page.next.is_none()) {
                return pages;
            }
        }
    }

    fn keys(pages: &[PicturePage]) -> Vec<String> {
        pages.iter().flat_map(|page| &page.objects).map(|(key, _)| key.to_string()).collect()
    }

    #[test]
    fn the_pages_of_a_list_have_every_object_once_in_key_order() {
        let (picture, all) = picture(1500, 10);
        for (filter, expected) in [
            (Filter::default(), all.iter().collect::<Vec<_>>()),
            (
                Filter { kind: "node", ..Filter::default() },
                all.iter().filter(|key| key.contains("/node/")).collect(),
            ),
            (
                Filter { kind: "configmap", namespace: "d", name: "" },
                all.iter().filter(|key| key.contains("/configmap/")).collect(),
            ),
            (
                Filter { name: "b7", ..Filter::default() },
                all.iter().filter(|key| *key == "null/node/b7").collect(),
            ),
            (Filter { kind: "pod", ..Filter::default() }, Vec::new()),
        ] {
            let pages = pages(&picture, &filter);
            assert_eq!(keys(&pages).iter().collect::<Vec<_>>(), expected, "{filter:?}");
            assert!(pages.iter().all(|page| page.objects.len() <= PAGE_OBJECTS_MAX), "{filter:?}");
        }
    }

    #[test]
    fn a_page_is_filled_while_the_publisher_has_the_interest() {
        let (picture, _) = picture(5, 10);
        let filter = Filter { kind: "configmap", ..Filter::default() };
        let outline = picture.outline(&filter, None).expect("readable");
        let publishing = picture.interest.write();
        let page = picture.fill(outline, 0).expect("readable");
        drop(publishing);
        assert_eq!(page, picture.page(&filter, None, 0).expect("readable"));
        assert_eq!(page.objects.len(), 5);
    }

    #[test]
    fn an_outline_without_a_selected_key_leads_to_the_next_one() {
        let (picture, _) = picture(0, 1);
        // A search visits a key of each namespace.
        for number in 0..PAGE_KEYS_MAX + 2 {
            picture.interest.write().apply(config_in(&format!("n{number}"), "c", 1));
        }
        picture.interest.write().apply(config_in("z", "wanted", 1));
        let filter = Filter { kind: "configmap", name: "wanted", ..Filter::default() };
        let mut after = None;
        let mut outlines = 0;
        let outline = loop {
            let outline = picture.outline(&filter, after.as_ref()).expect("readable");
            outlines += 1;
            match outline.skips_to() {
                Some(next) => after = Some(next.clone()),
                None => break outline,
            }
        };
        let page = picture.fill(outline, 0).expect("readable");
        assert!(outlines > 1 && page.objects.len() == 1, "{outlines}: {page:?}");
    }

    #[test]
    fn large_objects_make_small_pages() {
        let bytes = PAGE_BYTES_MAX / 4;
        let (picture, all) = picture(9, bytes);
        let pages = pages(&picture, &Filter { kind: "configmap", ..Filter::default() });
        assert_eq!(keys(&pages).len(), 9);
        assert!(all.len() == 27 && pages.iter().all(|page| page.objects.len() <= 4));
    }

    #[test]
    fn an_object_behind_a_page_that_goes_or_comes_meanwhile_is_as_it_is_then() {
        let (picture, _) = picture(300, 10);
        let filter = Filter { kind: "configmap", ..Filter::default() };
        let first = picture.page(&filter, None, 0).expect("readable");
        let last = first.next.clone().expect("another page");
        picture.interest.write().apply(config("z", 1));
        picture.interest.write().remove(&last, last.name());
        let rest = picture.page(&filter, Some(&last), 0).expect("readable");
        assert_eq!(rest.objects.len(), 300 - PAGE_OBJECTS_MAX + 1);
    }
}
