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

fn event(name: &str) -> ReportBody {
    ReportBody::Event {
        key: format!("default/event/{name}").parse().expect("a key"),
        object: Bytes::from_static(b"{}"),
    }
}

fn terminated(pod: &str) -> ReportBody {
    let pod = format!("default/pod/{pod}").parse().expect("a key");
    ReportBody::PodTerminated { pod, uid: "u".to_owned() }
}

struct Bench {
    engine: MemoryEngine,
    outbox: Outbox,
    seq: u64,
}

impl Bench {
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
        self.outbox.read_all(&self.engine).expect("reads")
    }

    fn seqs(&self) -> Vec<u64> {
        self.read().iter().map(|report| report.id.seq).collect()
    }
}

#[test]
fn the_latest_of_a_key_is_kept_and_goes_to_the_end() {
    let mut bench = Bench::new(OutboxSettings::default());
    for body in [status("a", "1"), status("b", "1"), terminated("a"), status("a", "2")] {
        bench.put(body).expect("room");
    }
    assert_eq!(bench.seqs(), [2, 3, 4]);
    assert_eq!(bench.read()[2].body, status("a", "2"));
    assert_eq!(bench.outbox.depth(), 3);
    let by_bytes = PageRequest { after: None, count: usize::MAX, bytes: 1 };
    let page = bench.outbox.read(&bench.engine, by_bytes).expect("reads");
    assert_eq!((page.reports.len(), page.is_end), (1, bench.read().len() == 1));
    let second = PageRequest { after: Some(bench.read()[0].id), count: 1, bytes: u64::MAX };
    let second = bench.outbox.read(&bench.engine, second).expect("reads").reports;
    assert_eq!(second, [report(3, terminated("a"))]);
}

#[test]
fn a_report_is_forgotten_only_when_it_was_acknowledged() {
    let mut bench = Bench::new(OutboxSettings::default());
    bench.put(status("a", "1")).expect("room");
    bench.put(status("b", "1")).expect("room");
    // The status of `a` changes while its former report is on the way.
    bench.put(status("a", "2")).expect("room");
    bench.forget(2);
    assert_eq!(bench.read(), [report(3, status("a", "2"))]);
}

#[test]
fn the_outbox_survives_a_loss_of_power() {
    let mut bench = Bench::new(OutboxSettings::default());
    for body in [
        status("a", "1"),
        terminated("b"),
        message("m", 3),
        event("e"),
        ReportBody::Node { object: Bytes::from_static(b"{}") },
    ] {
        bench.put(body).expect("room");
    }
    let engine = bench.engine.crash(Survival::Synced);
    let outbox = Outbox::open(&engine, OutboxSettings::default()).expect("opens");
    assert_eq!(outbox.read_all(&engine).expect("reads"), bench.read());
    assert_eq!(outbox.depth(), 5);
}

#[test]
fn the_oldest_event_gives_way_to_a_new_one_and_not_to_one_that_happens_again() {
    let mut bench = Bench::new(OutboxSettings::default());
    bench.put(terminated("a")).expect("room");
    for number in 0..OUTBOX_EVENTS_MAX {
        bench.put(event(&format!("e{number}"))).expect("room");
    }
    assert_eq!((bench.outbox.depth(), bench.outbox.dropped()), (OUTBOX_EVENTS_MAX + 1, 0));
    bench.put(event("e7")).expect("room");
    assert_eq!(bench.outbox.dropped(), 0, "it takes the place of its former report");
    bench.put(event("new")).expect("room");
    assert_eq!((bench.outbox.depth(), bench.outbox.dropped()), (OUTBOX_EVENTS_MAX + 1, 1));
    let left = bench.read();
    assert!(!left.iter().any(|report| report.body == event("e0")), "the oldest one");
    assert!(left.iter().any(|report| report.body == terminated("a")), "and nothing else");
    // It is bounded over a restart, too.
    let mut outbox = Outbox::open(&bench.engine, OutboxSettings::default()).expect("opens");
    let mut batch = Batch::new();
    outbox.put(&mut batch, &node(), &report(9_999, event("last"))).expect("room");
    assert_eq!(outbox.depth(), OUTBOX_EVENTS_MAX + 1);
}

#[test]
fn the_oldest_messages_are_discarded_and_nothing_else() {
    let mut bench = Bench::new(OutboxSettings { reports_max: 3, bytes_max: 1 << 20 });
    bench.put(message("old", 1)).expect("room");
    bench.put(terminated("a")).expect("room");
    bench.put(message("new", 1)).expect("room");
    bench.put(status("b", "1")).expect("the oldest message is discarded");
    assert_eq!(bench.seqs(), [2, 3, 4]);
    bench.put(status("c", "1")).expect("the other message is discarded");
    assert_eq!(bench.outbox.dropped(), 2);
    let refused = bench.put(status("d", "1")).expect_err("no message to discard");
    assert_eq!(refused.reports, 3);
    assert_eq!(bench.seqs(), [2, 4, 5], "a refusal changes nothing");
    bench.put(status("b", "2")).expect("what replaces its own needs no room");
}

#[test]
fn bytes_are_bounded_too() {
    let mut bench = Bench::new(OutboxSettings { reports_max: 99, bytes_max: 1_000 });
    bench.put(message("a", 400)).expect("room");
    bench.put(message("b", 400)).expect("room");
    bench.put(message("c", 400)).expect("the oldest is discarded");
    assert_eq!(bench.seqs(), [2, 3]);
    bench.put(message("d", 2_000)).expect_err("larger than all of it");
    assert_eq!(bench.seqs(), [2, 3]);
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
        let mut bench = Bench::new(OutboxSettings::default());
        let mut model: BTreeMap<u8, (u64, ReportBody)> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Put(pod, value) => {
                    let body = status(&format!("p{pod}"), &value.to_string());
                    let seq = bench.put(body.clone()).expect("room");
                    model.insert(pod, (seq, body));
                }
                Step::Forget(through) => {
                    bench.forget(through);
                    model.retain(|_, (seq, _)| *seq > through);
                }
                Step::Crash => {
                    bench.engine = bench.engine.crash(Survival::Synced);
                    bench.outbox =
                        Outbox::open(&bench.engine, OutboxSettings::default()).expect("opens");
                }
            }
            let mut expected: Vec<_> =
                model.values().map(|(seq, body)| report(*seq, body.clone())).collect();
            expected.sort_by_key(|report| report.id);
            prop_assert_eq!(bench.read(), expected);
            let bytes = bench.outbox.by_id.values().map(|entry| entry.bytes).sum::<usize>();
            prop_assert_eq!(bench.outbox.bytes, bytes);
        }
    }
}
