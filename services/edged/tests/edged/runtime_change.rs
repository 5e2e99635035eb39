//! What a change of the runtime leaves of the pods. Both runtimes are the same one here: what the former one has is removed.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use headwater_edged::container::driver_volume::DriverVolume;
use headwater_edged::pod::{PodRecord, PodUid};
use headwater_edged::runtime::{
    FileSystemUsage, NodeRuntime, RuntimeError, RuntimeOpener, StatedDriver, VolumeDrivers,
};
use headwater_edged::{Edged, RuntimeKind, Settings, running_pods};
use headwater_event::NodeName;
use serde_json::json;
use tokio::sync::mpsc;

use crate::bench::{Bench, is_running, script_pod, until};

/// The pods end within it, also on a machine that is busy.
const GRACE: Duration = Duration::from_mins(1);

/// A driver with a volume of one pod.
#[derive(Debug)]
struct OneVolume {
    user: PodUid,
    is_published: AtomicBool,
    /// The file in which the driver notes that it took the volume back.
    order: PathBuf,
}

#[async_trait]
impl VolumeDrivers for OneVolume {
    fn has(&self, _: &str) -> bool {
        true
    }

    fn stated(&self) -> Vec<StatedDriver> {
        Vec::new()
    }

    fn in_use(&self) -> Vec<String> {
        let is_published = self.is_published.load(Ordering::Relaxed);
        is_published.then(|| "disk".to_owned()).into_iter().collect()
    }

    fn has_volumes(&self, pod: &PodUid) -> bool {
        *pod == self.user && self.is_published.load(Ordering::Relaxed)
    }

    async fn publish(
        &self,
        _: &PodRecord,
        _: &[DriverVolume],
    ) -> Result<BTreeMap<String, PathBuf>, RuntimeError> {
        Ok(BTreeMap::new())
    }

    async fn unpublish(&self, pod: &PodUid) -> Result<(), RuntimeError> {
        if self.has_volumes(pod) {
            self.is_published.store(false, Ordering::Relaxed);
            let order = std::fs::OpenOptions::new().append(true).create(true).open(&self.order);
            order.and_then(|mut order| order.write_all(b"taken back\n")).expect("noted");
        }
        Ok(())
    }

    async fn usage(&self, _: &PodUid) -> BTreeMap<PathBuf, Option<FileSystemUsage>> {
        BTreeMap::new()
    }
}

/// Opens the runtime of a bench with a driver.
#[derive(Debug)]
struct WithDriver {
    runtime: RuntimeKind,
    edge_socket: PathBuf,
    driver: Arc<OneVolume>,
}

#[async_trait]
impl RuntimeOpener for WithDriver {
    async fn open(
        &self,
        _: &NodeName,
        dir: &Path,
        settings: &Settings,
        notices: mpsc::Sender<PodUid>,
    ) -> Result<NodeRuntime, RuntimeError> {
        let (kind, socket) = (&self.runtime, &self.edge_socket);
        let runtime = NodeRuntime::open(kind, dir, socket, settings, notices)?;
        Ok(runtime.with_drivers(self.driver.clone()))
    }
}

#[tokio::test]
async fn a_driver_that_is_a_pod_ends_after_the_volumes_of_other_pods_are_taken_back() {
    let bench = Bench::new(&[]);
    let (order, ready) = (bench.path("order"), bench.path("ready"));
    for name in ["driver", "user"] {
        let (order, ready) = (order.display(), ready.display());
        let script = format!(
            "trap 'echo {name} >> {order}; exit 0' TERM; echo {name} >> {ready}; \
             while true; do sleep 0.02; done"
        );
        let mut pod = script_pod(name, name, &script);
        pod["spec"]["terminationGracePeriodSeconds"] = GRACE.as_secs().into();
        bench.edge.apply(&pod);
    }
    let edged = bench.edged().await;
    for name in ["driver", "user"] {
        bench.edge.until_status(name, "a running pod", is_running).await;
    }
    let lines = |path: &Path| -> Vec<String> {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    };
    until("two containers", || (lines(&ready).len() == 2).then_some(())).await;
    edged.stop().await;

    let mut config = bench.config();
    let driver = Arc::new(OneVolume {
        user: PodUid::try_from("user".to_owned()).expect("a UID"),
        is_published: AtomicBool::new(true),
        order: order.clone(),
    });
    let (runtime, edge_socket) = (config.runtime.clone(), config.edge_socket.clone());
    config.runtime = RuntimeKind::Other(Arc::new(WithDriver { runtime, edge_socket, driver }));
    let ended = Edged::clear(config, GRACE).await.expect("the pods end");
    assert_eq!(ended.ended.len(), 2);
    assert_eq!(lines(&order), ["user", "taken back", "driver"]);
}

#[tokio::test]
async fn hooks_run_and_sidecars_end_last_although_no_edge_names_the_pods() {
    let bench = Bench::new(&[]);
    let (order, ready) = (bench.path("order"), bench.path("ready"));
    let script = |name: &str| {
        let (order, ready) = (order.display(), ready.display());
        format!(
            "trap 'echo {name} >> {order}; exit 0' TERM; echo {name} >> {ready}; \
             while true; do sleep 0.02; done"
        )
    };
    let sidecar = |name: &str| {
        let command = json!(["sh", "-c", script(name)]);
        json!({"name": name, "restartPolicy": "Always", "command": command})
    };
    let mut pod = script_pod("web", "u1", &script("main"));
    pod["spec"]["terminationGracePeriodSeconds"] = GRACE.as_secs().into();
    let hook = format!("echo hook >> {}", order.display());
    pod["spec"]["containers"][0]["lifecycle"] =
        json!({"preStop": {"exec": {"command": ["sh", "-c", hook]}}});
    pod["spec"]["initContainers"] = json!([sidecar("first"), sidecar("second")]);
    bench.edge.apply(&pod);
    let edged = bench.edged().await;
    bench.edge.until_status("web", "a running pod", is_running).await;
    let lines = |path: &Path| -> Vec<String> {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    };
    until("three containers", || (lines(&ready).len() == 3).then_some(())).await;
    edged.stop().await;

    Edged::clear(bench.config(), GRACE).await.expect("the pod ends");
    assert_eq!(lines(&order), ["hook", "main", "second", "first"]);
}

#[tokio::test]
async fn a_pod_that_ended_unreported_does_not_run_again_and_one_that_was_stopped_does() {
    let bench = Bench::new(&[]);
    let (job_starts, web_starts, end) = (bench.path("job"), bench.path("web"), bench.path("end"));
    let wait = format!("until [ -e {} ]; do sleep 0.02; done; exit 3", end.display());
    for (name, starts, script) in
        [("job", &job_starts, wait.as_str()), ("web", &web_starts, "exec sleep 1000")]
    {
        let script = format!("echo start >> {}; {script}", starts.display());
        let mut pod = script_pod(name, name, &script);
        pod["spec"]["restartPolicy"] = json!("Never");
        bench.edge.apply(&pod);
    }
    let first = bench.edged().await;
    for name in ["job", "web"] {
        bench.edge.until_status(name, "a running pod", is_running).await;
    }
    first.stop().await;
    std::fs::write(&end, "").expect("written");
    let runs = || running_pods(&bench.edged_dir()).expect("readable").len();
    until("the end that no pod worker reports", || (runs() == 1).then_some(())).await;

    let ended = Edged::clear(bench.config(), GRACE).await.expect("the pods end");
    let names: Vec<_> = ended.ended.iter().map(|pod| pod.key.name().to_owned()).collect();
    assert_eq!(names, ["web"], "the other one had ended");
    assert_eq!(runs(), 0);

    let second = bench.edged().await;
    let failed = |status: &serde_json::Value| status["phase"] == "Failed";
    let status = bench.edge.until_status("job", "its end", failed).await;
    let exit = &status["containerStatuses"][0]["state"]["terminated"];
    assert_eq!(exit["exitCode"], 3, "{status:#}");
    let starts = |path: &Path| std::fs::read_to_string(path).unwrap_or_default().lines().count();
    until("the pod that was stopped", || (starts(&web_starts) == 2).then_some(())).await;
    assert_eq!(starts(&job_starts), 1);
    second.stop_pods(GRACE).await;
}

#[tokio::test]
async fn a_pod_that_ended_unreported_after_an_earlier_change_of_the_runtime_does_not_run_again() {
    let bench = Bench::new(&[]);
    let (starts, end) = (bench.path("starts"), bench.path("end"));
    let script = format!(
        "echo start >> {}; until [ -e {} ]; do sleep 0.02; done; exit 3",
        starts.display(),
        end.display()
    );
    let mut pod = script_pod("job", "job", &script);
    pod["spec"]["restartPolicy"] = json!("Never");
    bench.edge.apply(&pod);
    let first = bench.edged().await;
    bench.edge.until_status("job", "a running pod", is_running).await;
    first.stop().await;
    Edged::clear(bench.config(), GRACE).await.expect("the pod ends");

    let starts = || std::fs::read_to_string(&starts).unwrap_or_default().lines().count();
    let second = bench.edged().await;
    until("the pod that was stopped", || (starts() == 2).then_some(())).await;
    second.stop().await;
    std::fs::write(&end, "").expect("written");
    let runs = || running_pods(&bench.edged_dir()).expect("readable").len();
    until("the end that no pod worker reports", || (runs() == 0).then_some(())).await;
    Edged::clear(bench.config(), GRACE).await.expect("the pod has ended");

    let third = bench.edged().await;
    let failed = |status: &serde_json::Value| status["phase"] == "Failed";
    let status = bench.edge.until_status("job", "its end", failed).await;
    let exit = &status["containerStatuses"][0]["state"]["terminated"];
    assert_eq!(exit["exitCode"], 3, "{status:#}");
    assert_eq!(starts(), 2);
    third.stop_pods(GRACE).await;
}

#[tokio::test]
async fn what_an_earlier_build_left_of_a_former_runtime_does_not_hide_a_later_end() {
    let bench = Bench::new(&[]);
    let (starts, end) = (bench.path("starts"), bench.path("end"));
    let script = format!(
        "echo start >> {}; until [ -e {} ]; do sleep 0.02; done; exit 3",
        starts.display(),
        end.display()
    );
    let mut pod = script_pod("job", "job", &script);
    pod["spec"]["restartPolicy"] = json!("Never");
    bench.edge.apply(&pod);
    let first = bench.edged().await;
    bench.edge.until_status("job", "a running pod", is_running).await;
    first.stop().await;
    Edged::clear(bench.config(), GRACE).await.expect("the pod ends");
    let ends = bench.edged_dir().join("pods/job/former-runs.json");
    let earlier = std::fs::read(&ends).expect("the ends in the former runtime");

    let starts = || std::fs::read_to_string(&starts).unwrap_or_default().lines().count();
    let second = bench.edged().await;
    until("the pod that was stopped", || (starts() == 2).then_some(())).await;
    second.stop().await;
    // An earlier build did not forget them when the pod started again.
    std::fs::write(&ends, earlier).expect("written");

    let third = bench.edged().await;
    until("their removal", || (!ends.exists()).then_some(())).await;
    third.stop().await;
    std::fs::write(&end, "").expect("written");
    let runs = || running_pods(&bench.edged_dir()).expect("readable").len();
    until("the end that no pod worker reports", || (runs() == 0).then_some(())).await;
    Edged::clear(bench.config(), GRACE).await.expect("the pod has ended");

    let fourth = bench.edged().await;
    let failed = |status: &serde_json::Value| status["phase"] == "Failed";
    let status = bench.edge.until_status("job", "its end", failed).await;
    let exit = &status["containerStatuses"][0]["state"]["terminated"];
    assert_eq!(exit["exitCode"], 3, "{status:#}");
    assert_eq!(starts(), 2);
    fourth.stop_pods(GRACE).await;
}
