//! The directory, edge and pod worker of one test, and its pods.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use headwater_edged::runtime::LogQuery;
use headwater_edged::{
    ContainerLogs, Edged, EdgedConfig, Handle, ProcessConfig, RuntimeKind, Settings,
};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::fake_edge::{DEADLINE, FakeEdge};

/// Everything one test needs.
pub(crate) struct Bench {
    pub(crate) dir: TempDir,
    pub(crate) edge: FakeEdge,
}

impl Bench {
    /// An edge whose first view is complete.
    pub(crate) fn new(objects: &[Value]) -> Self {
        Self::with_view(objects, true)
    }

    pub(crate) fn with_view(objects: &[Value], complete: bool) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let edge = FakeEdge::start(&dir.path().join("edge.sock"), objects, complete);
        Self { dir, edge }
    }

    /// Where the pod worker keeps its things.
    pub(crate) fn edged_dir(&self) -> PathBuf {
        self.dir.path().join("edged")
    }

    /// A directory that pods of the test may use as a hostPath.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn config(&self) -> EdgedConfig {
        let shim = vec![env!("CARGO_BIN_EXE_headwater-shim").to_owned()];
        let process = ProcessConfig { shim, shim_env: Vec::new(), allow_root: true };
        let mut config = EdgedConfig::new(
            "gw-1".parse().expect("a node name"),
            self.dir.path().join("edge.sock"),
            self.edged_dir(),
            RuntimeKind::Process(process),
        );
        config.settings = Settings {
            backoff_base: Duration::from_millis(40),
            backoff_cap: Duration::from_millis(200),
            ..Settings::default()
        };
        config
    }

    pub(crate) async fn edged(&self) -> Handle {
        Edged::spawn(self.config()).await.expect("the pod worker starts")
    }
}

/// A pod whose one container runs a shell script.
pub(crate) fn script_pod(name: &str, uid: &str, script: &str) -> Value {
    // In a manifest `$$` means `$`.
    let script = script.replace("$$", "$$$$");
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "shop", "uid": uid},
        "spec": {
            "nodeName": "gw-1",
            "terminationGracePeriodSeconds": 5,
            "containers": [{"name": "main", "command": ["sh", "-c", script]}],
        },
    })
}

/// A probe of every second. On a busy machine the start of a process takes longer than the second that a probe has if it
/// names no time.
pub(crate) fn probe(mut probe: Value) -> Value {
    probe["periodSeconds"] = json!(1);
    probe["timeoutSeconds"] = json!(60);
    probe
}

/// A startup probe that succeeds once the shell command does, however often that fails before.
pub(crate) fn startup_probe(command: &str) -> Value {
    probe(json!({"exec": {"command": ["sh", "-c", command]}, "failureThreshold": 1000}))
}

/// The same pod, asked to end.
pub(crate) fn deleting(pod: &Value, grace_seconds: u64) -> Value {
    let mut pod = pod.clone();
    pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    pod["metadata"]["deletionGracePeriodSeconds"] = json!(grace_seconds);
    pod
}

pub(crate) fn is_running(status: &Value) -> bool {
    status["phase"] == "Running" && !status["containerStatuses"][0]["state"]["running"].is_null()
}

pub(crate) fn is_ready(status: &Value) -> bool {
    condition(status, "Ready") == "True"
}

pub(crate) fn condition(status: &Value, kind: &str) -> Value {
    let conditions = status["conditions"].as_array().expect("conditions");
    let found = conditions.iter().find(|condition| condition["type"] == kind);
    found.unwrap_or_else(|| panic!("no condition {kind}"))["status"].clone()
}

/// Waits until a file holds something, and returns it.
pub(crate) async fn content(path: &Path) -> String {
    until(&format!("content of {}", path.display()), || {
        std::fs::read_to_string(path).ok().filter(|text| text.ends_with('\n'))
    })
    .await
}

/// Waits until `found` finds something.
pub(crate) async fn until<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let deadline = tokio::time::Instant::now() + DEADLINE;
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(tokio::time::Instant::now() < deadline, "waited {DEADLINE:?} for {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Whether a process runs; one that only waits to be reaped does not.
pub(crate) fn is_alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

/// The log files of the pod's container.
pub(crate) fn log_files(logs: &ContainerLogs, pod: &str, previous: bool) -> Vec<PathBuf> {
    let (namespace, container) = ("shop".to_owned(), "main".to_owned());
    let query = LogQuery { namespace, pod: pod.to_owned(), container, previous };
    logs.files(&query).expect("logs can be listed")
}

/// What the container wrote, without times.
pub(crate) fn log(logs: &ContainerLogs, pod: &str, previous: bool) -> String {
    let files = log_files(logs, pod, previous);
    let text = |path: &PathBuf| match std::fs::read_to_string(path) {
        // It was rotated away after it was listed, or its run was removed.
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        text => text.expect("a log"),
    };
    files.iter().map(text).collect()
}
