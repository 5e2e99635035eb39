//! The cgroups of pods: their places by the quality of service, their shares and limits, and their end. On each
//! controller of version 1, or in the one tree of version 2.
//!
//! ```text
//!   <root>                     all pods: what the machine does not keep for itself
//!   <root>/pod<uid>            guaranteed pods
//!   <root>/burstable/pod<uid>  together as many shares as they have one by one
//!   <root>/besteffort/pod<uid> together the least share
//! ```
//!
//! With the driver `cgroupfs` the directory of a pod is made before its sandbox. A service manager makes the slice of a pod
//! when its sandbox starts, and its values are set then. A runtime makes what lies below, and leaves the parent behind; a
//! slice is stopped when its pod is gone.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use headwater_edged::pod::PodUid;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::cgroup_files::{CPU_V1, CgroupFiles, MEMORY, PIDS, places};
use crate::spec::{CgroupDriver, PodResources, cpu_shares};

/// The classes of pods below the root; guaranteed ones have none.
const BURSTABLE: &str = "burstable";
const BEST_EFFORT: &str = "besteffort";

/// The controllers of version 2 that containers use. One that the kernel lacks is left out.
const CONTROLLERS: [&str; 6] = ["cpuset", "cpu", "io", "memory", "hugetlb", "pids"];

/// The share of the class of pods that request nothing.
const SHARES_MIN: u64 = 2;

/// The largest share, and the largest weight of version 2.
const SHARES_MAX: u64 = 262_144;
const WEIGHT_MAX: u64 = 10_000;

/// How often processes that outlived their pod are killed, and the pause in which they end: two seconds in all.
const KILLS_MAX: usize = 100;
const KILL_PAUSE: Duration = Duration::from_millis(20);

/// What the pods of the node get together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AllPods {
    /// Thousandths of a processor.
    pub(crate) cpu_milli: i64,
    /// Bytes of memory; `None`: all of the machine.
    pub(crate) memory_limit_bytes: Option<i64>,
    /// Process ids of each pod; `None`: those of the machine.
    pub(crate) pod_pids_max: Option<u64>,
}

/// The cgroups of a node's pods.
#[derive(Clone, Debug)]
pub(crate) struct Cgroups {
    files: CgroupFiles,
    driver: CgroupDriver,
    all: AllPods,
    /// The shares of a class follow from all of its pods: one change at a time.
    changing: Arc<Mutex<()>>,
}

impl Cgroups {
    pub(crate) fn new(files: CgroupFiles, driver: CgroupDriver, all: AllPods) -> Self {
        Self { files, driver, all, changing: Arc::default() }
    }

    pub(crate) fn files(&self) -> &CgroupFiles {
        &self.files
    }

    /// Prepares the place of a pod, before its sandbox is made.
    ///
    /// # Errors
    /// The pod has no cgroup, or not these limits.
    pub(crate) fn make(&self, parent: &str, resources: &PodResources) -> io::Result<()> {
        match self.driver {
            CgroupDriver::Cgroupfs => self.change(&self.path(parent), resources, true),
            CgroupDriver::Systemd => Ok(()),
        }
    }

    /// Sets the values of a pod whose slice the service manager has made with its sandbox.
    ///
    /// # Errors
    /// The pod does not have these limits.
    pub(crate) fn adjust(&self, parent: &str, resources: &PodResources) -> io::Result<()> {
        match self.driver {
            CgroupDriver::Cgroupfs => Ok(()),
            CgroupDriver::Systemd => self.change(&self.path(parent), resources, false),
        }
    }

    /// Gives a pod that runs the limits that are larger than those it has.
    ///
    /// # Errors
    /// The kernel refuses one of them.
    pub(crate) fn raise(&self, parent: &str, resources: &PodResources) -> io::Result<()> {
        let place = self.path(parent);
        let has = self.files.limits(&place);
        let raised = |has: Option<i64>, wanted: Option<i64>| match (has, wanted) {
            (Some(has), Some(wanted)) => Some(has.max(wanted)),
            _ => None,
        };
        let raised = PodResources {
            cpu_quota_us: raised(has.cpu_quota_us, resources.cpu_quota_us),
            memory_limit_bytes: raised(has.memory_bytes, resources.memory_limit_bytes),
            ..*resources
        };
        self.change(&place, &raised, false)
    }

    /// Gives a pod that runs these values.
    ///
    /// # Errors
    /// The kernel refuses one of them.
    pub(crate) fn resize(&self, parent: &str, resources: &PodResources) -> io::Result<()> {
        self.change(&self.path(parent), resources, false)
    }

    /// Kills what is left in the cgroups of a pod that has ended. A runtime that was killed while it started a container
    /// does not know of its processes afterwards.
    pub(crate) async fn end_processes(&self, pod: &PodUid) {
        let (cgroups, pod) = (self.clone(), pod.clone());
        let killing = move || cgroups.places(&pod).iter().for_each(|place| kill_all(place));
        if let Err(error) = tokio::task::spawn_blocking(killing).await {
            tracing::warn!(%error, "the processes that outlived a pod were not killed");
        }
    }

    /// Removes the cgroups of a pod that has ended, and kills what is left in them.
    ///
    /// # Errors
    /// One of them stays: a process in it does not end, or the kernel refuses.
    pub(crate) async fn remove(&self, pod: &PodUid) -> io::Result<()> {
        let (cgroups, pod) = (self.clone(), pod.clone());
        let removing = tokio::task::spawn_blocking(move || {
            if cgroups.driver == CgroupDriver::Systemd {
                // Each controller of version 1 has the same slice.
                slices(&cgroups.places(&pod)).into_iter().for_each(stop_slice);
            }
            cgroups.remove_now(&pod)
        });
        removing.await.map_err(io::Error::other)?
    }

    /// The cgroups of a pod, one for each controller, as directories and as slices.
    fn places(&self, pod: &PodUid) -> Vec<PathBuf> {
        let places = places(self.files.name(), pod);
        let of_tree = |tree: PathBuf| places.iter().map(move |place| tree.join(place));
        let all = self.files.trees().into_iter().flat_map(of_tree);
        all.filter(|place| place.is_dir()).collect()
    }

    fn remove_now(&self, pod: &PodUid) -> io::Result<()> {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let root = Path::new(self.files.name());
        let mut removed = Ok(());
        for place in self.places(pod) {
            // Each one is tried, and the first error counts.
            removed = removed.and(remove_tree(&place));
        }
        if self.driver == CgroupDriver::Cgroupfs
            && let Err(error) = self.share(&root.join(BURSTABLE))
        {
            tracing::debug!(%error, "the shares of burstable pods are those of before");
        }
        removed
    }

    fn change(&self, place: &Path, resources: &PodResources, makes: bool) -> io::Result<()> {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let above: Vec<&Path> =
            place.ancestors().skip(1).filter(|it| !it.as_os_str().is_empty()).collect();
        let Some(root) = above.last().copied() else { return Ok(()) };
        if makes {
            self.make_dirs(place, &above)?;
        }
        self.set_root(root)?;
        let PodResources { cpu_shares, cpu_quota_us, cpu_period_us, memory_limit_bytes } =
            *resources;
        self.set_cpu(place, cpu_shares, cpu_quota_us, cpu_period_us)?;
        self.set_memory(place, memory_limit_bytes)?;
        self.set_pids(place)?;
        match above.first() {
            Some(class) if *class != root => self.share(class),
            _ => Ok(()),
        }
    }

    fn make_dirs(&self, place: &Path, above: &[&Path]) -> io::Result<()> {
        if !self.files.is_unified() {
            let pids = self.all.pod_pids_max.map(|_| PIDS);
            for controller in [CPU_V1, MEMORY].into_iter().chain(pids) {
                let tree = self.files.tree(controller);
                if tree.is_dir() {
                    fs::create_dir_all(tree.join(place))?;
                }
            }
            return Ok(());
        }
        let tree = self.files.tree(MEMORY);
        fs::create_dir_all(tree.join(place))?;
        // A controller counts in a cgroup if every one above it passes it on.
        for dir in std::iter::once(Path::new("")).chain(above.iter().rev().copied()) {
            for controller in CONTROLLERS {
                let file = tree.join(dir).join("cgroup.subtree_control");
                if let Err(error) = fs::write(&file, format!("+{controller}")) {
                    tracing::debug!(%error, controller, "pods are not bound by this controller");
                }
            }
        }
        Ok(())
    }

    /// What all pods get together.
    fn set_root(&self, root: &Path) -> io::Result<()> {
        let AllPods { cpu_milli, memory_limit_bytes, .. } = self.all;
        if cpu_milli > 0 {
            self.set_shares(root, u64::try_from(cpu_shares(cpu_milli)).unwrap_or(SHARES_MIN))?;
        }
        match memory_limit_bytes {
            None => Ok(()),
            limit => self.set_memory(root, limit),
        }
    }

    fn set_cpu(
        &self,
        place: &Path,
        shares: i64,
        quota_us: Option<i64>,
        period_us: i64,
    ) -> io::Result<()> {
        self.set_shares(place, u64::try_from(shares).unwrap_or(SHARES_MIN))?;
        let dir = self.files.tree(CPU_V1).join(place);
        if self.files.is_unified() {
            let quota = quota_us.map_or_else(|| "max".to_owned(), |quota| quota.to_string());
            return write(&dir.join("cpu.max"), &format!("{quota} {period_us}"));
        }
        // The kernel takes no quota that is beyond the period of before.
        write(&dir.join("cpu.cfs_quota_us"), "-1")?;
        write(&dir.join("cpu.cfs_period_us"), &period_us.to_string())?;
        match quota_us {
            Some(quota) => write(&dir.join("cpu.cfs_quota_us"), &quota.to_string()),
            None => Ok(()),
        }
    }

    fn set_memory(&self, place: &Path, limit: Option<i64>) -> io::Result<()> {
        let dir = self.files.tree(MEMORY).join(place);
        if self.files.is_unified() {
            let limit = limit.map_or_else(|| "max".to_owned(), |limit| limit.to_string());
            return write(&dir.join("memory.max"), &limit);
        }
        write(&dir.join("memory.limit_in_bytes"), &limit.unwrap_or(-1).to_string())
    }

    fn set_pids(&self, place: &Path) -> io::Result<()> {
        let Some(limit) = self.all.pod_pids_max else { return Ok(()) };
        write(&self.files.tree(PIDS).join(place).join("pids.max"), &limit.to_string())
    }

    fn set_shares(&self, place: &Path, shares: u64) -> io::Result<()> {
        let dir = self.files.tree(CPU_V1).join(place);
        if self.files.is_unified() {
            return write(&dir.join("cpu.weight"), &weight(shares).to_string());
        }
        write(&dir.join("cpu.shares"), &shares.to_string())
    }

    /// Gives a class as many shares as its pods have one by one, whose sum it is against the pods beside the class; pods that
    /// request nothing have the least one together (`pkg/kubelet/cm/qos_container_manager_linux.go`).
    fn share(&self, class: &Path) -> io::Result<()> {
        let dir = self.files.tree(CPU_V1).join(class);
        if !dir.is_dir() {
            return Ok(());
        }
        let (file, least, most) = match self.files.is_unified() {
            true => ("cpu.weight", weight(SHARES_MIN), WEIGHT_MAX),
            false => ("cpu.shares", SHARES_MIN, SHARES_MAX),
        };
        // Pods that request nothing are not read: their number does not count.
        let is_best_effort = class.to_string_lossy().contains(BEST_EFFORT);
        let sum = if is_best_effort { 0 } else { shares_below(&dir, file)? };
        let sum = sum.clamp(least, most);
        write(&dir.join(file), &sum.to_string())
    }

    /// The place below the root of a tree.
    fn path(&self, parent: &str) -> PathBuf {
        match self.driver {
            CgroupDriver::Cgroupfs => PathBuf::from(parent.trim_start_matches('/')),
            CgroupDriver::Systemd => slice_path(parent),
        }
    }
}

/// The directory of a slice: the slices above it have the beginnings of its name.
fn slice_path(slice: &str) -> PathBuf {
    let name = slice.strip_suffix(".slice").unwrap_or(slice);
    let ends = name.match_indices('-').map(|(end, _)| end).chain([name.len()]);
    ends.map(|end| format!("{}.slice", &name[..end])).collect()
}

/// The sum of the shares of the pods of a class.
fn shares_below(class: &Path, file: &str) -> io::Result<u64> {
    // A class has dozens of files beside its pods. The type of an entry is known without a look at the entry.
    let is_pod = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|it| it.is_dir());
    let pods = fs::read_dir(class)?.flatten().filter(is_pod);
    let shares = pods.filter_map(|pod| {
        fs::read_to_string(pod.path().join(file)).ok()?.trim().parse::<u64>().ok()
    });
    Ok(shares.fold(0, u64::saturating_add))
}

/// `cpu.weight` of so many shares (`pkg/kubelet/cm/cgroup_v2_manager_linux.go`, `cpuSharesToCPUWeight`).
fn weight(shares: u64) -> u64 {
    let above = shares.clamp(SHARES_MIN, SHARES_MAX) - SHARES_MIN;
    1 + above * (WEIGHT_MAX - 1) / (SHARES_MAX - SHARES_MIN)
}

/// Writes a value of a cgroup, and names the file in the error.
fn write(file: &Path, value: &str) -> io::Result<()> {
    let named = |error: io::Error| {
        io::Error::new(error.kind(), format!("{value} in {}: {error}", file.display()))
    };
    // A tree that the kernel does not have bounds nothing.
    if file.parent().is_some_and(Path::is_dir) {
        fs::write(file, value).map_err(named)
    } else {
        Ok(())
    }
}

/// The slices among cgroups, each once.
fn slices(places: &[PathBuf]) -> BTreeSet<&OsStr> {
    let slices = places.iter().filter(|place| place.extension() == Some(OsStr::new("slice")));
    slices.filter_map(|place| place.file_name()).collect()
}

/// Asks the service manager to stop a slice, which it keeps when the last container has left it.
fn stop_slice(slice: &OsStr) {
    match Command::new("systemctl").arg("stop").arg(slice).output() {
        Ok(stopped) if stopped.status.success() => {}
        Ok(stopped) => {
            let words = String::from_utf8_lossy(&stopped.stderr).trim().to_owned();
            tracing::warn!(slice = %slice.display(), words, "systemd does not stop the slice of a pod");
        }
        Err(error) => {
            tracing::warn!(%error, "systemctl, which stops the slices of pods, cannot be run")
        }
    }
}

/// Removes a cgroup and those below it, once their processes have ended.
fn remove_tree(place: &Path) -> io::Result<()> {
    let mut busy = None;
    for _ in 0..KILLS_MAX {
        match remove_empty(place) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                kill_all(place);
                thread::sleep(KILL_PAUSE);
                busy = Some(error);
            }
            Err(error) => return Err(stays(place, &error)),
        }
    }
    busy.map_or(Ok(()), |error| Err(stays(place, &error)))
}

fn stays(place: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("the cgroup {} stays: {error}", place.display()))
}

/// A cgroup is removed with rmdir, after those below it.
fn remove_empty(place: &Path) -> io::Result<()> {
    for below in below(place) {
        remove_empty(&below)?;
    }
    match fs::remove_dir(place) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

/// Kills every process in a cgroup and in those below it.
fn kill_all(place: &Path) {
    below(place).iter().for_each(|below| kill_all(below));
    let processes = fs::read_to_string(place.join("cgroup.procs")).unwrap_or_default();
    for process in processes.lines().filter_map(|line| line.parse().ok()) {
        // 0: a process of another namespace, which a signal would not reach.
        if process > 0 {
            tracing::warn!(process, place = %place.display(), "a process outlived its pod and is killed");
            // One that has ended needs no signal.
            let _ = kill(Pid::from_raw(process), Signal::SIGKILL);
        }
    }
}

/// The cgroups right below one.
fn below(place: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(place).into_iter().flatten().flatten();
    let dirs = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    dirs.map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::CGROUP_ROOT;

    fn resources(shares: i64, quota: Option<i64>, memory: Option<i64>) -> PodResources {
        PodResources {
            cpu_shares: shares,
            cpu_quota_us: quota,
            cpu_period_us: 100_000,
            memory_limit_bytes: memory,
        }
    }

    fn cgroups(root: &Path, driver: CgroupDriver, all: AllPods) -> Cgroups {
        Cgroups::new(CgroupFiles::at(root, CGROUP_ROOT), driver, all)
    }

    fn read(root: &Path, file: &str) -> String {
        fs::read_to_string(root.join(file)).unwrap_or_else(|error| format!("{file}: {error}"))
    }

    #[test]
    fn pods_have_their_shares_and_limits_in_the_trees_of_version_1() {
        let root = tempfile::tempdir().expect("a folder");
        let root = root.path();
        for tree in ["cpu", "memory", "pids"] {
            fs::create_dir(root.join(tree)).expect("made");
        }
        let memory_limit_bytes = Some(1 << 30);
        let all = AllPods { cpu_milli: 1500, memory_limit_bytes, pod_pids_max: None };
        let of = |all| cgroups(root, CgroupDriver::Cgroupfs, all);
        let limited = of(AllPods { pod_pids_max: Some(64), ..all });
        let cgroups = of(all);
        let make = |parent, resources| cgroups.make(parent, &resources).expect("made");
        make("/headwater/poda", resources(1024, Some(100_000), Some(64)));
        make("/headwater/burstable/podb", resources(300, None, Some(128)));
        make("/headwater/burstable/podc", resources(400, None, None));
        make("/headwater/besteffort/podd", resources(2, None, None));
        for (file, value) in [
            ("cpu/headwater/cpu.shares", "1536"),
            ("memory/headwater/memory.limit_in_bytes", "1073741824"),
            ("cpu/headwater/poda/cpu.shares", "1024"),
            ("cpu/headwater/poda/cpu.cfs_quota_us", "100000"),
            ("cpu/headwater/poda/cpu.cfs_period_us", "100000"),
            ("memory/headwater/poda/memory.limit_in_bytes", "64"),
            ("cpu/headwater/burstable/cpu.shares", "700"),
            ("cpu/headwater/burstable/podb/cpu.cfs_quota_us", "-1"),
            ("memory/headwater/burstable/podb/memory.limit_in_bytes", "128"),
            ("memory/headwater/burstable/podc/memory.limit_in_bytes", "-1"),
            ("cpu/headwater/besteffort/cpu.shares", "2"),
        ] {
            assert_eq!(read(root, file), value, "{file}");
        }
        assert!(!root.join("pids/headwater").exists(), "the runtime makes what has no value");
        limited.make("/headwater/pode", &resources(2, None, None)).expect("made");
        assert_eq!(read(root, "pids/headwater/pode/pids.max"), "64");
        // A cgroup has no files of its own that rmdir minds: those of this folder are files.
        for file in ["cpu.shares", "cpu.cfs_quota_us", "cpu.cfs_period_us"] {
            fs::remove_file(root.join("cpu/headwater/burstable/podb").join(file)).expect("removed");
        }
        fs::remove_file(root.join("memory/headwater/burstable/podb/memory.limit_in_bytes"))
            .expect("removed");
        cgroups.remove_now(&PodUid::try_from("b".to_owned()).expect("a UID")).expect("removed");
        assert!(!root.join("cpu/headwater/burstable/podb").exists());
        assert!(!root.join("memory/headwater/burstable/podb").exists());
        assert_eq!(read(root, "cpu/headwater/burstable/cpu.shares"), "400");
    }

    #[test]
    fn pods_have_their_weights_and_limits_in_the_one_tree_of_version_2() {
        let root = tempfile::tempdir().expect("a folder");
        let root = root.path();
        fs::write(root.join("cgroup.controllers"), "cpu memory").expect("written");
        let all = AllPods { cpu_milli: 2000, memory_limit_bytes: None, pod_pids_max: Some(64) };
        let of_files = cgroups(root, CgroupDriver::Cgroupfs, all);
        let burstable = resources(1024, Some(50_000), Some(64));
        of_files.make("/headwater/burstable/podb", &burstable).expect("made");
        for (file, value) in [
            ("headwater/cpu.weight", "79"),
            ("headwater/burstable/podb/cpu.weight", "39"),
            ("headwater/burstable/podb/cpu.max", "50000 100000"),
            ("headwater/burstable/podb/memory.max", "64"),
            ("headwater/burstable/podb/pids.max", "64"),
            ("headwater/burstable/cpu.weight", "39"),
            ("headwater/burstable/cgroup.subtree_control", "+pids"),
            ("cgroup.subtree_control", "+pids"),
        ] {
            assert_eq!(read(root, file), value, "{file}");
        }
        assert!(!root.join("headwater/memory.max").exists(), "the machine keeps nothing");

        let of_slices = cgroups(root, CgroupDriver::Systemd, all);
        let slice = "headwater-besteffort-pod12ab_34.slice";
        let best_effort = resources(2, None, None);
        of_slices.make(slice, &best_effort).expect("the service manager makes it");
        let class = "headwater.slice/headwater-besteffort.slice";
        let place = format!("{class}/{slice}");
        assert!(!root.join(&place).exists());
        fs::create_dir_all(root.join(&place)).expect("made");
        of_slices.adjust(slice, &best_effort).expect("set");
        let pod = PodUid::try_from("12ab-34".to_owned()).expect("a UID");
        assert_eq!(of_slices.places(&pod), [root.join(&place)]);
        let of_two = [root.join("cpu").join(slice), root.join("memory").join(slice), root.into()];
        assert_eq!(slices(&of_two), BTreeSet::from([OsStr::new(slice)]));
        assert_eq!(read(root, &format!("{place}/cpu.max")), "max 100000");
        assert_eq!(read(root, &format!("{place}/memory.max")), "max");
        assert_eq!(read(root, &format!("{class}/cpu.weight")), "1");
    }

    #[test]
    fn shares_become_weights_from_the_least_to_the_largest() {
        for (shares, expected) in
            [(0, 1), (2, 1), (1024, 39), (2048, 79), (262_144, 10_000), (u64::MAX, 10_000)]
        {
            assert_eq!(weight(shares), expected, "{shares}");
        }
    }
}
