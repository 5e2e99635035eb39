//! Commands of a user who may not use the data directory: each says so, names the owner, and what to
//! do.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

use headwater_e2e::running::{output, programs};

/// A user with no rights: `nobody` on every Linux.
const NOBODY: u32 = 65_534;

/// The owner of the data directory, a user of no name.
const OWNER: u32 = 47_110;

/// Runs the program as `nobody`, from a folder that every user may enter.
fn as_nobody(program: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(program);
    command.args(args).env_clear().current_dir("/").uid(NOBODY).gid(NOBODY);
    output(&mut command)
}

#[test]
fn permission_denied_is_called_that_with_the_owner_and_the_command() {
    if !nix::unistd::geteuid().is_root() {
        assert!(std::env::var_os("CI").is_none(), "only root may run as another user");
        eprintln!("NOT RUN: only root may run as another user");
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let open = fs::Permissions::from_mode(0o755);
    fs::set_permissions(folder.path(), open.clone()).expect("set");
    let program = folder.path().join("headwater");
    let built = programs().join("headwater");
    // The programs may lie below a home folder that others may not enter.
    if fs::hard_link(&built, &program).is_err() {
        fs::copy(&built, &program).expect("copied");
    }
    fs::set_permissions(&program, open).expect("set");
    let data = folder.path().join("data");
    fs::create_dir_all(data.join("edge")).expect("created");
    fs::write(data.join("version"), "1\n").expect("written");
    chown(&data, Some(OWNER), Some(OWNER)).expect("root may");
    fs::set_permissions(&data, fs::Permissions::from_mode(0o700)).expect("set");

    let below = data.join("edge");
    for dir in [&data, &below] {
        let dir = dir.to_str().expect("UTF-8");
        for args in [
            &["status"][..],
            &["get", "pods"],
            &["logs", "web"],
            &["verify"],
            &["link", "cut", "node-1"],
            &["up", "/usr"],
            &["doctor"],
        ] {
            let refused = as_nobody(&program, &[args, &["--data", dir]].concat());
            let text = [refused.stdout, refused.stderr].concat();
            let text = String::from_utf8_lossy(&text);
            assert!(!refused.status.success(), "{args:?}: {text}");
            assert!(text.contains("permission denied"), "{args:?}: {text}");
            assert!(text.contains("belongs to #47110"), "{args:?}: {text}");
            assert!(text.contains("sudo -u \\#47110 headwater"), "{args:?}: {text}");
        }
    }
    let kept = fs::metadata(&data).expect("there").permissions().mode() & 0o777;
    assert_eq!(kept, 0o700, "nothing was changed");
}
