//! What a lab has on the machine: all of it must be gone after its end.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use headwater_cri_lab::Containerd;

/// The time limit of what ends by itself.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// The namespaces, the data and the control groups of one lab.
#[derive(Debug)]
pub(crate) struct Traces {
    /// Open: the kernel gives the number of one that is gone to the next.
    namespaces: Vec<(&'static str, File)>,
    data: PathBuf,
    cgroup: String,
}

impl Traces {
    pub(crate) fn of(containerd: &Containerd) -> Self {
        let pid = containerd.machine().pid();
        Self::new(pid, containerd.data(), &containerd.cgroup_parent())
    }

    pub(crate) fn new(first: u32, data: &Path, cgroup: &str) -> Self {
        let namespace = |kind| (kind, File::open(namespace(first, kind)).expect("it runs"));
        let namespaces = ["pid", "mnt", "net"].map(namespace).into();
        Self { namespaces, data: data.to_owned(), cgroup: cgroup.to_owned() }
    }

    /// The processes, mounts and folders that are there.
    pub(crate) fn left(&self) -> Vec<String> {
        let mut left = self.processes();
        let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mounts");
        let data = self.data.display().to_string();
        left.extend(mounts.lines().filter(|line| line.contains(&data)).map(str::to_owned));
        left.extend(self.cgroups());
        left
    }

    /// The processes in any of the namespaces, or, with namespaces of their own, in a group.
    pub(crate) fn processes(&self) -> Vec<String> {
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc").expect("processes").flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            let is_in = |(kind, ours): &(&str, File)| {
                let ours = ours.metadata().expect("it is open").ino();
                fs::metadata(namespace(pid, kind)).is_ok_and(|its| its.ino() == ours)
            };
            let groups = fs::read_to_string(entry.path().join("cgroup")).unwrap_or_default();
            if self.namespaces.iter().any(is_in) || groups.contains(&format!("{}/", self.cgroup)) {
                let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
                let words = String::from_utf8_lossy(&words).replace('\0', " ");
                found.push(format!("process {pid}: {words}"));
            }
        }
        found
    }

    /// The control groups.
    pub(crate) fn cgroups(&self) -> Vec<String> {
        let top = Path::new("/sys/fs/cgroup");
        let trees = fs::read_dir(top).expect("cgroups").flatten().map(|entry| entry.path());
        let groups = trees.chain([top.to_owned()]);
        let groups = groups.map(|tree| tree.join(self.cgroup.trim_start_matches('/')));
        groups.filter(|group| group.exists()).map(|group| group.display().to_string()).collect()
    }
}

fn namespace(pid: u32, kind: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/ns/{kind}"))
}

/// Waits until `found` finds something.
pub(crate) fn until<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited {DEADLINE:?} for {what}");
        thread::sleep(Duration::from_millis(10));
    }
}
