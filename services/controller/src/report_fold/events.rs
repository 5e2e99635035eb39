//! Events that the upstream log has, and their removal.
//!
//! No later report takes the place of an Event that does not happen again, so it would stay in the log for
//! ever. It is removed when the API has it, when it is an hour old, and when its node has too many: a record
//! without a value is appended under its key. Only the controller that writes the downstream log appends.
//!
//! A report of the same Event may be appended at the same time and be the earlier record. The picture keeps
//! it, but a new fold has it no longer once the log is compacted. An Event may be lost, as a message may.
//!
//! ```text
//!          discarded, too old, too many                 the record is read
//!  logged ─────────────────────────────► due, appended ───────────────────► forgotten
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use headwater_event::upstream::{EventRemoved, encode_event_removed};
use headwater_event::{NodeName, Partition, ReportId, ResourceKey};
use headwater_log::{Append, Record};
use headwater_store::{Batch, EngineError, Folded, Json, Read};

use super::ReportFold;
use crate::picture::changes::ChangeGroup;
use crate::picture::node_event::is_expired;
use crate::picture::tables::{EVENTS, EventReport};

/// Events of one node at most: more than a node has in an hour that needs a person. For another one,
/// the oldest one goes.
const NODE_EVENTS_MAX: usize = 256;

/// Removals that wait at most, about 200 bytes each. The Events beyond the bound stay in the log until it
/// is folded anew.
const DUE_MAX: usize = 16_384;

/// Records in one append: a small fraction of what a log takes at once.
const REMOVALS_AT_ONCE: usize = 256;

/// The interval of the looks at the Events. One that stays a moment longer does no harm.
pub(super) const EVENTS_INTERVAL: Duration = Duration::from_secs(1);

/// The Events of the log, without their content.
#[derive(Debug, Default)]
pub(super) struct LoggedEvents {
    logged: BTreeMap<ResourceKey, LoggedEvent>,
    /// Per node: its Events by age.
    by_age: BTreeMap<NodeName, BTreeSet<(i64, ResourceKey)>>,
    due: BTreeMap<ResourceKey, LoggedEvent>,
    /// Those of `due` whose removal was appended and was not read back yet.
    appended: BTreeSet<ResourceKey>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct LoggedEvent {
    node: NodeName,
    id: ReportId,
    partition: Partition,
    logged_ms: i64,
}

impl LoggedEvents {
    /// The Events that an earlier run left.
    pub(super) fn open(from: &dyn Read) -> Result<Self, EngineError> {
        let mut events = Self::default();
        for row in EVENTS.rows(from) {
            let (key, Json(report)) = row?;
            events.insert(key, LoggedEvent::of(&report));
        }
        Ok(events)
    }

    /// Whether there is nothing that could be removed.
    pub(super) fn is_empty(&self) -> bool {
        self.logged.is_empty() && self.due.is_empty()
    }

    /// Notes an Event. False: a later report of it counts, or another node has its name.
    pub(super) fn note(
        &mut self,
        key: &ResourceKey,
        report: EventReport,
        batch: &mut Batch<Folded>,
        changed: &mut ChangeGroup,
    ) -> bool {
        let before = self.logged.get(key);
        if before.is_some_and(|it| it.id >= report.id || it.node != report.node) {
            return false;
        }
        self.insert(key.clone(), LoggedEvent::of(&report));
        let node = report.node.clone();
        batch.put(&EVENTS, key, &Json(report));
        changed.object(key);
        let of_node = self.by_age.get(&node).map_or(0, BTreeSet::len);
        if of_node > NODE_EVENTS_MAX
            && let Some((_, oldest)) = self.by_age.get(&node).and_then(|it| it.first().cloned())
        {
            batch.delete(&EVENTS, &oldest);
            changed.object(&oldest);
            if let Some(event) = self.remove(&oldest) {
                self.is_due(oldest, event);
            }
        }
        true
    }

    /// Notes that the log has the removal of an Event.
    pub(super) fn note_removed(
        &mut self,
        removed: &EventRemoved,
        batch: &mut Batch<Folded>,
        changed: &mut ChangeGroup,
    ) {
        let EventRemoved { node, key, id } = removed;
        if self.due.get(key).is_some_and(|due| due.id <= *id) {
            self.due.remove(key);
        }
        self.appended.remove(key);
        let logged = self.logged.get(key);
        if logged.is_some_and(|logged| logged.node == *node && logged.id <= *id) {
            self.remove(key);
            batch.delete(&EVENTS, key);
            changed.object(key);
        }
    }

    /// Notes that these Events are needed no longer, in the reports with these ids.
    fn discard(&mut self, discards: BTreeMap<ResourceKey, ReportId>) {
        for (key, id) in discards {
            let event = self.logged.get(&key).filter(|event| event.id == id).cloned();
            if let Some(event) = event {
                self.is_due(key, event);
            }
        }
    }

    /// Notes which Events are too old at `now_ms`.
    fn expire(&mut self, now_ms: i64) {
        let mut expired = Vec::new();
        for events in self.by_age.values() {
            let old = events.iter().take_while(|(logged_ms, _)| is_expired(*logged_ms, now_ms));
            expired.extend(old.map(|(_, key)| key.clone()));
        }
        for key in expired {
            if let Some(event) = self.logged.get(&key).cloned() {
                self.is_due(key, event);
            }
        }
    }

    /// The next removals. They count as appended from here on.
    fn next_due(&mut self, max: usize) -> Vec<(ResourceKey, LoggedEvent)> {
        let due = self.due.iter().filter(|(key, _)| !self.appended.contains(*key)).take(max);
        let due: Vec<_> = due.map(|(key, event)| (key.clone(), event.clone())).collect();
        self.appended.extend(due.iter().map(|(key, _)| key.clone()));
        due
    }

    /// Notes that the outcome of the last append is unknown: all appended removals are due again.
    fn failed(&mut self) {
        self.appended.clear();
    }

    fn is_due(&mut self, key: ResourceKey, event: LoggedEvent) {
        if self.due.get(&key).is_some_and(|due| due.id >= event.id) {
            return;
        }
        if self.due.len() < DUE_MAX || self.due.contains_key(&key) {
            self.appended.remove(&key);
            self.due.insert(key, event);
        }
    }

    fn insert(&mut self, key: ResourceKey, event: LoggedEvent) {
        self.remove(&key);
        let of_node = self.by_age.entry(event.node.clone()).or_default();
        of_node.insert((event.logged_ms, key.clone()));
        self.logged.insert(key, event);
    }

    fn remove(&mut self, key: &ResourceKey) -> Option<LoggedEvent> {
        let event = self.logged.remove(key)?;
        if let Some(of_node) = self.by_age.get_mut(&event.node) {
            of_node.remove(&(event.logged_ms, key.clone()));
            if of_node.is_empty() {
                self.by_age.remove(&event.node);
            }
        }
        Some(event)
    }
}

impl LoggedEvent {
    fn of(report: &EventReport) -> Self {
        let EventReport { node, id, partition, logged_ms, .. } = report;
        Self { node: node.clone(), id: *id, partition: *partition, logged_ms: *logged_ms }
    }
}

impl ReportFold {
    /// Appends the removals that are due, while this controller is the writer. `newest_ms` is the time
    /// of the log.
    pub(super) async fn remove_events(&self, events: &mut LoggedEvents, newest_ms: i64) {
        events.discard(self.event_discards.take());
        events.expire(newest_ms);
        let due = events.next_due(REMOVALS_AT_ONCE);
        let removal = |(key, event): (ResourceKey, LoggedEvent)| {
            // An Event that was read under a key can be removed under it.
            let record = encode_event_removed(&event.node, key, event.id).ok()?;
            let record = Record {
                key: record.key,
                value: record.value,
                header: record.header,
                traceparent: None,
            };
            Some(Append { partition: event.partition, record })
        };
        let appends: Vec<_> = due.into_iter().filter_map(removal).collect();
        if appends.is_empty() {
            return;
        }
        let count = appends.len();
        match self.log.append(appends).await {
            Ok(_) => self.metrics.removed_events(count),
            Err(error) => {
                tracing::warn!(%error, "Events cannot be removed from the log; trying again");
                events.failed();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use headwater_event::Incarnation;

    use super::*;
    use crate::picture::changes::ChangeFeed;
    use crate::picture::node_event::EVENT_TTL_MS;

    fn key(name: &str) -> ResourceKey {
        format!("d/event/{name}").parse().expect("a key")
    }

    fn id(seq: u64) -> ReportId {
        ReportId { incarnation: Incarnation(1), boot: 1, seq }
    }

    fn report(node: &str, seq: u64, logged_ms: i64) -> EventReport {
        let node = node.parse().expect("a name");
        let (partition, object) = (Partition(0), "{}".to_owned());
        EventReport { node, id: id(seq), partition, logged_ms, object }
    }

    fn removed(node: &str, name: &str, seq: u64) -> EventRemoved {
        EventRemoved { node: node.parse().expect("a name"), key: key(name), id: id(seq) }
    }

    /// Notes a report; returns whether it counts.
    fn note(events: &mut LoggedEvents, name: &str, report: EventReport) -> bool {
        let mut changed = ChangeFeed::new().begin();
        events.note(&key(name), report, &mut Batch::new(), &mut changed)
    }

    fn note_removed(events: &mut LoggedEvents, removed: &EventRemoved) {
        let mut changed = ChangeFeed::new().begin();
        events.note_removed(removed, &mut Batch::new(), &mut changed);
    }

    fn due(events: &mut LoggedEvents) -> Vec<(ResourceKey, u64)> {
        events.next_due(1_000).into_iter().map(|(key, event)| (key, event.id.seq)).collect()
    }

    #[test]
    fn the_latest_report_of_an_event_counts_and_its_name_belongs_to_one_node() {
        let mut events = LoggedEvents::default();
        assert!(note(&mut events, "e", report("a", 2, 0)));
        assert!(!note(&mut events, "e", report("a", 1, 0)), "it is older");
        assert!(!note(&mut events, "e", report("b", 9, 0)), "it is of another node");
        assert!(note(&mut events, "e", report("a", 3, 0)), "it happened again");
        assert!(due(&mut events).is_empty());
    }

    #[test]
    fn an_event_is_removed_once_when_it_is_discarded_unless_it_happens_again() {
        let mut events = LoggedEvents::default();
        note(&mut events, "e", report("a", 2, 0));
        events.discard([(key("e"), id(1))].into());
        assert!(due(&mut events).is_empty(), "the API has an older one");
        events.discard([(key("e"), id(2)), (key("none"), id(2))].into());
        assert_eq!(due(&mut events), [(key("e"), 2)]);
        assert!(due(&mut events).is_empty(), "it was appended");
        events.failed();
        assert_eq!(due(&mut events), [(key("e"), 2)], "the outcome is unknown");
        note(&mut events, "e", report("a", 3, 0));
        note_removed(&mut events, &removed("a", "e", 2));
        assert!(!events.is_empty(), "it happened again");
        note_removed(&mut events, &removed("b", "e", 3));
        assert!(!events.is_empty(), "that is the Event of another node");
        events.discard([(key("e"), id(3))].into());
        assert_eq!(due(&mut events), [(key("e"), 3)]);
        note_removed(&mut events, &removed("a", "e", 3));
        assert!(events.is_empty());
    }

    #[test]
    fn an_event_goes_after_an_hour_and_the_oldest_one_for_another_beyond_the_bound() {
        let mut events = LoggedEvents::default();
        note(&mut events, "old", report("a", 1, 1_000));
        note(&mut events, "young", report("a", 2, 2_000));
        note(&mut events, "other", report("b", 1, 9_000));
        events.expire(1_000 + EVENT_TTL_MS);
        assert!(due(&mut events).is_empty());
        events.expire(1_001 + EVENT_TTL_MS);
        assert_eq!(due(&mut events), [(key("old"), 1)]);
        note_removed(&mut events, &removed("a", "old", 1));
        for number in 0..NODE_EVENTS_MAX as u64 {
            note(&mut events, &format!("e{number}"), report("a", 10 + number, 3_000));
        }
        assert_eq!(due(&mut events), [(key("young"), 2)]);
        assert_eq!(events.logged.len(), NODE_EVENTS_MAX + 1, "with that of the other node");
    }
}
