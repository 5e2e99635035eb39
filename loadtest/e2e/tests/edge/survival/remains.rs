//! What pods leave behind in the runtime and on the machine.

use std::fs;
use std::path::Path;

use nix::unistd::Pid;

use super::gateway::Gateway;

/// The places of pods' cgroups by their quality of service.
const CLASSES: [&str; 3] = ["headwater", "headwater/burstable", "headwater/besteffort"];

/// The addresses that the CNI plugin has given away.
const ADDRESSES: &str = "/var/lib/cni/networks/headwater";

/// The network namespaces of sandboxes.
const NAMESPACES: &str = "/run/netns";

/// The pods that a worker starts at a time: so many starts of sandboxes can one kill of containerd cut off.
const STARTS_MAX: usize = 5;

/// Whether the process has any. containerd 1.6 knows a shim once it has made a task: one that it was starting when it was
/// killed stays, holds nothing, and has no name by which a pod worker could end it.
fn has_children(pid: Pid) -> bool {
    let parent = |process: fs::DirEntry| {
        let stat = fs::read_to_string(process.path().join("stat")).ok()?;
        // The name in parentheses may have any character; then come the state and the parent.
        let parent = stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()?;
        Some(Pid::from_raw(parent))
    };
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter_map(parent).any(|parent| parent == pid)
}

/// Everything that is left of these pods, and of any sandbox.
///
/// containerd 1.6 makes the network of a sandbox before it writes the sandbox down. A kill in between leaves a network
/// namespace and an address that no list of it has. So each of `kills` of containerd explains as many of them as pods
/// start at a time, and no more.
pub(super) fn left(gateway: &Gateway, uids: &[String], kills: usize) -> Vec<String> {
    let mut left = gateway.ctr(&["containers", "list", "--quiet"]);
    let shims = gateway.shims("").into_iter().filter(|pid| has_children(*pid));
    left.extend(shims.map(|pid| format!("shim {pid}")));
    let machine = gateway.containerd.machine();
    let addresses = names(&machine.path(ADDRESSES));
    let addresses: Vec<_> = addresses.into_iter().filter(|name| name.starts_with("10.")).collect();
    let namespaces = names(&machine.path(NAMESPACES));
    for unrecorded in [addresses, namespaces] {
        left.extend(if unrecorded.len() > kills * STARTS_MAX { unrecorded } else { Vec::new() });
    }
    let mounts = fs::read_to_string(format!("/proc/{}/mounts", machine.pid())).expect("mounts");
    let places = mounts.lines().filter_map(|line| line.split(' ').nth(1));
    let of_pods = |place: &&str| {
        place.contains("/io.containerd.") || uids.iter().any(|uid| place.contains(uid))
    };
    left.extend(places.filter(of_pods).map(|place| format!("mount {place}")));
    for tree in names(Path::new("/sys/fs/cgroup")) {
        for (class, uid) in
            CLASSES.iter().flat_map(|class| uids.iter().map(move |uid| (class, uid)))
        {
            let group =
                Path::new("/sys/fs/cgroup").join(&tree).join(class).join(format!("pod{uid}"));
            left.extend(group.exists().then(|| group.display().to_string()));
        }
    }
    let edged = gateway.edged.data().join("nodes").join(crate::NODE).join("edged");
    left.extend(names(&edged.join("pods")));
    left.extend(names(&edged.join("logs")));
    left
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}
