//! One suite for every runtime: it checks the verbs that a runtime's features promise, and that the
//! others are refused.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use headwater_edged::container::LaunchSpec;
use headwater_edged::container::credentials::Credentials;
use headwater_edged::container::devices::ContainerDevices;
use headwater_edged::container::termination::{StopSignal, TerminationMessage};
use headwater_edged::pod::{PodRecord, PodUid};
use headwater_edged::runtime::memory::MemoryRuntime;
use headwater_edged::runtime::{
    CommandBounds, LogQuery, NodeRuntime, RunHistory, RunState, RuntimeError, SandboxState,
    StopRequest,
};
use headwater_edged::{NOTICES_MAX, ProcessConfig, RuntimeKind, Settings};
use k8s_openapi::api::core::v1::Pod;
use tokio::sync::mpsc;

use crate::bench::until;
use crate::fake_edge::DEADLINE;

const IMAGE: &str = "localhost/busybox:1";
const TERMINATE: StopRequest = StopRequest { within: Duration::from_secs(5), interrupts: false };

/// A runtime under test, and the directory of its files.
struct Subject {
    runtime: NodeRuntime,
    dir: tempfile::TempDir,
    _noticed: mpsc::Receiver<PodUid>,
}

fn process() -> Subject {
    let shim = vec![env!("CARGO_BIN_EXE_headwater-shim").to_owned()];
    let config = ProcessConfig { shim, shim_env: Vec::new(), allow_root: true };
    of_kind(&RuntimeKind::Process(config))
}

fn of_kind(kind: &RuntimeKind) -> Subject {
    let dir = tempfile::tempdir().expect("a directory");
    let (notices, noticed) = mpsc::channel(NOTICES_MAX);
    let runtime =
        NodeRuntime::open(kind, dir.path(), Path::new("edge.sock"), &Settings::default(), notices);
    Subject { runtime: runtime.expect("opens"), dir, _noticed: noticed }
}

fn memory() -> Subject {
    let (notices, noticed) = mpsc::channel(NOTICES_MAX);
    let runtime = MemoryRuntime::new(notices).node_runtime();
    Subject { runtime, dir: tempfile::tempdir().expect("a directory"), _noticed: noticed }
}

fn record() -> PodRecord {
    PodRecord {
        uid: PodUid::try_from("u1".to_owned()).expect("a UID"),
        key: "shop/pod/web".parse().expect("a key"),
        grace_seconds: 30,
        seen_at: jiff::Timestamp::UNIX_EPOCH,
        seen_in_boot: None,
        is_static: false,
    }
}

fn launch(container: &str, script: &str) -> LaunchSpec {
    LaunchSpec {
        container: container.to_owned(),
        image: Some(IMAGE.to_owned()),
        is_step: false,
        command: ["sh", "-c"].map(str::to_owned).into(),
        args: vec![script.to_owned()],
        env: [("PATH".to_owned(), "/usr/bin:/bin".to_owned())].into(),
        working_dir: None,
        mounts: Vec::new(),
        block_devices: Vec::new(),
        stop_signal: StopSignal::default(),
        termination_message: TerminationMessage::default(),
        credentials: Credentials::default(),
        cpus: None,
        devices: ContainerDevices::default(),
    }
}

impl Subject {
    fn runs(&self, container: &str) -> Option<RunHistory> {
        self.runtime.pod(&record().uid).containers.remove(container)
    }

    /// Makes everything ready for the pod's containers, as the planner would.
    async fn prepare(&self) {
        let (runtime, spec) = (&self.runtime, Pod::default());
        runtime.write_volumes(&record(), &[]).await.expect("there are no volumes");
        if runtime.features().sandboxes {
            runtime.open(&record(), &spec).await.expect("a sandbox");
        }
        if let Some(images) = runtime.images() {
            images.pull(IMAGE, &[]).await.expect("the image");
        }
    }

    /// Waits until the container's latest run has ended, and returns its attempt.
    async fn ended(&self, container: &str) -> u32 {
        until("the end of the run", || {
            let runs = self.runs(container)?;
            matches!(runs.state, RunState::Exited(_)).then_some(runs.attempt)
        })
        .await
    }
}

/// Every subject with its name, for the messages of a failed assertion.
fn subjects() -> [(&'static str, Subject); 3] {
    [("process", process()), ("hollow", of_kind(&RuntimeKind::Hollow)), ("memory", memory())]
}

#[tokio::test]
async fn a_container_starts_ends_and_starts_again_with_the_next_attempt() {
    for (name, subject) in subjects() {
        subject.prepare().await;
        let (runtime, uid) = (&subject.runtime, record().uid);
        let spec = launch("main", "exec sleep 1000");
        for attempt in 0..3 {
            runtime.start(&record(), &Pod::default(), &spec).await.expect("starts");
            runtime
                .start(&record(), &Pod::default(), &spec)
                .await
                .expect("a second start does nothing");
            let runs = subject.runs("main").expect("it was started");
            assert_eq!(runs.attempt, attempt, "{name}");
            assert!(matches!(runs.state, RunState::Running { .. }), "{name}");
            assert_eq!(runs.previous.is_some(), attempt > 0, "{name}");
            let request = if attempt == 1 { StopRequest::KILL } else { TERMINATE };
            runtime.stop(&uid, "main", request).await.expect("it runs");
            assert_eq!(subject.ended("main").await, attempt, "{name}");
            let Some(RunState::Exited(exit)) = subject.runs("main").map(|runs| runs.state) else {
                panic!("{name}: it has ended");
            };
            assert_eq!(exit.signal, Some(if attempt == 1 { 9 } else { 15 }), "{name}");
            assert!(!exit.interrupted, "{name}");
        }
        assert_eq!(runtime.pods(), [uid], "{name}");
    }
}

#[tokio::test]
async fn a_stop_for_the_machines_sake_marks_the_run() {
    for (name, subject) in subjects() {
        subject.prepare().await;
        let runtime = &subject.runtime;
        runtime
            .start(&record(), &Pod::default(), &launch("main", "exec sleep 1000"))
            .await
            .expect("starts");
        let request = StopRequest { interrupts: true, ..TERMINATE };
        runtime.stop(&record().uid, "main", request).await.expect("it runs");
        subject.ended("main").await;
        let state = subject.runs("main").map(|runs| runs.state);
        assert!(matches!(state, Some(RunState::Exited(exit)) if exit.interrupted), "{name}");
    }
}

#[tokio::test]
async fn a_container_is_asked_to_end_with_its_own_signal_and_killed_with_none_but_sigkill() {
    for (name, subject) in subjects() {
        subject.prepare().await;
        let (runtime, uid) = (&subject.runtime, record().uid);
        let stop_signal = StopSignal::try_from("SIGUSR1".to_owned()).expect("a signal");
        let spec = LaunchSpec { stop_signal, ..launch("main", "exec sleep 1000") };
        for (request, signal) in [(TERMINATE, 10), (StopRequest::KILL, 9)] {
            runtime.start(&record(), &Pod::default(), &spec).await.expect("starts");
            assert_eq!(subject.runs("main").map(|runs| runs.stop_signal), Some(stop_signal));
            runtime.stop(&uid, "main", request).await.expect("it runs");
            subject.ended("main").await;
            let Some(RunState::Exited(exit)) = subject.runs("main").map(|runs| runs.state) else {
                panic!("{name}: it has ended");
            };
            assert_eq!(exit.signal, Some(signal), "{name}");
        }
    }
}

#[tokio::test]
async fn a_container_leaves_a_termination_message_if_its_runtime_runs_commands() {
    for (name, subject) in subjects() {
        subject.prepare().await;
        let script = "printf gone > dev/termination-log; sleep 1000";
        for attempt in 0..2 {
            // The second run leaves none, and that of the first is not its own.
            let script = if attempt == 0 { script } else { "sleep 1000" };
            subject
                .runtime
                .start(&record(), &Pod::default(), &launch("main", script))
                .await
                .expect("starts");
            let message = || {
                let path =
                    format!("pods/{}/containers/main/rootfs/dev/termination-log", record().uid);
                let written = std::fs::read_to_string(subject.dir.path().join(path)).ok()?;
                (attempt == 1 || written == "gone").then_some(())
            };
            if name == "process" {
                until("the message", message).await;
            }
            let uid = record().uid;
            subject.runtime.stop(&uid, "main", StopRequest::KILL).await.expect("it runs");
            subject.ended("main").await;
            let Some(RunState::Exited(exit)) = subject.runs("main").map(|runs| runs.state) else {
                panic!("{name}: it has ended");
            };
            let wanted = (name == "process" && attempt == 0).then_some("gone");
            assert_eq!(exit.message.as_deref(), wanted, "{name}, attempt {attempt}");
        }
    }
}

#[tokio::test]
async fn what_was_stopped_for_the_machines_sake_ran_in_an_earlier_sandbox() {
    for (name, subject) in subjects() {
        if !subject.runtime.features().persistent {
            continue;
        }
        subject.prepare().await;
        let (runtime, uid) = (&subject.runtime, record().uid);
        runtime.start(&record(), &Pod::default(), &launch("init", "true")).await.expect("starts");
        subject.ended("init").await;
        runtime
            .start(&record(), &Pod::default(), &launch("main", "exec sleep 1000"))
            .await
            .expect("starts");
        let earlier = || {
            let state = runtime.pod(&uid);
            let is_earlier = |runs: &RunHistory| runs.sandbox_attempt != state.sandbox_attempt;
            state.containers.values().filter(|runs| is_earlier(runs)).count()
        };
        assert_eq!(earlier(), 0, "{name}");
        let request = StopRequest { interrupts: true, ..TERMINATE };
        runtime.stop(&uid, "main", request).await.expect("it runs");
        subject.ended("main").await;
        assert_eq!(earlier(), 2, "{name}: the init container has to run again, too");
        runtime.start(&record(), &Pod::default(), &launch("init", "true")).await.expect("starts");
        assert_eq!(earlier(), 1, "{name}");
        subject.ended("init").await;
        assert_eq!(earlier(), 1, "{name}");
    }
}

#[tokio::test]
async fn a_removed_pod_leaves_nothing_and_can_be_removed_again() {
    for (name, subject) in subjects() {
        subject.prepare().await;
        let runtime = &subject.runtime;
        runtime
            .start(&record(), &Pod::default(), &launch("main", "exec sleep 1000"))
            .await
            .expect("starts");
        runtime.stop(&record().uid, "main", StopRequest::KILL).await.expect("it runs");
        subject.ended("main").await;
        for _ in 0..2 {
            runtime.remove(&record()).await.expect("removed");
        }
        assert_eq!(runtime.pods(), [], "{name}");
        assert_eq!(runtime.pod(&record().uid).containers.len(), 0, "{name}");
        let files = walk(subject.dir.path());
        assert_eq!(files, Vec::<PathBuf>::new(), "{name}");
    }
}

/// All files below a directory.
fn walk(dir: &Path) -> Vec<PathBuf> {
    let entries =
        std::fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry"));
    entries
        .flat_map(
            |entry| if entry.path().is_dir() { walk(&entry.path()) } else { vec![entry.path()] },
        )
        .collect()
}

#[tokio::test]
async fn commands_run_in_containers_if_the_features_have_it() {
    for (name, subject) in subjects() {
        subject.prepare().await;
        let (runtime, uid) = (&subject.runtime, record().uid);
        runtime
            .start(&record(), &Pod::default(), &launch("main", "exec sleep 1000"))
            .await
            .expect("starts");
        let command = ["true".to_owned()];
        let bounds = CommandBounds::of_handler(Duration::from_secs(10));
        let result = runtime.run(&uid, "main", &command, bounds).await;
        match (runtime.features().commands, result) {
            (true, Ok(output)) => assert_eq!(output.code, Some(0), "{name}"),
            (false, Err(RuntimeError::Unsupported { .. })) => {}
            (_, result) => panic!("{name}: {result:?}"),
        }
        let absent = runtime.run(&uid, "absent", &command, bounds).await;
        absent.map(drop).expect_err("no such container runs");
        runtime.stop(&uid, "main", StopRequest::KILL).await.expect("it runs");
        subject.ended("main").await;
    }
}

#[tokio::test]
async fn a_verb_without_its_feature_is_unsupported_and_changes_nothing() {
    for (name, subject) in subjects() {
        let (runtime, uid) = (&subject.runtime, record().uid);
        let features = runtime.features();
        let check = |has: bool, result: Result<(), RuntimeError>| {
            let is_refused = matches!(result, Err(RuntimeError::Unsupported { .. }));
            assert_eq!(is_refused, !has, "{name}: {result:?}");
        };
        check(features.sandboxes, runtime.open(&record(), &Pod::default()).await);
        check(features.sandboxes, runtime.close(&uid).await);
        let resized = runtime.resize(&record(), &Pod::default(), &[]).await;
        check(features.resize, resized);
        check(features.collection, runtime.collect(2, &BTreeSet::new()).await);
        assert!(runtime.pod(&uid).containers.is_empty(), "{name}");
    }
}

#[tokio::test]
async fn a_sandbox_is_opened_lost_closed_and_opened_again() {
    for (name, subject) in subjects() {
        let (runtime, uid) = (&subject.runtime, record().uid);
        if !runtime.features().sandboxes {
            assert_eq!(runtime.pod(&uid).sandbox, SandboxState::None, "{name}");
            continue;
        }
        for attempt in 0..2 {
            for _ in 0..2 {
                runtime.open(&record(), &Pod::default()).await.expect("opens");
            }
            let state = runtime.pod(&uid);
            assert_eq!((state.sandbox, state.sandbox_attempt), (SandboxState::Ready, attempt));
            assert!(!state.addresses.is_empty(), "{name}");
            for _ in 0..2 {
                runtime.close(&uid).await.expect("closes");
            }
            assert_eq!(runtime.pod(&uid).sandbox, SandboxState::None, "{name}");
        }
    }
}

#[tokio::test]
async fn images_are_pulled_listed_and_removed() {
    for (name, subject) in subjects() {
        let Some(images) = subject.runtime.images() else { continue };
        assert_eq!(images.status(IMAGE).await, Ok(None), "{name}");
        let id = images.pull(IMAGE, &[]).await.expect("pulled").id;
        let image = images.status(IMAGE).await.expect("a status").expect("present");
        assert_eq!(image.id, id, "{name}");
        assert_eq!(images.list().await, Ok(vec![image.clone()]), "{name}");
        let usage = images.usage().await.expect("a usage");
        assert_eq!(usage.images.bytes, image.bytes, "{name}");
        let (used, capacity) = (usage.file_system.used.bytes, usage.file_system.capacity.bytes);
        assert!(usage.images.bytes <= used && used <= capacity, "{name}: {usage:?}");
        assert_eq!(images.in_use().await, Ok(BTreeSet::new()), "{name}");
        for _ in 0..2 {
            images.remove(&id).await.expect("removed");
        }
        assert_eq!(images.status(IMAGE).await, Ok(None), "{name}");
    }
}

#[tokio::test]
async fn logs_are_the_files_that_the_runtime_names() {
    for (name, subject) in subjects() {
        subject.prepare().await;
        let runtime = &subject.runtime;
        let query = |container: &str, previous| LogQuery {
            namespace: "shop".to_owned(),
            pod: "web".to_owned(),
            container: container.to_owned(),
            previous,
        };
        let files = |container: &str, previous| {
            runtime.log_files(&query(container, previous)).expect("listed")
        };
        assert_eq!(files("main", false), Vec::<PathBuf>::new(), "{name}");
        runtime
            .start(&record(), &Pod::default(), &launch("main", "echo hello; sleep 1000"))
            .await
            .expect("starts");
        if name == "process" {
            let read = || {
                let path = files("main", false).pop()?;
                std::fs::read_to_string(path).ok().filter(|log| log.ends_with("stdout F hello\n"))
            };
            until("the line in the log", read).await;
        }
        assert_eq!(files("main", true), Vec::<PathBuf>::new(), "{name}: there was no other run");
        assert_eq!(files("../main", false), Vec::<PathBuf>::new(), "{name}");
        runtime.stop(&record().uid, "main", StopRequest::KILL).await.expect("it runs");
        subject.ended("main").await;
    }
}

#[tokio::test]
async fn a_persistent_runtime_adopts_what_an_earlier_one_left() {
    let first = process();
    assert!(first.runtime.features().persistent);
    first.prepare().await;
    first
        .runtime
        .start(&record(), &Pod::default(), &launch("main", "exec sleep 1000"))
        .await
        .expect("starts");
    let before = first.runs("main");
    let Subject { runtime, dir, .. } = first;
    drop(runtime);
    let shim = vec![env!("CARGO_BIN_EXE_headwater-shim").to_owned()];
    let kind = RuntimeKind::Process(ProcessConfig { shim, shim_env: Vec::new(), allow_root: true });
    let (notices, mut noticed) = mpsc::channel(NOTICES_MAX);
    let runtime =
        NodeRuntime::open(&kind, dir.path(), Path::new("edge.sock"), &Settings::default(), notices);
    let runtime = runtime.expect("opens");
    assert_eq!(runtime.pod(&record().uid).containers.remove("main"), before);
    runtime.stop(&record().uid, "main", StopRequest::KILL).await.expect("it runs");
    let notice = tokio::time::timeout(DEADLINE, noticed.recv()).await.expect("in time");
    assert_eq!(notice, Some(record().uid), "the end is noticed");
}
