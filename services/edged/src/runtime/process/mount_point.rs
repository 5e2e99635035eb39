//! Absolute mountPaths: where the view of a container shows them, and which it cannot show.
//!
//! In the container's own view the directory above a mountPath is a copy: its entries are those of
//! the host, but for the mountPath, which is a link to the volume's place below the container's root
//! directory. So the host's files do not change, the mountPath need not exist on the host, and
//! a volume has one set of rules wherever the container reaches it.
//!
//! A relative mountPath lies below the container's root directory alone.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Container;

use crate::container::Mount;

/// The entries of a directory that a view copies: each is a mount, and a namespace has room for
/// 100,000 of them by default.
pub(super) const ENTRIES_MAX: usize = 1024;

/// The mountPath of the volume with a token that an API server adds to pods.
const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The kernel's own file systems: their entries come and go with processes and devices.
const OF_THE_KERNEL: [&str; 2] = ["/proc", "/sys"];

/// Others may write to a directory, and remove only their own files.
const OPEN_TO_ALL: u32 = 0o002;

/// The place of a mountPath on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MountPoint {
    /// The deepest directory above it that exists, without links.
    pub(super) parent: PathBuf,
    /// The path below that directory.
    pub(super) below: PathBuf,
}

impl MountPoint {
    /// Looks for the place of an absolute path.
    ///
    /// # Errors
    /// Why a view cannot show the path, and what to do.
    pub(super) fn find(path: &Path) -> Result<Self, String> {
        let above = path.ancestors().skip(1).find(|above| fs::symlink_metadata(above).is_ok());
        let above =
            above.ok_or_else(|| "it is the root directory: use a path below it".to_owned())?;
        let failed = |error| format!("{} cannot be read: {error}", above.display());
        let parent = fs::canonicalize(above).map_err(failed)?;
        let found = fs::metadata(&parent).map_err(failed)?;
        if !found.is_dir() {
            return Err(format!("{} is no directory: use another path", above.display()));
        }
        if let Some(kernel) = OF_THE_KERNEL.iter().find(|kernel| parent.starts_with(kernel)) {
            return Err(format!(
                "it lies in {kernel}, which belongs to the kernel: use another path"
            ));
        }
        if found.permissions().mode() & OPEN_TO_ALL != 0 {
            return Err(format!(
                "every user may write to {0}, and the container's own view of {0} would hide that: \
                 use a path in another directory, or {0} itself",
                parent.display()
            ));
        }
        let entries = fs::read_dir(&parent).map_err(failed)?.take(ENTRIES_MAX + 1).count();
        if entries > ENTRIES_MAX {
            return Err(format!(
                "{} has more than {ENTRIES_MAX} entries: use a path in another directory",
                parent.display()
            ));
        }
        let below = path.strip_prefix(above).unwrap_or(path).to_owned();
        Ok(Self { parent, below })
    }
}

/// The absolute mountPaths that a view shows. One below another lies in the other's volume.
pub(super) fn shown(mounts: &[Mount]) -> Vec<PathBuf> {
    let mut shown: Vec<PathBuf> = Vec::new();
    // A mount below another comes after it.
    for mount in mounts.iter().filter(|mount| mount.is_absolute) {
        let path = Path::new("/").join(&mount.path);
        if !shown.iter().any(|above| path.starts_with(above)) {
            shown.push(path);
        }
    }
    shown
}

/// Checks that the container can see its volumes at their absolute mountPaths. `dir` is the pod
/// worker's directory.
///
/// # Errors
/// The index of the mount, why it cannot be shown, and what to do.
pub(super) fn check(
    container: &Container,
    dir: &Path,
    can_separate: bool,
) -> Result<(), (usize, String)> {
    let mounts = container.volume_mounts.iter().flatten().map(|mount| mount.mount_path.as_str());
    let absolute: Vec<(usize, PathBuf)> = mounts
        .enumerate()
        .filter(|(_, path)| path.starts_with('/'))
        .map(|(index, path)| (index, Path::new(path).components().collect()))
        .collect();
    for (index, path) in &absolute {
        let failed = |why: String| Err((*index, format!("{}: {why}", path.display())));
        // An API server adds it to every pod, and no author can write another path: without a view it
        // lies below the container's root directory alone.
        if !can_separate && path == Path::new(TOKEN_PATH) {
            continue;
        }
        if !can_separate {
            let relative = path.strip_prefix("/").unwrap_or(path).display();
            return failed(format!(
                "only a pod worker with the rights of root shows a volume at an absolute path: run \
                 it as root, or write {relative} for a path below the container's working directory \
                 ($HEADWATER_ROOT/{relative})"
            ));
        }
        if absolute.iter().any(|(_, above)| above != path && path.starts_with(above)) {
            continue;
        }
        if dir.starts_with(path) || path.starts_with(dir) {
            return failed(format!(
                "the directory of pods is {}: use a path that is not above or in it",
                dir.display()
            ));
        }
        match MountPoint::find(path) {
            Ok(point) if point.parent.starts_with(dir) => {
                return failed(format!("it leads to {}: use another path", dir.display()));
            }
            Ok(_) => {}
            Err(why) => return failed(why),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn container(paths: &[&str]) -> Container {
        let mount = |path: &&str| json!({"name": "v", "mountPath": path});
        let mounts: Vec<_> = paths.iter().map(mount).collect();
        serde_json::from_value(json!({"name": "c", "volumeMounts": mounts})).expect("a container")
    }

    fn mount(path: &str) -> Mount {
        Mount {
            volume: "v".to_owned(),
            path: path.trim_start_matches('/').into(),
            is_absolute: path.starts_with('/'),
            ..Mount::default()
        }
    }

    #[test]
    fn a_view_shows_absolute_paths_that_lie_in_no_other() {
        let mounts = ["/data", "/data/sub", "/database", "etc", "/etc/app"].map(mount);
        assert_eq!(shown(&mounts), ["/data", "/database", "/etc/app"].map(PathBuf::from));
    }

    #[test]
    fn without_the_rights_of_root_an_absolute_path_is_refused_and_a_relative_one_is_not() {
        let dir = Path::new("/srv/headwater");
        check(&container(&["etc/app", "data"]), dir, false).expect("below the root directory");
        check(&container(&[TOKEN_PATH, "data"]), dir, false).expect("no author wrote it");
        let (index, why) =
            check(&container(&["data", "/etc/app"]), dir, false).expect_err("refused");
        assert_eq!(index, 1);
        assert!(why.starts_with("/etc/app: only a pod worker with the rights of root"), "{why}");
        assert!(why.contains("write etc/app") && why.contains("$HEADWATER_ROOT/etc/app"), "{why}");
    }

    #[test]
    fn a_path_that_a_view_cannot_show_is_refused_with_the_cause() {
        let base = tempfile::tempdir().expect("a directory");
        let of = |name: &str| base.path().join(name);
        let mode = |name: &str, mode: u32| {
            fs::create_dir_all(of(name)).expect("made");
            fs::set_permissions(of(name), fs::Permissions::from_mode(mode)).expect("set");
        };
        for (name, bits) in [("open", 0o1777), ("plain", 0o755), ("dir", 0o700), ("full", 0o755)] {
            mode(name, bits);
        }
        for number in 0..=ENTRIES_MAX {
            fs::write(of("full").join(number.to_string()), "").expect("written");
        }
        fs::write(of("plain/file"), "").expect("written");
        std::os::unix::fs::symlink(of("dir"), of("plain/link")).expect("linked");
        let dir = of("dir");
        let checked = |path: PathBuf| {
            let path = path.to_str().expect("UTF-8").to_owned();
            check(&container(&[&path]), &dir, true).map_err(|(_, why)| why)
        };
        for (path, wanted) in [
            (of("open/x"), "every user may write to"),
            (of("plain/file/x"), "is no directory"),
            (of("full/x"), "more than 1024 entries"),
            (of("dir/x"), "the directory of pods is"),
            (base.path().to_owned(), "the directory of pods is"),
            (of("plain/link/x"), "it leads to"),
            ("/".into(), "the directory of pods is"),
            ("/proc/x".into(), "belongs to the kernel"),
        ] {
            let why = checked(path.clone()).expect_err(wanted);
            assert!(why.contains(wanted) && why.contains(": use"), "{}: {why}", path.display());
        }
        for fine in ["plain/x", "plain/a/b/c", "plain/file", "open"] {
            checked(of(fine)).expect(fine);
        }
        let point = MountPoint::find(&of("plain/a/b/c")).expect("a place");
        assert_eq!(point.below, Path::new("a/b/c"));
        assert_eq!(point.parent, fs::canonicalize(of("plain")).expect("there"));
    }
}
