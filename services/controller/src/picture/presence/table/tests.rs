//! The table against a model of hubs, and the steps of one stream.

use headwater_event::DisconnectedNode;
use headwater_event::presence::PRESENCE_BEAT;
use proptest::prelude::*;

use super::*;

const HUBS: [&str; 2] = ["hub-1", "hub-2"];

const RUNNING: NodeState = NodeState { lacks_worker: false, has_drained: true };

const WITHOUT_WORKER: NodeState = NodeState { lacks_worker: true, has_drained: true };

fn node(number: u8) -> NodeName {
    format!("n{number}").parse().expect("a name")
}

fn disconnected(number: u8, silent_for: Duration) -> PresenceUpdate {
    PresenceUpdate::Disconnected(vec![DisconnectedNode { node: node(number), silent_for }])
}

fn connected(numbers: &[u8]) -> PresenceUpdate {
    let running = |number: &u8| in_state(*number, RUNNING);
    PresenceUpdate::Connected(numbers.iter().map(running).collect())
}

fn in_state(number: u8, state: NodeState) -> ConnectedNode {
    ConnectedNode { node: node(number), state: Some(state) }
}

#[test]
fn a_node_is_connected_while_its_hub_has_it_and_beats() {
    let (mut table, start) = (PresenceTable::default(), Instant::now() + Duration::from_secs(60));
    let at = |seconds| start + Duration::from_secs(seconds);
    let age = Duration::from_secs;
    assert_eq!(table.contact(&node(1), Some("hub-1"), start), Contact::Unknown);
    let link = table.connect("hub-1", start);
    assert_eq!(table.receive(link, connected(&[1, 2]), start), [node(1), node(2)].into());
    assert_eq!(table.contact(&node(1), Some("hub-1"), at(1)), Contact::Connected(age(1)));
    assert_eq!(
        table.contact(&node(3), Some("hub-1"), at(1)),
        Contact::Unknown,
        "the hub may name it yet"
    );
    table.receive(link, PresenceUpdate::Complete, at(2));
    assert_eq!(table.contact(&node(3), Some("hub-1"), at(2)), Contact::Disconnected(None));
    assert_eq!(
        table.contact(&node(3), Some("old"), at(2)),
        Contact::Unknown,
        "a hub without a stream may have it"
    );
    assert_eq!(table.receive(link, PresenceUpdate::Beat, at(7)), BTreeSet::new());
    assert_eq!(table.contact(&node(1), None, at(9)), Contact::Connected(age(2)));
    assert_eq!(table.receive(link, disconnected(2, age(25)), at(10)), [node(2)].into());
    assert_eq!(
        table.contact(&node(2), Some("hub-1"), at(11)),
        Contact::Disconnected(Some(age(26)))
    );
    // The hub is killed.
    assert_eq!(table.contact(&node(1), Some("hub-1"), at(25)), Contact::Connected(age(15)));
    assert_eq!(table.contact(&node(1), Some("hub-1"), at(26)), Contact::Lost(age(16)));
    assert_eq!(table.contact(&node(1), Some("old"), at(26)), Contact::Unknown, "it has moved");
    assert_eq!(
        table.contact(&node(2), Some("hub-1"), at(26)),
        Contact::Disconnected(Some(age(41)))
    );
    // It was the receiver that was frozen: no update of an open stream is missing.
    assert_eq!(table.receive(link, PresenceUpdate::Beat, at(60)), [node(1)].into());
    assert_eq!(table.contact(&node(1), Some("hub-1"), at(60)), Contact::Connected(age(0)));
}

#[test]
fn a_stream_that_is_made_again_takes_the_nodes_over_without_a_gap() {
    let (mut table, start) = (PresenceTable::default(), Instant::now() + Duration::from_secs(60));
    let at = |seconds| start + Duration::from_secs(seconds);
    let first = table.connect("hub-1", start);
    table.receive(first, connected(&[1, 2]), start);
    table.receive(first, PresenceUpdate::Complete, start);
    table.disconnect(first);
    let second = table.connect("hub-1", at(5));
    let is_connected = |table: &PresenceTable, number| {
        matches!(table.contact(&node(number), Some("hub-1"), at(6)), Contact::Connected(_))
    };
    assert!(is_connected(&table, 1) && is_connected(&table, 2), "the hub is there again soon");
    table.receive(second, connected(&[2]), at(6));
    assert!(is_connected(&table, 1));
    let changed = table.receive(second, PresenceUpdate::Complete, at(6));
    assert_eq!(changed, [node(1), node(2)].into());
    assert!(!is_connected(&table, 1) && is_connected(&table, 2));
    assert_eq!(table.links.len(), 1);
    // A stream that ends before it has named all has no effect.
    let third = table.connect("hub-1", at(6));
    table.receive(third, connected(&[3]), at(6));
    table.disconnect(third);
    assert!(!is_connected(&table, 3) && is_connected(&table, 2));
    assert_eq!(table.receive(first, connected(&[1]), at(6)), BTreeSet::new(), "it has ended");
}

#[test]
fn the_state_of_a_node_is_that_of_the_hub_that_it_is_at() {
    let (mut table, start) = (PresenceTable::default(), Instant::now() + Duration::from_secs(60));
    let at = |seconds| start + Duration::from_secs(seconds);
    let age = Duration::from_secs;
    let named = |state| PresenceUpdate::Connected(vec![in_state(1, state)]);
    let first = table.connect("hub-1", start);
    let state_at = |table: &PresenceTable, hub, second| {
        table.connected(&node(1), hub, at(second)).and_then(|connected| connected.state)
    };
    assert_eq!(table.receive(first, named(RUNNING), start), [node(1)].into());
    assert_eq!(table.receive(first, named(RUNNING), at(1)), BTreeSet::new(), "nothing changed");
    assert_eq!(table.receive(first, named(WITHOUT_WORKER), at(2)), [node(1)].into());
    let gone = Contact::WithoutWorker { age: age(1), gone_for: age(1) };
    assert_eq!(table.contact(&node(1), Some("hub-1"), at(3)), gone);
    table.receive(first, PresenceUpdate::Beat, at(7));
    let gone = Contact::WithoutWorker { age: age(1), gone_for: age(6) };
    assert_eq!(table.contact(&node(1), Some("hub-1"), at(8)), gone);
    // It goes to another hub, and the first one still has it.
    let second = table.connect("hub-2", at(8));
    table.receive(second, named(RUNNING), at(8));
    for (hub, expected) in
        [(Some("hub-2"), RUNNING), (None, RUNNING), (Some("hub-1"), WITHOUT_WORKER)]
    {
        assert_eq!(state_at(&table, hub, 9), Some(expected), "{hub:?}");
    }
    // The stream of the first hub is made again, later than that of the second one.
    let first = table.connect("hub-1", at(9));
    table.receive(first, named(WITHOUT_WORKER), at(9));
    assert_eq!(state_at(&table, Some("hub-2"), 9), Some(RUNNING));
    assert_eq!(state_at(&table, Some("hub-2"), 25), None, "all are silent");
}

#[test]
fn the_silence_of_a_hub_is_noticed_once_and_again_after_an_update() {
    let (mut table, start) = (PresenceTable::default(), Instant::now() + Duration::from_secs(60));
    let at = |seconds| start + Duration::from_secs(seconds);
    assert_eq!(table.next_silence(), None);
    let link = table.connect("hub-1", start);
    table.receive(link, connected(&[1]), at(1));
    assert_eq!(table.next_silence(), Some(at(16)));
    assert_eq!(table.notice_silence(at(16)), BTreeSet::new());
    assert_eq!(table.notice_silence(at(17)), [node(1)].into());
    assert_eq!((table.notice_silence(at(18)), table.next_silence()), (BTreeSet::new(), None));
    assert_eq!(table.receive(link, PresenceUpdate::Beat, at(20)), [node(1)].into());
    assert_eq!(table.next_silence(), Some(at(35)));
    assert_eq!(table.notice_silence(at(36)), [node(1)].into());
}

/// What happens in the model.
#[derive(Clone, Debug)]
enum Step {
    /// A node connects to a hub, or leaves it.
    Connect(usize, u8),
    Leave(usize, u8),
    /// The stream of a hub ends, and the hub opens another one.
    Reopen(usize),
    /// Time passes, and the hubs that are marked beat.
    Wait(u64, [bool; 2]),
}

fn step() -> impl Strategy<Value = Step> {
    let hub = 0..HUBS.len();
    prop_oneof![
        4 => (hub.clone(), 0..6_u8).prop_map(|(hub, number)| Step::Connect(hub, number)),
        3 => (hub.clone(), 0..6_u8).prop_map(|(hub, number)| Step::Leave(hub, number)),
        2 => hub.prop_map(Step::Reopen),
        4 => (1..10_u64, any::<[bool; 2]>()).prop_map(|(seconds, beats)| Step::Wait(seconds, beats)),
    ]
}

proptest! {
    /// A node counts as connected if and only if a hub that is not silent has it.
    #[test]
    fn the_table_has_what_the_hubs_have(steps in prop::collection::vec(step(), 1..60)) {
        let (mut table, mut now) = (PresenceTable::default(), Instant::now());
        let mut nodes: [BTreeSet<u8>; 2] = Default::default();
        let mut open = HUBS.map(|hub| table.connect(hub, now));
        let mut updated = [now; 2];
        for link in open {
            table.receive(link, PresenceUpdate::Complete, now);
        }
        for step in steps {
            match step {
                Step::Connect(hub, number) => {
                    nodes[hub].insert(number);
                    table.receive(open[hub], connected(&[number]), now);
                    updated[hub] = now;
                }
                Step::Leave(hub, number) => {
                    if nodes[hub].remove(&number) {
                        table.receive(open[hub], disconnected(number, Duration::ZERO), now);
                        updated[hub] = now;
                    }
                }
                Step::Reopen(hub) => {
                    table.disconnect(open[hub]);
                    open[hub] = table.connect(HUBS[hub], now);
                    let named: Vec<u8> = nodes[hub].iter().copied().collect();
                    table.receive(open[hub], connected(&named), now);
                    table.receive(open[hub], PresenceUpdate::Complete, now);
                    updated[hub] = now;
                }
                Step::Wait(seconds, beats) => {
                    now += Duration::from_secs(seconds);
                    for hub in (0..HUBS.len()).filter(|hub| beats[*hub]) {
                        table.receive(open[hub], PresenceUpdate::Beat, now);
                        updated[hub] = now;
                    }
                }
            }
            prop_assert!(table.links.len() <= HUBS.len(), "streams are bounded");
            for number in 0..6 {
                let live = |hub: &usize| now - updated[*hub] <= PRESENCE_SILENCE_MAX;
                let hubs = (0..HUBS.len()).filter(|hub| nodes[*hub].contains(&number));
                let expected = hubs.filter(live).map(|hub| now - updated[hub]).min();
                let found = match table.contact(&node(number), None, now) {
                    Contact::Connected(age) => Some(age),
                    Contact::WithoutWorker { .. }
                    | Contact::Disconnected(_)
                    | Contact::Lost(_)
                    | Contact::Unknown => None,
                };
                prop_assert_eq!(found, expected, "n{} after {:?}", number, step);
            }
        }
    }
}

#[test]
fn a_beat_may_be_lost_without_a_loss_of_nodes() {
    assert!(PRESENCE_SILENCE_MAX >= PRESENCE_BEAT * 3);
}
