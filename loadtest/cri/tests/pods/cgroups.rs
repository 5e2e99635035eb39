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

    /// A file of a cgroup below this root, in the tree of a controller.
    pub(crate) fn read(&self, controller: &str, place: &str, file: &str) -> String {
        let path = Path::new(TREES).join(controller).join(&self.0).join(place).join(file);
        let text = fs::read_to_string(&path);
        text.unwrap_or_else(|error| format!("{}: {error}", path.display())).trim().to_owned()
    }

    fn places(&self) -> Vec<PathBuf> {
        let trees = Path::new(TREES).read_dir().into_iter().flatten().flatten();
        let classes = ["burstable", "besteffort", ""];
        let of_tree = |tree: PathBuf| classes.map(|class| tree.join(&self.0).join(class));
        trees.flat_map(|tree| of_tree(tree.path())).collect()
    }
}

impl Drop for CgroupRoot {
    fn drop(&mut self) {
        for place in self.places() {
            let _ = fs::remove_dir(place);
        }
    }
}

/// The kernel has a tree for each controller.
pub(crate) fn has_version_1() -> bool {
    Path::new(TREES).join("memory").is_dir()
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_have_the_shares_limits_and_order_of_kills_of_their_quality_of_service() {
    let Some(containerd) = start().filter(|_| has_version_1()) else { return };
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
    let no_limit = "9223372036854771712";
    for (controller, place, file, expected) in [
        ("cpu", "", "cpu.shares", ((cpus * 1000 - 500) * 1024 / 1000).to_string().as_str()),
        ("memory", "", "memory.limit_in_bytes", &of_all),
        ("cpu", &guaranteed, "cpu.shares", "204"),
        ("cpu", &guaranteed, "cpu.cfs_quota_us", "20000"),
        ("memory", &guaranteed, "memory.limit_in_bytes", "50331648"),
        ("pids", &guaranteed, "pids.max", "100"),
        ("cpu", &burstable, "cpu.shares", "102"),
        ("cpu", &burstable, "cpu.cfs_quota_us", "30000"),
        ("memory", &burstable, "memory.limit_in_bytes", no_limit),
        ("cpu", &another, "cpu.shares", "51"),
        ("cpu", &another, "cpu.cfs_quota_us", "-1"),
        ("cpu", "burstable", "cpu.shares", "153"),
        ("cpu", &best_effort, "cpu.shares", "2"),
        ("cpu", "besteffort", "cpu.shares", "2"),
    ] {
        assert_eq!(root.read(controller, place, file), expected, "{controller} {place} {file}");
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
    let procs =
        Path::new(TREES).join("memory").join(&root.0).join(&best_effort).join("cgroup.procs");
    fs::write(procs, stranger.id().to_string()).expect("it moves");
    for name in names {
        let pod = bench.pod(name, FOREVER);
        bench.delete(&pod).await;
        if name == "burstable" {
            // What a class has follows from the pods that are left.
            let others =
                || async { (root.read("cpu", "burstable", "cpu.shares") == "51").then_some(()) };
            assert!(
                until(others).await.is_some(),
                "{}",
                root.read("cpu", "burstable", "cpu.shares")
            );
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
