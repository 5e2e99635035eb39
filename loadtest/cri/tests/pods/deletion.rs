//! The object of a pod goes last: its containers, its volumes and its cgroup are gone before.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use serde_json::{Value, json};

use crate::bench::{Bench, is_running, uid, until};
use crate::cgroups::{TREES, has_version_1};
use crate::life::{FOREVER, cgroups, containers, gone, start};

/// A process in a cgroup below that of a pod, which cannot end: the cgroup stays until it is thawed. In version 2 a
/// frozen process ends by SIGKILL.
struct Frozen {
    process: Child,
    place: PathBuf,
}

impl Frozen {
    fn in_cgroup_of(name: &str) -> Self {
        let pod = format!("headwater/besteffort/pod{}", uid(name));
        let place = Path::new(TREES).join("freezer").join(pod).join("frozen");
        fs::create_dir(&place).expect("the pod has a cgroup");
        let process = Command::new("sleep").arg("1000").spawn().expect("it starts");
        fs::write(place.join("cgroup.procs"), process.id().to_string()).expect("it moves");
        let frozen = Self { process, place };
        frozen.set("FROZEN");
        frozen
    }

    fn set(&self, state: &str) {
        fs::write(self.place.join("freezer.state"), state).expect("a state");
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        if self.place.is_dir() {
            self.set("THAWED");
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir(&self.place);
    }
}

/// A pod with a volume of its own. It writes there once it ends when it is asked to, and has time enough for that.
fn with_volume(bench: &Bench, name: &str) -> Value {
    let script = format!("trap 'exit 0' TERM; echo kept > /own/file; {FOREVER}");
    let mut pod = bench.pod(name, &script);
    pod["spec"]["terminationGracePeriodSeconds"] = json!(30);
    let own = json!({"name": "own", "emptyDir": {}});
    pod["spec"]["volumes"].as_array_mut().expect("volumes").push(own);
    let mounts = &mut pod["spec"]["containers"][0]["volumeMounts"];
    mounts.as_array_mut().expect("mounts").push(json!({"name": "own", "mountPath": "/own"}));
    pod
}

/// Waits until the pod, which runs, has written into its volume.
async fn until_written(bench: &Bench, name: &str) {
    let file = bench.edged_dir().join("pods").join(uid(name)).join("volumes/own/file");
    let written = || async { file.exists().then_some(()) };
    assert!(until(written).await.is_some(), "{} is not written", file.display());
}

/// What a pod has on the disk beside its record.
fn files(bench: &Bench, name: &str) -> Vec<PathBuf> {
    let (dir, uid) = (bench.edged_dir(), uid(name));
    let pod = dir.join("pods").join(&uid);
    let places = [pod.join("volumes"), pod.join("containers"), pod.join("etc-hosts")];
    let logs = dir.join(format!("logs/shop_{name}_{uid}"));
    places.into_iter().chain([logs]).filter(|place| place.exists()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_object_of_a_pod_goes_when_nothing_of_it_is_left_on_the_machine() {
    let Some(containerd) = start() else { return };
    let bench = Bench::new(containerd.socket());
    let edged = bench.edged().await;
    let pod = with_volume(&bench, "web");
    bench.edge.apply(&pod);
    bench.status("web", "a running pod", is_running).await;
    until_written(&bench, "web").await;
    assert_eq!(files(&bench, "web").len(), 4, "{:?}", files(&bench, "web"));
    bench.ask_for_end(&pod);
    let asked = || async { bench.asks_delete("web").then_some(()) };
    until(asked).await.expect("edged asks for the delete");
    assert_eq!(containers(&containerd), Vec::<String>::new());
    assert_eq!(cgroups("web"), Vec::<PathBuf>::new());
    assert_eq!(files(&bench, "web"), Vec::<PathBuf>::new());
    let ended = |status: &Value| status["phase"] == "Succeeded";
    bench.status("web", "its last status", ended).await;
    let record = bench.edged_dir().join("pods").join(uid("web"));
    assert!(record.join("pod.json").exists(), "the record stays until the object is gone");
    bench.edge.delete("shop/pod/web");
    let forgotten = || async { (!record.exists()).then_some(()) };
    assert!(until(forgotten).await.is_some(), "the record stays");
    edged.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cgroup_that_stays_keeps_the_object_and_the_next_pod_worker_goes_on() {
    let Some(containerd) = start().filter(|_| has_version_1()) else { return };
    let bench = Bench::new(containerd.socket());
    let edged = bench.edged().await;
    let pod = with_volume(&bench, "web");
    bench.edge.apply(&pod);
    bench.status("web", "a running pod", is_running).await;
    until_written(&bench, "web").await;
    let frozen = Frozen::in_cgroup_of("web");
    bench.ask_for_end(&pod);
    // A take-down may fail for another cause before, and is tried again.
    let names_the_cgroup =
        |event: &String| event.starts_with("FailedKillPod") && event.contains("stays");
    let failed = || async { bench.pod_events("web").iter().any(names_the_cgroup).then_some(()) };
    assert!(until(failed).await.is_some(), "no Event: {:?}", bench.pod_events("web"));
    assert_eq!(containers(&containerd), Vec::<String>::new());
    assert_eq!(files(&bench, "web"), Vec::<PathBuf>::new());
    let ended = |status: &Value| status["phase"] == "Succeeded";
    let last = bench.status("web", "its last status", ended).await;
    assert!(!bench.asks_delete("web"), "its cgroup is there: {:?}", cgroups("web"));
    // The next pod worker knows the end of the containers from the last status alone.
    edged.stop().await;
    let before = crate::fake_edge::statuses(&bench.edge.operations(), "web").len();
    let edged = bench.edged().await;
    let again = || async {
        crate::fake_edge::statuses(&bench.edge.operations(), "web").get(before).cloned()
    };
    assert_eq!(until(again).await.expect("the status again"), last);
    assert!(!bench.asks_delete("web"), "its cgroup is there: {:?}", cgroups("web"));
    drop(frozen);
    let asked = || async { bench.asks_delete("web").then_some(()) };
    until(asked).await.expect("edged asks for the delete");
    assert_eq!(cgroups("web"), Vec::<PathBuf>::new());
    bench.edge.delete("shop/pod/web");
    gone(&containerd, &["web"]).await;
    edged.stop().await;
}
