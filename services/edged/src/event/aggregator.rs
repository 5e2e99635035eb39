//! Equal occurrences as one Event, at a bounded rate. Pure: time is an argument.
//!
//! Occurrences of one pod and container, or of the node, with the same reason and message are one Event: its count and its
//! last time move, as client-go counts them. A node sends one Event a second, and some at once. What
//! happens more often is counted meanwhile, and the last count is sent when its turn comes.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use headwater_event::ResourceKey;
use jiff::Timestamp;
use serde_json::json;
use tokio::time::Instant;

use super::{EventLevel, Occurrence, Subject};

/// Events a second, and Events at once: client-go has the same burst.
const INTERVAL: Duration = Duration::from_secs(1);
const BURST: u32 = 25;

/// Events that are counted. With more of them, the one that has not happened for longest is forgotten.
const KNOWN_MAX: usize = 256;

/// An Event that has not happened for this time begins anew: the cloud has forgotten it.
const TTL_SECONDS: i64 = 3_600;

/// Bytes of a message: the API server takes 1,024 characters.
const MESSAGE_BYTES_MAX: usize = 1_024;

/// The namespace of Events about what has none.
const NAMESPACE_DEFAULT: &str = "default";

/// Bytes of the object's name in the name of an Event: with a dot and 16 digits 253 at most.
const NAME_BYTES_MAX: usize = 236;

/// The Events of one node.
#[derive(Debug)]
pub(crate) struct EventAggregator {
    level: EventLevel,
    known: HashMap<u64, CountedEvent>,
    /// Events that happened since they were sent, in the order in which they did.
    due: VecDeque<u64>,
    /// Counts occurrences.
    clock: u64,
    /// When the bucket of the rate is full again.
    full_at: Option<Instant>,
}

#[derive(Debug)]
struct CountedEvent {
    occurrence: Occurrence,
    count: u32,
    first: Timestamp,
    last: Timestamp,
    /// The number of the last occurrence.
    used: u64,
    is_due: bool,
}

/// What to do next.
#[derive(Debug, PartialEq)]
pub(crate) enum Next {
    /// Send this Event.
    Send(OutgoingEvent),
    /// Wait: the rate is used up.
    Wait(Instant),
    /// Nothing happened.
    Nothing,
}

/// An Event to send.
#[derive(Debug, PartialEq)]
pub(crate) struct OutgoingEvent {
    id: u64,
    pub(crate) key: ResourceKey,
    /// The Event as JSON.
    pub(crate) object: String,
}

impl EventAggregator {
    pub(crate) fn new(level: EventLevel) -> Self {
        let (known, due) = (HashMap::new(), VecDeque::new());
        Self { level, known, due, clock: 0, full_at: None }
    }

    /// Counts an occurrence at `now`.
    pub(crate) fn add(&mut self, mut occurrence: Occurrence, now: Timestamp) {
        if !self.level.has(occurrence.severity) {
            return;
        }
        let end = occurrence.message.floor_char_boundary(MESSAGE_BYTES_MAX);
        occurrence.message.truncate(end);
        let mut hasher = DefaultHasher::new();
        occurrence.hash(&mut hasher);
        let id = hasher.finish();
        self.clock += 1;
        if self.known.len() >= KNOWN_MAX && !self.known.contains_key(&id) {
            self.forget_one();
        }
        let event = self.known.entry(id).or_insert_with(|| CountedEvent {
            occurrence,
            count: 0,
            first: now,
            last: now,
            used: 0,
            is_due: false,
        });
        if now.as_second() - event.last.as_second() > TTL_SECONDS {
            (event.count, event.first) = (0, now);
        }
        event.count = event.count.saturating_add(1);
        // A clock that was set back.
        event.last = now.max(event.first);
        event.used = self.clock;
        if !std::mem::replace(&mut event.is_due, true) {
            self.due.push_back(id);
        }
    }

    /// The next Event to send at `now`.
    pub(crate) fn next(&mut self, now: Instant) -> Next {
        let Some(id) = self.due.front().copied() else { return Next::Nothing };
        let full_at = self.full_at.map_or(now, |at| at.max(now));
        let free_at = full_at.checked_sub(INTERVAL * (BURST - 1)).unwrap_or(now);
        if free_at > now {
            return Next::Wait(free_at);
        }
        self.due.pop_front();
        self.full_at = Some(full_at + INTERVAL);
        let Some(event) = self.known.get_mut(&id) else { return self.next(now) };
        event.is_due = false;
        match event.outgoing(id) {
            Some(outgoing) => Next::Send(outgoing),
            None => self.next(now),
        }
    }

    /// Sends an Event again: the edge did not take it.
    pub(crate) fn again(&mut self, event: &OutgoingEvent) {
        if let Some(known) = self.known.get_mut(&event.id)
            && !std::mem::replace(&mut known.is_due, true)
        {
            self.due.push_front(event.id);
        }
    }

    fn forget_one(&mut self) {
        let oldest = self.known.iter().min_by_key(|(_, event)| event.used);
        if let Some(id) = oldest.map(|(id, _)| *id) {
            self.known.remove(&id);
            self.due.retain(|due| *due != id);
        }
    }
}

impl CountedEvent {
    /// `None`: the object has no name that makes a key.
    fn outgoing(&self, id: u64) -> Option<OutgoingEvent> {
        let Occurrence { about, severity, reason, message } = &self.occurrence;
        let (namespace, name) = match about {
            Subject::Pod { key, .. } => (key.namespace(), key.name()),
            Subject::Node(node) => (Some(NAMESPACE_DEFAULT), node.as_str()),
        };
        let name = name[..name.floor_char_boundary(NAME_BYTES_MAX)].trim_end_matches(['.', '-']);
        let key = ResourceKey::new(namespace, "event", &format!("{name}.{id:016x}")).ok()?;
        let mut about = match about {
            Subject::Pod { key, uid, .. } => json!({
                "kind": "Pod", "namespace": namespace, "name": key.name(), "uid": uid.as_str(),
            }),
            Subject::Node(node) => json!({"kind": "Node", "name": node.as_str()}),
        };
        if let Subject::Pod { container: Some(container), .. } = &self.occurrence.about {
            about["fieldPath"] = format!("spec.containers{{{container}}}").into();
        }
        let whole = |time: Timestamp| format!("{time:.0}");
        let object = json!({
            "involvedObject": about, "reason": reason, "message": message,
            "type": severity.name(), "count": self.count,
            "firstTimestamp": whole(self.first), "lastTimestamp": whole(self.last),
        });
        Some(OutgoingEvent { id, key, object: object.to_string() })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::super::Severity;
    use super::*;

    fn occurrence(message: &str) -> Occurrence {
        Occurrence {
            about: subject("shop/pod/web".parse().expect("a key")),
            severity: Severity::Warning,
            reason: "BackOff".to_owned(),
            message: message.to_owned(),
        }
    }

    fn subject(key: ResourceKey) -> Subject {
        let uid = "u-1".to_owned().try_into().expect("a UID");
        Subject::Pod { key, uid, container: Some("main".to_owned()) }
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + seconds).expect("a time")
    }

    /// All that may be sent now.
    fn sent(events: &mut EventAggregator, now: Instant) -> Vec<(String, Value)> {
        let mut sent = Vec::new();
        while let Next::Send(event) = events.next(now) {
            let object = serde_json::from_str(&event.object).expect("JSON");
            sent.push((event.key.to_string(), object));
        }
        sent
    }

    #[test]
    fn equal_occurrences_are_one_event_whose_count_and_last_time_move() {
        let (mut events, now) = (EventAggregator::new(EventLevel::Warnings), Instant::now());
        events.add(occurrence("a"), at(0));
        let first = sent(&mut events, now);
        assert_eq!(first.len(), 1);
        let (key, event) = &first[0];
        assert!(key.starts_with("shop/event/web."), "{key}");
        let about = json!({
            "kind": "Pod", "namespace": "shop", "name": "web", "uid": "u-1",
            "fieldPath": "spec.containers{main}",
        });
        assert_eq!(
            *event,
            json!({
                "involvedObject": about, "reason": "BackOff", "message": "a", "type": "Warning",
                "count": 1, "firstTimestamp": "2023-11-14T22:13:20Z",
                "lastTimestamp": "2023-11-14T22:13:20Z",
            })
        );
        events.add(occurrence("a"), at(10));
        events.add(occurrence("b"), at(11));
        events.add(occurrence("a"), at(12));
        let again = sent(&mut events, now);
        let counts: Vec<_> =
            again.iter().map(|(key, event)| (key == &first[0].0, &event["count"])).collect();
        assert_eq!(counts, [(true, &json!(3)), (false, &json!(1))]);
        assert_eq!(again[0].1["firstTimestamp"], "2023-11-14T22:13:20Z");
        assert_eq!(again[0].1["lastTimestamp"], "2023-11-14T22:13:32Z");
        assert_eq!(events.next(now), Next::Nothing);
        events.add(occurrence("a"), at(12 + TTL_SECONDS + 1));
        assert_eq!(sent(&mut events, now)[0].1["count"], 1, "the cloud has forgotten it");
    }

    #[test]
    fn some_events_are_sent_at_once_and_then_one_a_second() {
        let (mut events, start) = (EventAggregator::new(EventLevel::Warnings), Instant::now());
        for number in 0..100 {
            events.add(occurrence(&number.to_string()), at(0));
        }
        assert_eq!(sent(&mut events, start).len(), BURST as usize);
        assert_eq!(events.next(start), Next::Wait(start + INTERVAL));
        // What waits is counted, and sent once.
        for second in 1..=75_u32 {
            events.add(occurrence("99"), at(second.into()));
            assert_eq!(sent(&mut events, start + INTERVAL * second).len(), 1);
        }
        let later = start + Duration::from_secs(1_000);
        let rest = sent(&mut events, later);
        assert!(rest.len() <= 1, "{rest:?}");
        for number in 0..100 {
            events.add(occurrence(&format!("more {number}")), at(1_000));
        }
        assert_eq!(sent(&mut events, later).len(), BURST as usize, "the burst is there again");
    }

    #[test]
    fn an_event_that_was_not_taken_is_sent_again_before_the_others() {
        let (mut events, now) = (EventAggregator::new(EventLevel::Warnings), Instant::now());
        events.add(occurrence("a"), at(0));
        events.add(occurrence("b"), at(0));
        let Next::Send(first) = events.next(now) else { panic!("an Event") };
        events.again(&first);
        events.again(&first);
        let messages: Vec<_> =
            sent(&mut events, now).into_iter().map(|(_, e)| e["message"].clone()).collect();
        assert_eq!(messages, ["a", "b"]);
    }

    #[test]
    fn the_level_decides_and_the_memory_is_bounded() {
        let now = Instant::now();
        let normal = || Occurrence { severity: Severity::Normal, ..occurrence("n") };
        for (level, expected) in
            [(EventLevel::None, 0), (EventLevel::Warnings, 1), (EventLevel::All, 2)]
        {
            let mut events = EventAggregator::new(level);
            events.add(occurrence("w"), at(0));
            events.add(normal(), at(0));
            assert_eq!(sent(&mut events, now).len(), expected, "{level:?}");
        }
        let mut events = EventAggregator::new(EventLevel::All);
        for number in 0..10_000 {
            let long = format!("{number} {}", "ü".repeat(1_000));
            events.add(occurrence(&long), at(0));
        }
        assert_eq!((events.known.len(), events.due.len()), (KNOWN_MAX, KNOWN_MAX));
        let (_, event) = &sent(&mut events, now)[0];
        assert!(event["message"].as_str().is_some_and(|text| text.len() <= MESSAGE_BYTES_MAX));
    }

    #[test]
    fn a_long_name_of_a_pod_makes_a_name_of_an_event() {
        let mut events = EventAggregator::new(EventLevel::All);
        let pod = ResourceKey::new(Some("shop"), "pod", &"a".repeat(253)).expect("a key");
        events.add(Occurrence { about: subject(pod), ..occurrence("m") }, at(0));
        let (key, _) = &sent(&mut events, Instant::now())[0];
        assert_eq!(key.len(), "shop/event/".len() + 253);
    }

    #[test]
    fn an_event_about_the_node_is_in_the_default_namespace_and_leaves_the_uid_to_the_cloud() {
        let mut events = EventAggregator::new(EventLevel::Warnings);
        let about = Subject::Node("gw-1".parse().expect("a name"));
        events.add(Occurrence { about, ..occurrence("m") }, at(0));
        let (key, event) = &sent(&mut events, Instant::now())[0];
        assert!(key.starts_with("default/event/gw-1."), "{key}");
        assert_eq!(event["involvedObject"], json!({"kind": "Node", "name": "gw-1"}));
    }
}
