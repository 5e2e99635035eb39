//! The program is built once, whole or not at all.

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
cp "$0" "$2/program"
"#;

fn programs(module: &'static str, main: &'static str) -> GoPrograms {
    GoPrograms {
        name: "a program".to_owned(),
        files: vec![("go.mod", module), ("main.go", main)],
        more: &[],
        tags: "",
        linker_flags: "-s -w".to_owned(),
        packages: 1,
        took: "a second",
    }
}

struct Scene {
    scratch: TempDir,
    cache: CacheFolder,
}

impl Scene {
    fn new() -> Self {
        let scratch = tempfile::tempdir().expect("a folder");
        let (text, go) = (scratch.path().join("text"), scratch.path().join("go"));
        fs::write(&text, STAND_IN).expect("written");
        // Another process writes the program: a process that another test starts at this moment would have ours open for
        // writing for a while, and Linux starts no such program.
        let mut install = Command::new("install");
        install.args(["-m", "755"]).args([&text, &go]);
        crate::run("installing the program", &mut install).expect("installed");
        let cache = CacheFolder::at(scratch.path().join("cache"));
        Self { scratch, cache }
    }

    /// The program.
    fn prepare(&self, main: &'static str) -> Result<PathBuf, DaemonError> {
        let go = self.scratch.path().join("go");
        let home = programs("module headwater/program\n", main).prepare(
            &self.cache,
            go.as_os_str(),
            |output| fs::write(output.join("finished"), "").map_err(DaemonError::file(output)),
        )?;
        assert!(home.join("finished").is_file());
        Ok(home.join("program"))
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
    let built = programs("module headwater/program\n\ngo 1.21\n", main);
    let home = built.prepare(&cache, "go".as_ref(), |_| Ok(())).expect("built");
    let output = Command::new(home.join("program")).output().expect("it starts");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "it runs\n");
}

#[test]
fn a_version_is_that_of_the_required_module_alone() {
    let go_mod =
        "module a\n\ntool b/v2/cmd\n\nrequire (\n\tb/v2/api v9.9.9\n\tb/v2 v2.4.2 // indirect\n)\n";
    assert_eq!(required_version(go_mod, "b/v2"), "v2.4.2");
    assert_eq!(required_version(go_mod, "b"), "");
}

#[test]
fn every_file_and_the_version_of_go_change_the_key() {
    let key = |module, main, go| programs(module, main).key(go);
    let keys = [
        key("module a", "package main", "go1.26.8"),
        key("module b", "package main", "go1.26.8"),
        key("module a", "package other", "go1.26.8"),
        key("module a", "package main", "go1.26.9"),
        key("module a", "package main-s -w", "go1.26.8"),
    ];
    for (at, one) in keys.iter().enumerate() {
        assert_eq!(one.len(), KEY_CHARS);
        assert!(!keys[..at].contains(one), "{at}: {keys:?}");
    }
}

#[test]
fn two_that_ask_at_once_get_one_build() {
    let scene = Scene::new();
    thread::scope(|scope| {
        let ask = || scope.spawn(|| scene.prepare("package main\n").expect("built"));
        let (one, other) = (ask(), ask());
        let (one, other) = (one.join().expect("no panic"), other.join().expect("no panic"));
        assert_eq!(one, other);
        assert!(one.is_file());
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
    let home = program.parent().expect("its folder");
    let partial = PathBuf::from(format!("{}.partial", home.display()));
    fs::create_dir_all(partial.join("cache")).expect("made");
    fs::rename(home, partial.join("output")).expect("moved");
    let program = scene.prepare("package main\n").expect("built again");
    assert_eq!(scene.builds(), 2, "half a program was taken for one");
    assert!(program.is_file());
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
    let error =
        programs("", "package main\n").prepare(&scene.cache, "/no/such/go".as_ref(), |_| Ok(()));
    let error = error.expect_err("it is missing").to_string();
    assert!(error.starts_with("/no/such/go cannot be started"), "{error}");
}
