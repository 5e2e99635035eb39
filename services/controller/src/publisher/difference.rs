//! The one event that makes a published entry what it should be.

use headwater_event::{Applied, EntryKey, Event, ObjectHash, Removed, StreamId};
use headwater_log::Draft;
use headwater_view::EntrySummary;
use uuid::Uuid;

use crate::interest::EntryId;

/// The largest number that every reader of JSON reads as it is.
const REQUEST_MAX: u64 = (1 << 53) - 1;

/// The rank of an event in a group: what a pod names comes before the pod, and leaves after it.
pub(crate) fn rank(event: &Event) -> u8 {
    let is_pod = event.key().and_then(EntryKey::resource).is_some_and(|key| key.kind() == "pod");
    match (event, is_pod) {
        (Event::Applied(_) | Event::Head, false) => 0,
        (Event::Applied(_) | Event::Head, true) => 1,
        (Event::Removed(_), true) => 2,
        (Event::Removed(_), false) => 3,
    }
}

/// The event that makes an entry what it should be; `None` if it is so already. An object that
/// differs only in its resource version is the published one. `desired` has the hash of its object.
pub(crate) fn difference(
    entry: &EntryId,
    desired: Option<(Applied, ObjectHash)>,
    published: Option<&EntrySummary>,
) -> Option<Draft> {
    let EntryId { stream, key } = entry;
    let event = match (desired, published) {
        (None, None) => return None,
        // A request for a snapshot does not follow from objects: it stays.
        (None, Some(_)) if *key == EntryKey::SnapshotRequest => return None,
        (None, Some(published)) => {
            Event::Removed(Removed { key: key.clone(), uid: published.uid.clone() })
        }
        (Some((applied, hash)), Some(published))
            if applied.uid == published.uid && hash == published.object_hash =>
        {
            return None;
        }
        (Some((applied, _)), _) => Event::Applied(applied),
    };
    Some(Draft {
        stream: stream.clone(),
        event,
        replaces: published.map(|published| published.object_hash),
        traceparent: None,
        is_shared: false,
    })
}

/// The entry that asks a node for its whole snapshot: a number from `random`. A counter would repeat
/// a number after the log lost its tail or was created again, and a node answers each number once.
pub(crate) fn snapshot_request(
    stream: StreamId,
    published: Option<&EntrySummary>,
    random: Uuid,
) -> Draft {
    let (high, low) = random.as_u64_pair();
    let object = ((high ^ low) & REQUEST_MAX).to_string();
    Draft {
        stream,
        event: Event::Applied(Applied {
            key: EntryKey::SnapshotRequest,
            uid: String::new(),
            resource_version: String::new(),
            object: object.into(),
        }),
        replaces: published.map(|entry| entry.object_hash),
        traceparent: None,
        is_shared: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> EntryKey {
        "d/configmap/app".parse().expect("a key")
    }

    fn applied(uid: &str, data: &str) -> Applied {
        Applied {
            key: key(),
            uid: uid.to_owned(),
            resource_version: "1".to_owned(),
            object: data.to_owned().into(),
        }
    }

    fn published(applied: &Applied) -> EntrySummary {
        let object_hash = ObjectHash::of(&applied.object);
        EntrySummary { uid: applied.uid.clone(), object_hash, body: None }
    }

    fn draft(
        key: EntryKey,
        desired: Option<Applied>,
        published: Option<&EntrySummary>,
    ) -> Option<Draft> {
        let entry = EntryId { stream: StreamId::Cluster, key };
        let desired = desired.map(|applied| {
            let hash = ObjectHash::of(&applied.object);
            (applied, hash)
        });
        difference(&entry, desired, published)
    }

    fn event(desired: Option<Applied>, published: Option<&EntrySummary>) -> Option<Event> {
        draft(key(), desired, published).map(|draft| draft.event)
    }

    #[test]
    fn only_differences_are_appended() {
        let old = applied("u1", "x");
        let entry = published(&old);
        assert_eq!(event(Some(old.clone()), Some(&entry)), None);
        let touched = Applied { resource_version: "2".to_owned(), ..old.clone() };
        assert_eq!(event(Some(touched), Some(&entry)), None);
        let changed = applied("u1", "y");
        assert_eq!(event(Some(changed.clone()), Some(&entry)), Some(Event::Applied(changed)));
        let recreated = applied("u2", "x");
        assert_eq!(event(Some(recreated.clone()), Some(&entry)), Some(Event::Applied(recreated)));
        assert_eq!(event(Some(old.clone()), None), Some(Event::Applied(old)));
        assert_eq!(event(None, None), None);
        let gone = Removed { key: key(), uid: "u1".to_owned() };
        assert_eq!(event(None, Some(&entry)), Some(Event::Removed(gone)));
    }

    #[test]
    fn a_request_for_a_snapshot_is_not_taken_back() {
        let entry = published(&applied("", "{}"));
        assert_eq!(draft(EntryKey::SnapshotRequest, None, Some(&entry)), None);
    }

    #[test]
    fn a_request_for_a_snapshot_is_a_number_as_an_edge_reads_it_and_never_the_same() {
        let object =
            |draw: u128| match snapshot_request(StreamId::Cluster, None, Uuid::from_u128(draw))
                .event
            {
                Event::Applied(applied) => serde_json::from_slice::<u64>(&applied.object).ok(),
                _ => None,
            };
        assert!(object(u128::MAX / 3).is_some_and(|number| number <= REQUEST_MAX));
        assert_ne!(object(7), object(8));
    }

    #[test]
    fn what_is_replaced_is_named_by_its_hash() {
        let entry = published(&applied("u1", "x"));
        let draft = draft(key(), Some(applied("u1", "y")), Some(&entry));
        assert_eq!(draft.and_then(|draft| draft.replaces), Some(entry.object_hash));
    }
}
