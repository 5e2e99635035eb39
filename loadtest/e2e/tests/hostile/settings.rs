//! Settings files that are none: the file, the setting, what is allowed, and exit status 2.

use std::fs;

use headwater_e2e::running::{headwater, output};

#[test]
fn a_settings_file_that_is_wrong_is_named_with_what_is_wrong_in_it() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("headwater.toml");
    for (content, named) in [
        (&b"nodes = ["[..], "array"),
        (b"bogus = 1", "bogus"),
        (b"nodes = -1", "nodes"),
        (b"nodes = 0", "nodes"),
        (b"nodes = 1000000", "10000"),
        (b"nodes = true", "nodes"),
        (b"nodes = \"A b\"", "nodes"),
        (b"nodes = \"a,a\"", "twice"),
        (b"nodes = 99999999999999999999", "nodes"),
        (b"sync_interval = \"0s\"", "sync_interval"),
        (b"sync_interval = 5", "sync_interval"),
        (b"sync_interval = \"-1s\"", "sync_interval"),
        (b"sync_interval = \"99999999999999999999s\"", "sync_interval"),
        (b"stop_grace = \"584542046090y\"", "stop_grace"),
        (b"replay_window = \"soon\"", "replay_window"),
        (b"runtime = \"magic\"", "runtime"),
        (b"allow_empty = \"yes\"", "allow_empty"),
        (b"nodes = \"a\"\nnodes = \"b\"", "duplicate"),
        (b"\xff\xfe", "UTF-8"),
        (b"nodes = \"\0\"", "nodes"),
    ] {
        fs::write(&file, content).expect("written");
        let shown = String::from_utf8_lossy(content);
        refused(&file, &["headwater.toml", named], &shown);
    }
    refused(folder.path(), &["folder"], "a folder");
    refused(&folder.path().join("absent.toml"), &["absent.toml"], "no file");
}

fn refused(file: &std::path::Path, named: &[&str], what: &str) {
    let mut command = headwater();
    command.args(["up", "--print-config", "--config"]).arg(file);
    let refused = output(&mut command);
    let error = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{what}: {error}");
    assert!(!error.contains("panicked"), "{what}: {error}");
    for word in named {
        assert!(error.contains(word), "{what}: {error:?} does not name {word:?}");
    }
}
