//! What a lab answers to data that cannot be.

use std::path::{Path, PathBuf};

use headwater_cri_lab::{Containerd, ContainerdSettings};

fn refusal(data: &Path) -> String {
    let settings = ContainerdSettings { data: Some(data.to_owned()), version: None };
    Containerd::start(settings).expect_err("a refusal").to_string()
}

#[test]
fn a_socket_with_a_long_path_is_refused_before_anything_starts() {
    if !Containerd::is_possible() {
        return;
    }
    let scratch = tempfile::tempdir().expect("a folder");
    let data = scratch.path().join("x".repeat(90));
    let text = refusal(&data);
    assert!(text.contains("101 at most: choose a folder with a shorter path"), "{text}");
    assert!(text.contains(&data.display().to_string()), "{text}");
    let left: Vec<_> = std::fs::read_dir(&data).expect("the folder").collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn data_in_use_is_refused() {
    if !Containerd::is_possible() {
        return;
    }
    let scratch = tempfile::tempdir().expect("a folder");
    let data = std::fs::canonicalize(scratch.path()).expect("a path");
    let settings = ContainerdSettings { data: Some(data.clone()), version: None };
    let _containerd = Containerd::start(settings).expect("containerd");
    let text = refusal(&data);
    let words = format!("another containerd runs on {}: stop it, or choose", data.display());
    assert!(text.starts_with(&words), "{text}");
}

#[test]
fn data_that_the_namespaces_hide_is_refused() {
    if !Containerd::is_possible() {
        return;
    }
    let scratch = tempfile::tempdir_in("/run").expect("a folder");
    let text = refusal(scratch.path());
    assert!(text.contains("containerd gets a /run of its own"), "{text}");
    let file = PathBuf::from("/proc/version");
    assert!(refusal(&file.join("x")).contains("/proc/version"));
}
