//! Killed processes and cut power.

use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use headwater_store::{Durability, Engine, Read};

use crate::child;
use crate::files::{copy, files_ending, numbered, open_outbox, open_state, prefix_length, write};

/// The numbers of acknowledged writes after which a child is killed.
const KILLED_AFTER: [u32; 4] = [1, 7, 150, 2_000];

const ACKNOWLEDGED: &str = "acknowledged ";

#[test]
#[ignore = "runs as the child of a_killed_process_loses_no_write_that_returned"]
fn child_writes_until_it_is_killed() {
    let Some(directory) = child::directory() else { return };
    let engine = open_state(&directory).expect("opens");
    let first = prefix_length(&engine).expect("reads") + 1;
    for n in first.. {
        engine.write(numbered(n), Durability::Buffered).expect("writes");
        let mut out = std::io::stdout().lock();
        writeln!(out, "{ACKNOWLEDGED}{n}").and_then(|()| out.flush()).expect("a parent");
    }
}

#[test]
fn a_killed_process_loses_no_write_that_returned() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut written = 0;
    for count in KILLED_AFTER {
        let mut child = child::command("crash::child_writes_until_it_is_killed", directory.path())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a child");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        let acknowledged = stdout
            .lines()
            .map(|line| line.expect("text"))
            .filter_map(|line| line.strip_prefix(ACKNOWLEDGED)?.parse().ok())
            .find(|n: &u32| *n >= written + count)
            .expect("the child continued to write");
        child.kill().expect("SIGKILL");
        child.wait().expect("its end");

        let engine = open_state(directory.path()).expect("opens after a kill");
        written = prefix_length(&engine).expect("reads");
        assert!(written >= acknowledged, "{acknowledged} were acknowledged, {written} are left");
    }
}

/// The number of batches that a process leaves that is killed now.
fn left_by_a_kill(of: &tempfile::TempDir) -> u32 {
    let directory = tempfile::tempdir().expect("a directory");
    copy(of.path(), directory.path());
    prefix_length(&open_state(directory.path()).expect("opens after a kill")).expect("reads")
}

#[test]
fn a_load_writes_no_log_and_from_its_end_on_no_write_is_lost() {
    let origin = tempfile::tempdir().expect("a directory");
    let engine = open_state(origin.path()).expect("opens");
    let wal_bytes = || engine.stats().expect("stats").wal_bytes;
    write(&engine, 1..=3, Durability::Buffered);
    let logged = wal_bytes();
    engine.begin_bulk_load();
    write(&engine, 4..=20, Durability::Buffered);
    assert_eq!(wal_bytes(), logged, "a load is not written twice");
    assert!((3..=20).contains(&left_by_a_kill(&origin)));
    write(&engine, 21..=21, Durability::Synced);
    assert_eq!(left_by_a_kill(&origin), 21);
    write(&engine, 22..=40, Durability::Buffered);
    engine.end_bulk_load();
    assert_eq!(left_by_a_kill(&origin), 40);
    write(&engine, 41..=42, Durability::Buffered);
    assert_eq!(left_by_a_kill(&origin), 42);
}

#[test]
fn a_write_ahead_log_cut_anywhere_opens_to_a_prefix() {
    let origin = tempfile::tempdir().expect("a directory");
    let engine = open_state(origin.path()).expect("opens");
    write(&engine, 1..=3, Durability::Synced);
    let [log] = &files_ending(origin.path(), "log")[..] else { panic!("one log file") };
    let synced = fs::metadata(log).expect("there").len();
    write(&engine, 4..=20, Durability::Buffered);
    let length = fs::metadata(log).expect("there").len();

    let mut lengths = Vec::new();
    for step in 0..=24 {
        let cut = synced + (length - synced) * step / 24;
        let directory = tempfile::tempdir().expect("a directory");
        copy(origin.path(), directory.path());
        let file = directory.path().join(log.file_name().expect("a name"));
        OpenOptions::new().write(true).open(&file).and_then(|f| f.set_len(cut)).expect("cut");
        let left = prefix_length(&open_state(directory.path()).expect("opens")).expect("reads");
        assert!((3..=20).contains(&left), "cut at {cut} of {length}: {left}");
        lengths.push(left);
    }
    assert!(lengths.is_sorted(), "{lengths:?}");
    assert_eq!((lengths[0], lengths[24]), (3, 20));
    assert!(lengths.iter().any(|left| (4..20).contains(left)), "{lengths:?}");
}

#[test]
fn a_tail_of_zeros_in_the_write_ahead_log_is_no_data() {
    let origin = tempfile::tempdir().expect("a directory");
    let engine = open_state(origin.path()).expect("opens");
    write(&engine, 1..=20, Durability::Buffered);
    let directory = tempfile::tempdir().expect("a directory");
    copy(origin.path(), directory.path());
    let [log] = &files_ending(directory.path(), "log")[..] else { panic!("one log file") };
    let mut bytes = fs::read(log).expect("reads");
    let half = bytes.len() / 2;
    bytes[half..].fill(0);
    fs::write(log, bytes).expect("writes");
    let left = prefix_length(&open_state(directory.path()).expect("opens")).expect("reads");
    assert!((5..20).contains(&left), "{left} of 20 are left");
}

#[test]
fn an_outbox_forgives_a_torn_last_write_alone() {
    let origin = tempfile::tempdir().expect("a directory");
    let engine = open_outbox(origin.path()).expect("opens");
    write(&engine, 1..=20, Durability::Synced);
    let [log] = &files_ending(origin.path(), "log")[..] else { panic!("one log file") };
    let length = fs::metadata(log).expect("there").len();
    let directory = tempfile::tempdir().expect("a directory");
    copy(origin.path(), directory.path());
    let file = directory.path().join(log.file_name().expect("a name"));
    let file = OpenOptions::new().write(true).open(&file).expect("there");
    file.set_len(length - 5).expect("cut");
    assert_eq!(prefix_length(&open_outbox(directory.path()).expect("opens")).expect("reads"), 19);
}

#[test]
fn a_closed_database_is_synced_and_opens_again() {
    let directory = tempfile::tempdir().expect("a directory");
    for round in 0..5 {
        let engine = open_state(directory.path()).expect("opens");
        assert_eq!(prefix_length(&engine).expect("reads"), round * 10);
        write(&engine, round * 10 + 1..=round * 10 + 10, Durability::Buffered);
        assert!(engine.get(b"absent").expect("reads").is_none());
    }
}
