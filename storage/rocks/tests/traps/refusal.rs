//! Databases that this build must not open, or not now.

use std::io::{BufRead, BufReader, Read as _};
use std::process::Stdio;

use headwater_rocks::{Budget, DatabaseMemory, RocksEngine, Role};
use headwater_store::{Durability, EngineError, Schema, schema};
use rocksdb::{DB, Options};

use crate::child;
use crate::files::{open_outbox, open_state, prefix_length, write};

#[test]
fn an_unknown_column_family_is_refused_and_kept() {
    let directory = tempfile::tempdir().expect("a directory");
    let engine = open_state(directory.path()).expect("opens");
    write(&engine, 1..=3, Durability::Synced);
    drop(engine);
    let mut db = DB::open(&Options::default(), directory.path()).expect("opens");
    db.create_cf("from-the-future", &Options::default()).expect("creates");
    drop(db);

    let error = open_state(directory.path()).expect_err("refused");
    let EngineError::Unsupported { reason } = &error else { panic!("{error:?}") };
    assert!(reason.contains("from-the-future"), "{reason}");
    let families = DB::list_cf(&Options::default(), directory.path()).expect("lists");
    assert_eq!(families, ["default", "from-the-future"]);
}

#[test]
fn another_schema_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    drop(open_state(directory.path()).expect("opens"));
    let open = |schema| {
        let shared = DatabaseMemory::new(Budget::EDGE);
        RocksEngine::open(directory.path(), Role::State, &shared, schema).map(drop)
    };
    let newer = Schema { version: schema::NODE_STATE.version + 1, ..schema::NODE_STATE };
    assert!(matches!(open(newer), Err(EngineError::Unsupported { .. })));
    assert!(matches!(open(schema::OUTBOX), Err(EngineError::Unsupported { .. })));
    open(schema::NODE_STATE).expect("the right schema still opens");
}

#[test]
fn a_second_handle_in_the_process_is_locked_out() {
    let directory = tempfile::tempdir().expect("a directory");
    let engine = open_state(directory.path()).expect("opens");
    let error = open_state(directory.path()).expect_err("locked");
    assert!(matches!(error, EngineError::Locked { .. }), "{error:?}");
    drop(engine);
    open_state(directory.path()).expect("free again");
}

#[test]
#[ignore = "runs as the child of another_process_is_locked_out"]
fn child_holds_the_database() {
    let Some(directory) = child::directory() else { return };
    let engine = open_outbox(&directory).expect("opens");
    write(&engine, 1..=1, Durability::Synced);
    // The test harness has already printed a part of this line.
    println!("\nheld");
    // Waits until the parent closes its end or exits.
    std::io::stdin().read_to_end(&mut Vec::new()).expect("a parent");
}

#[test]
fn another_process_is_locked_out() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut child = child::command("refusal::child_holds_the_database", directory.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a child");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    lines.find(|line| line.as_ref().is_ok_and(|line| line == "held")).expect("it holds").ok();

    let error = open_outbox(directory.path()).expect_err("locked");
    assert!(matches!(error, EngineError::Locked { .. }), "{error:?}");

    drop(child.stdin.take());
    assert!(child.wait().expect("its end").success());
    let engine = open_outbox(directory.path()).expect("free again");
    assert_eq!(prefix_length(&engine).expect("reads"), 1);
}
