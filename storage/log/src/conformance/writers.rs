//! Cases of writers: claims, fencing, heads, `Reconciled`, and readers that resume.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use headwater_event::record::LogMetadata;
use headwater_event::{Applied, Event, Partition, Removed, Seq, StreamId};
use uuid::Uuid;

use super::{Capability, Case, Settings, Subject, next, read_all};
use crate::acceptance::{Acceptance, RepairKey};
use crate::claim::{ClaimError, Claimant, claim};
use crate::fold::begin_fold;
use crate::log::{Append, Log, Reader};
use crate::memory::AppendFault;
use crate::metadata::{MetadataProposal, read_or_create_metadata};
use crate::writer::{
    Draft, FinishedAppend, InFlightEntry, InFlightUsage, SHARED_BYTES_MIN, Writer, repair,
};
use crate::{Outcome, WriterError};

pub(super) const CASES: &[Case] = &[
    Case {
        name: "of concurrent claims one wins, and the losers know the winner",
        needs: &[],
        run: |subject| Box::pin(one_wins(subject)),
    },
    Case {
        name: "events of a fenced writer do not count, and its keys are repaired",
        needs: &[],
        run: |subject| Box::pin(fenced(subject)),
    },
    Case {
        name: "a record of the former log that arrives after a re-creation does not count",
        needs: &[Capability::Recreation],
        run: |subject| Box::pin(former_life(subject)),
    },
    Case {
        name: "a writer continues from the last accepted event of each stream",
        needs: &[],
        run: |subject| Box::pin(continues(subject)),
    },
    Case {
        name: "appends in flight keep their order, and each knows the one before it",
        needs: &[],
        run: |subject| Box::pin(in_flight(subject)),
    },
    Case {
        name: "an append that fails suspends its partition, and the next writer continues before the gap",
        needs: &[Capability::Faults],
        run: |subject| Box::pin(fails_in_flight(subject)),
    },
    Case {
        name: "a rejected append leaves no gap",
        needs: &[],
        run: |subject| Box::pin(rejected(subject)),
    },
    Case {
        name: "`Reconciled` counts in every partition, from the newest writer only",
        needs: &[],
        run: |subject| Box::pin(reconciled(subject)),
    },
    Case {
        name: "a head keeps a stream's position after compaction has dropped its tombstones",
        needs: &[Capability::Clock, Capability::Compaction],
        run: |subject| Box::pin(heads(subject)),
    },
    Case {
        name: "events of one partition share an object, and every reader has it",
        needs: &[],
        run: |subject| Box::pin(share(subject)),
    },
    Case {
        name: "compaction drops a retired body, and keeps one to which an event refers",
        needs: &[Capability::Clock, Capability::Compaction],
        run: |subject| Box::pin(retire(subject)),
    },
    Case {
        name: "a reader resumes from the acceptance that it stored",
        needs: &[],
        run: |subject| Box::pin(resumes(subject)),
    },
];

/// Longer than a healthy log takes for a heartbeat.
const PATIENCE: Duration = Duration::from_secs(10);

/// A reader that folds positions only.
struct Follower {
    log: Arc<dyn Log>,
    reader: Box<dyn Reader>,
    acceptance: Acceptance,
    seen: Vec<Outcome>,
}

impl Follower {
    async fn new(log: &Arc<dyn Log>) -> Self {
        let proposal = MetadataProposal { previous: None, uuid: Uuid::from_u128(1) };
        let metadata = read_or_create_metadata(log.as_ref(), proposal).await.expect("readable");
        Self::of(log, metadata, i64::MIN).await
    }

    /// Folds the log to its end. `now_ms` is the reader's clock: below every append time unless
    /// compaction has run.
    async fn of(log: &Arc<dyn Log>, metadata: LogMetadata, now_ms: i64) -> Self {
        let acceptance = begin_fold(log.as_ref(), metadata, now_ms).await.expect("readable");
        let reader = log.read(acceptance.cursors()).await.expect("readable");
        let mut follower = Self { log: log.clone(), reader, acceptance, seen: Vec::new() };
        follower.read_to_end().await;
        follower
    }

    async fn read_to_end(&mut self) {
        for partition in 0..self.acceptance.metadata().partitions {
            let partition = Partition(partition);
            let high = self.log.bounds(partition).await.expect("reachable").high;
            while self.acceptance.partitions()[&partition].cursor.next < high {
                let batch = next(self.reader.as_mut()).await.expect("readable");
                self.seen.extend(self.acceptance.accept_batch(&batch, 0));
            }
        }
    }

    async fn claim(&mut self, number: u128) -> Result<Writer, ClaimError> {
        let claimant = Claimant::new(Uuid::from_u128(number));
        let Self { log, reader, acceptance, seen, .. } = self;
        let mut each = |_: &_, outcomes: Vec<_>| seen.extend(outcomes);
        claim(log, reader.as_mut(), acceptance, &claimant, &|| 0, &mut each).await
    }

    /// The objects of the events seen.
    fn objects(&self) -> Vec<Bytes> {
        let object = |outcome: &Outcome| match outcome {
            Outcome::Accepted(it) => match &it.event {
                Event::Applied(applied) => Some(applied.object.clone()),
                _ => None,
            },
            _ => None,
        };
        self.seen.iter().filter_map(object).collect()
    }

    /// The events seen, as `<seq> <kind> <key>`.
    fn events(&self) -> Vec<String> {
        let event = |outcome: &Outcome| match outcome {
            Outcome::Accepted(it) => {
                let key = it.event.key().map(|key| format!(" {key}")).unwrap_or_default();
                Some(format!("{} {}{key}", it.seq, it.event.kind()))
            }
            _ => None,
        };
        self.seen.iter().filter_map(event).collect()
    }
}

fn stream() -> StreamId {
    "node/n1".parse().expect("well-formed")
}

fn applied(name: &str) -> Draft {
    let applied = Applied {
        key: format!("d/pod/{name}").parse().expect("well-formed"),
        uid: "u".to_owned(),
        resource_version: "1".to_owned(),
        object: Bytes::from(format!("{{\"name\":\"{name}\"}}")),
    };
    draft(Event::Applied(applied))
}

/// An object that is large enough to be shared.
fn large(number: u8) -> Bytes {
    format!("{{\"number\":{number},\"pad\":\"{}\"}}", ".".repeat(SHARED_BYTES_MIN)).into()
}

fn sharing(name: &str, number: u8) -> Draft {
    let mut draft = Draft { is_shared: true, ..applied(name) };
    if let Event::Applied(applied) = &mut draft.event {
        applied.object = large(number);
    }
    draft
}

fn removed(name: &str) -> Draft {
    let key = format!("d/pod/{name}").parse().expect("well-formed");
    draft(Event::Removed(Removed { key, uid: "u".to_owned() }))
}

fn draft(event: Event) -> Draft {
    Draft { stream: stream(), event, replaces: None, traceparent: None, is_shared: false }
}

async fn one_wins(subject: &dyn Subject) {
    let log = subject.log();
    let mut tasks = Vec::new();
    for number in 1..=3 {
        let mut follower = Follower::new(&log).await;
        tasks.push(tokio::spawn(async move {
            match follower.claim(number).await {
                Ok(writer) => Ok(writer.epoch()),
                Err(ClaimError::Lost { winner, .. }) => Err(winner.epoch),
                Err(error) => panic!("{error}"),
            }
        }));
    }
    let mut results = Vec::new();
    for task in tasks {
        results.push(task.await.expect("no panic"));
    }
    let highest = results.iter().filter_map(|result| result.as_ref().ok()).max();
    let highest = *highest.expect("at least one won");
    let follower = Follower::new(&log).await;
    let writer = follower.acceptance.writer().expect("claimed");
    assert_eq!(writer.epoch, highest, "{results:?}");
    let mut epochs: Vec<_> = results.iter().filter_map(|result| result.as_ref().ok()).collect();
    epochs.sort();
    epochs.dedup();
    let won = results.iter().filter(|result| result.is_ok()).count();
    assert_eq!(epochs.len(), won, "two writers have one epoch: {results:?}");
}

async fn fenced(subject: &dyn Subject) {
    let log = subject.log();
    let mut former = Follower::new(&log).await;
    let mut zombie = former.claim(1).await.expect("the first claims");
    zombie.append(vec![applied("a")]).await.expect("alive");
    let mut owner = Follower::new(&log).await;
    let mut writer = owner.claim(2).await.expect("the second claims");
    zombie
        .append(vec![applied("a"), applied("b")])
        .await
        .expect("it does not know of its successor");
    owner.read_to_end().await;
    assert_eq!(owner.events(), ["1 PodApplied d/pod/a"]);
    let repairs = writer.repairs(&owner.acceptance);
    assert_eq!(repairs.len(), 2);
    let Event::Applied(present) = applied("a").event else { return };
    let drafts = repairs.into_iter().map(|(stream, touched)| {
        let is_a = matches!(&touched, RepairKey::Entry(key) if *key == present.key);
        repair(stream, touched, is_a.then(|| present.clone()))
    });
    writer.append(drafts.collect()).await.expect("alive");
    assert!(writer.repairs(&owner.acceptance).is_empty(), "they are in flight");
    owner.read_to_end().await;
    assert_eq!(owner.acceptance.repairs().count(), 0);
    assert_eq!(owner.events()[1..], ["2 PodApplied d/pod/a", "3 PodRemoved d/pod/b"]);
    former.read_to_end().await;
    former.seen.iter().for_each(|outcome| zombie.observe(outcome));
    assert!(matches!(zombie.append(vec![applied("c")]).await, Err(WriterError::Dead { .. })));
}

async fn former_life(subject: &dyn Subject) {
    let log = subject.log();
    let mut former = Follower::new(&log).await;
    let mut zombie = former.claim(1).await.expect("the first claims");
    zombie.append(vec![applied("a"), applied("c")]).await.expect("alive");
    let LogMetadata { log_id: previous, partitions } = *former.acceptance.metadata();
    let late = read_all(log.as_ref(), stream().partition(partitions).0).await.pop();
    let late = late.expect("it was appended").record;
    subject.recreate().await;
    let log = subject.log();
    let proposal = MetadataProposal { previous: Some(previous), uuid: Uuid::from_u128(2) };
    let metadata = read_or_create_metadata(log.as_ref(), proposal).await.expect("readable");
    let mut owner = Follower::of(&log, metadata, i64::MIN).await;
    let mut writer = owner.claim(2).await.expect("the second claims");
    writer.append(vec![applied("b")]).await.expect("alive");
    // Neither a broker nor its client distinguishes the two logs.
    let partition = stream().partition(metadata.partitions);
    log.append(vec![Append { partition, record: late }]).await.expect("reachable");
    owner.read_to_end().await;
    assert_eq!(owner.events(), ["1 PodApplied d/pod/b"]);
    assert_eq!(writer.repairs(&owner.acceptance).len(), 1);
}

async fn continues(subject: &dyn Subject) {
    let log = subject.log();
    let mut follower = Follower::new(&log).await;
    let mut first = follower.claim(1).await.expect("claims");
    let written = first.append(vec![applied("a"), applied("b")]).await.expect("alive");
    assert_eq!(written.iter().map(|it| it.seq).collect::<Vec<_>>(), [Seq(1), Seq(2)]);
    let mut second = follower.claim(2).await.expect("claims");
    assert_eq!(second.position(&stream()), first.position(&stream()));
    second.append(vec![applied("c")]).await.expect("alive");
    follower.read_to_end().await;
    let position = follower.acceptance.stream(&stream()).expect("met").clone();
    assert_eq!((position.seq, position.epoch_first_seq), (Seq(3), Seq(3)));
    assert_eq!((position.epoch, position.hash), (second.epoch(), second.position(&stream()).1));
}

async fn in_flight(subject: &dyn Subject) {
    const APPENDS: u64 = 64;
    let log = subject.log();
    let mut follower = Follower::new(&log).await;
    let mut writer = follower.claim(1).await.expect("claims");
    for number in 0..APPENDS {
        // Two streams, and thus two partitions; one key of each over and over.
        let mut drafts = vec![applied("a"), applied(&format!("b{number}"))];
        drafts.push(Draft { stream: StreamId::Cluster, ..applied("a") });
        let begun = writer.begin(drafts).expect("alive");
        assert_eq!(begun.iter().map(|call| call.events).sum::<usize>(), 3);
    }
    let partition = |stream: &StreamId| stream.partition(Settings::default().partitions);
    let (node, cluster) = (partition(&stream()), partition(&StreamId::Cluster));
    assert_ne!(node, cluster, "each has calls of its own");
    assert_eq!([node, cluster].map(|at| writer.pending_of(at) as u64), [APPENDS; 2]);
    assert_eq!(writer.in_flight() as u64, APPENDS + 2);
    let Event::Applied(last) = applied("a").event else { return };
    let entry = writer.in_flight_entry(&stream(), &last.key);
    assert!(matches!(entry, Some(InFlightEntry::Applied { applied, .. }) if applied == last));
    let (mut of_node, mut of_cluster) = (Vec::new(), Vec::new());
    while writer.pending() > 0 {
        let finished = writer.finished().await.expect("alive");
        let FinishedAppend::Appended { partition, positions } = finished else {
            panic!("{finished:?}");
        };
        let seqs = positions.iter().map(|event| event.seq.0);
        if partition == node { of_node.extend(seqs) } else { of_cluster.extend(seqs) }
    }
    assert_eq!(of_node, Vec::from_iter(1..=2 * APPENDS), "oldest first");
    assert_eq!(of_cluster, Vec::from_iter(1..=APPENDS), "oldest first");
    assert_eq!(writer.pending(), 0);
    follower.read_to_end().await;
    for outcome in &follower.seen {
        assert!(!matches!(outcome, Outcome::Hole(_)), "{outcome:?}");
        writer.observe(outcome);
    }
    assert_eq!(writer.in_flight(), 0);
    assert_eq!(writer.in_flight_of(node), InFlightUsage::default());
    for stream in [stream(), StreamId::Cluster] {
        let position = follower.acceptance.stream(&stream).expect("met");
        assert_eq!((position.seq, position.hash), writer.position(&stream));
    }
}

async fn fails_in_flight(subject: &dyn Subject) {
    for (number, fault) in [(1, AppendFault::UnknownLost), (2, AppendFault::Rejected)] {
        let log = subject.log();
        let mut follower = Follower::new(&log).await;
        let mut writer = follower.claim(number).await.expect("claims");
        let (before, _) = writer.position(&stream());
        writer.begin(vec![applied("a")]).expect("alive");
        subject.fail_next_append(fault);
        writer.begin(vec![applied("lost")]).expect("alive");
        writer.begin(vec![applied("behind")]).expect("alive");
        let first = writer.finished().await.expect("the first is written");
        assert!(matches!(first, FinishedAppend::Appended { .. }), "{first:?}");
        let second = writer.finished().await.expect("the second is not; other partitions are well");
        assert!(matches!(second, FinishedAppend::Suspended { .. }), "{second:?}");
        assert_eq!(writer.pending(), 0, "what comes behind it is unknown");
        assert_eq!(writer.begin(vec![applied("c")]).expect("alive"), [], "it is left out");
        let refused = writer.append(vec![applied("c")]).await;
        assert!(matches!(refused, Err(WriterError::Suspended { .. })), "{refused:?}");
        let marked = writer.reconciled().await;
        assert!(matches!(marked, Err(WriterError::Suspended { .. })), "not everything is there");
        let other = Draft { stream: StreamId::Cluster, ..applied("a") };
        assert_eq!(writer.append(vec![other]).await.expect("alive").len(), 1);
        follower.read_to_end().await;
        assert!(follower.seen.iter().any(|outcome| matches!(outcome, Outcome::Hole(_))));
        let mut next = follower.claim(number + 10).await.expect("claims");
        assert_eq!(next.position(&stream()).0, before.next(), "up to the gap");
        let repairs = next.repairs(&follower.acceptance);
        assert_eq!(repairs.len(), 1, "the record behind the gap: {repairs:?}");
        next.append(vec![applied("d")]).await.expect("alive");
        follower.read_to_end().await;
        assert_eq!(
            follower.acceptance.stream(&stream()).map(|at| at.seq),
            Some(before.next().next())
        );
    }
}

async fn rejected(subject: &dyn Subject) {
    let log = subject.log();
    let mut follower = Follower::new(&log).await;
    let mut writer = follower.claim(1).await.expect("claims");
    let mut large = applied("large");
    if let Event::Applied(applied) = &mut large.event {
        // Random enough that no compression makes it fit.
        let limit = Settings::default().record_bytes_max as u64;
        let text: String = (0..limit).map(|n| format!("{:x}", n * n * 2_654_435_761)).collect();
        applied.object = Bytes::from(format!("{{\"text\":\"{text}\"}}"));
    }
    let result = writer.append(vec![applied("a"), large]).await;
    assert!(matches!(result, Err(WriterError::TooLarge { .. })), "{result:?}");
    writer.append(vec![applied("b")]).await.expect("alive");
    follower.read_to_end().await;
    assert_eq!(follower.events(), ["1 PodApplied d/pod/b"]);
}

async fn reconciled(subject: &dyn Subject) {
    let log = subject.log();
    let mut follower = Follower::new(&log).await;
    let mut first = follower.claim(1).await.expect("claims");
    assert!(!follower.acceptance.is_reconciled());
    first.reconciled().await.expect("alive");
    follower.read_to_end().await;
    assert!(follower.acceptance.is_reconciled());
    let mut second = follower.claim(2).await.expect("claims");
    first.reconciled().await.expect("it does not know of its successor");
    first.heartbeats().append(false, PATIENCE).await.expect("it does not know of its successor");
    follower.read_to_end().await;
    assert!(!follower.acceptance.is_reconciled());
    second.reconciled().await.expect("alive");
    second.heartbeats().append(false, PATIENCE).await.expect("alive");
    follower.read_to_end().await;
    assert!(follower.acceptance.is_reconciled());
    let beats = follower.seen.iter().filter(|it| matches!(it, Outcome::Heartbeat { .. }));
    assert_eq!(beats.count(), 1);
    first.release().await.expect("it does not know of its successor");
    second.release().await.expect("alive");
    follower.read_to_end().await;
    let released = follower.seen.iter().filter_map(|it| match it {
        Outcome::Heartbeat { epoch, released: true, .. } => Some(epoch.0),
        _ => None,
    });
    assert_eq!(released.collect::<Vec<_>>(), [2], "the release of a former writer does not count");
    let third = follower.claim(3).await.expect("claims");
    third.heartbeats().append(false, PATIENCE).await.expect("alive");
    follower.read_to_end().await;
    let last = follower.seen.last();
    assert!(matches!(last, Some(Outcome::Heartbeat { released: false, .. })), "{last:?}");
    for yields in [true, false] {
        third.heartbeats().append(yields, PATIENCE).await.expect("alive");
        follower.read_to_end().await;
        assert_eq!(follower.acceptance.is_yielded(), yields);
    }
}

async fn heads(subject: &dyn Subject) {
    let log = subject.log();
    let settings = Settings::default();
    let mut follower = Follower::new(&log).await;
    let mut writer = follower.claim(1).await.expect("claims");
    writer.append(vec![applied("a"), removed("a")]).await.expect("alive");
    assert_eq!(writer.append_heads().await.expect("alive"), 1);
    assert_eq!(writer.append_heads().await.expect("alive"), 0, "a second head would add nothing");
    follower.read_to_end().await;
    for forward_ms in [settings.replay_window_ms, settings.delete_retention_ms] {
        subject.set_clock_forward(forward_ms + 1);
        subject.compact().await;
    }
    let followed = follower.acceptance.stream(&stream()).expect("met").clone();
    let metadata = *follower.acceptance.metadata();
    let fresh = Follower::of(&log, metadata, i64::MAX).await;
    assert_eq!(fresh.events(), ["3 Head"]);
    assert_eq!(fresh.acceptance.stream(&stream()), Some(&followed));
}

async fn share(subject: &dyn Subject) {
    let log = subject.log();
    let mut follower = Follower::new(&log).await;
    let mut writer = follower.claim(1).await.expect("claims");
    writer.append(vec![sharing("a", 1), sharing("b", 1)]).await.expect("alive");
    writer.append(vec![sharing("c", 1)]).await.expect("alive");
    follower.read_to_end().await;
    assert_eq!(follower.acceptance.bodies().addresses().count(), 1);
    assert_eq!(follower.objects(), [large(1), large(1), large(1)]);
    let fresh = Follower::of(&log, *follower.acceptance.metadata(), i64::MIN).await;
    assert_eq!(fresh.objects(), follower.objects());
}

async fn retire(subject: &dyn Subject) {
    let log = subject.log();
    let settings = Settings::default();
    let mut follower = Follower::new(&log).await;
    let mut writer = follower.claim(1).await.expect("claims");
    writer.append(vec![sharing("a", 1), sharing("b", 1)]).await.expect("alive");
    follower.read_to_end().await;
    let first: Vec<_> = follower.acceptance.bodies().addresses().copied().collect();
    writer.append(vec![sharing("a", 2), sharing("b", 2)]).await.expect("alive");
    let early = writer.begin_retiring(first.clone()).expect("alive");
    assert_eq!(early, [], "the writer has not read the references to it");
    follower.seen.iter().for_each(|outcome| writer.observe(outcome));
    assert_eq!(writer.begin_retiring(first.clone()).expect("alive").len(), 1);
    assert_eq!(writer.begin_retiring(first).expect("alive"), [], "it is being retired");
    writer.finished().await.expect("alive");
    follower.read_to_end().await;
    assert_eq!(follower.acceptance.bodies().addresses().count(), 1);
    for forward_ms in [settings.replay_window_ms, settings.delete_retention_ms] {
        subject.set_clock_forward(forward_ms + 1);
        subject.compact().await;
    }
    let fresh = Follower::of(&log, *follower.acceptance.metadata(), i64::MAX).await;
    assert_eq!(fresh.acceptance.bodies().addresses().count(), 1);
    let objects = fresh.objects();
    assert_eq!(objects[objects.len() - 2..], [large(2), large(2)]);
}

async fn resumes(subject: &dyn Subject) {
    let log = subject.log();
    let mut follower = Follower::new(&log).await;
    let mut writer = follower.claim(1).await.expect("claims");
    writer.append(vec![applied("a"), applied("b")]).await.expect("alive");
    follower.read_to_end().await;
    let changes = follower.acceptance.take_changes();
    writer.append(vec![applied("c")]).await.expect("alive");
    let metadata = *follower.acceptance.metadata();
    let acceptance = Acceptance::restore(metadata, changes.partitions, changes.streams);
    let reader = log.read(acceptance.cursors()).await.expect("readable");
    let mut resumed = Follower { log: log.clone(), reader, acceptance, seen: Vec::new() };
    resumed.read_to_end().await;
    assert_eq!(resumed.events(), ["3 PodApplied d/pod/c"]);
    follower.read_to_end().await;
    assert_eq!(follower.events().len(), 3);
}
