//! Cases of faults, and what the caller knows after each.

use headwater_event::Partition;
use uuid::Uuid;

use super::{Capability, Case, Settings, Subject, append_each, keys, next, read_all, read_to_end};
use crate::log::{AppendError, ReadError};
use crate::memory::AppendFault;
use crate::metadata::{MetadataProposal, read_metadata, read_or_create_metadata};

pub(super) const CASES: &[Case] = &[
    Case {
        name: "an append of unknown outcome is written, lost, or written later",
        needs: &[Capability::Faults],
        run: |subject| Box::pin(unknown_outcome(subject)),
    },
    Case {
        name: "after a fatal append a handle never appends again",
        needs: &[Capability::Faults],
        run: |subject| Box::pin(fatal(subject)),
    },
    Case {
        name: "an unreachable log returns `Unavailable`, and later works again",
        needs: &[Capability::Outage],
        run: |subject| Box::pin(outage(subject)),
    },
    Case {
        name: "compaction keeps the last record of each key, and every record inside the window",
        needs: &[Capability::Clock, Capability::Compaction],
        run: |subject| Box::pin(compaction(subject)),
    },
    Case {
        name: "a reader skips offsets that compaction dropped",
        needs: &[Capability::Clock, Capability::Compaction],
        run: |subject| Box::pin(skips_compacted_offsets(subject)),
    },
    Case {
        name: "compaction drops a tombstone after its retention",
        needs: &[Capability::Clock, Capability::Compaction],
        run: |subject| Box::pin(tombstones(subject)),
    },
    Case {
        name: "a reader skips offsets without records",
        needs: &[Capability::SparseOffsets],
        run: |subject| Box::pin(sparse_offsets(subject)),
    },
    Case {
        name: "a cursor below the low watermark is refused, and a reader there stops",
        needs: &[Capability::Retention],
        run: |subject| Box::pin(retention(subject)),
    },
    Case {
        name: "a cursor above a truncation is refused, even after the log has grown past it again",
        needs: &[Capability::Truncation],
        run: |subject| Box::pin(truncation(subject)),
    },
    Case {
        name: "a re-created log is another log, and its metadata has the next number",
        needs: &[Capability::Recreation],
        run: |subject| Box::pin(recreation(subject)),
    },
];

async fn unknown_outcome(subject: &dyn Subject) {
    let log = subject.log();
    for (key, fault) in [
        ("rejected", AppendFault::Rejected),
        ("written", AppendFault::UnknownWritten),
        ("lost", AppendFault::UnknownLost),
        ("later", AppendFault::UnknownWrittenLater),
    ] {
        let rejected = fault == AppendFault::Rejected;
        subject.fail_next_append(fault);
        let result = log.append(vec![super::append(0, key, Some("v"))]).await;
        match result {
            Err(AppendError::Rejected { .. }) => assert!(rejected, "{key}"),
            Err(AppendError::Unknown { .. }) => assert!(!rejected, "{key}"),
            other => panic!("{key}: {other:?}"),
        }
    }
    append_each(log.as_ref(), &[("next", Some("v"))]).await;
    assert_eq!(keys(&read_all(log.as_ref(), 0).await), ["written", "next"]);
    subject.deliver_late();
    assert_eq!(keys(&read_all(log.as_ref(), 0).await), ["written", "next", "later"]);
}

async fn fatal(subject: &dyn Subject) {
    let log = subject.log();
    append_each(log.as_ref(), &[("a", Some("v"))]).await;
    subject.fail_next_append(AppendFault::Fatal { written: false });
    for _ in 0..2 {
        let result = log.append(vec![super::append(0, "b", Some("v"))]).await;
        assert!(matches!(result, Err(AppendError::Fatal { .. })), "{result:?}");
    }
    assert_eq!(keys(&read_all(log.as_ref(), 0).await), ["a"], "it can still be read");
}

async fn outage(subject: &dyn Subject) {
    let log = subject.log();
    append_each(log.as_ref(), &[("a", Some("v"))]).await;
    let start = log.start(Partition(0)).await.expect("reachable");
    let mut reader = log.read(vec![start]).await.expect("reachable");
    subject.set_available(false);
    assert!(matches!(log.describe().await, Err(ReadError::Unavailable { .. })));
    assert!(matches!(next(reader.as_mut()).await, Err(ReadError::Unavailable { .. })));
    let result = log.append(vec![super::append(0, "b", Some("v"))]).await;
    assert!(matches!(result, Err(AppendError::Unknown { .. })), "{result:?}");
    subject.set_available(true);
    append_each(log.as_ref(), &[("c", Some("v"))]).await;
    let read = read_to_end(log.as_ref(), &mut [start]).await.expect("a new reader continues");
    assert_eq!(keys(&read).first().map(String::as_str), Some("a"));
    assert_eq!(keys(&read).last().map(String::as_str), Some("c"));
}

/// Moves the clock until all records are outside the replay window, then compacts.
async fn age_and_compact(subject: &dyn Subject) {
    subject.set_clock_forward(Settings::default().replay_window_ms + 1);
    subject.compact().await;
}

async fn compaction(subject: &dyn Subject) {
    let log = subject.log();
    append_each(log.as_ref(), &[("a", Some("1")), ("b", Some("1")), ("a", Some("2"))]).await;
    subject.compact().await;
    assert_eq!(read_all(log.as_ref(), 0).await.len(), 3, "all are inside the window");
    let before = read_all(log.as_ref(), 0).await;
    subject.set_clock_forward(Settings::default().replay_window_ms + 1);
    append_each(log.as_ref(), &[("b", Some("2")), ("c", Some("1")), ("c", Some("2"))]).await;
    subject.compact().await;
    let read = read_all(log.as_ref(), 0).await;
    // The record that supersedes the old b is inside the window, so the old b stays.
    assert_eq!(keys(&read), ["b", "a", "b", "c", "c"]);
    assert_eq!(read[..2], before[1..], "a kept record keeps its offset, time and bytes");
    age_and_compact(subject).await;
    assert_eq!(keys(&read_all(log.as_ref(), 0).await), ["a", "b", "c"]);
    subject.compact().await;
    let read = read_all(log.as_ref(), 0).await;
    assert_eq!(keys(&read), ["a", "b", "c"], "compaction is idempotent");
    assert_eq!(read[1].record.value.as_deref(), Some(b"2".as_slice()));
}

async fn skips_compacted_offsets(subject: &dyn Subject) {
    let log = subject.log();
    let pairs: Vec<_> = (0..50).map(|_| ("same", Some("v"))).collect();
    append_each(log.as_ref(), &pairs).await;
    let mut cursor = [log.start(Partition(0)).await.expect("reachable")];
    age_and_compact(subject).await;
    let high = log.bounds(Partition(0)).await.expect("reachable").high;
    assert_eq!(read_to_end(log.as_ref(), &mut cursor).await.expect("readable").len(), 1);
    assert_eq!(cursor[0].next, high);
    append_each(log.as_ref(), &[("next", Some("v"))]).await;
    let read = read_to_end(log.as_ref(), &mut cursor).await.expect("readable");
    assert_eq!(keys(&read), ["next"]);
}

async fn tombstones(subject: &dyn Subject) {
    let log = subject.log();
    append_each(log.as_ref(), &[("a", Some("1")), ("a", None), ("end", Some("v"))]).await;
    age_and_compact(subject).await;
    let read = read_all(log.as_ref(), 0).await;
    assert_eq!(keys(&read), ["a", "end"]);
    assert_eq!(read[0].record.value, None, "the tombstone is still there");
    subject.compact().await;
    assert_eq!(read_all(log.as_ref(), 0).await.len(), 2, "its retention has not ended");
    subject.set_clock_forward(Settings::default().delete_retention_ms + 1);
    subject.compact().await;
    assert_eq!(keys(&read_all(log.as_ref(), 0).await), ["end"]);
    append_each(log.as_ref(), &[("a", Some("2"))]).await;
    age_and_compact(subject).await;
    assert_eq!(keys(&read_all(log.as_ref(), 0).await), ["end", "a"], "a key may return");
}

async fn sparse_offsets(subject: &dyn Subject) {
    let log = subject.log();
    let mut cursor = [log.start(Partition(0)).await.expect("reachable")];
    append_each(log.as_ref(), &[("a", Some("v"))]).await;
    subject.skip_offsets(Partition(0), 3).await;
    append_each(log.as_ref(), &[("b", Some("v"))]).await;
    subject.skip_offsets(Partition(0), 2).await;
    let read = read_to_end(log.as_ref(), &mut cursor).await.expect("readable");
    assert_eq!(keys(&read), ["a", "b"]);
    assert!(read[1].offset.0 >= read[0].offset.0 + 4);
    assert_eq!(cursor[0].next, log.bounds(Partition(0)).await.expect("reachable").high);
}

async fn retention(subject: &dyn Subject) {
    let log = subject.log();
    append_each(log.as_ref(), &[("a", Some("v")), ("b", Some("v")), ("c", Some("v"))]).await;
    let all = read_all(log.as_ref(), 0).await;
    let start = log.start(Partition(0)).await.expect("reachable");
    let mut reader = log.read(vec![start]).await.expect("reachable");
    subject.expire(Partition(0), all[1].offset).await;
    assert!(matches!(next(reader.as_mut()).await, Err(ReadError::Expired { .. })));
    assert!(matches!(log.read(vec![start]).await, Err(ReadError::Expired { .. })));
    assert_eq!(log.bounds(Partition(0)).await.expect("reachable").low, all[1].offset);
    assert_eq!(read_all(log.as_ref(), 0).await, all[1..]);
}

async fn truncation(subject: &dyn Subject) {
    let log = subject.log();
    append_each(log.as_ref(), &[("a", Some("v")), ("b", Some("v")), ("c", Some("v"))]).await;
    let mut ahead = [log.start(Partition(0)).await.expect("reachable")];
    let all = read_to_end(log.as_ref(), &mut ahead).await.expect("readable");
    let mut before = ahead[0];
    (before.next, before.leader_epoch) = (all[1].offset, all[0].leader_epoch);
    let mut reader = log.read(ahead.to_vec()).await.expect("reachable");
    subject.truncate(Partition(0), all[1].offset).await;
    let diverged = all[1].offset;
    let is_truncated = |result: &Result<_, ReadError>| matches!(result, Err(ReadError::Truncated { diverged: at, .. }) if *at == diverged);
    assert!(is_truncated(&next(reader.as_mut()).await.map(|_| ())));
    assert!(is_truncated(&log.read(ahead.to_vec()).await.map(|_| ())));
    append_each(log.as_ref(), &[("x", Some("v")), ("y", Some("v")), ("z", Some("v"))]).await;
    assert!(is_truncated(&log.read(ahead.to_vec()).await.map(|_| ())), "the log has regrown");
    let read = read_to_end(log.as_ref(), &mut [before]).await.expect("a prefix of both");
    assert_eq!(keys(&read), ["x", "y", "z"]);
    assert!(read[0].leader_epoch > all[0].leader_epoch);
}

async fn recreation(subject: &dyn Subject) {
    let log = subject.log();
    let proposal = |previous, uuid| MetadataProposal { previous, uuid: Uuid::from_u128(uuid) };
    let first = read_or_create_metadata(log.as_ref(), proposal(None, 1)).await.expect("created");
    assert_eq!((first.log_id.number, first.partitions), (1, Settings::default().partitions));
    let again = read_or_create_metadata(log.as_ref(), proposal(None, 2)).await.expect("read");
    assert_eq!(again, first, "the metadata of a log is created once");
    let cursor = log.start(Partition(0)).await.expect("reachable");
    drop(log);
    subject.recreate().await;
    let log = subject.log();
    assert!(matches!(log.read(vec![cursor]).await, Err(ReadError::Recreated { .. })));
    assert_eq!(read_metadata(log.as_ref()).await.expect("readable"), None);
    let second = read_or_create_metadata(log.as_ref(), proposal(Some(first.log_id), 3)).await;
    let second = second.expect("created again");
    assert!(second.log_id.follows(&first.log_id));
    let mut known = second.log_id;
    let again = read_or_create_metadata(log.as_ref(), proposal(Some(known), 4)).await;
    assert_eq!(again.expect("the same"), second);
    known.number += 1;
    let refused = read_or_create_metadata(log.as_ref(), proposal(Some(known), 5)).await;
    assert!(matches!(refused, Err(crate::MetadataError::Regressed { .. })), "{refused:?}");
}
