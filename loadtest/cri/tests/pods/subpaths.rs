//! Parts of volumes and volumes in memory. The pod worker runs in the mount namespace of containerd, as on a machine: this
//! program is started once more in there. A part that led out of its volume would be the root of the machine, so nothing is
//! removed after a failure.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use headwater_cri_lab::BUSYBOX_IMAGE;
use serde_json::{Value, json};

use crate::bench::{Bench, uid, until};
use crate::life::{FOREVER, gone, start};

/// The variable with the socket of containerd, for the test that runs inside.
const SOCKET: &str = "HEADWATER_LAB_SOCKET";

/// The starts of a container whose part of a volume is swapped in a loop.
const STARTS: usize = 12;

fn mounts_below(dir: &Path) -> Vec<String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mounts");
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(4).map(str::to_owned));
    points.filter(|point| Path::new(point).starts_with(dir)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_of_a_volume_is_mounted_and_a_link_swapped_in_a_loop_leads_nowhere() {
    let Some(containerd) = start() else { return };
    let program = std::env::current_exe().expect("this program");
    let mut command = containerd.machine().command(program.to_str().expect("a path"));
    command.args(["--exact", "subpaths::inside", "--nocapture"]).env(SOCKET, containerd.socket());
    let inside = tokio::task::spawn_blocking(move || command.status());
    let status = inside.await.expect("it runs").expect("it starts");
    assert!(status.success(), "{status}");
    gone(&containerd, &[]).await;
    // From another mount namespace nothing could be seen of a part, and it is refused.
    let bench = Bench::new(containerd.socket());
    let edged = bench.edged().await;
    bench.edge.apply(&pod(&bench));
    let waits = |status: &Value| {
        status["containerStatuses"][0]["state"]["waiting"]["reason"] == "ContainerCreating"
            && status.to_string().contains("mounts of its own")
    };
    bench.status("web", "the refusal", waits).await;
    edged.stop().await;
}

/// A pod whose first container restarts again and again on a part that the second one swaps for a link to the root.
fn pod(bench: &Bench) -> Value {
    let seen = "[ -e /part/proc ] && echo out >> /notes/escaped; exit 1";
    let mut pod = bench.pod("web", seen);
    let spec = &mut pod["spec"];
    spec["volumes"].as_array_mut().expect("volumes").extend([
        json!({"name": "own", "emptyDir": {}}),
        json!({"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}),
    ]);
    let first = &mut spec["containers"][0];
    first["env"] = json!([{"name": "PART", "value": "part"}]);
    let part = json!({"name": "own", "mountPath": "/part", "subPathExpr": "$(PART)"});
    first["volumeMounts"].as_array_mut().expect("mounts").push(part);
    // The volume looks like one of files that the pod worker writes.
    let swap = "mkdir -p /v/part; chmod 755 /v; ln -s part /v/..data; while :; do mv /v/part /v/away; ln -s / /v/part; \
                rm /v/part; mv /v/away /v/part; done";
    let size =
        format!("head -c 2097152 /dev/zero > /memory/large; echo $? > /notes/memory; {FOREVER}");
    let container = |name: &str, script: &str, mounts: Value| {
        json!({"name": name, "image": BUSYBOX_IMAGE, "command": ["/bin/sh", "-c", script],
            "volumeMounts": mounts})
    };
    let notes = json!({"name": "notes", "mountPath": "/notes"});
    spec["containers"].as_array_mut().expect("containers").extend([
        container("swap", swap, json!([{"name": "own", "mountPath": "/v"}])),
        container("size", &size, json!([{"name": "memory", "mountPath": "/memory"}, notes])),
    ]);
    pod
}

/// Ends the process of a test that fails: the removal of its folder would go through what is mounted there.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}

/// What the test above starts in the namespaces of containerd; by itself it does nothing.
#[tokio::test(flavor = "multi_thread")]
async fn inside() {
    let Some(socket) = std::env::var_os(SOCKET).map(PathBuf::from) else { return };
    let mut bench = Bench::new(&socket);
    let _guard = AbortOnPanic;
    bench.settings.backoff_cap = Duration::from_millis(50);
    let edged = bench.edged().await;
    let pod = pod(&bench);
    bench.edge.apply(&pod);
    let latest = || crate::fake_edge::latest_status(&bench.edge.operations(), "web");
    for starts in 1..=STARTS {
        let started = || async { (bench.starts("web") >= starts).then_some(()) };
        assert!(until(started).await.is_some(), "{} starts: {:#?}", bench.starts("web"), latest());
    }
    assert!(!bench.notes().join("escaped").exists(), "a container saw the root of the machine");
    let size = || async { fs::read_to_string(bench.notes().join("memory")).ok() };
    assert_eq!(until(size).await.as_deref(), Some("1\n"), "the volume in memory has no limit");
    let dir = bench.edged_dir().join("pods").join(uid("web"));
    // A start binds the part anew, and is refused while the link is there.
    let is_mounted = || async {
        let mounted = mounts_below(&dir);
        let is = |end: &str| mounted.iter().any(|point| point.ends_with(end));
        (is("volumes/memory") && is("volume-subpaths/own/web/1")).then_some(())
    };
    assert!(until(is_mounted).await.is_some(), "{:?}", mounts_below(&dir));
    // The next pod worker finds what this one has mounted.
    edged.stop().await;
    let edged = bench.edged().await;
    bench.ask_for_end(&pod);
    let asked = || async { bench.asks_delete("web").then_some(()) };
    assert!(until(asked).await.is_some(), "no delete: {:?}", bench.pod_events("web"));
    assert_eq!(mounts_below(&dir), Vec::<String>::new());
    assert!(!dir.join("volume-subpaths").exists());
    bench.edge.delete("shop/pod/web");
    let forgotten = || async { (!dir.exists()).then_some(()) };
    assert!(until(forgotten).await.is_some(), "{} stays", dir.display());
    edged.stop().await;
}
