//! Cases of reads.

use bytes::Bytes;

use super::{Subject, put};
use crate::engine::{Durability, Engine, Range, Read, WriteBatch};

/// Keys that detect any order other than that of unsigned bytes.
const KEYS: [&[u8]; 9] =
    [b"\0", b"\0\0", b"\0\x01", b"a", b"a\0", b"a\xff", b"b", b"\x80", b"\xff\xff"];

fn keys(from: &(impl Read + ?Sized), range: &Range) -> Vec<Bytes> {
    let rows = from.scan(range, usize::MAX).expect("reads");
    rows.into_iter().map(|(key, _)| key).collect()
}

/// A scan returns the keys of the range in the order of their unsigned bytes.
pub fn keys_are_ordered_by_their_bytes(subject: &impl Subject) {
    let engine = subject.create();
    for key in KEYS.iter().rev() {
        put(&engine, key, key);
    }
    assert_eq!(keys(&engine, &Range::all()), KEYS);
    assert_eq!(keys(&engine, &Range::prefix(&b"a"[..])), KEYS[3..6]);
    assert_eq!(keys(&engine, &Range::prefix(&b"\xff"[..])), KEYS[8..]);
    let range = Range { from: Bytes::from_static(b"\0\0"), to: Some(Bytes::from_static(b"b")) };
    assert_eq!(keys(&engine, &range), KEYS[1..6], "the end is not part of the range");
    for key in KEYS {
        assert_eq!(engine.get(key).expect("reads").as_deref(), Some(key));
    }
    assert_eq!(engine.get(b"c").expect("reads"), None);
}

/// A key with an empty value exists.
pub fn an_empty_value_is_a_value(subject: &impl Subject) {
    let engine = subject.create();
    put(&engine, b"empty", b"");
    assert_eq!(engine.get(b"empty").expect("reads"), Some(Bytes::new()));
    assert_eq!(keys(&engine, &Range::all()), ["empty"]);
}

/// A range that ends at or before its beginning is empty, and a scan of no row returns nothing.
pub fn an_empty_range_holds_nothing(subject: &impl Subject) {
    let engine = subject.create();
    assert_eq!(engine.last(&Range::all()).expect("reads"), None);
    put(&engine, b"b", b"");
    for (from, to) in [("b", "b"), ("c", "a"), ("c", "d"), ("", "b")] {
        let range = Range { from: Bytes::from_static(from.as_bytes()), to: Some(to.into()) };
        assert_eq!(keys(&engine, &range), Vec::<Bytes>::new(), "{from} to {to}");
        assert_eq!(engine.last(&range).expect("reads"), None, "{from} to {to}");
    }
    assert_eq!(engine.scan(&Range::all(), 0).expect("reads"), []);
}

/// The chunks of a scan together are the whole range, and a short chunk is the last.
pub fn a_scan_can_be_continued_behind_its_last_key(subject: &impl Subject) {
    let engine = subject.create();
    for key in KEYS {
        put(&engine, key, b"");
    }
    for limit in 1..=KEYS.len() + 1 {
        let mut seen = Vec::new();
        let mut range = Range::all();
        loop {
            let chunk = engine.scan(&range, limit).expect("reads");
            assert!(chunk.len() <= limit, "{} rows for a limit of {limit}", chunk.len());
            seen.extend(chunk.iter().map(|(key, _)| key.clone()));
            match chunk.last() {
                Some((key, _)) if chunk.len() == limit => range = range.after(key),
                _ => break,
            }
        }
        assert_eq!(seen, KEYS, "in chunks of {limit}");
    }
}

/// The last row is the greatest key of the range.
pub fn the_last_row_of_a_range_is_found(subject: &impl Subject) {
    let engine = subject.create();
    for key in KEYS {
        put(&engine, key, b"value");
    }
    let last = |range: Range| engine.last(&range).expect("reads").map(|(key, _)| key);
    assert_eq!(last(Range::all()).as_deref(), Some(KEYS[8]));
    assert_eq!(last(Range::prefix(&b"a"[..])).as_deref(), Some(KEYS[5]));
    assert_eq!(last(Range::prefix(&b"a\0"[..])).as_deref(), Some(KEYS[4]));
    let before_b = Range { from: Bytes::new(), to: Some(Bytes::from_static(b"b")) };
    assert_eq!(last(before_b).as_deref(), Some(KEYS[5]));
    assert_eq!(last(Range::prefix(&b"c"[..])), None);
    let row = engine.last(&Range::prefix(&b"b"[..])).expect("reads");
    assert_eq!(row, Some((Bytes::from_static(b"b"), Bytes::from_static(b"value"))));
}

/// A snapshot keeps its state during later writes.
pub fn a_snapshot_never_changes(subject: &impl Subject) {
    let engine = subject.create();
    for key in KEYS {
        put(&engine, key, b"old");
    }
    let snapshot = engine.snapshot();
    let mut batch = WriteBatch::default();
    batch.put(&b"a"[..], &b"new"[..]);
    batch.put(&b"added"[..], &b"new"[..]);
    batch.delete_range(&b"a\0"[..], &b"c"[..]);
    batch.delete(&b"\0"[..]);
    engine.write(batch, Durability::Synced).expect("writes");

    assert_eq!(keys(&*snapshot, &Range::all()), KEYS);
    for key in KEYS {
        assert_eq!(snapshot.get(key).expect("reads").as_deref(), Some(&b"old"[..]));
    }
    assert_eq!(snapshot.get(b"added").expect("reads"), None);
    let last = snapshot.last(&Range::prefix(&b"a"[..])).expect("reads");
    assert_eq!(last.map(|(key, _)| key).as_deref(), Some(KEYS[5]));
    assert_eq!(engine.get(b"a").expect("reads").as_deref(), Some(&b"new"[..]));
    assert_eq!(engine.get(b"a\0").expect("reads"), None);
}
