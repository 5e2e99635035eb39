//! The outbox is the latest of each key that the cloud has not acknowledged.

use headwater_event::report::Incarnation;
use headwater_store::{Durability, MemoryEngine, Survival};
use proptest::prelude::*;

use super::*;

fn node() -> NodeName {
    "gw-1".parse().expect("a node name")
}

fn report(seq: u64, body: ReportBody) -> Report {
    let id = ReportId { incarnation: Incarnation(1), boot: 1, seq };
    Report { id, body, traceparent: None }
}

fn status(pod: &str, text: &str) -> ReportBody {
    ReportBody::PodStatus {
        pod: format!("default/pod/{pod}").parse().expect("a key"),
        uid: "u".to_owned(),
        status: Bytes::from(text.to_owned()),
    }
}

fn message(name: &str, bytes: usize) -> ReportBody {
    ReportBody::Message {
        key: format!("default/result/{name}").parse().expect("a key"),
        content: Bytes::from(vec![b'1'; bytes]),
    }
}

fn terminated(pod: &str) -> ReportBody {
    let pod = format!("default/pod/{pod}").parse().expect("a key");
    ReportBody::PodTerminated { pod, uid: "u".to_owned() }
}

struct Held {
    engine: MemoryEngine,
    outbox: Outbox,
    seq: u64,
}

impl Held {
    fn new(settings: OutboxSettings) -> Self {
        let engine = MemoryEngine::new();
        let outbox = Outbox::open(&engine, settings).expect("an empty engine");
        Self { engine, outbox, seq: 0 }
    }

    fn put(&mut self, body: ReportBody) -> Result<u64, OutboxFull> {
        let mut batch = Batch::new();
        self.seq += 1;
        self.outbox.put(&mut batch, &node(), &report(self.seq, body))?;
        batch.write(&self.engine, Durability::Synced).expect("the engine works");
        Ok(self.seq)
    }

    fn forget(&mut self, seq: u64) {
        let mut batch = Batch::new();
        self.outbox.forget(&mut batch, report(seq, message("any", 0)).id);
        batch.write(&self.engine, Durability::Synced).expect("the engine works");
    }

    fn read(&self) -> Vec<Report> {
        self.outbox.read(&self.engine, None, usize::MAX).expect("reads")
    }

    fn seqs(&self) -> Vec<u64> {
        self.read().iter().map(|report| report.id.seq).collect()
    }
}

#[test]
fn the_latest_of_a_key_is_kept_and_goes_to_the_end() {
    let mut held = Held::new(OutboxSettings::default());
    for body in [status("a", "1"), status("b", "1"), terminated("a"), status("a", "2")] {
        held.put(body).expect("room");
    }
    assert_eq!(held.seqs(), [2, 3, 4]);
    assert_eq!(held.read()[2].body, status("a", "2"));
    assert_eq!(held.outbox.depth(), 3);
    let second = held.outbox.read(&held.engine, Some(held.read()[0].id), 1).expect("reads");
    assert_eq!(second, [report(3, terminated("a"))]);
}

#[test]
fn a_report_is_forgotten_only_when_it_was_acknowledged() {
    let mut held = Held::new(OutboxSettings::default());
    held.put(status("a", "1")).expect("room");
    held.put(status("b", "1")).expect("room");
    // The status of `a` changes while its former report is on the way.
    held.put(status("a", "2")).expect("room");
    held.forget(2);
    assert_eq!(held.read(), [report(3, status("a", "2"))]);
}

#[test]
fn the_outbox_survives_a_loss_of_power() {
    let mut held = Held::new(OutboxSettings::default());
    for body in [
        status("a", "1"),
        terminated("b"),
        message("m", 3),
        ReportBody::Node { object: Bytes::from_static(b"{}") },
    ] {
        held.put(body).expect("room");
    }
    let engine = held.engine.crash(Survival::Synced);
    let outbox = Outbox::open(&engine, OutboxSettings::default()).expect("opens");
    assert_eq!(outbox.read(&engine, None, 99).expect("reads"), held.read());
    assert_eq!(outbox.depth(), 4);
}

#[test]
fn messages_give_way_oldest_first_and_nothing_else_does() {
    let mut held = Held::new(OutboxSettings { reports_max: 3, bytes_max: 1 << 20 });
    held.put(message("old", 1)).expect("room");
    held.put(terminated("a")).expect("room");
    held.put(message("new", 1)).expect("room");
    held.put(status("b", "1")).expect("the oldest message gives way");
    assert_eq!(held.seqs(), [2, 3, 4]);
    held.put(status("c", "1")).expect("the other message gives way");
    assert_eq!(held.outbox.dropped(), 2);
    let refused = held.put(status("d", "1")).expect_err("nothing may give way");
    assert_eq!(refused.reports, 3);
    assert_eq!(held.seqs(), [2, 4, 5], "a refusal changes nothing");
    held.put(status("b", "2")).expect("what replaces its own needs no room");
}

#[test]
fn bytes_are_bounded_too() {
    let mut held = Held::new(OutboxSettings { reports_max: 99, bytes_max: 1_000 });
    held.put(message("a", 400)).expect("room");
    held.put(message("b", 400)).expect("room");
    held.put(message("c", 400)).expect("the oldest gives way");
    assert_eq!(held.seqs(), [2, 3]);
    held.put(message("d", 2_000)).expect_err("larger than all of it");
    assert_eq!(held.seqs(), [2, 3]);
}

#[derive(Clone, Debug)]
enum Step {
    Put(u8, u8),
    Forget(u64),
    Crash,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0_u8..6, any::<u8>()).prop_map(|(pod, value)| Step::Put(pod, value)),
        2 => (0_u64..60).prop_map(Step::Forget),
        1 => Just(Step::Crash),
    ];
    proptest::collection::vec(step, 0..60)
}

proptest! {
    #[test]
    fn the_outbox_is_the_latest_of_each_key_not_yet_acknowledged(steps in steps()) {
        let mut held = Held::new(OutboxSettings::default());
        let mut model: BTreeMap<u8, (u64, ReportBody)> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Put(pod, value) => {
                    let body = status(&format!("p{pod}"), &value.to_string());
                    let seq = held.put(body.clone()).expect("room");
                    model.insert(pod, (seq, body));
                }
                Step::Forget(through) => {
                    held.forget(through);
                    model.retain(|_, (seq, _)| *seq > through);
                }
                Step::Crash => {
                    held.engine = held.engine.crash(Survival::Synced);
                    held.outbox =
                        Outbox::open(&held.engine, OutboxSettings::default()).expect("opens");
                }
            }
            let mut expected: Vec<_> =
                model.values().map(|(seq, body)| report(*seq, body.clone())).collect();
            expected.sort_by_key(|report| report.id);
            prop_assert_eq!(held.read(), expected);
            let bytes = held.outbox.by_id.values().map(|slot| slot.bytes).sum::<usize>();
            prop_assert_eq!(held.outbox.bytes, bytes);
        }
    }
}
