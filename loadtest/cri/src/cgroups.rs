//! The control groups of a lab, on each controller of cgroup v1 or the one tree of v2.
//!
//! They do not end with the processes in them, so the lab removes them: its own at its end, and
//! those of a starter that was killed at the next start.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

const MOUNT: &str = "/sys/fs/cgroup";

/// The beginning of the name of a lab's group; the starter's process and a number follow.
const PREFIX: &str = "headwater-lab-";

/// The group that is the parent of a lab's pods; it is removed when dropped.
#[derive(Debug)]
pub struct Cgroup {
    name: String,
}

impl Cgroup {
    /// A name of its own for a lab of this process, after the removal of what ended processes left.
    pub fn claim() -> Self {
        static CLAIMED: AtomicU32 = AtomicU32::new(0);
        for group in trees().flat_map(|tree| folders(&tree)) {
            if starter(&group).is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
                remove(&group);
            }
        }
        let number = CLAIMED.fetch_add(1, Ordering::Relaxed);
        Self { name: format!("{PREFIX}{}-{number}", std::process::id()) }
    }

    /// Its name, below the root of each controller.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The path of the parent of every pod, as CRI takes it.
    pub(crate) fn parent(&self) -> String {
        format!("/{}", self.name)
    }

    /// Removes the groups at these paths, which have no process any more.
    pub(crate) fn remove(paths: &[String]) {
        for tree in trees() {
            for path in paths {
                remove(&tree.join(path.trim_start_matches('/')));
            }
        }
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        Self::remove(&[self.parent()]);
    }
}

/// The process that started the lab of this group.
fn starter(group: &Path) -> Option<u32> {
    let name = group.file_name()?.to_str()?;
    name.strip_prefix(PREFIX)?.split('-').next()?.parse().ok()
}

/// The tops of all trees.
fn trees() -> impl Iterator<Item = PathBuf> {
    let top = PathBuf::from(MOUNT);
    let controllers = folders(&top);
    std::iter::once(top).chain(controllers)
}

fn folders(path: &Path) -> Vec<PathBuf> {
    let entries = path.read_dir().into_iter().flatten().flatten();
    // `cpu` may be a link to `cpu,cpuacct`, which is listed too.
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.map(|entry| entry.path()).collect()
}

/// Removes a group and the groups below it. The kernel refuses if one has a process.
fn remove(group: &Path) {
    folders(group).iter().for_each(|child| remove(child));
    let _ = fs::remove_dir(group);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_group_has_its_starter() {
        assert_eq!(starter(Path::new("/sys/fs/cgroup/cpu/headwater-lab-17-3")), Some(17));
        assert_eq!(starter(Path::new("/sys/fs/cgroup/cpu/headwater")), None);
        assert_eq!(starter(Path::new("/sys/fs/cgroup/cpu/headwater-lab-x")), None);
    }
}
