//! The objects, their one version, and the changes that led here.
//!
//! Each write raises the version by one, over all resources, as etcd does. The last changes are kept. An
//! earlier state can be listed since [`Store::compacted`]. A watch begins no earlier than
//! [`Store::watchable`], which a restart moves to the present. An open watch continues over a compaction,
//! because a server keeps the events of its watches itself; it ends where changes after its version are
//! [`Store::dropped`]. `dropped <= compacted <= watchable <= version`.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde_json::Value;

use crate::resource::Resource;

/// The changes that are kept; the oldest are dropped. A real server keeps those of 5 min.
const CHANGES_MAX: usize = 10_000;

/// The place of an object. Places are ordered as in etcd.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The plural of its resource.
    pub plural: &'static str,
    /// Its namespace, if it has one, and its name, with a `/` between.
    pub path: String,
}

impl Place {
    pub(crate) fn new(resource: &'static Resource, namespace: Option<&str>, name: &str) -> Self {
        let path = match namespace.filter(|_| resource.is_namespaced) {
            Some(namespace) => format!("{namespace}/{name}"),
            None => name.to_owned(),
        };
        Self { plural: resource.plural, path }
    }

    /// The namespace.
    pub fn namespace(&self) -> Option<&str> {
        self.path.split_once('/').map(|(namespace, _)| namespace)
    }

    /// The name.
    pub fn name(&self) -> &str {
        self.path.split_once('/').map_or(&self.path, |(_, name)| name)
    }
}

/// A change of one object.
#[derive(Clone, Debug)]
pub struct Change {
    /// The version that it made.
    pub version: u64,
    /// The place of the object.
    pub place: Place,
    /// The object before; `None`: it was created.
    pub before: Option<Arc<Value>>,
    /// The object after; `None`: it was deleted.
    pub after: Option<Arc<Value>>,
}

/// The objects of one resource at one version.
pub(crate) type Objects = BTreeMap<Place, Arc<Value>>;

/// See the module. A clone is a backup.
#[derive(Clone, Debug, Default)]
pub(crate) struct Store {
    version: u64,
    compacted: u64,
    watchable: u64,
    objects: Objects,
    changes: VecDeque<Change>,
}

impl Store {
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// The version of the last change that is not kept any more.
    pub(crate) fn dropped(&self) -> u64 {
        self.changes.front().map_or(self.version, |oldest| oldest.version - 1)
    }

    pub(crate) fn compacted(&self) -> u64 {
        self.compacted
    }

    pub(crate) fn watchable(&self) -> u64 {
        self.watchable
    }

    pub(crate) fn get(&self, place: &Place) -> Option<&Arc<Value>> {
        self.objects.get(place)
    }

    pub(crate) fn objects(&self) -> &Objects {
        &self.objects
    }

    /// Writes an object under the next version, and returns it as it is stored.
    pub(crate) fn put(&mut self, place: Place, mut object: Value) -> Arc<Value> {
        object["metadata"]["resourceVersion"] = (self.version + 1).to_string().into();
        let object = Arc::new(object);
        let before = self.objects.insert(place.clone(), object.clone());
        self.note(place, before, Some(object.clone()));
        object
    }

    /// Deletes an object, and returns it as it was, at the version of the delete.
    pub(crate) fn remove(&mut self, place: &Place) -> Option<Arc<Value>> {
        let before = self.objects.remove(place)?;
        self.note(place.clone(), Some(before.clone()), None);
        Some(at_version(&before, self.version))
    }

    fn note(&mut self, place: Place, before: Option<Arc<Value>>, after: Option<Arc<Value>>) {
        self.version += 1;
        self.changes.push_back(Change { version: self.version, place, before, after });
        if self.changes.len() > CHANGES_MAX
            && let Some(oldest) = self.changes.pop_front()
        {
            self.compacted = self.compacted.max(oldest.version);
            self.watchable = self.watchable.max(oldest.version);
        }
    }

    /// The changes after `version`, in order.
    pub(crate) fn changes_after(&self, version: u64) -> impl Iterator<Item = &Change> {
        let from = self.changes.partition_point(|change| change.version <= version);
        self.changes.range(from..)
    }

    /// The objects of a resource at a version that is not compacted.
    pub(crate) fn at(&self, plural: &str, version: u64) -> Objects {
        let of_resource = self.objects.iter().filter(|(place, _)| place.plural == plural);
        let mut objects: Objects =
            of_resource.map(|(place, object)| (place.clone(), object.clone())).collect();
        let newer = self.changes.iter().rev().take_while(|change| change.version > version);
        for change in newer.filter(|change| change.place.plural == plural) {
            match &change.before {
                Some(before) => objects.insert(change.place.clone(), before.clone()),
                None => objects.remove(&change.place),
            };
        }
        objects
    }

    /// Makes every earlier state unreadable.
    pub(crate) fn compact(&mut self) {
        self.compacted = self.version;
        self.watchable = self.version;
    }

    /// The server begins anew on its data: no watch continues from before.
    pub(crate) fn begin_anew(&mut self) {
        self.watchable = self.version;
    }
}

/// An object under another version.
pub(crate) fn at_version(object: &Value, version: u64) -> Arc<Value> {
    let mut object = object.clone();
    object["metadata"]["resourceVersion"] = version.to_string().into();
    Arc::new(object)
}
