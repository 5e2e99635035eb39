//! What the processes of a cgroup use, from the files of the kernel: version 1, a tree for each controller, or version
//! 2, one tree. A call of the runtime is a hundred times slower.

use std::fs;
use std::path::{Path, PathBuf};

use headwater_edged::pod::PodUid;
use headwater_edged::runtime::{MemoryUsage, ProcessUsage};

/// Where the kernel shows its cgroups.
const ROOT: &str = "/sys/fs/cgroup";

/// A limit of version 1 that is none: the kernel counts pages up to the largest number.
const NO_LIMIT: u64 = 1 << 62;

/// The file that only the root of version 2 has.
const VERSION_2: &str = "cgroup.controllers";

/// The controller of version 1 with shares and quotas.
pub(crate) const CPU_V1: &str = "cpu";

/// The controllers of version 1 that are read.
const CPU: &str = "cpuacct";
pub(crate) const MEMORY: &str = "memory";
pub(crate) const PIDS: &str = "pids";

/// The controller of huge pages. Many kernels have huge pages without it.
const HUGE_PAGES: &str = "hugetlb";

/// The limits of a cgroup; `None`: there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Microseconds in each period.
    pub(crate) cpu_quota_us: Option<i64>,
    /// Bytes.
    pub(crate) memory_bytes: Option<i64>,
}

/// The cgroups of pods.
#[derive(Clone, Debug)]
pub(crate) struct CgroupFiles {
    root: PathBuf,
    /// The root of all pods below that of each tree.
    name: String,
    is_unified: bool,
}

impl CgroupFiles {
    /// The cgroups of this machine, with the root of all pods.
    pub(crate) fn of_machine(name: &str) -> Self {
        Self::at(Path::new(ROOT), name)
    }

    pub(crate) fn at(root: &Path, name: &str) -> Self {
        let is_unified = root.join(VERSION_2).exists();
        Self { root: root.to_owned(), name: name.to_owned(), is_unified }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The kernel has the one tree of version 2.
    pub(crate) fn is_unified(&self) -> bool {
        self.is_unified
    }

    /// The kernel limits the swap of a group. The root of version 2 has no such file, so the group of this process is asked.
    pub(crate) fn limits_swap(&self) -> bool {
        if !self.is_unified {
            return self.tree(MEMORY).join("memory.memsw.limit_in_bytes").exists();
        }
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let own = own.lines().find_map(|line| line.strip_prefix("0::/"));
        own.is_some_and(|own| self.root.join(own).join("memory.swap.max").exists())
    }

    /// The kernel limits the huge pages of a group.
    pub(crate) fn limits_huge_pages(&self) -> bool {
        if !self.is_unified {
            return self.tree(HUGE_PAGES).join("cgroup.procs").exists();
        }
        let controllers = fs::read_to_string(self.root.join(VERSION_2)).unwrap_or_default();
        controllers.split_whitespace().any(|controller| controller == HUGE_PAGES)
    }

    /// The top of every tree.
    pub(crate) fn trees(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.root).into_iter().flatten().flatten();
        let controllers = entries.map(|entry| entry.path()).filter(|path| path.is_dir());
        std::iter::once(self.root.clone()).chain(controllers).collect()
    }

    /// The limit of all pods together, and the memory that they use of it, without what the kernel can get back at
    /// once; `None`: they have no limit.
    pub(crate) fn memory_of_all(&self) -> Option<MemoryUsage> {
        let slice = format!("{}.slice", self.name);
        let tree = self.tree(MEMORY);
        let place = [self.name.as_str(), &slice].into_iter().find(|it| tree.join(it).is_dir())?;
        let limit = self.memory_limit(Path::new(place))?;
        Some(MemoryUsage { limit, used: self.usage(Path::new(place)).memory_bytes })
    }

    /// The limit of a cgroup's memory in bytes, if it has one.
    fn memory_limit(&self, place: &Path) -> Option<u64> {
        let file = if self.is_unified { "memory.max" } else { "memory.limit_in_bytes" };
        let text = fs::read_to_string(self.tree(MEMORY).join(place).join(file)).ok()?;
        // Version 1 writes the largest number of pages for no limit.
        text.trim().parse().ok().filter(|limit| *limit < NO_LIMIT)
    }

    /// The place of a pod's cgroup below the root of each controller, if it has one.
    pub(crate) fn pod(&self, pod: &PodUid) -> Option<PathBuf> {
        let tree = self.tree(MEMORY);
        places(&self.name, pod).into_iter().find(|place| tree.join(place).is_dir())
    }

    /// The place of a container's cgroup in that of its pod, whose name the runtime chooses: the id, or a name with
    /// the id in it (`cri-containerd-<id>.scope`).
    pub(crate) fn container(&self, pod: &Path, id: &str) -> Option<PathBuf> {
        let entries = fs::read_dir(self.tree(MEMORY).join(pod)).ok()?;
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let mut own = names.filter(|name| !id.is_empty() && name.contains(id));
        own.next().map(|name| pod.join(name))
    }

    /// A process of a cgroup.
    pub(crate) fn process(&self, place: &Path) -> Option<u32> {
        let processes = fs::read_to_string(self.tree(MEMORY).join(place).join("cgroup.procs"));
        processes.ok()?.lines().find_map(|line| line.trim().parse().ok())
    }

    /// What the processes of a cgroup and of all below it use. A controller that is not there counts nothing.
    pub(crate) fn usage(&self, place: &Path) -> ProcessUsage {
        let file = |controller: &str, name: &str| {
            fs::read_to_string(self.tree(controller).join(place).join(name)).unwrap_or_default()
        };
        let number = |text: &str| text.trim().parse::<u64>().unwrap_or(0);
        let memory = file(MEMORY, "memory.stat");
        let count = number(&file(PIDS, "pids.current"));
        let (cpu_ns, used, inactive, anonymous) = if self.is_unified {
            let cpu_us = field(&file(CPU, "cpu.stat"), "usage_usec");
            let used = number(&file(MEMORY, "memory.current"));
            let anonymous = field(&memory, "anon");
            (cpu_us.saturating_mul(1000), used, field(&memory, "inactive_file"), anonymous)
        } else {
            let used = number(&file(MEMORY, "memory.usage_in_bytes"));
            let cpu_ns = number(&file(CPU, "cpuacct.usage"));
            let inactive = field(&memory, "total_inactive_file");
            (cpu_ns, used, inactive, field(&memory, "total_rss"))
        };
        ProcessUsage {
            cpu_ns,
            memory_used_bytes: used,
            memory_bytes: used.saturating_sub(inactive),
            memory_anonymous_bytes: anonymous,
            count,
        }
    }

    /// The limits of a cgroup.
    pub(crate) fn limits(&self, place: &Path) -> Limits {
        let file = if self.is_unified { "cpu.max" } else { "cpu.cfs_quota_us" };
        let text = fs::read_to_string(self.tree(CPU_V1).join(place).join(file));
        let text = text.unwrap_or_default();
        let quota = text.split_whitespace().next().and_then(|word| word.parse::<i64>().ok());
        Limits {
            cpu_quota_us: quota.filter(|quota| *quota > 0),
            memory_bytes: self.memory_limit(place).and_then(|bytes| i64::try_from(bytes).ok()),
        }
    }

    /// The top of the tree of a controller.
    pub(crate) fn tree(&self, controller: &str) -> PathBuf {
        if self.is_unified { self.root.clone() } else { self.root.join(controller) }
    }
}

/// The places that a pod's cgroup may have: by its quality of service, as a directory or as a slice.
pub(crate) fn places(root: &str, pod: &PodUid) -> Vec<PathBuf> {
    let uid = pod.as_str().replace('-', "_");
    let of_class = ["", "burstable", "besteffort"].map(|class| {
        let directory = Path::new(root).join(class).join(format!("pod{pod}"));
        let (above, head) = match class {
            "" => (PathBuf::new(), root.to_owned()),
            class => (PathBuf::from(format!("{root}-{class}.slice")), format!("{root}-{class}")),
        };
        let slice = PathBuf::from(format!("{root}.slice"))
            .join(above)
            .join(format!("{head}-pod{uid}.slice"));
        [directory, slice]
    });
    of_class.into_iter().flatten().collect()
}

/// The value of a line `<name> <value>`.
fn field(text: &str, name: &str) -> u64 {
    let values = text.lines().filter_map(|line| line.split_once(' '));
    let mut own = values.filter(|(key, _)| *key == name);
    own.next().and_then(|(_, value)| value.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0123456789abcdef";

    fn uid() -> PodUid {
        PodUid::try_from("12ab-34".to_owned()).expect("a UID")
    }

    fn write(root: &Path, files: &[(&str, &str)]) {
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, text).expect("written");
        }
    }

    #[test]
    fn huge_pages_are_limited_where_their_controller_is() {
        let limits = |files: &[(&str, &str)]| {
            let root = tempfile::tempdir().expect("a folder");
            write(root.path(), files);
            CgroupFiles::at(root.path(), "headwater").limits_huge_pages()
        };
        assert!(limits(&[(VERSION_2, "cpu hugetlb pids\n")]));
        assert!(!limits(&[(VERSION_2, "cpu pids\n")]));
        assert!(limits(&[("hugetlb/cgroup.procs", "")]));
        assert!(!limits(&[("memory/cgroup.procs", "")]));
        // The place of a hierarchy that is not mounted.
        assert!(!limits(&[("hugetlb/empty/file", "")]));
    }

    #[test]
    fn a_pod_and_its_container_are_read_from_the_trees_of_version_1() {
        let root = tempfile::tempdir().expect("a folder");
        let pod = "headwater/burstable/pod12ab-34";
        let container = format!("{pod}/{ID}");
        let of = |tree: &str, place: &str, name: &str| format!("{tree}/{place}/{name}");
        let stat = "cache 9\nrss 1\ninactive_file 1\ntotal_rss 300\ntotal_inactive_file 200\n";
        write(
            root.path(),
            &[
                (&of("cpuacct", pod, "cpuacct.usage"), "5000\n"),
                (&of("memory", pod, "memory.usage_in_bytes"), "1000\n"),
                (&of("memory", pod, "memory.stat"), stat),
                (&of("pids", pod, "pids.current"), "3\n"),
                (&of("cpuacct", &container, "cpuacct.usage"), "4000\n"),
                (&of("memory", &container, "memory.usage_in_bytes"), "100\n"),
                (&of("memory", &container, "memory.stat"), stat),
            ],
        );
        let files = CgroupFiles::at(root.path(), "headwater");
        let place = files.pod(&uid()).expect("a pod");
        assert_eq!(place, Path::new(pod));
        let expected = ProcessUsage {
            cpu_ns: 5000,
            memory_used_bytes: 1000,
            memory_bytes: 800,
            memory_anonymous_bytes: 300,
            count: 3,
        };
        assert_eq!(files.usage(&place), expected);
        let own = files.container(&place, ID).expect("a container");
        let usage = files.usage(&own);
        // A kernel without the controller counts nothing, and more that is inactive than in use is a race.
        assert_eq!((usage.cpu_ns, usage.memory_bytes, usage.count), (4000, 0, 0));
        assert_eq!(files.container(&place, "another"), None);
        assert_eq!(files.container(&place, ""), None);
        let gone = PodUid::try_from("gone".to_owned()).expect("a UID");
        assert_eq!(files.pod(&gone), None);
        assert_eq!(files.usage(Path::new("gone")), ProcessUsage::default());
    }

    #[test]
    fn a_pod_and_its_container_are_read_from_the_one_tree_of_version_2() {
        let root = tempfile::tempdir().expect("a folder");
        for (number, pod) in [
            "headwater.slice/headwater-pod12ab_34.slice",
            "headwater.slice/headwater-besteffort.slice/headwater-besteffort-pod12ab_34.slice",
            "headwater/pod12ab-34",
        ]
        .into_iter()
        .enumerate()
        {
            let root = root.path().join(number.to_string());
            let container = format!("{pod}/cri-containerd-{ID}.scope");
            let of = |name: &str| format!("{container}/{name}");
            write(
                &root,
                &[
                    (VERSION_2, "cpu memory pids\n"),
                    (&of("cpu.stat"), "usage_usec 7\nuser_usec 4\n"),
                    (&of("memory.current"), "1000\n"),
                    (&of("memory.stat"), "anon 300\nfile 500\ninactive_file 400\n"),
                    (&of("pids.current"), "2\n"),
                ],
            );
            let files = CgroupFiles::at(&root, "headwater");
            let place = files.pod(&uid()).expect("a pod");
            let own = files.container(&place, ID).expect("a container");
            let expected = ProcessUsage {
                cpu_ns: 7000,
                memory_used_bytes: 1000,
                memory_bytes: 600,
                memory_anonymous_bytes: 300,
                count: 2,
            };
            assert_eq!(files.usage(&own), expected, "{pod}");
        }
    }
}
