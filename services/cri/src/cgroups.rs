//! The cgroups of pods, which a runtime leaves behind (runc makes the parent of a container and never removes
//! it).

use std::fs;
use std::path::{Path, PathBuf};

use headwater_edged::pod::PodUid;

/// Where the kernel shows its cgroups.
const ROOT: &str = "/sys/fs/cgroup";

/// The places of pods by their quality of service.
const CLASSES: [&str; 3] = ["headwater", "headwater/burstable", "headwater/besteffort"];

/// Removes the cgroups of a pod that has ended, on each controller of version 1 or in the tree of version 2. What
/// cannot be removed holds no process and no memory.
pub(crate) fn remove(pod: &PodUid) {
    for root in roots(Path::new(ROOT)) {
        for class in CLASSES {
            let place = root.join(class).join(format!("pod{pod}"));
            if place.is_dir() {
                remove_tree(&place);
            }
        }
    }
}

fn roots(root: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(root).into_iter().flatten().flatten();
    let controllers = entries.map(|entry| entry.path()).filter(|path| path.is_dir());
    std::iter::once(root.to_owned()).chain(controllers).collect()
}

/// A cgroup is removed with rmdir, after those below it.
fn remove_tree(place: &Path) {
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_tree(&entry.path());
        }
    }
    if let Err(error) = fs::remove_dir(place) {
        tracing::debug!(%error, place = %place.display(), "a cgroup stays");
    }
}
