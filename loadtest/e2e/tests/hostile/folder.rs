//! A folder of manifests in which anything may lie. What is wrong is named, the rest goes on, and
//! what is mended heals.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;

use nix::sys::stat::Mode;

use crate::bench::{Bench, one};

#[test]
fn a_folder_with_everything_wrong_in_it_is_read_for_what_is_right() {
    let bench = Bench::new();
    let folder = &bench.manifests;
    for (name, content) in texts() {
        fs::write(folder.join(name), content).expect("written");
    }
    nix::unistd::mkfifo(&folder.join("pipe.yaml"), Mode::S_IRWXU).expect("a pipe");
    let _socket = UnixListener::bind(folder.join("socket.yaml")).expect("a socket");
    symlink("/dev/zero", folder.join("device.yaml")).expect("a link");
    symlink("loop.yaml", folder.join("loop.yaml")).expect("a link");
    symlink(".", folder.join("self")).expect("a link");
    symlink("absent", folder.join("nowhere.yaml")).expect("a link");
    fs::write(folder.join(OsStr::from_bytes(b"name-\xff.yaml")), "[").expect("written");
    fs::write(folder.join("locked.yaml"), named("locked")).expect("written");
    let locked = fs::Permissions::from_mode(0o000);
    fs::set_permissions(folder.join("locked.yaml"), locked).expect("locked");
    let outside = tempfile::tempdir().expect("a temporary folder");
    fs::write(outside.path().join("linked.yaml"), named("linked")).expect("written");
    symlink(outside.path(), folder.join("outside")).expect("a link");

    bench.goes_on("a folder with everything wrong in it");
    for (file, reason) in [
        ("pipe.yaml", "plain file"),
        ("socket.yaml", "plain file"),
        ("device.yaml", "plain file"),
        ("loop.yaml", "cannot be read"),
        ("self", "already"),
        ("nowhere.yaml", "cannot be read"),
        ("bytes.yaml", "UTF-8"),
        ("bomb.yaml", ""),
        ("deep.yaml", ""),
        ("deep-block.yaml", ""),
        ("deep.json", ""),
        ("endless.yaml", ""),
        ("zero.yaml", ""),
        ("tabs.yaml", ""),
        ("twice.yaml", "last one counts"),
        ("many.yaml", "10000"),
        ("wrong-types.yaml", "spec.containers"),
        ("control.yaml", "name"),
        ("long-name.yaml", "name"),
        ("number.yaml", ""),
        ("large.yaml", "large"),
    ] {
        bench.running.wait_for(&format!("{file} named with {reason:?}"), |running| {
            let output = running.output();
            output.lines().any(|line| line.contains(file) && line.contains(reason)).then_some(())
        });
    }
    for name in ["windows", "marked", "nested", "linked", "twice-second"] {
        bench
            .running
            .wait_for(&format!("the ConfigMap {name} of a file that is right"), |running| {
                one(running, &["get", "configmap", name]).map(drop)
            });
    }

    fs::write(folder.join("bytes.yaml"), named("healed")).expect("mended");
    bench.running.wait_for("the file that was mended", |running| {
        one(running, &["get", "configmap", "healed"]).map(drop)
    });
    replaced_again_and_again(folder);
    bench.goes_on("files and folders that come and go while they are read");
}

/// Files that shrink and grow, and folders that become files and back.
fn replaced_again_and_again(folder: &Path) {
    let (file, place) = (folder.join("busy.yaml"), folder.join("place"));
    for round in 0..200 {
        let text = named(&format!("busy-{}", round % 3)).repeat(round % 5);
        fs::write(&file, text).expect("written");
        if round % 2 == 0 {
            fs::create_dir_all(&place).expect("a folder");
            fs::write(place.join("inner.yaml"), named("inner")).expect("written");
        } else {
            fs::remove_dir_all(&place).expect("removed");
        }
    }
}

fn named(name: &str) -> String {
    format!("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata: {{}}\n")
}

fn texts() -> Vec<(&'static str, Vec<u8>)> {
    let bomb: String = (1..12)
        .map(|level| {
            let below = format!("*a{}, ", level - 1).repeat(10);
            format!("a{level}: &a{level} [{below}]\n")
        })
        .collect();
    let blocks: String =
        (0..10_000).map(|depth| format!("{}a:\n", " ".repeat(depth % 900))).collect();
    let list = |inner: &str| format!(r#"{{"apiVersion":"v1","kind":"List","items":[{inner}]}}"#);
    let nested = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"nested"},"data":{}}"#;
    let pod = |spec: &str| {
        format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: wrong}}\nspec: {spec}\n")
    };
    vec![
        ("bytes.yaml", b"apiVersion: \xff\xfe\n".to_vec()),
        ("bomb.yaml", format!("a0: &a0 [x]\n{bomb}").into()),
        ("deep.yaml", "[".repeat(10_000).into()),
        ("deep-block.yaml", blocks.into()),
        ("deep.json", r#"{"a":"#.repeat(10_000).into()),
        ("endless.yaml", b"a: &a [*a]\n".to_vec()),
        ("zero.yaml", b"apiVersion: v1\0\nkind: ConfigMap\n".to_vec()),
        ("tabs.yaml", b"a:\n\tb: 1\n".to_vec()),
        ("twice.yaml", b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: twice-first\n  name: twice-second\n".to_vec()),
        ("many.yaml", "---\na: 1\n".repeat(10_100).into()),
        ("wrong-types.yaml", pod("{containers: {a: 1}}").into()),
        ("control.yaml", b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: \"a\\u0007b\"}\n".to_vec()),
        ("long-name.yaml", named(&"n".repeat(1_000)).into()),
        ("number.yaml", pod("{terminationGracePeriodSeconds: 1e999, containers: []}").into()),
        ("large.yaml", format!("# {}\n", "x".repeat(17 << 20)).into()),
        ("windows.yaml", named("windows").replace('\n', "\r\n").into()),
        ("marked.yaml", format!("\u{feff}{}", named("marked").trim_start_matches("---\n")).into()),
        ("nested.json", list(&list(&list(nested))).into()),
    ]
}
