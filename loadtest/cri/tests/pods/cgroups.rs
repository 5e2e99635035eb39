//! The cgroups of pods: their shares and limits, read back from the kernel.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};

use crate::bench::{Bench, is_running, uid, until};
use crate::life::{FOREVER, gone, start};

pub(crate) const TREES: &str = "/sys/fs/cgroup";

/// A root of cgroups for one test, which is removed at its end. The lab removes what a test that was killed leaves.
pub(crate) struct CgroupRoot(pub(crate) String);

impl CgroupRoot {
    pub(crate) fn claim() -> Self {
        static CLAIMED: AtomicU32 = AtomicU32::new(0);
        let number = CLAIMED.fetch_add(1, Ordering::Relaxed);
        Self(format!("headwater-lab-{}-pods{number}", std::process::id()))
    }

    /// The directory of a cgroup below this root, in the tree of a controller.
    pub(crate) fn place(&self, controller: &str, place: &str) -> PathBuf {
        tree(controller).join(&self.0).join(place)
    }

    /// The value of a cgroup below this root, or why it cannot be read.
    pub(crate) fn read(&self, value: CgroupValue, place: &str) -> String {
        value.read(&self.place(value.controller(), place))
    }

    fn places(&self) -> Vec<PathBuf> {
        let classes = ["burstable", "besteffort", ""];
        let of_tree = |tree: PathBuf| classes.map(|class| tree.join(&self.0).join(class));
        trees().into_iter().flat_map(of_tree).collect()
    }
}

impl Drop for CgroupRoot {
    fn drop(&mut self) {
        for place in self.places() {
            let _ = fs::remove_dir(place);
        }
    }
}

/// A value of a cgroup, whose file depends on the version of cgroups.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CgroupValue {
    /// The shares of the processors, in version 2 as a weight.
    CpuShares,
    /// Microseconds of a processor in each period; `none` for no quota.
    CpuQuota,
    /// Bytes of memory; `none` for no limit.
    MemoryLimit,
    /// The number of process ids.
    PidsMax,
}

impl CgroupValue {
    pub(crate) fn controller(self) -> &'static str {
        match self {
            Self::CpuShares | Self::CpuQuota => "cpu",
            Self::MemoryLimit => "memory",
            Self::PidsMax => "pids",
        }
    }

    fn file(self) -> &'static str {
        match (self, has_version_1()) {
            (Self::CpuShares, true) => "cpu.shares",
            (Self::CpuShares, false) => "cpu.weight",
            (Self::CpuQuota, true) => "cpu.cfs_quota_us",
            (Self::CpuQuota, false) => "cpu.max",
            (Self::MemoryLimit, true) => "memory.limit_in_bytes",
            (Self::MemoryLimit, false) => "memory.max",
            (Self::PidsMax, _) => "pids.max",
        }
    }

    /// The value of the cgroup with this directory.
    pub(crate) fn read(self, place: &Path) -> String {
        let path = place.join(self.file());
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) => return format!("{}: {error}", path.display()),
        };
        // Version 2 writes a quota with its period.
        match text.split_whitespace().next().unwrap_or_default() {
            "max" | "-1" | "9223372036854771712" => "none".to_owned(),
            value => value.to_owned(),
        }
    }
}

/// The shares as the kernel shows them: in version 2 as a weight.
pub(crate) fn shown_shares(shares: u64) -> u64 {
    if has_version_1() { shares } else { 1 + (shares - 2) * 9_999 / 262_142 }
}

/// The top of the tree of a controller.
fn tree(controller: &str) -> PathBuf {
    let top = Path::new(TREES);
    if has_version_1() { top.join(controller) } else { top.to_owned() }
}

/// The tops of all trees.
pub(crate) fn trees() -> Vec<PathBuf> {
    let top = Path::new(TREES);
    if !has_version_1() {
        return vec![top.to_owned()];
    }
    let trees = top.read_dir().into_iter().flatten().flatten();
    trees.map(|tree| tree.path()).collect()
}

/// The kernel has a tree for each controller.
pub(crate) fn has_version_1() -> bool {
    Path::new(TREES).join("memory").is_dir()
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_have_the_shares_limits_and_order_of_kills_of_their_quality_of_service() {
    let Some(containerd) = start() else { return };
    let mut bench = Bench::new(containerd.socket());
    let root = CgroupRoot::claim();
    bench.cgroup_root.clone_from(&root.0);
    bench.settings.reserved.cpu_milli = 500;
    bench.settings.reserved.memory_bytes = 64 << 20;
    bench.settings.pod_pids_max = Some(100);
    let edged = bench.edged().await;
    let machine = headwater_edged::memory_bytes().expect("a machine");
    let tenth = (machine / 10).to_string();
    let limits = json!({"cpu": "200m", "memory": "48Mi"});
    let resources = [
        ("guaranteed", json!({"limits": limits})),
        (
            "burstable",
            json!({"requests": {"cpu": "100m", "memory": tenth}, "limits": {"cpu": "300m"}}),
        ),
        ("another", json!({"requests": {"cpu": "50m"}})),
        ("besteffort", Value::Null),
    ];
    let names = resources.each_ref().map(|(name, _)| *name);
    for (name, resources) in resources {
        let script = format!("cat /proc/self/oom_score_adj > /notes/{name}.oom; {FOREVER}");
        let mut pod = bench.pod(name, &script);
        pod["spec"]["containers"][0]["resources"] = resources;
        bench.edge.apply(&pod);
    }
    for (name, class) in names.iter().zip(["Guaranteed", "Burstable", "Burstable", "BestEffort"]) {
        let status = bench.status(name, "a running pod", is_running).await;
        assert_eq!(status["qosClass"], class, "{name}");
    }
    let cpus = std::thread::available_parallelism().expect("a machine").get();
    let page = 4095;
    let of_all = ((machine - (64 << 20)) & !page).to_string();
    let pod = |class: &str, name: &str| format!("{class}pod{}", uid(name));
    let (guaranteed, burstable) = (pod("", "guaranteed"), pod("burstable/", "burstable"));
    let (another, best_effort) = (pod("burstable/", "another"), pod("besteffort/", "besteffort"));
    let shares = |shares: u64| shown_shares(shares).to_string();
    let of_class = (shown_shares(102) + shown_shares(51)).to_string();
    let of_machine = shares((cpus as u64 * 1000 - 500) * 1024 / 1000);
    use CgroupValue::{CpuQuota, CpuShares, MemoryLimit, PidsMax};
    for (value, place, expected) in [
        (CpuShares, "", of_machine.as_str()),
        (MemoryLimit, "", &of_all),
        (CpuShares, &guaranteed, &shares(204)),
        (CpuQuota, &guaranteed, "20000"),
        (MemoryLimit, &guaranteed, "50331648"),
        (PidsMax, &guaranteed, "100"),
        (CpuShares, &burstable, &shares(102)),
        (CpuQuota, &burstable, "30000"),
        (MemoryLimit, &burstable, "none"),
        (CpuShares, &another, &shares(51)),
        (CpuQuota, &another, "none"),
        (CpuShares, "burstable", &of_class),
        (CpuShares, &best_effort, &shares(2)),
        (CpuShares, "besteffort", &shares(2)),
    ] {
        assert_eq!(root.read(value, place), expected, "{value:?} of {place:?}");
    }
    // A process without rights cannot be killed later than its starter.
    let own = fs::read_to_string("/proc/self/oom_score_adj").expect("a number");
    let own: i32 = own.trim().parse().expect("a number");
    for (name, least, most) in [
        ("guaranteed", -997, own.max(-997)),
        ("burstable", 900, 901),
        ("another", 999, 999),
        ("besteffort", 1000, 1000),
    ] {
        let file = bench.notes().join(format!("{name}.oom"));
        let found = || async {
            let text = fs::read_to_string(&file).ok()?;
            text.trim().parse::<i32>().ok()
        };
        let adjust = until(found).await.expect("a number");
        assert!((least..=most).contains(&adjust), "{name}: {adjust}");
    }
    // A process of which the runtime does not know.
    let mut stranger = Command::new("sleep").arg("1000").spawn().expect("it starts");
    let own = root.place("memory", &best_effort).join("stranger");
    fs::create_dir(&own).expect("the pod has a cgroup");
    fs::write(own.join("cgroup.procs"), stranger.id().to_string()).expect("it moves");
    for name in names {
        let pod = bench.pod(name, FOREVER);
        bench.delete(&pod).await;
        if name == "burstable" {
            // What a class has follows from the pods that are left.
            let of_class = || root.read(CpuShares, "burstable");
            let others = || async { (of_class() == shares(51)).then_some(()) };
            assert!(until(others).await.is_some(), "{}", of_class());
        }
    }
    gone(&containerd, &names).await;
    edged.stop().await;
    let killed = stranger.try_wait().expect("it was started here");
    let _ = stranger.kill();
    assert_eq!(killed.and_then(|status| status.signal()), Some(9), "it outlived its pod");
    let left = root.places().into_iter().filter(|place| {
        let entries = place.read_dir().into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name()).any(|name| name.to_string_lossy().starts_with("pod"))
    });
    assert_eq!(left.collect::<Vec<_>>(), Vec::<PathBuf>::new());
}
