//! The disk itself: what was synced stays, what was not may go, and programs work on it.

#[path = "disk/place.rs"]
mod place;

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use headwater_lossy::{Fault, Survives};

use self::place::Place;

/// Writes a file and makes it as durable as can be.
fn write_durably(path: &Path, content: &[u8]) {
    let mut file = File::create(path).expect("makes a file");
    file.write_all(content).expect("writes");
    file.sync_all().expect("syncs");
    sync_directory(path.parent().expect("a directory"));
}

fn sync_directory(path: &Path) {
    File::open(path).expect("opens").sync_all().expect("syncs");
}

#[test]
fn what_was_synced_stays_and_the_rest_goes() {
    let Some(mut place) = Place::new() else { return };
    let dir = place.path();
    write_durably(&dir.join("kept"), b"kept");
    fs::write(dir.join("new"), b"never synced").expect("writes");
    let mut appended = OpenOptions::new().append(true).open(dir.join("kept")).expect("opens");
    appended.write_all(b", and more").expect("writes");
    drop(appended);
    assert_eq!(fs::read(dir.join("kept")).expect("reads"), b"kept, and more");

    let loss = place.disk.power_cut(Survives::Nothing).expect("nobody uses it");
    assert_eq!((loss.bytes, loss.entries), (22, 1));
    assert_eq!(fs::read(dir.join("kept")).expect("reads"), b"kept");
    assert!(!dir.join("new").exists());
}

#[test]
fn a_synced_file_is_lost_with_its_entry() {
    let Some(mut place) = Place::new() else { return };
    let dir = place.path();
    fs::create_dir(dir.join("made")).expect("makes");
    File::create(dir.join("made/file")).expect("makes").sync_all().expect("syncs");
    sync_directory(&dir.join("made"));
    // The directory that names `made` was not synced.
    place.disk.power_cut(Survives::Nothing).expect("nobody uses it");
    assert!(!dir.join("made").exists());
}

#[test]
fn a_rename_is_whole_or_undone() {
    let Some(mut place) = Place::new() else { return };
    let dir = place.path();
    write_durably(&dir.join("current"), b"old");
    let (mut old, mut new) = (0, 0);
    for seed in 0..20 {
        fs::write(dir.join("next"), b"new").expect("writes");
        File::open(dir.join("next")).expect("opens").sync_all().expect("syncs");
        sync_directory(&dir);
        fs::rename(dir.join("next"), dir.join("current")).expect("renames");
        place.disk.power_cut(Survives::Prefix { seed }).expect("nobody uses it");
        match &fs::read(dir.join("current")).expect("one of them")[..] {
            b"old" => old += 1,
            b"new" => new += 1,
            other => panic!("neither old nor new: {other:?}"),
        }
        write_durably(&dir.join("current"), b"old");
    }
    assert!(old > 0 && new > 0, "{old} old, {new} new");
    fs::write(dir.join("next"), b"newest").expect("writes");
    fs::rename(dir.join("next"), dir.join("current")).expect("renames");
    sync_directory(&dir);
    // The new entry is there, its content never was synced.
    place.disk.power_cut(Survives::Nothing).expect("nobody uses it");
    assert_eq!(fs::read(dir.join("current")).expect("reads"), b"");
}

#[test]
fn what_was_removed_comes_back_unless_its_directory_was_synced() {
    let Some(mut place) = Place::new() else { return };
    let dir = place.path();
    write_durably(&dir.join("a"), b"a");
    write_durably(&dir.join("b"), b"b");
    fs::remove_file(dir.join("a")).expect("removes");
    sync_directory(&dir);
    fs::remove_file(dir.join("b")).expect("removes");
    place.disk.power_cut(Survives::Nothing).expect("nobody uses it");
    assert!(!dir.join("a").exists());
    assert_eq!(fs::read(dir.join("b")).expect("reads"), b"b");
}

#[test]
fn a_write_that_was_under_way_is_torn() {
    let Some(mut place) = Place::new() else { return };
    let path = place.path().join("torn");
    let (mut torn, mut holes) = (0, 0);
    for seed in 0..40 {
        write_durably(&path, &[1; 1000]);
        let file = OpenOptions::new().write(true).open(&path).expect("opens");
        file.write_all_at(&[2; 20_000], 1000).expect("writes");
        drop(file);
        let scattered = seed % 2 == 1;
        let survives =
            if scattered { Survives::Scattered { seed } } else { Survives::Prefix { seed } };
        let loss = place.disk.power_cut(survives).expect("nobody uses it");
        torn += loss.torn;
        let content = fs::read(&path).expect("reads");
        assert_eq!(content[..1000], [1; 1000], "what was synced");
        holes += u32::from(content[1000..].contains(&0) && content.contains(&2));
        if !scattered {
            assert!(!content.contains(&0), "in order, so without holes");
        }
    }
    assert!(torn > 10 && holes > 5, "{torn} torn, {holes} with holes");
}

#[test]
fn a_frozen_disk_holds_a_process_until_it_is_killed() {
    let Some(mut place) = Place::new() else { return };
    let dir = place.path();
    place.disk.freeze_after(200);
    let endless = r#"while :; do echo line >> "$0"; done"#;
    let mut writer =
        Command::new("sh").args(["-c", endless]).arg(dir.join("lines")).spawn().expect("a shell");
    assert!(place.disk.wait_until_frozen(Duration::from_secs(60)));
    let changes = place.disk.counts().changes;
    writer.kill().expect("SIGKILL");
    assert_eq!(place.disk.counts().changes, changes, "nothing gets through");
    place.disk.let_go();
    writer.wait().expect("ends");
    let loss = place.disk.power_cut(Survives::Nothing).expect("nobody uses it");
    assert!(loss.bytes > 500, "{loss:?}");
    assert_eq!(fs::read_dir(&dir).expect("reads").count(), 0);
}

#[test]
fn a_frozen_disk_does_not_hold_a_close() {
    let Some(place) = Place::new() else { return };
    let dir = place.path();
    // What is started below has these open until it calls exec, which closes them.
    let made = File::create(dir.join("file")).expect("makes a file");
    let opened = File::open(dir.join("file")).expect("opens");
    place.disk.freeze();
    let other = dir.join("other");
    let held = thread::spawn(move || File::create(other).map(drop));
    assert!(Command::new("true").status().expect("starts").success());
    drop((made, opened));
    assert!(!held.is_finished(), "who asks it is held");
    place.disk.let_go();
    held.join().expect("ends").expect_err("the disk is gone");
}

#[test]
fn programs_find_what_they_need() {
    let Some(place) = Place::new() else { return };
    let dir = place.path();
    let listener = UnixListener::bind(dir.join("socket")).expect("a socket");
    let mut client = UnixStream::connect(dir.join("socket")).expect("connects");
    client.write_all(b"hello").expect("writes");
    drop(client);
    let mut received = String::new();
    listener.accept().expect("accepts").0.read_to_string(&mut received).expect("reads");
    assert_eq!(received, "hello");

    nix::unistd::mkfifo(&dir.join("fifo"), nix::sys::stat::Mode::S_IRWXU).expect("a FIFO");
    symlink("target", dir.join("link")).expect("a link");
    assert_eq!(fs::read_link(dir.join("link")).expect("reads"), Path::new("target"));

    let locked = File::create(dir.join("lock")).expect("makes");
    locked.try_lock().expect("free");
    File::open(dir.join("lock")).expect("opens").try_lock().expect_err("taken");

    fs::create_dir_all(dir.join("a/b/c")).expect("makes");
    for n in 0..500 {
        fs::write(dir.join(format!("a/b/file-{n}")), n.to_string()).expect("writes");
    }
    assert_eq!(fs::read_dir(dir.join("a/b")).expect("reads").count(), 501);
    fs::set_permissions(dir.join("a"), fs::Permissions::from_mode(0o700)).expect("chmod");
    assert_eq!(fs::metadata(dir.join("a")).expect("there").permissions().mode() & 0o777, 0o700);
    assert_eq!(
        fs::remove_dir(dir.join("a/b")).expect_err("full").kind(),
        ErrorKind::DirectoryNotEmpty
    );
    let open = File::open(dir.join("a/b/file-7")).expect("opens");
    fs::remove_dir_all(dir.join("a")).expect("removes");
    let mut content = String::new();
    (&open).read_to_string(&mut content).expect("it is still open");
    assert_eq!(content, "7");
}

#[test]
fn calls_fail_when_they_are_to() {
    let Some(mut place) = Place::new() else { return };
    let path = place.path().join("file");
    write_durably(&path, b"one");
    let append = || OpenOptions::new().append(true).open(&path).expect("opens");

    place.disk.inject(Some(Fault::Full { nth: 2 }));
    append().write_all(b"two").expect("the first has room");
    for _ in 0..2 {
        let error = append().write_all(b"three").expect_err("no room");
        assert_eq!(error.kind(), ErrorKind::StorageFull);
    }
    place.disk.inject(None);
    append().write_all(b"four").expect("room again");

    place.disk.inject(Some(Fault::Sync { nth: 1 }));
    append().sync_all().expect_err("an I/O error");
    append().sync_all().expect("a lost write fails one sync only");
    assert_eq!(fs::read(&path).expect("reads"), b"onetwofour");

    place.disk.inject(Some(Fault::Write { nth: 1 }));
    append().write_all(b"five").expect_err("an I/O error");
    assert_eq!(place.disk.counts().faults, 4);

    place.disk.set_capacity(Some(place.disk.used() + 10));
    append().write_all(&[0; 11]).expect_err("no room");
    append().write_all(&[0; 10]).expect("just room");

    place.disk.power_cut(Survives::Nothing).expect("nobody uses it");
    assert_eq!(fs::read(&path).expect("reads"), b"one", "the failed sync kept nothing");
}
