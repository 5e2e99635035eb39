//! A full disk: a small tmpfs in a mount namespace of its own.

use std::fs::File;
use std::path::Path;
use std::process::Command;

use headwater_rocks::{Ballast, Role};
use headwater_store::conformance::stays_closed_after_a_failed_write;
use headwater_store::{Durability, Engine, EngineError};
use nix::fcntl::posix_fallocate;

use crate::child;
use crate::files::{numbered, open_state, prefix_length};

/// The size of the file system: the ballast, and room for some tables beside it.
const DISK_BYTES: u64 = 40 << 20;

/// A namespace in which the test may mount: as root, or as root of a user namespace.
const NAMESPACES: [&[&str]; 2] =
    [&["unshare", "--mount"], &["unshare", "--user", "--map-root-user", "--mount"]];

/// Runs the child test `name` if it can mount. Else prints that it does not run.
fn run_where_mounting_works(name: &str) {
    let directory = tempfile::tempdir().expect("a directory");
    let works = |namespace: &&&[&str]| {
        let mut probe = Command::new(namespace[0]);
        probe.args(&namespace[1..]).args(["mount", "-t", "tmpfs", "probe"]).arg(directory.path());
        probe.output().is_ok_and(|output| output.status.success())
    };
    let Some(namespace) = NAMESPACES.iter().find(works) else {
        let message = format!("NOT RUN: {name} needs a tmpfs, and mounting is not permitted here");
        assert!(std::env::var("CI").is_err(), "{message}");
        eprintln!("{message}");
        return;
    };
    let output = child::command_under(namespace, name, directory.path()).output().expect("a child");
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{stdout}\n{}", String::from_utf8_lossy(&output.stderr));
    println!("{stdout}");
}

fn mount(directory: &Path) {
    let size = format!("size={DISK_BYTES}");
    let status = Command::new("mount")
        .args(["-t", "tmpfs", "-o", &size, "small"])
        .arg(directory)
        .status()
        .expect("mount");
    assert!(status.success(), "mount: {status}");
}

/// The free space when the writes begin. The moment decides whether the write-ahead log or a table
/// no longer fits; the engine must handle both.
const ROOM_BYTES: [u64; 3] = [3 << 20, 4 << 20, 6 << 20];

#[test]
#[ignore = "runs as the child of a_full_disk_closes_the_engine_and_the_ballast_opens_it_again"]
fn child_fills_disks() {
    let Some(directory) = child::directory() else { return };
    for room in ROOM_BYTES {
        let disk = directory.join(room.to_string());
        std::fs::create_dir(&disk).expect("a directory");
        mount(&disk);
        fill(&disk, room);
    }
}

fn fill(disk: &Path, room: u64) {
    let path = disk.join("state");
    let ballast = Ballast::ensure(disk.join("ballast"), Role::State.ballast_bytes()).expect("room");
    let engine = open_state(&path).expect("opens");
    // Another program fills the disk.
    let filler = File::create(disk.join("filler")).expect("a file");
    let taken = DISK_BYTES - Role::State.ballast_bytes() - room;
    posix_fallocate(&filler, 0, taken.try_into().expect("small")).expect("room");

    let mut acknowledged = 0;
    let error = loop {
        match engine.write(numbered(acknowledged + 1), Durability::Buffered) {
            Ok(()) => acknowledged += 1,
            Err(error) => break error,
        }
    };
    println!("{room} bytes are full after {acknowledged} batches: {error}");
    assert!(matches!(error, EngineError::Write { disk_full: true, .. }), "{error:?}");
    stays_closed_after_a_failed_write(&engine, &[]);
    assert!(prefix_length(&engine).expect("reads continue") >= acknowledged);
    drop(engine);

    // On a full disk the open may fail; its error names the cause, and nothing is damaged.
    if let Err(error) = open_state(&path) {
        assert!(matches!(error, EngineError::Write { disk_full: true, .. }), "{error:?}");
        println!("opens not before there is room: {error}");
    }
    ballast.release().expect("releases");
    let engine = open_state(&path).expect("the ballast's space suffices");
    let left = prefix_length(&engine).expect("reads");
    assert!(left >= acknowledged, "{acknowledged} were acknowledged, {left} are left");
    engine.write(numbered(left + 1), Durability::Synced).expect("takes writes again");

    // A ballast that does not fit leaves no file.
    let full = Ballast::ensure(disk.join("too-large"), DISK_BYTES).expect_err("does not fit");
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull, "{full}");
    assert!(!disk.join("too-large").exists());
    filler.set_len(0).expect("the other program frees the disk");
    ballast.restore().expect("room again");
    assert_eq!(prefix_length(&engine).expect("reads"), left + 1);
}

#[test]
fn a_full_disk_closes_the_engine_and_the_ballast_opens_it_again() {
    run_where_mounting_works("full_disk::child_fills_disks");
}
