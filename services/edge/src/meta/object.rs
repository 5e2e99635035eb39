//! An object as the local API returns it.

use bytes::Bytes;
use headwater_event::{Applied, EntryKey, ResourceKey};
use headwater_object::payload::with_resource_version;
use headwater_view::Entry;

/// An object of the view, or a pod's status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Object {
    pub(crate) key: ResourceKey,
    pub(crate) uid: String,
    pub(crate) resource_version: String,
    /// The JSON, with the resource version.
    pub(crate) object: Bytes,
}

impl Object {
    /// The object of an entry; `None` for a reserved one.
    pub(crate) fn of_entry(key: EntryKey, entry: Entry) -> Option<Self> {
        let EntryKey::Resource(key) = key else { return None };
        let Entry { uid, resource_version, object, .. } = entry;
        let object = with_resource_version(&object, &resource_version);
        Some(Self { key, uid, resource_version, object })
    }

    /// The object of a change; `None` for a reserved entry.
    pub(crate) fn of_applied(applied: Applied) -> Option<Self> {
        let Applied { key, uid, resource_version, object } = applied;
        let EntryKey::Resource(key) = key else { return None };
        let object = with_resource_version(&object, &resource_version);
        Some(Self { key, uid, resource_version, object })
    }
}
