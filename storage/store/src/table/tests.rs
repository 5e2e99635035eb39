//! Tables: rows, prefixes, chunks, damage.

use headwater_event::{EntryKey, StreamId};
use proptest::prelude::*;

use super::*;
use crate::batch::Batch;
use crate::engine::{Durability, Engine, WriteBatch};
use crate::key::TextStart;
use crate::memory::MemoryEngine;

const NUMBERS: Table<(String, u64), u64> = Table::new(TableId::HubChanges);
const TEXTS: Table<String, String> = Table::new(TableId::Pods);
const ENTRIES: Table<(StreamId, EntryKey), Bytes> = Table::new(TableId::Entries);

/// An engine with these rows, and rows of the neighbouring tables around them.
fn engine_with(keys: impl IntoIterator<Item = (String, u64)>) -> MemoryEngine {
    let engine = MemoryEngine::new();
    let mut raw = WriteBatch::default();
    for id in [TableId::HubChanges.prefix() - 1, TableId::HubChanges.prefix() + 1] {
        raw.put(vec![id], vec![id]);
        raw.put(vec![id, 255, 255], vec![id]);
    }
    engine.write(raw, Durability::Buffered).expect("writes");
    let mut batch = Batch::new();
    for key in keys {
        batch.put(&NUMBERS, &key, &key.1);
    }
    batch.write(&engine, Durability::Buffered).expect("commits");
    engine
}

fn keys<'r, R, E: Read + ?Sized>(rows: Rows<'r, (String, u64), u64, R, E>) -> Vec<(String, u64)> {
    rows.map(|row| row.expect("reads").0).collect()
}

fn key(text: &str, number: u64) -> (String, u64) {
    (text.to_owned(), number)
}

proptest! {
    #[test]
    fn a_table_behaves_as_a_sorted_map(
        rows in proptest::collection::btree_set(("[ab\0]{0,2}", 0u64..300), 0..200),
        text in "[ab\0]{0,2}",
        first in ("[ab\0]{0,2}", 0u64..300),
        end in ("[ab\0]{0,2}", 0u64..300),
    ) {
        let engine = engine_with(rows.clone());
        prop_assert_eq!(keys(NUMBERS.rows(&engine)), rows.iter().cloned().collect::<Vec<_>>());
        let of_text: Vec<_> = rows.iter().filter(|row| row.0 == text).cloned().collect();
        prop_assert_eq!(keys(NUMBERS.rows_of(&engine, &text)), of_text.clone());
        prop_assert_eq!(
            NUMBERS.last_of(&engine, &text).expect("reads").map(|row| row.0),
            of_text.last().cloned()
        );
        prop_assert_eq!(
            NUMBERS.last_of_before(&engine, &text, &end).expect("reads").map(|row| row.0),
            of_text.iter().rev().find(|row| **row < end).cloned()
        );
        prop_assert_eq!(
            keys(NUMBERS.rows_of_from(&engine, &text, &first)),
            of_text.into_iter().filter(|row| *row >= first).collect::<Vec<_>>()
        );
        prop_assert_eq!(
            keys(NUMBERS.rows_between(&engine, &first, &end)),
            rows.iter().filter(|row| **row >= first && **row < end).cloned().collect::<Vec<_>>()
        );
        prop_assert_eq!(
            NUMBERS.last(&engine).expect("reads").map(|row| row.0),
            rows.last().cloned()
        );
    }
}

#[test]
fn iteration_goes_through_every_chunk_boundary() {
    let chunk = SCAN_CHUNK_ROWS as u64;
    for count in [0, 1, chunk - 1, chunk, chunk + 1, 2 * chunk, 2 * chunk + 1] {
        let engine = engine_with((0..count).map(|n| key("a", n)));
        assert_eq!(NUMBERS.rows(&engine).count() as u64, count);
        assert_eq!(NUMBERS.rows_of(&*engine.snapshot(), &"a".to_owned()).count() as u64, count);
    }
}

#[test]
fn a_scan_can_be_continued_later() {
    let engine = engine_with((0..5).map(|n| key("a", n)));
    let mut seen = Vec::new();
    loop {
        let after = seen.last();
        let chunk = NUMBERS.chunk(&engine, after, 2).expect("reads");
        let at_end = chunk.len() < 2;
        seen.extend(chunk.into_iter().map(|(key, _)| key));
        if at_end {
            break;
        }
    }
    assert_eq!(seen, (0..5).map(|n| key("a", n)).collect::<Vec<_>>());
}

#[test]
fn rows_that_start_with_a_text_are_found() {
    let engine = MemoryEngine::new();
    let mut batch = Batch::new();
    for name in ["shop/pod/a", "shop/pod/b", "shop/pod", "shop/podstatus/a", "shop"] {
        batch.put(&TEXTS, &name.to_owned(), &String::new());
    }
    let stream = StreamId::Cluster;
    for name in ["!streams", "shop/service/a", "shop/service/b", "shop/servicex/c"] {
        let key = (stream.clone(), name.parse().expect("well-formed"));
        batch.put(&ENTRIES, &key, &Bytes::new());
    }
    batch.write(&engine, Durability::Buffered).expect("commits");

    let texts = TEXTS.rows_of(&engine, &TextStart("shop/pod/"));
    let texts: Vec<_> = texts.map(|row| row.expect("reads").0).collect();
    assert_eq!(texts, ["shop/pod/a", "shop/pod/b"]);
    let entries = ENTRIES.rows_of(&engine, &(stream, TextStart("shop/service/")));
    let entries: Vec<_> = entries.map(|row| row.expect("reads").0.1.to_string()).collect();
    assert_eq!(entries, ["shop/service/a", "shop/service/b"]);
}

#[test]
fn bytes_that_are_no_row_are_damage_not_a_panic() {
    let engine = engine_with([key("a", 1)]);
    let mut raw = WriteBatch::default();
    raw.put(NUMBERS.encode_key(&key("a", 2)), &b"short"[..]);
    raw.put(vec![NUMBERS.id().prefix(), b'b'], &b"no end"[..]);
    engine.write(raw, Durability::Buffered).expect("writes");

    let error = NUMBERS.get(&engine, &key("a", 2)).expect_err("no value");
    assert!(matches!(&error, EngineError::Corrupt { reason } if reason.contains("HubChanges")));
    let rows: Vec<_> = NUMBERS.rows(&engine).collect();
    assert_eq!(rows.len(), 2, "the first row, then the error, then the end: {rows:?}");
    assert!(rows[0].is_ok() && rows[1].is_err());
    assert!(NUMBERS.last(&engine).is_err());
}
