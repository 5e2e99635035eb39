//! Damaged files: the engine reports them, and neither returns nor repairs their data.

use std::fs;
use std::path::Path;

use headwater_rocks::{RocksEngine, move_aside};
use headwater_store::{Durability, EngineError, Range, Read};

use crate::files::{
    copy, files_ending, flip_bit, in_a_table, open_outbox, open_state, prefix_length, value, write,
};

/// The number of damaged places of each file.
const PLACES: usize = 40;

/// The outcome of reading a damaged database. [`prefix_length`] panics on wrong data.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Corrupt,
    Prefix(u32),
}

fn read(path: &Path, open: fn(&Path) -> Result<RocksEngine, EngineError>) -> Outcome {
    match open(path).and_then(|engine| prefix_length(&engine)) {
        Ok(length) => Outcome::Prefix(length),
        Err(EngineError::Corrupt { .. }) => Outcome::Corrupt,
        Err(other) => panic!("damage should be reported as such: {other:?}"),
    }
}

/// Flips bits all over the files ending with `end`, one at a time.
fn flip_everywhere(
    origin: &Path,
    end: &str,
    open: fn(&Path) -> Result<RocksEngine, EngineError>,
) -> Vec<Outcome> {
    let file = files_ending(origin, end).pop().expect("such a file");
    let length = usize::try_from(fs::metadata(&file).expect("there").len()).expect("small");
    let places = (0..PLACES).map(|n| n * length / PLACES);
    places
        .map(|offset| {
            let directory = tempfile::tempdir().expect("a directory");
            copy(origin, directory.path());
            flip_bit(&directory.path().join(file.file_name().expect("a name")), offset);
            read(directory.path(), open)
        })
        .collect()
}

#[test]
fn a_flipped_bit_in_a_table_is_reported_not_returned() {
    let origin = tempfile::tempdir().expect("a directory");
    in_a_table(origin.path(), open_state, 500);
    let outcomes = flip_everywhere(origin.path(), "sst", open_state);
    let corrupt = outcomes.iter().filter(|outcome| **outcome == Outcome::Corrupt).count();
    assert!(corrupt > PLACES / 2, "most of a table is data: {outcomes:?}");
    for outcome in outcomes {
        assert!(matches!(outcome, Outcome::Corrupt | Outcome::Prefix(500)), "{outcome:?}");
    }
}

#[test]
fn a_flipped_bit_in_any_table_is_found_by_a_read_of_all() {
    let origin = tempfile::tempdir().expect("a directory");
    // Fewer tables than a compaction merges.
    for first in [1, 201, 401] {
        write(&open_state(origin.path()).expect("opens"), first..=first + 199, Durability::Synced);
        // Opening writes the write-ahead log into a table.
        open_state(origin.path()).expect("opens").read_through().expect("it is whole");
    }
    let tables = files_ending(origin.path(), "sst");
    assert_eq!(tables.len(), 3, "{tables:?}");
    for table in tables {
        let directory = tempfile::tempdir().expect("a directory");
        copy(origin.path(), directory.path());
        let length = usize::try_from(fs::metadata(&table).expect("there").len()).expect("small");
        flip_bit(&directory.path().join(table.file_name().expect("a name")), length / 2);
        let engine = open_state(directory.path()).expect("opens: no read has reached that block");
        let error = engine.read_through().expect_err("damaged");
        assert!(matches!(error, EngineError::Corrupt { .. }), "{error:?}");
    }
}

#[test]
fn a_single_get_and_a_scan_report_damage_too() {
    let directory = tempfile::tempdir().expect("a directory");
    in_a_table(directory.path(), open_state, 500);
    let table = files_ending(directory.path(), "sst").pop().expect("a table");
    let length = usize::try_from(fs::metadata(&table).expect("there").len()).expect("small");
    flip_bit(&table, length / 2);

    let engine = open_state(directory.path()).expect("opens: no read has reached that block");
    let mut damaged = 0;
    for (table, n) in [b'a', b'z'].into_iter().flat_map(|table| (1..=500).map(move |n| (table, n)))
    {
        let key = [&[table], &u32::to_be_bytes(n)[..]].concat();
        match engine.get(&key) {
            Ok(found) => assert_eq!(found, Some(value(n))),
            Err(error) => {
                assert!(matches!(error, EngineError::Corrupt { .. }), "{error:?}");
                let error = engine.scan(&Range::prefix(key.clone()), 1).expect_err("damaged");
                assert!(matches!(error, EngineError::Corrupt { .. }), "{error:?}");
                let error = engine.last(&Range::prefix(key)).expect_err("damaged");
                assert!(matches!(error, EngineError::Corrupt { .. }), "{error:?}");
                damaged += 1;
            }
        }
    }
    assert!((1..100).contains(&damaged), "one block is damaged, not {damaged} rows");
}

#[test]
fn a_flipped_bit_in_the_state_s_log_falls_back_to_a_prefix() {
    let origin = tempfile::tempdir().expect("a directory");
    let engine = open_state(origin.path()).expect("opens");
    write(&engine, 1..=100, Durability::Synced);
    let outcomes = flip_everywhere(origin.path(), "log", open_state);
    let fell_back =
        outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Prefix(0..100))).count();
    assert!(fell_back > PLACES / 2, "a flipped bit ends the log there: {outcomes:?}");
}

#[test]
fn a_flipped_bit_in_the_outbox_s_log_is_an_alarm() {
    let origin = tempfile::tempdir().expect("a directory");
    let engine = open_outbox(origin.path()).expect("opens");
    write(&engine, 1..=100, Durability::Synced);
    for (place, outcome) in (0..).zip(flip_everywhere(origin.path(), "log", open_outbox)) {
        // Only a batch that looks like a torn last write may be missing.
        let excused = place >= PLACES - 2 && matches!(outcome, Outcome::Prefix(98..=100));
        assert!(outcome == Outcome::Corrupt || excused, "place {place}: {outcome:?}");
    }
}

#[test]
fn data_without_current_is_damage_and_stays_as_it_is() {
    let directory = tempfile::tempdir().expect("a directory");
    drop(open_state(directory.path()).expect("opens"));
    fs::remove_file(directory.path().join("CURRENT")).expect("removes");
    let files = || fs::read_dir(directory.path()).expect("a directory").count();
    let before = files();
    let error = open_state(directory.path()).expect_err("not a new database");
    let EngineError::Corrupt { reason } = &error else { panic!("{error:?}") };
    assert!(reason.contains("CURRENT is missing"), "{reason}");
    assert_eq!(files(), before);
}

#[test]
fn a_creation_that_was_interrupted_is_begun_anew() {
    let directory = tempfile::tempdir().expect("a directory");
    // RocksDB writes the manifest first, and nothing else before CURRENT names it.
    fs::write(directory.path().join("MANIFEST-000001"), b"half a record").expect("writes");
    open_state(directory.path()).expect("there was never a database");
}

#[test]
fn a_missing_file_is_damage_not_a_new_database() {
    let origin = tempfile::tempdir().expect("a directory");
    in_a_table(origin.path(), open_state, 50);
    for missing in ["CURRENT", "sst", "MANIFEST"] {
        let directory = tempfile::tempdir().expect("a directory");
        copy(origin.path(), directory.path());
        for entry in fs::read_dir(directory.path()).expect("a directory") {
            let file = entry.expect("an entry").path();
            let name = file.file_name().expect("a name").to_string_lossy().into_owned();
            if name.starts_with(missing) || name.ends_with(missing) {
                fs::remove_file(file).expect("removes");
            }
        }
        assert_eq!(read(directory.path(), open_state), Outcome::Corrupt, "without {missing}");
    }
}

/// RocksDB does not track more than this. A caller that must know compares with records elsewhere:
/// the hub has the last report that it acknowledged, and its positions never decrease.
#[test]
fn a_live_log_that_was_emptied_goes_unnoticed() {
    let origin = tempfile::tempdir().expect("a directory");
    let engine = open_outbox(origin.path()).expect("opens");
    write(&engine, 1..=20, Durability::Synced);
    let directory = tempfile::tempdir().expect("a directory");
    copy(origin.path(), directory.path());
    let [log] = &files_ending(directory.path(), "log")[..] else { panic!("one log file") };
    fs::write(log, b"").expect("empties");
    assert_eq!(read(directory.path(), open_outbox), Outcome::Prefix(0));
}

#[test]
fn a_damaged_database_is_moved_aside_and_rebuilt() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("state");
    in_a_table(&path, open_state, 50);
    fs::write(path.join("CURRENT"), b"nonsense").expect("writes");
    assert_eq!(read(&path, open_state), Outcome::Corrupt);
    let damaged = fs::read_dir(&path).expect("still there").count();

    let aside = move_aside(&path).expect("moves");
    assert_eq!(fs::read_dir(aside).expect("kept").count(), damaged, "nothing was repaired away");
    let engine = open_state(&path).expect("a new database");
    assert_eq!(prefix_length(&engine).expect("reads"), 0);
}
