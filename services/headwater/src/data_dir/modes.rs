//! The modes of a data directory: only its owner has rights in it.
//!
//! New files get them from the process's mask. An earlier build, another program or a person may have
//! made files before. What containers own keeps its modes: it lies behind directories that only the
//! owner may enter.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

/// The rights of the owner.
const OWNER: u32 = 0o700;

/// Takes the rights of others from the directory and everything in it. Returns how many files and
/// directories had some.
///
/// # Errors
/// The first path that cannot be read or changed, and why.
pub(super) fn tighten(root: &Path) -> Result<u64, (PathBuf, io::Error)> {
    let mut tightened = 0;
    let mut waiting = vec![root.to_owned()];
    while let Some(path) = waiting.pop() {
        let failed = |error| (path.clone(), error);
        let found = match fs::symlink_metadata(&path) {
            // Pods that an earlier process left come and go.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            found => found.map_err(failed)?,
        };
        if found.is_symlink() {
            continue;
        }
        let mode = found.permissions().mode() & 0o7777;
        if mode & !OWNER != 0 {
            fs::set_permissions(&path, Permissions::from_mode(mode & OWNER)).map_err(failed)?;
            tightened += 1;
        }
        if found.is_dir() {
            let entries = fs::read_dir(&path).and_then(Iterator::collect::<io::Result<Vec<_>>>);
            let below = entries.map_err(failed)?.into_iter().map(|entry| entry.path());
            let is_ours =
                |path: &PathBuf| !is_of_containers(path.strip_prefix(root).unwrap_or(path));
            waiting.extend(below.filter(is_ours));
        }
    }
    Ok(tightened)
}

/// Whether a path below a data directory belongs to containers: the root directory of one, a volume
/// or a claim.
fn is_of_containers(path: &Path) -> bool {
    let names: Vec<_> = path.components().map(Component::as_os_str).collect();
    let Some(edged) = names.iter().position(|name| *name == "edged") else { return false };
    let below: Vec<_> = names[edged + 1..].iter().filter_map(|name| name.to_str()).collect();
    match below[..] {
        ["pods", _, "volumes", _]
        | ["pods", _, "containers", _, "rootfs"]
        | ["claims", _, "data"] => true,
        // A claim of an earlier version, which has the name of a namespace before the underscore.
        ["claims", name] => name.contains('_'),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("it exists").permissions().mode() & 0o7777
    }

    #[test]
    fn others_lose_every_right_but_in_what_containers_own() {
        let dir = tempfile::tempdir().expect("a directory");
        let pod = Path::new("nodes/gw/edged/pods/u1");
        let ours = [
            "state/1.sst",
            "nodes/gw/edged/logs/a/0.log",
            "nodes/gw/edged/claims/c1/claim.json",
            "version",
        ];
        let of_pod = [pod.join("pod.json"), pod.join("containers/main/0/exit.json")];
        let of_containers = [
            pod.join("containers/main/rootfs/file"),
            pod.join("volumes/scratch/file"),
            "nodes/gw/edged/claims/c1/data/file".into(),
            "nodes/gw/edged/claims/shop_data/file".into(),
        ];
        let ours: Vec<PathBuf> = ours.iter().map(PathBuf::from).chain(of_pod).collect();
        for file in ours.iter().chain(&of_containers) {
            let file = dir.path().join(file);
            let above = file.parent().expect("a folder");
            fs::create_dir_all(above).expect("made");
            fs::write(&file, "x").expect("written");
            fs::set_permissions(&file, Permissions::from_mode(0o644)).expect("opened");
            fs::set_permissions(above, Permissions::from_mode(0o755)).expect("opened");
        }
        let elsewhere = tempfile::tempdir().expect("a directory");
        let outside = elsewhere.path().join("file");
        fs::write(&outside, "x").expect("written");
        fs::set_permissions(&outside, Permissions::from_mode(0o644)).expect("opened");
        std::os::unix::fs::symlink(&outside, dir.path().join("link")).expect("a link");
        assert!(tighten(dir.path()).expect("it is ours") > 0);
        for file in &ours {
            let mut path = dir.path().join(file);
            assert_eq!(mode(&path), 0o600, "{}", file.display());
            while path.pop() && path.starts_with(dir.path()) {
                assert_eq!(mode(&path), 0o700, "{}", path.display());
            }
        }
        for file in &of_containers {
            assert_eq!(mode(&dir.path().join(file)), 0o644, "{}", file.display());
        }
        assert_eq!(mode(&outside), 0o644, "a link is not followed");
        assert_eq!(tighten(dir.path()).expect("again"), 0);
    }
}
