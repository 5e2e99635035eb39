//! The program is built once, whole or not at all.

use std::os::unix::fs::PermissionsExt;
use std::thread;

use tempfile::TempDir;

use super::*;

/// A Go that records each of its builds, and builds a script; it fails if its source is
/// `broken`.
const STAND_IN: &str = r#"#!/bin/sh
[ "$1" = version ] && echo "go version go1.99 linux/amd64" && exit
echo build >> "$(dirname "$0")/builds"
grep -q broken main.go && echo "main.go:1: it is broken" >&2 && exit 1
touch "$GOCACHE/object"
while [ "$1" != -o ]; do shift; done
cp "$0" "$2/control-plane"
"#;

struct Scene {
    scratch: TempDir,
    cache: CacheFolder,
}

impl Scene {
    fn new() -> Self {
        let scratch = tempfile::tempdir().expect("a folder");
        let go = scratch.path().join("go");
        fs::write(&go, STAND_IN).expect("written");
        fs::set_permissions(&go, PermissionsExt::from_mode(0o755)).expect("executable");
        let cache = CacheFolder::at(scratch.path().join("cache"));
        Self { scratch, cache }
    }

    fn prepare(&self, main: &'static str) -> Result<Program, DaemonError> {
        let go = self.scratch.path().join("go");
        let source =
            Source::of([("go.mod", "module headwater/control-plane\n"), ("main.go", main)]);
        Program::prepare_in(&self.cache, &source, go.as_os_str())
    }

    fn builds(&self) -> usize {
        let builds = fs::read_to_string(self.scratch.path().join("builds"));
        builds.unwrap_or_default().lines().count()
    }

    /// What the cache has beside its lock.
    fn entries(&self) -> Vec<String> {
        let entries = self.cache.path().read_dir().expect("a folder").flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.filter(|name| name != "lock").collect()
    }
}

#[test]
fn a_real_go_builds_a_program_that_runs() {
    let scratch = tempfile::tempdir().expect("a folder");
    let cache = CacheFolder::at(scratch.path().to_owned());
    let main = "package main\n\nfunc main() { println(\"it runs\") }\n";
    let source =
        Source::of([("go.mod", "module headwater/control-plane\n\ngo 1.21\n"), ("main.go", main)]);
    let program = Program::prepare_in(&cache, &source, "go".as_ref()).expect("built");
    let output = program.command("etcd").output().expect("it starts");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "it runs\n");
    let linked = program.links().join(KUBECTL).canonicalize().expect("a link");
    assert_eq!(linked, program.path().canonicalize().expect("a file"));
}

#[test]
fn two_that_ask_at_once_get_one_build() {
    let scene = Scene::new();
    thread::scope(|scope| {
        let ask = || scope.spawn(|| scene.prepare("package main\n").expect("built"));
        let (one, other) = (ask(), ask());
        let (one, other) = (one.join().expect("no panic"), other.join().expect("no panic"));
        assert_eq!(one.path(), other.path());
        assert!(one.path().is_file());
    });
    assert_eq!(scene.builds(), 1);
    assert_eq!(scene.entries().len(), 1, "the build's own files stay: {:?}", scene.entries());
    scene.prepare("package main // changed\n").expect("built");
    assert_eq!((scene.builds(), scene.entries().len()), (2, 2));
}

#[test]
fn a_failed_build_is_quoted_and_leaves_no_program() {
    let scene = Scene::new();
    for builds in 1..=2 {
        let error = scene.prepare("broken\n").expect_err("it does not build").to_string();
        assert!(error.contains("main.go:1: it is broken"), "{error}");
        assert_eq!(scene.builds(), builds, "the failure was taken for a program");
    }
}

#[test]
fn the_next_build_continues_a_killed_one_and_removes_its_files() {
    let scene = Scene::new();
    let program = scene.prepare("package main\n").expect("built");
    // As a build is when it is killed at its end: half a program, and what it compiled.
    let partial = PathBuf::from(format!("{}.partial", program.home.display()));
    fs::create_dir_all(partial.join("cache")).expect("made");
    fs::rename(&program.home, partial.join("output")).expect("moved");
    let program = scene.prepare("package main\n").expect("built again");
    assert_eq!(scene.builds(), 2, "half a program was taken for one");
    assert!(program.path().is_file());
    assert!(!partial.exists());
    // As a process leaves it that is killed before it has removed them.
    fs::create_dir_all(partial.join("cache")).expect("made");
    scene.prepare("package main\n").expect("there");
    assert_eq!(scene.builds(), 2);
    assert!(!partial.exists());
}

#[test]
fn a_missing_go_is_named() {
    let scene = Scene::new();
    let source = Source::of([("main.go", "package main\n")]);
    let error = Program::prepare_in(&scene.cache, &source, "/no/such/go".as_ref());
    let error = error.expect_err("it is missing").to_string();
    assert!(error.starts_with("/no/such/go cannot be started"), "{error}");
}
