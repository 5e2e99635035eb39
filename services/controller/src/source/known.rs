//! The differences between two lists of one source.
//!
//! A source lists once. When it loses its place it lists again on its own side, and sends what
//! differs from what it sent before. For that it keeps a digest of each object: about 100 bytes.

use std::collections::{HashMap, HashSet};

use headwater_event::ResourceKey;
use headwater_object::Object;

use super::{Cause, SourceEvent, SourceKind};

/// The objects that a source has sent and not deleted.
#[derive(Debug, Default)]
pub struct KnownObjects {
    source: SourceKind,
    digests: HashMap<ResourceKey, Digest>,
}

#[derive(Debug, PartialEq, Eq)]
struct Digest {
    uid: String,
    payload: blake3::Hash,
}

impl KnownObjects {
    /// A source that has sent nothing yet.
    pub fn new(source: SourceKind) -> Self {
        Self { source, digests: HashMap::new() }
    }

    /// The events of the first list.
    pub fn list(&mut self, objects: impl IntoIterator<Item = Object>) -> Vec<SourceEvent> {
        let mut events = vec![SourceEvent::Init];
        for object in objects {
            self.note(&object);
            events.push(SourceEvent::InitApply(object));
        }
        events.push(SourceEvent::InitDone);
        events
    }

    /// The events that lead from what was sent to `objects`, a complete list. Deletions come first,
    /// pods first among them; applied pods come last, behind what they name.
    pub fn relist(&mut self, objects: impl IntoIterator<Item = Object>) -> Vec<SourceEvent> {
        let mut objects: Vec<Object> = objects.into_iter().collect();
        objects.sort_by_key(|object| object.key().kind() == "pod");
        let there: HashSet<&ResourceKey> = objects.iter().map(Object::key).collect();
        let mut gone: Vec<ResourceKey> =
            self.digests.keys().filter(|key| !there.contains(key)).cloned().collect();
        gone.sort_by_key(|key| (key.kind() != "pod", key.clone()));
        let cause = Cause { source: self.source, ..Cause::default() };
        let mut events = Vec::new();
        for key in gone {
            events.extend(self.delete(key, cause.clone()));
        }
        for object in objects {
            events.extend(self.apply(object, cause.clone()));
        }
        events
    }

    /// The event of an object that came or changed; `None` where it was sent as it is.
    pub fn apply(&mut self, object: Object, cause: Cause) -> Option<SourceEvent> {
        self.note(&object).then_some(SourceEvent::Apply(object, cause))
    }

    /// The event of an object that was deleted; `None` where it was not there.
    pub fn delete(&mut self, key: ResourceKey, cause: Cause) -> Option<SourceEvent> {
        let Digest { uid, .. } = self.digests.remove(&key)?;
        Some(SourceEvent::Delete { key, uid, cause })
    }

    /// Remembers an object; `false` where it was known as it is.
    fn note(&mut self, object: &Object) -> bool {
        let digest =
            Digest { uid: object.uid().to_owned(), payload: blake3::hash(object.payload()) };
        let before = self.digests.get(object.key());
        let is_news = before != Some(&digest);
        if is_news {
            self.digests.insert(object.key().clone(), digest);
        }
        is_news
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn secret(name: &str, data: &str) -> Object {
        Object::from_value(json!({
            "apiVersion": "v1", "kind": "Secret", "stringData": {"k": data},
            "metadata": {"name": name, "uid": format!("u-{name}")},
        }))
        .expect("a secret")
    }

    fn text(events: Vec<SourceEvent>) -> Vec<String> {
        let one = |event| match event {
            SourceEvent::Apply(object, _) => format!("+{}", object.key().name()),
            SourceEvent::Delete { key, uid, .. } => format!("-{} {uid}", key.name()),
            SourceEvent::InitApply(object) => format!("list {}", object.key().name()),
            other => format!("{other:?}"),
        };
        events.into_iter().map(one).collect()
    }

    #[test]
    fn a_second_list_becomes_its_differences_to_the_first() {
        let mut known = KnownObjects::new(SourceKind::OTHER);
        let first = known.list([secret("a", "1"), secret("b", "1")]);
        assert_eq!(text(first), ["Init", "list a", "list b", "InitDone"]);
        assert_eq!(text(known.relist([secret("a", "1"), secret("b", "1")])), [""; 0]);
        assert_eq!(
            text(known.relist([secret("a", "2"), secret("c", "1")])),
            ["-b u-b", "+a", "+c"]
        );
        assert_eq!(text(known.relist([])), ["-a u-a", "-c u-c"]);
        assert_eq!(text(known.relist([secret("a", "2")])), ["+a"]);
    }
}
