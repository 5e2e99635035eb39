//! Parts of volumes in mounts of their own, which needs the rights of root.

use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, unshare};
use nix::unistd::geteuid;

use super::*;
use crate::disk::mounts::check_none_below;

/// How often a part is bound while a container changes the volume.
const BINDS: usize = 2000;

/// The time limit of these binds, which take less than a second.
const DEADLINE: Duration = Duration::from_secs(60);

/// The mounts below the folder of a test, which end before the folder is removed: a removal would go through what a
/// test that fails has bound.
struct Mounts(PathBuf);

impl Drop for Mounts {
    fn drop(&mut self) {
        for _ in 0..MOUNTS_MAX {
            let _ = unmount_all(&self.0);
        }
        if check_none_below(&self.0).is_err() {
            std::process::abort();
        }
    }
}

/// Unmounts what is mounted below a folder, once each.
fn unmount_all(dir: &Path) -> io::Result<()> {
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(4).map(Path::new));
    for point in points.filter(|point| point.starts_with(dir)) {
        umount2(point, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW)?;
    }
    Ok(())
}

/// Runs a test in a mount namespace of its own, with a volume and a place for a part; not without root.
fn in_own_mounts(test: impl FnOnce(&Path, &Path) + Send) {
    if !geteuid().is_root() {
        assert!(std::env::var_os("CI").is_none(), "CI must have the rights of root");
        eprintln!("NOT RUN: mounts need the rights of root");
        return;
    }
    thread::scope(|scope| {
        scope
            .spawn(|| {
                unshare(CloneFlags::CLONE_NEWNS).expect("a namespace");
                let none: Option<&str> = None;
                let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
                mount(none, "/", none, private, none).expect("mounts of its own");
                let dir = tempfile::tempdir().expect("a folder");
                let volume = dir.path().join("volume");
                fs::create_dir(&volume).expect("made");
                fs::set_permissions(&volume, Permissions::from_mode(0o777)).expect("open to all");
                let _mounts = Mounts(dir.path().to_owned());
                test(&volume, &dir.path().join("places/v/c/0"));
            })
            .join()
            .expect("it holds");
    });
}

/// The directory of all places.
fn places(place: &Path) -> &Path {
    place.ancestors().nth(3).expect("three above")
}

#[test]
fn a_file_is_read_below_its_volume_and_only_so_much_of_it() {
    let dir = tempfile::tempdir().expect("a folder");
    let volume = dir.path().join("volume");
    fs::create_dir(&volume).expect("made");
    fs::write(dir.path().join("secret"), "secret").expect("a file");
    fs::write(volume.join("file"), "12345").expect("a file");
    symlink("file", volume.join("inside")).expect("a link");
    symlink("../secret", volume.join("outside")).expect("a link");
    symlink("/etc/passwd", volume.join("absolute")).expect("a link");
    nix::unistd::mkfifo(&volume.join("pipe"), Mode::S_IRUSR).expect("a pipe");
    let of = |part: &str, bytes_max| read(&volume, Path::new(part), bytes_max);
    assert_eq!(of("file", 5).expect("whole"), b"12345");
    assert_eq!(of("inside", 5).expect("it stays in the volume"), b"12345");
    for (part, bytes_max, word) in [
        ("outside", 9, "leads out of the volume"),
        ("absolute", 9, "leads out of the volume"),
        ("../secret", 9, "leads out of the volume"),
        ("pipe", 9, "no file"),
        (".", 9, "no file"),
        ("none", 9, "No such file"),
        ("file", 4, "more than 4 bytes"),
    ] {
        let why = of(part, bytes_max).expect_err(word).to_string();
        assert!(why.contains(word), "{part}: {why}");
    }
}

#[test]
fn a_part_is_bound_made_if_it_is_absent_and_goes_without_its_content() {
    in_own_mounts(|volume, place| {
        bind(volume, Path::new("a/b"), place).expect("bound");
        assert_eq!(fs::metadata(volume.join("a/b")).expect("made").mode() & 0o777, 0o777);
        fs::write(place.join("file"), "kept").expect("written");
        bind(volume, Path::new("a/b"), place).expect("it stays");
        let file = place.with_file_name("1");
        bind(volume, Path::new("a/b/file"), &file).expect("a file is a part, too");
        assert_eq!(fs::read_to_string(&file).expect("read"), "kept");
        // Another one in its place is bound anew.
        fs::rename(volume.join("a/b"), volume.join("old")).expect("renamed");
        bind(volume, Path::new("a/b"), place).expect("bound");
        assert!(!place.join("file").exists());
        unbind_all(places(place)).expect("unbound");
        assert!(!places(place).exists());
        assert_eq!(fs::read_to_string(volume.join("old/file")).expect("read"), "kept");
        unbind_all(places(place)).expect("again");
    });
}

#[test]
fn a_link_inside_the_volume_is_followed_and_one_that_leads_out_is_not() {
    in_own_mounts(|volume, place| {
        fs::create_dir(volume.join("real")).expect("made");
        for (name, target) in [("inside", "real"), ("up", ".."), ("root", "/"), ("far", "/etc/x")] {
            symlink(target, volume.join(name)).expect("a link");
        }
        bind(volume, Path::new("inside"), place).expect("it stays in the volume");
        for part in ["up", "root", "far", "up/volume/real", "root/etc", "far/more"] {
            let error = bind(volume, Path::new(part), place).expect_err(part);
            assert!(matches!(error, PartError::Outside), "{part}: {error}");
        }
        for part in ["..", "real/../..", "/etc"] {
            let error = bind(volume, Path::new(part), place).expect_err(part);
            assert!(matches!(error, PartError::NotPlain), "{part}: {error}");
        }
        unbind_all(places(place)).expect("unbound");
    });
}

#[test]
fn a_link_that_is_swapped_in_a_loop_gets_no_part_out_of_its_volume() {
    in_own_mounts(|volume, place| {
        let outside = volume.with_file_name("outside");
        fs::create_dir_all(outside.join("deep")).expect("made");
        fs::write(outside.join("deep/marker"), "").expect("written");
        let (done, swaps) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let swapper = {
            let (done, swaps, volume) = (done.clone(), swaps.clone(), volume.to_owned());
            let part = volume.join("part");
            thread::spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    // What fails, the next turn does.
                    let _ = fs::create_dir_all(part.join("deep"));
                    let _ = fs::rename(&part, volume.join("away"));
                    let _ = symlink(&outside, &part);
                    let _ = fs::remove_file(&part);
                    // A bind may have made the part meanwhile: two of them would stay for ever, and no link come again.
                    if fs::rename(volume.join("away"), &part).is_err() {
                        let _ = fs::remove_dir_all(volume.join("away"));
                    }
                    swaps.fetch_add(1, Ordering::Relaxed);
                }
            })
        };
        let (mut bound, mut refused) = (0, 0);
        let deadline = Instant::now() + DEADLINE;
        while bound + refused < BINDS || bound == 0 || refused == 0 {
            match bind(volume, Path::new("part/deep"), place) {
                Ok(()) => bound += 1,
                Err(_) => refused += 1,
            }
            assert!(!place.join("marker").exists(), "it is outside of its volume");
            assert!(Instant::now() < deadline, "{bound} bound, {refused} refused in {DEADLINE:?}");
        }
        done.store(true, Ordering::Relaxed);
        swapper.join().expect("it ends");
        eprintln!("{bound} bound, {refused} refused, {} swaps", swaps.load(Ordering::Relaxed));
        unbind_all(places(place)).expect("unbound");
    });
}

#[test]
fn a_directory_in_memory_has_its_size_and_is_mounted_once() {
    in_own_mounts(|volume, _| {
        let dir = volume.join("memory");
        fs::create_dir(&dir).expect("made");
        mount_memory(&dir, 1 << 20).expect("mounted");
        mount_memory(&dir, 1 << 20).expect("it is there");
        fs::write(dir.join("small"), vec![1; 1 << 19]).expect("it fits");
        fs::write(dir.join("large"), vec![1; 1 << 20]).expect_err("it does not fit");
        unmount_memory(&dir).expect("unmounted");
        assert_eq!(fs::read_dir(&dir).expect("a directory").count(), 0, "it was mounted once");
        unmount_memory(&dir).expect("nothing is there");
    });
}
