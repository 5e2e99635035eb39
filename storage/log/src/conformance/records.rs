//! Cases of records: append, read, wait, resume.

use std::collections::BTreeMap;
use std::time::Duration;

use headwater_event::{Offset, Partition};

use super::{
    Capability, Case, Settings, Subject, append, append_each, next, read_all, read_to_end,
};
use crate::log::{Append, AppendError, ReadError};

pub(super) const CASES: &[Case] = &[
    Case {
        name: "a reader receives the appended records unchanged, in order, from their partition",
        needs: &[],
        run: |subject| Box::pin(round_trip(subject)),
    },
    Case {
        name: "a log describes itself",
        needs: &[],
        run: |subject| Box::pin(describes_itself(subject)),
    },
    Case {
        name: "the error of a missing partition names it",
        needs: &[],
        run: |subject| Box::pin(no_such_partition(subject)),
    },
    Case {
        name: "a record of the maximum size is appended, and one byte more is rejected",
        needs: &[],
        run: |subject| Box::pin(record_limit(subject)),
    },
    Case {
        name: "a reader waits for the next append",
        needs: &[],
        run: |subject| Box::pin(waits(subject)),
    },
    Case {
        name: "a cancelled read loses no record",
        needs: &[],
        run: |subject| Box::pin(cancelled(subject)),
    },
    Case {
        name: "reading resumes at any cursor without a gap or a duplicate",
        needs: &[],
        run: |subject| Box::pin(resumes(subject)),
    },
    Case {
        name: "batches have a bounded size, and partitions take turns",
        needs: &[],
        run: |subject| Box::pin(many(subject)),
    },
    Case {
        name: "concurrent appends are all written, each in its own order",
        needs: &[],
        run: |subject| Box::pin(concurrent(subject)),
    },
    Case {
        name: "append time never decreases, even if the clock goes back",
        needs: &[Capability::Clock],
        run: |subject| Box::pin(time_never_decreases(subject)),
    },
    Case {
        name: "a reopened log continues from its end",
        needs: &[Capability::Reopen],
        run: |subject| Box::pin(reopened(subject)),
    },
];

async fn round_trip(subject: &dyn Subject) {
    let log = subject.log();
    let sent = vec![
        append(0, "cluster d/service/a", Some("{\"n\":1}")),
        append(2, "node/n1 d/pod/b", Some("{\"n\":2}")),
        append(0, "cluster d/service/a", None),
        append(0, "cluster d/service/c", Some("")),
    ];
    let appended = log.append(sent.clone()).await.expect("the log appends it");
    assert_eq!(appended.len(), sent.len());
    for (sent, at) in sent.iter().zip(&appended) {
        assert_eq!(sent.partition, at.partition);
    }
    assert!(appended[0].offset < appended[2].offset && appended[2].offset < appended[3].offset);
    for partition in 0..3 {
        let want: Vec<_> = sent
            .iter()
            .zip(&appended)
            .filter(|(sent, _)| sent.partition == Partition(partition))
            .map(|(sent, at)| (at.offset, sent.record.clone()))
            .collect();
        let read = read_all(log.as_ref(), partition).await;
        assert!(read.iter().all(|recorded| recorded.partition == Partition(partition)));
        let read: Vec<_> = read.into_iter().map(|it| (it.offset, it.record)).collect();
        assert_eq!(read, want, "partition {partition}");
    }
    assert_eq!(log.append(Vec::new()).await.expect("an empty append succeeds"), Vec::new());
}

async fn describes_itself(subject: &dyn Subject) {
    let log = subject.log();
    let settings = Settings::default();
    let description = log.describe().await.expect("reachable");
    assert_eq!(description.partitions, settings.partitions);
    assert_eq!(description.record_bytes_max, settings.record_bytes_max);
    assert_eq!(description.replay_window_ms, settings.replay_window_ms);
    let bounds = log.bounds(Partition(1)).await.expect("reachable");
    assert_eq!(bounds.low, bounds.high, "a new log is empty");
    let start = log.start(Partition(1)).await.expect("reachable");
    assert_eq!((start.topic, start.partition), (description.topic, Partition(1)));
    assert_eq!(start.next, bounds.low);
    let appended = log.append(vec![append(1, "k", Some("v"))]).await.expect("appended");
    let bounds = log.bounds(Partition(1)).await.expect("reachable");
    assert_eq!(bounds.high, appended[0].offset.next());
}

async fn no_such_partition(subject: &dyn Subject) {
    let log = subject.log();
    let partition = Partition(Settings::default().partitions);
    assert!(matches!(log.bounds(partition).await, Err(ReadError::NoPartition { .. })));
    assert!(matches!(log.start(partition).await, Err(ReadError::NoPartition { .. })));
    let mut cursor = log.start(Partition(0)).await.expect("reachable");
    cursor.partition = partition;
    assert!(matches!(log.read(vec![cursor]).await, Err(ReadError::NoPartition { .. })));
    let refused = log.append(vec![append(0, "a", None), append(partition.0, "b", None)]).await;
    assert!(
        matches!(refused, Err(AppendError::NoPartition { partition: named }) if named == partition),
        "the records are not at fault: {refused:?}"
    );
    assert_eq!(read_all(log.as_ref(), 0).await, [], "such an append writes nothing");
}

async fn record_limit(subject: &dyn Subject) {
    let log = subject.log();
    let bytes_max = log.describe().await.expect("reachable").record_bytes_max;
    let of = |bytes: usize| {
        let mut sent = append(0, "key", Some(""));
        let rest = bytes - sent.record.bytes();
        sent.record.value = Some(vec![b'x'; rest].into());
        assert_eq!(sent.record.bytes(), bytes);
        vec![sent]
    };
    log.append(of(bytes_max - 1)).await.expect("below the limit");
    log.append(of(bytes_max)).await.expect("at the limit");
    let refused = log.append(of(bytes_max + 1)).await;
    assert!(matches!(refused, Err(AppendError::Rejected { .. })), "{refused:?}");
    assert_eq!(read_all(log.as_ref(), 0).await.len(), 2);
}

async fn waits(subject: &dyn Subject) {
    let log = subject.log();
    let start = log.start(Partition(1)).await.expect("reachable");
    let mut reader = log.read(vec![start]).await.expect("reachable");
    let waiting = tokio::spawn(async move { next(reader.as_mut()).await });
    tokio::task::yield_now().await;
    log.append(vec![append(1, "late", Some("v"))]).await.expect("appended");
    let batch = waiting.await.expect("no panic").expect("a batch");
    assert_eq!(batch.records.len(), 1);
    assert_eq!(batch.high, batch.cursor.next);
}

async fn cancelled(subject: &dyn Subject) {
    let log = subject.log();
    let start = log.start(Partition(0)).await.expect("reachable");
    let mut reader = log.read(vec![start]).await.expect("reachable");
    let mut seen = Vec::new();
    for n in 0..50 {
        // The timeout cancels the read sometimes before it is ready, sometimes after.
        let short = Duration::from_micros(n * 7);
        if let Ok(batch) = tokio::time::timeout(short, reader.next()).await {
            seen.extend(batch.expect("readable").records);
        }
        log.append(vec![append(0, &format!("k{n}"), Some("v"))]).await.expect("appended");
    }
    while seen.len() < 50 {
        seen.extend(next(reader.as_mut()).await.expect("readable").records);
    }
    assert_eq!(seen, read_all(log.as_ref(), 0).await);
}

async fn resumes(subject: &dyn Subject) {
    let log = subject.log();
    for n in 0..20 {
        log.append(vec![append(0, &format!("k{n}"), Some("v"))]).await.expect("appended");
    }
    let all = read_all(log.as_ref(), 0).await;
    let start = log.start(Partition(0)).await.expect("reachable");
    for skip in 0..all.len() {
        let mut cursor = start;
        if let Some(last) = skip.checked_sub(1).and_then(|index| all.get(index)) {
            (cursor.next, cursor.leader_epoch) = (last.offset.next(), last.leader_epoch);
        }
        let rest = read_to_end(log.as_ref(), &mut [cursor]).await.expect("readable");
        assert_eq!(rest, all[skip..]);
    }
}

async fn many(subject: &dyn Subject) {
    /// The most bytes of a batch of any log: a reader has room for one batch.
    const BATCH_BYTES_BOUND: usize = 9 << 20;
    let log = subject.log();
    let value = "v".repeat(1000);
    for call in 0..40 {
        let records = (0..100).map(|n| append(n % 2, &format!("k{call}-{n}"), Some(&value)));
        log.append(records.collect()).await.expect("appended");
    }
    let mut cursors = Vec::new();
    for partition in 0..2 {
        cursors.push(log.start(Partition(partition)).await.expect("reachable"));
    }
    let mut reader = log.read(cursors).await.expect("reachable");
    let mut seen: BTreeMap<Partition, Vec<Offset>> = BTreeMap::new();
    while seen.values().map(Vec::len).sum::<usize>() < 4000 {
        let batch = next(reader.as_mut()).await.expect("readable");
        let bytes: usize = batch.records.iter().map(|it| it.record.bytes()).sum();
        assert!(bytes <= BATCH_BYTES_BOUND, "a batch of {bytes} bytes");
        let offsets = batch.records.iter().map(|it| it.offset);
        seen.entry(batch.cursor.partition).or_default().extend(offsets);
    }
    for offsets in seen.values() {
        assert_eq!(offsets.len(), 2000);
        assert!(offsets.is_sorted_by(|a, b| a < b));
    }
}

async fn concurrent(subject: &dyn Subject) {
    let log = subject.log();
    let mut tasks = Vec::new();
    for task in 0..16 {
        let log = log.clone();
        tasks.push(tokio::spawn(async move {
            for call in 0..10 {
                let records: Vec<Append> =
                    (0..5).map(|n| append(0, &format!("{task} {}", call * 5 + n), None)).collect();
                log.append(records).await.expect("appended");
            }
        }));
    }
    for task in tasks {
        task.await.expect("no panic");
    }
    let read = read_all(log.as_ref(), 0).await;
    assert_eq!(read.len(), 16 * 50);
    let mut next_of: BTreeMap<String, u32> = BTreeMap::new();
    for key in super::keys(&read) {
        let (task, n) = key.split_once(' ').expect("as sent");
        let next = next_of.entry(task.to_owned()).or_default();
        assert_eq!(n, next.to_string(), "of task {task}");
        *next += 1;
    }
}

async fn time_never_decreases(subject: &dyn Subject) {
    let log = subject.log();
    append_each(log.as_ref(), &[("a", None)]).await;
    subject.set_clock_forward(5000);
    append_each(log.as_ref(), &[("b", None)]).await;
    subject.set_clock_back(3000);
    append_each(log.as_ref(), &[("c", None)]).await;
    subject.set_clock_forward(9000);
    append_each(log.as_ref(), &[("d", None)]).await;
    let times: Vec<_> = read_all(log.as_ref(), 0).await.iter().map(|it| it.time_ms).collect();
    assert!(times.is_sorted(), "{times:?}");
    assert!(times[1] >= times[0] + 5000 && times[3] > times[2], "{times:?}");
}

async fn reopened(subject: &dyn Subject) {
    let log = subject.log();
    append_each(log.as_ref(), &[("a", Some("1")), ("b", None)]).await;
    let before = log.describe().await.expect("reachable");
    let all = read_all(log.as_ref(), 0).await;
    let mut cursor = [log.start(Partition(0)).await.expect("reachable")];
    read_to_end(log.as_ref(), &mut cursor).await.expect("readable");
    drop(log);
    subject.reopen().await;
    let log = subject.log();
    assert_eq!(log.describe().await.expect("reachable"), before);
    assert_eq!(read_all(log.as_ref(), 0).await, all);
    append_each(log.as_ref(), &[("c", Some("3"))]).await;
    let more = read_to_end(log.as_ref(), &mut cursor).await.expect("the cursor is valid");
    assert_eq!(super::keys(&more), ["c"]);
    assert!(more[0].time_ms >= all[1].time_ms);
}
