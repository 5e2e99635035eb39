//! The rules, record by record.

use bytes::Bytes;
use headwater_event::record::{Claim, LogMetadata};
use headwater_event::{
    BodyHeader, Cursor, Envelope, Event, EventHeader, LeaderEpoch, LogId, ObjectHash, Offset,
    Partition, Seq, StateHash, StreamId, TopicId, WriterEpoch,
};
use uuid::Uuid;

use super::*;
use crate::log::Record;
use crate::value::encode_reference;

const LAG_MS: i64 = 1000;

/// A partition whose records are made by hand: every one a second after the one before.
struct Story {
    acceptance: Acceptance,
    next: u64,
}

impl Story {
    fn following() -> Self {
        Self { acceptance: Acceptance::fold(metadata(), vec![range(0)], 0, 0), next: 0 }
    }

    /// Folds up to `high`; records before `intact_from` (an offset) may have lost neighbours.
    fn folding(high: u64, intact_from: u64) -> Self {
        let intact_from_ms = time_ms(intact_from);
        Self {
            acceptance: Acceptance::fold(
                metadata(),
                vec![range(high)],
                intact_from_ms,
                time_ms(high),
            ),
            next: 0,
        }
    }

    fn read(&mut self, record: Record) -> Outcome {
        let offset = Offset(self.next);
        self.next += 1;
        let recorded = StoredRecord {
            partition: Partition(0),
            offset,
            leader_epoch: LeaderEpoch(0),
            time_ms: time_ms(offset.0),
            record,
        };
        let batch =
            Batch { records: vec![recorded], cursor: cursor(self.next), high: Offset(u64::MAX) };
        self.acceptance.accept_batch(&batch, 0).remove(0)
    }

    /// Passes an offset whose record compaction dropped.
    fn skip(&mut self) {
        self.next += 1;
    }

    fn claim(&mut self, epoch: u64, writer: u128) -> Outcome {
        self.read(claim(epoch, writer))
    }

    fn event(&mut self, key: &str, epoch: u64, seq: u64) -> Outcome {
        self.read(event(key, epoch, seq, Some("{}")))
    }

    fn at(&self) -> (u64, bool) {
        let position = self.acceptance.stream(&stream()).expect("the stream was met");
        (position.seq.0, position.stopped.is_some())
    }

    fn repairs(&self) -> Vec<String> {
        let repairs = self.acceptance.repairs().map(|(_, key)| match key {
            RepairKey::Head => "!head".to_owned(),
            RepairKey::Entry(key) => key.to_string(),
        });
        repairs.collect()
    }
}

fn time_ms(offset: u64) -> i64 {
    i64::try_from(offset).expect("small") * LAG_MS
}

fn metadata() -> LogMetadata {
    LogMetadata { log_id: LogId { number: 1, uuid: Uuid::from_u128(1) }, partitions: 1 }
}

fn cursor(next: u64) -> Cursor {
    Cursor {
        topic: TopicId(Uuid::from_u128(9)),
        partition: Partition(0),
        next: Offset(next),
        leader_epoch: LeaderEpoch(0),
    }
}

fn range(high: u64) -> FoldRange {
    FoldRange { start: cursor(0), high: Offset(high) }
}

fn stream() -> StreamId {
    "node/gw-1".parse().expect("well-formed")
}

fn record(key: String, value: Option<Vec<u8>>, header: Vec<u8>) -> Record {
    Record {
        key: key.into(),
        value: value.map(Bytes::from),
        header: header.into(),
        traceparent: None,
    }
}

fn claim(epoch: u64, writer: u128) -> Record {
    let (epoch, writer) = (WriterEpoch(epoch), Uuid::from_u128(writer));
    let value = serde_json::to_vec(&Claim { epoch, writer, address: None }).expect("JSON");
    record(RecordKey::Claim(epoch, writer).to_string(), Some(value), Vec::new())
}

fn sign(key: RecordKey) -> Record {
    record(key.to_string(), Some(b"{}".to_vec()), Vec::new())
}

fn event(key: &str, epoch: u64, seq: u64, value: Option<&str>) -> Record {
    event_since(key, (epoch, 1), seq, value)
}

/// An event of an epoch whose first seq in the stream is given with it.
fn event_since(key: &str, epoch: (u64, u64), seq: u64, value: Option<&str>) -> Record {
    let header = EventHeader {
        seq: Seq(seq),
        epoch: WriterEpoch(epoch.0),
        epoch_first_seq: Seq(epoch.1),
        uid: String::new(),
        resource_version: String::new(),
        hash: StateHash::EMPTY,
    };
    record(
        format!("{} {key}", stream()),
        value.map(|text| text.as_bytes().to_vec()),
        header.encode(),
    )
}

fn is_accepted(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Accepted(_))
}

#[test]
fn nothing_counts_before_a_claim() {
    let mut story = Story::following();
    assert!(matches!(story.event("d/pod/a", 1, 1), Outcome::Fenced(_)));
    story.claim(1, 1);
    assert!(is_accepted(&story.event("d/pod/a", 1, 1)));
}

#[test]
fn a_frozen_writer_that_wakes_is_fenced_until_its_key_is_written_again() {
    let mut story = Story::following();
    story.claim(1, 1);
    assert!(is_accepted(&story.event("d/pod/a", 1, 1)));
    story.claim(2, 2);
    assert!(matches!(story.event("d/pod/a", 1, 2), Outcome::Fenced(_)));
    assert_eq!((story.at(), story.repairs()), ((1, false), vec!["d/pod/a".to_owned()]));
    assert!(is_accepted(&story.event("d/pod/a", 2, 2)));
    assert_eq!(story.repairs(), Vec::<String>::new());
}

#[test]
fn of_two_claims_of_one_epoch_the_first_wins() {
    let mut story = Story::following();
    assert!(matches!(story.claim(1, 1), Outcome::Claimed { .. }));
    assert_eq!(story.claim(1, 2), Outcome::Ignored(IgnoreReason::LostClaim));
    let writer = story.acceptance.writer().expect("claimed");
    assert_eq!(writer.writer, Uuid::from_u128(1));
}

#[test]
fn a_hole_stops_the_stream_until_a_higher_epoch_fills_it() {
    let mut story = Story::following();
    story.claim(1, 1);
    story.event("d/pod/a", 1, 1);
    let hole = Hole { stream: stream(), expected: Seq(2), found: Seq(4), epoch: WriterEpoch(1) };
    assert_eq!(story.event("d/pod/d", 1, 4), Outcome::Hole(hole));
    // What comes late, or later, from the same writer is not the history any more.
    assert_eq!(story.event("d/pod/b", 1, 2), Outcome::Ignored(IgnoreReason::BehindHole));
    assert_eq!(story.event("d/pod/e", 1, 5), Outcome::Ignored(IgnoreReason::BehindHole));
    assert_eq!(story.at(), (1, true));
    story.claim(2, 2);
    assert!(is_accepted(&story.event("d/pod/c", 2, 2)));
    assert_eq!(story.at(), (2, false));
    assert_eq!(story.repairs(), ["d/pod/b", "d/pod/d", "d/pod/e"]);
}

#[test]
fn a_writer_that_started_from_another_state_is_a_hole() {
    let mut story = Story::following();
    story.claim(1, 1);
    story.event("d/pod/a", 1, 1);
    story.event("d/pod/b", 1, 2);
    story.claim(2, 2);
    assert!(matches!(story.event("d/pod/c", 2, 2), Outcome::Hole(_)));
    assert_eq!(story.at(), (2, true));
}

#[test]
fn a_record_appended_twice_is_one_event() {
    let mut story = Story::following();
    story.claim(1, 1);
    assert!(is_accepted(&story.event("d/pod/a", 1, 1)));
    assert_eq!(story.event("d/pod/a", 1, 1), Outcome::Ignored(IgnoreReason::Duplicate));
    assert!(is_accepted(&story.event("d/pod/a", 1, 2)));
}

#[test]
fn a_record_below_the_cursor_is_not_judged_again() {
    let mut story = Story::following();
    story.claim(1, 1);
    story.event("d/pod/a", 1, 1);
    story.next -= 1;
    assert_eq!(story.event("d/pod/a", 1, 1), Outcome::Ignored(IgnoreReason::ReadBefore));
    assert_eq!(story.repairs(), Vec::<String>::new());
}

#[test]
fn compaction_leaves_gaps_in_a_fold_and_never_in_what_follows_it() {
    let mut story = Story::folding(4, u64::MAX / 2_000);
    story.claim(1, 1);
    story.skip();
    story.skip();
    assert!(!story.acceptance.is_folded());
    assert!(is_accepted(&story.event("d/pod/a", 1, 3)));
    assert!(story.acceptance.is_folded());
    assert!(matches!(story.event("d/pod/a", 1, 5), Outcome::Hole(_)));
}

#[test]
fn a_seq_is_missing_in_a_fold_only_where_an_old_offset_is() {
    let mut story = Story::folding(100, 4);
    story.claim(1, 1);
    story.skip();
    assert!(is_accepted(&story.event("d/pod/a", 1, 2)), "offset 1 is gone");
    assert!(matches!(story.event("d/pod/b", 1, 4), Outcome::Hole(_)), "no offset is gone");
    story.claim(2, 2);
    story.skip();
    assert!(matches!(story.event("d/pod/b", 2, 4), Outcome::Hole(_)), "too young");
}

#[test]
fn the_first_event_of_an_epoch_may_follow_a_tombstone_that_compaction_dropped() {
    let mut story = Story::folding(100, 0);
    story.claim(1, 1);
    assert!(is_accepted(&story.event("d/pod/a", 1, 1)));
    // The removal at seq 2. Its writer failed before it appended a head.
    story.skip();
    story.claim(2, 2);
    let hole = story.read(event_since("d/pod/c", (2, 3), 4, Some("{}")));
    assert!(matches!(hole, Outcome::Hole(_)), "seq 3 of the new writer is missing: {hole:?}");
    story.claim(3, 3);
    assert!(is_accepted(&story.read(event_since("d/pod/b", (3, 3), 3, Some("{}")))));
    assert_eq!(story.at(), (3, false));
}

#[test]
fn a_clock_that_is_not_the_log_s_decides_nothing() {
    // The reader's clock shows the time of offset 10; 4 offsets before it nothing is compacted.
    let mut story = Story::following();
    let range = vec![range(100)];
    story.acceptance = Acceptance::fold(metadata(), range, time_ms(6), time_ms(10));
    story.next = 8;
    story.claim(1, 1);
    story.skip();
    assert!(matches!(story.event("d/pod/a", 1, 3), Outcome::Hole(_)), "clocks differ a little");
    let state = &story.acceptance.partitions()[&Partition(0)];
    let position = story.acceptance.stream(&stream()).expect("the stream was met");
    assert!(state.misses_behind(position), "compaction may have made the hole");
    story.next = 20;
    story.claim(2, 2);
    story.skip();
    assert!(is_accepted(&story.event("d/pod/a", 2, 3)), "the log's clock is far ahead");
}

#[test]
fn a_fold_that_took_an_event_from_behind_a_hole_follows_the_next_writer_back() {
    let mut story = Story::folding(100, 50);
    story.claim(1, 1);
    story.skip();
    assert!(is_accepted(&story.event("d/pod/d", 1, 4)));
    story.claim(2, 2);
    assert!(is_accepted(&story.event("d/pod/b", 2, 2)));
    assert!(is_accepted(&story.event("d/pod/d", 2, 3)));
    assert_eq!(story.at(), (3, false));
}

#[test]
fn reconciled_counts_only_from_the_newest_writer() {
    let mut story = Story::following();
    story.claim(1, 1);
    assert!(matches!(
        story.read(sign(RecordKey::Reconciled(WriterEpoch(1)))),
        Outcome::Reconciled { .. }
    ));
    assert!(story.acceptance.is_reconciled());
    story.claim(2, 2);
    assert!(!story.acceptance.is_reconciled());
    let late = story.read(sign(RecordKey::Reconciled(WriterEpoch(1))));
    assert_eq!(late, Outcome::Ignored(IgnoreReason::FormerWriter));
    assert!(!story.acceptance.is_reconciled());
}

#[test]
fn a_removal_makes_a_head_due_and_the_head_keeps_the_position() {
    let mut story = Story::following();
    story.claim(1, 1);
    story.event("d/pod/a", 1, 1);
    assert!(is_accepted(&story.read(event("d/pod/a", 1, 2, None))));
    assert!(story.acceptance.stream(&stream()).expect("met").head_due);
    assert!(is_accepted(&story.read(event("!head", 1, 3, Some("{}")))));
    let position = story.acceptance.stream(&stream()).expect("met");
    assert_eq!((position.seq, position.head_due), (Seq(3), false));
}

#[test]
fn an_event_that_cannot_be_read_stops_its_stream() {
    let mut story = Story::following();
    story.claim(1, 1);
    let sealed = story.read(event("d/pod/a", 1, 1, Some("\u{3}secret")));
    assert!(matches!(sealed, Outcome::Malformed(MalformedRecord { stream: Some(_), .. })));
    assert_eq!(story.event("d/pod/b", 1, 2), Outcome::Ignored(IgnoreReason::BehindHole));
    assert!(matches!(
        story.read(sign(RecordKey::Heartbeat(WriterEpoch(1)))),
        Outcome::Heartbeat { .. }
    ));
}

#[test]
fn a_log_is_released_by_the_last_word_of_its_newest_writer() {
    let mut story = Story::following();
    let sign = |epoch, json: &'static str| {
        let mut sign = sign(RecordKey::Heartbeat(WriterEpoch(epoch)));
        sign.value = Some(Bytes::from_static(json.as_bytes()));
        sign
    };
    assert!(!story.acceptance.is_released(), "nobody ever wrote");
    story.claim(1, 1);
    for (json, is_released) in [("{}", false), (r#"{"released":true}"#, true), ("7", false)] {
        story.read(sign(1, json));
        assert_eq!(story.acceptance.is_released(), is_released, "{json}");
    }
    story.read(sign(1, r#"{"released":true}"#));
    story.claim(2, 2);
    assert!(!story.acceptance.is_released(), "another has claimed");
    story.read(sign(1, r#"{"released":true}"#));
    assert!(!story.acceptance.is_released(), "a former writer has no word");
    story.read(sign(2, r#"{"released":true}"#));
    assert!(story.acceptance.is_released());
}

#[test]
fn what_changed_restores_the_same_state() {
    let mut story = Story::following();
    story.claim(1, 1);
    story.event("d/pod/a", 1, 1);
    story.claim(2, 2);
    story.event("d/pod/a", 1, 2);
    let changes = story.acceptance.take_changes();
    assert_eq!(story.acceptance.take_changes(), AcceptanceChanges::default());
    let text = serde_json::to_string(&(&changes.partitions, &changes.streams)).expect("JSON");
    let (partitions, streams): (Vec<_>, Vec<_>) = serde_json::from_str(&text).expect("JSON");
    story.acceptance = Acceptance::restore(metadata(), partitions, streams);
    assert_eq!(story.repairs(), ["d/pod/a"]);
    assert!(is_accepted(&story.event("d/pod/b", 2, 2)));
}

#[test]
fn the_window_is_left_half_way() {
    let mut story = Story::following();
    story.claim(1, 1);
    let mut state = story.acceptance.partitions()[&Partition(0)].clone();
    assert!(state.inside_window(500, 1000), "the fold began at zero");
    state.caught_up_ms = Some(100);
    assert!(state.inside_window(600, 1000) && !state.inside_window(601, 1000));
    assert!(!state.inside_window(99, 1000), "a clock set back proves nothing");
}

proptest::proptest! {
    #[test]
    fn no_record_panics(key: Vec<u8>, value: Option<Vec<u8>>, header: Vec<u8>) {
        let mut story = Story::following();
        story.read(Record {
            key: key.into(), value: value.map(Bytes::from), header: header.into(), traceparent: None,
        });
    }
}

fn body(number: u64, object: Option<&str>) -> Record {
    let header = object.map(|object| BodyHeader {
        uid: "u".to_owned(),
        resource_version: "1".to_owned(),
        object_hash: ObjectHash::of(object.as_bytes()),
    });
    let id = BodyId { epoch: WriterEpoch(1), number };
    let header = header.map(|header| header.encode()).unwrap_or_default();
    record(RecordKey::Body(id).to_string(), object.map(|it| it.as_bytes().to_vec()), header)
}

fn reference(key: &str, epoch: u64, seq: u64, number: u64) -> Record {
    let mut reference = event(key, epoch, seq, Some("{}"));
    reference.value = Some(encode_reference(number));
    reference
}

fn object_of(outcome: &Outcome) -> Option<&[u8]> {
    match outcome {
        Outcome::Accepted(Envelope { event: Event::Applied(applied), .. }) => Some(&applied.object),
        _ => None,
    }
}

#[test]
fn a_reference_has_the_object_of_the_body_of_its_epoch() {
    let mut story = Story::following();
    story.claim(1, 1);
    story.read(body(1, Some("{\"a\":1}")));
    let accepted = story.read(reference("d/pod/a", 1, 1, 1));
    assert_eq!(object_of(&accepted), Some(b"{\"a\":1}".as_slice()));
    story.claim(2, 2);
    let of_another_epoch = story.read(reference("d/pod/a", 2, 2, 1));
    assert!(matches!(of_another_epoch, Outcome::Malformed(_)), "{of_another_epoch:?}");
    assert_eq!(story.at(), (1, true));
}

#[test]
fn a_reference_without_its_body_stops_its_stream_until_the_next_epoch() {
    let mut story = Story::following();
    story.claim(1, 1);
    let lost = story.read(reference("d/pod/a", 1, 1, 1));
    let Outcome::Malformed(malformed) = lost else { panic!("{lost:?}") };
    assert!(matches!(malformed.reason, MalformedReason::NoBody { .. }), "{malformed:?}");
    assert_eq!((story.at(), story.repairs()), ((0, true), vec!["d/pod/a".to_owned()]));
    // A body that comes late changes nothing.
    story.read(body(1, Some("{}")));
    story.event("d/pod/b", 1, 2);
    assert_eq!(story.at(), (0, true));
    story.claim(2, 2);
    story.event("d/pod/a", 2, 1);
    assert_eq!((story.at(), story.repairs()), ((1, false), vec!["d/pod/b".to_owned()]));
}

#[test]
fn a_fold_passes_an_old_reference_whose_body_compaction_dropped() {
    for (intact_from, passes) in [(10, true), (0, false)] {
        let mut story = Story::folding(10, intact_from);
        story.claim(1, 1);
        story.skip();
        let passed = story.read(reference("d/pod/a", 1, 1, 1));
        assert_eq!(matches!(passed, Outcome::BodyCompacted(_)), passes, "{passed:?}");
        assert_eq!(story.at(), (u64::from(passes), !passes));
    }
    let mut story = Story::folding(10, 10);
    story.claim(1, 1);
    let lost = story.read(reference("d/pod/a", 1, 1, 1));
    assert!(matches!(lost, Outcome::Malformed(_)), "no offset is missing: {lost:?}");
}

#[test]
fn a_damaged_body_is_named_and_not_kept() {
    let mut story = Story::following();
    story.claim(1, 1);
    let mut damaged = body(1, Some("{}"));
    damaged.value = Some(Bytes::from_static(b"[]"));
    let outcome = story.read(damaged);
    let Outcome::Malformed(malformed) = outcome else { panic!("{outcome:?}") };
    assert_eq!(malformed.reason, MalformedReason::BodyHash);
    story.read(reference("d/pod/a", 1, 1, 1));
    assert_eq!(story.at(), (0, true));
}
