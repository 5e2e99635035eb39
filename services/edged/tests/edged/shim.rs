//! The shim: its container ends with it, and commands end with the container.

use std::path::Path;
use std::time::Duration;

use headwater_edged::container::LaunchSpec;
use headwater_edged::container::credentials::Credentials;
use headwater_edged::container::devices::ContainerDevices;
use headwater_edged::container::termination::{StopSignal, TerminationMessage};
use headwater_edged::pod::{PodRecord, PodUid};
use headwater_edged::runtime::{CommandBounds, NodeRuntime, RunState, RuntimeError, StopRequest};
use headwater_edged::{NOTICES_MAX, RuntimeKind};
use k8s_openapi::api::core::v1::Pod;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tokio::sync::mpsc;

use crate::bench::{Bench, content, is_alive, is_ready, is_running, script_pod, until};

/// More than enough for a command of a test.
const TIMEOUT: Duration = Duration::from_secs(30);

fn record() -> PodRecord {
    PodRecord {
        uid: PodUid::try_from("u1".to_owned()).expect("a UID"),
        key: "shop/pod/web".parse().expect("a key"),
        grace_seconds: 5,
        seen_at: jiff::Timestamp::UNIX_EPOCH,
        seen_in_boot: None,
        is_static: false,
    }
}

fn open(bench: &Bench) -> NodeRuntime {
    let config = bench.config();
    let (notices, _) = mpsc::channel(NOTICES_MAX);
    let RuntimeKind::Process(_) = &config.runtime else { panic!("the process runtime") };
    NodeRuntime::open(
        &config.runtime,
        &bench.edged_dir(),
        Path::new("edge.sock"),
        &config.settings,
        notices,
    )
    .expect("opens")
}

async fn start(runtime: &NodeRuntime, script: &str) {
    runtime.write_volumes(&record(), &[]).await.expect("there are no volumes");
    let mut env = runtime.environment(&record().uid, &Pod::default(), "main");
    env.insert("PASSWORD".to_owned(), "correct horse".to_owned());
    let launch = LaunchSpec {
        container: "main".to_owned(),
        image: None,
        is_step: false,
        command: ["sh", "-c"].map(str::to_owned).into(),
        args: vec![script.to_owned()],
        env,
        working_dir: None,
        mounts: Vec::new(),
        block_devices: Vec::new(),
        stop_signal: StopSignal::default(),
        termination_message: TerminationMessage::default(),
        credentials: Credentials::default(),
        cpus: None,
        devices: ContainerDevices::default(),
    };
    runtime.start(&record(), &Pod::default(), &launch).await.expect("starts");
}

fn state(runtime: &NodeRuntime) -> Option<RunState> {
    runtime.pod(&record().uid).containers.remove("main").map(|runs| runs.state)
}

fn shell(script: &str) -> [String; 3] {
    ["sh", "-c", script].map(str::to_owned)
}

fn pid(text: &str) -> Pid {
    Pid::from_raw(text.trim().parse().expect("a pid"))
}

#[tokio::test]
async fn a_command_that_prints_more_than_is_kept_ends_as_it_would_anyway() {
    let bench = Bench::new(&[]);
    let runtime = open(&bench);
    start(&runtime, "exec sleep 1000").await;
    let run = async |script: &str| {
        let bounds = CommandBounds::of_handler(TIMEOUT);
        runtime.run(&record().uid, "main", &shell(script), bounds).await.expect("it runs")
    };
    let long = run("head -c 1000000 /dev/zero | tr '\\0' x; echo oops >&2; exit 3").await;
    assert_eq!(long.code, Some(3), "no signal ended it");
    assert_eq!(long.output.len(), (10 << 10) + "oops\n".len());
    let short = run("echo $PASSWORD; pwd; umask").await;
    let root = bench.edged_dir().join("pods/u1/containers/main/rootfs");
    let expected = format!("correct horse\n{}\n0022\n", root.display());
    assert_eq!(String::from_utf8_lossy(&short.output), expected);
    let killed = run("kill -9 $$").await;
    assert_eq!(killed.code, Some(137));
    // A process that it leaves behind keeps its output open, and delays nothing.
    let left = run("sleep 1000 & echo left").await;
    assert_eq!((left.code, &*left.output), (Some(0), &b"left\n"[..]));
    let absent = ["/no/such/program".to_owned()];
    let bounds = CommandBounds::of_handler(TIMEOUT);
    let error = runtime.run(&record().uid, "main", &absent, bounds).await.expect_err("absent");
    assert!(matches!(error, RuntimeError::Command { .. }), "{error:?}");
    // A caller that wants all of it gets all of it, and what is no text as it is.
    let bounds = CommandBounds { within: TIMEOUT, output_bytes_max: 1 << 20 };
    let all = shell("head -c 1000000 /dev/zero; printf '\\377' >&2");
    let all = runtime.run(&record().uid, "main", &all, bounds).await.expect("it runs");
    let expected = [vec![0; 1_000_000], vec![0xff]].concat();
    assert!((all.code, &all.output) == (Some(0), &expected), "{:?} {}", all.code, all.output.len());
    runtime.stop(&record().uid, "main", StopRequest::KILL).await.expect("it runs");
}

#[tokio::test]
async fn a_command_ends_at_its_time_with_its_caller_and_with_its_container() {
    let bench = Bench::new(&[]);
    let runtime = open(&bench);
    start(&runtime, "exec sleep 1000").await;
    let script =
        |name: &str| shell(&format!("echo $$ > {}; sleep 1000", bench.path(name).display()));
    let uid = record().uid;

    let mut time = Duration::from_millis(300);
    let slow = loop {
        let slow =
            runtime.run(&uid, "main", &script("slow"), CommandBounds::of_handler(time)).await;
        assert_eq!(slow.expect("it runs").code, None);
        let written = std::fs::read_to_string(bench.path("slow")).unwrap_or_default();
        if written.ends_with('\n') {
            break written;
        }
        // On a busy machine the time is over before the shell has written it.
        time *= 2;
        assert!(time < TIMEOUT, "the command writes nothing");
    };
    until("the end at its time", || (!is_alive(&slow)).then_some(())).await;

    let bounds = CommandBounds::of_handler(TIMEOUT);
    let (command, file) = (script("dropped"), bench.path("dropped"));
    let dropped = tokio::select! {
        _ = runtime.run(&uid, "main", &command, bounds) => panic!("it does not end"),
        dropped = content(&file) => dropped,
    };
    until("the end with its caller", || (!is_alive(&dropped)).then_some(())).await;

    let command = script("last");
    let (ended, last) = tokio::join!(runtime.run(&uid, "main", &command, bounds), async {
        let last = content(&bench.path("last")).await;
        runtime.stop(&uid, "main", StopRequest::KILL).await.expect("it runs");
        last
    });
    assert!(matches!(ended, Err(RuntimeError::NotRunning { .. })), "{ended:?}");
    assert!(!is_alive(&last), "it outlived its container");
}

#[tokio::test]
async fn a_killed_shim_leaves_no_process_of_its_container() {
    let bench = Bench::new(&[]);
    let (main, child, daemon) = (bench.path("main"), bench.path("child"), bench.path("daemon"));
    let script = format!(
        "sh -c 'echo $$ > {}; exec sleep 1000' & setsid sh -c 'echo $$ > {}; exec sleep 1000' & \
         echo $$ $PPID > {}; exec sleep 1000",
        child.display(),
        daemon.display(),
        main.display()
    );
    bench.edge.apply(&script_pod("web", "u1", &script));
    let edged = bench.edged().await;
    let pids = content(&main).await;
    let (main_pid, shim) = pids.trim().split_once(' ').expect("two pids");
    let (child, daemon) = (content(&child).await, content(&daemon).await);
    bench.edge.until_status("web", "a ready pod", is_ready).await;
    kill(pid(shim), Signal::SIGKILL).expect("killed");
    for left in [main_pid, &child, &daemon] {
        until("the end of what the container started", || (!is_alive(left)).then_some(())).await;
    }
    let restarted = |s: &Value| is_running(s) && s["containerStatuses"][0]["restartCount"] == 1;
    bench.edge.until_status("web", "a restart", restarted).await;
    edged.stop_pods(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn what_a_killed_shim_left_is_ended_by_the_next_pod_worker() {
    let bench = Bench::new(&[]);
    let runtime = open(&bench);
    let (main, daemon) = (bench.path("main"), bench.path("daemon"));
    let script = format!(
        "setsid sh -c 'echo $$ > {}; exec sleep 1000' & echo $PPID > {}; exec sleep 1000",
        daemon.display(),
        main.display()
    );
    start(&runtime, &script).await;
    let (shim, daemon) = (content(&main).await, content(&daemon).await);
    drop(runtime);
    kill(pid(&shim), Signal::SIGKILL).expect("killed");
    until("the end of the shim", || (!is_alive(&shim)).then_some(())).await;
    assert!(is_alive(&daemon), "no pod worker runs");
    let runtime = open(&bench);
    // The lock of the shim is free once the last of its threads has ended.
    let has_exited = || matches!(state(&runtime), Some(RunState::Exited(_)));
    until("the adoption", || has_exited().then_some(())).await;
    until("the end of the daemon", || (!is_alive(&daemon)).then_some(())).await;
}

#[tokio::test]
async fn a_shim_that_is_asked_to_end_ends_its_container_for_the_machines_sake() {
    let bench = Bench::new(&[]);
    let (pids, term) = (bench.path("pids"), bench.path("term"));
    let script = format!(
        "trap 'echo term >> {}; exit 7' TERM; echo $PPID > {}; while :; do sleep 0.02; done",
        term.display(),
        pids.display()
    );
    let mut pod = script_pod("job", "u1", &script);
    pod["spec"]["restartPolicy"] = serde_json::json!("Never");
    bench.edge.apply(&pod);
    let edged = bench.edged().await;
    bench.edge.until_status("job", "a running pod", is_running).await;
    let shim = content(&pids).await;
    kill(pid(&shim), Signal::SIGTERM).expect("asked");
    let again = |s: &Value| is_running(s) && s["containerStatuses"][0]["restartCount"] == 1;
    bench.edge.until_status("job", "the pod again", again).await;
    assert_eq!(content(&term).await, "term\n", "the container was asked first");
    // The file with the exit is there before it has ended.
    until("the end of the shim", || (!is_alive(&shim)).then_some(())).await;
    edged.stop_pods(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_run_that_cannot_be_read_waits_and_gets_no_second_copy() {
    let bench = Bench::new(&[]);
    let runtime = open(&bench);
    let pids = bench.path("pids");
    let script = format!("echo $$ >> {}; exec sleep 1000", pids.display());
    start(&runtime, &script).await;
    let first = content(&pids).await;
    drop(runtime);
    // Not even root can read a directory as a file.
    let unreadable = bench.edged_dir().join("pods/u1/containers/main/0/exit.json");
    std::fs::create_dir(&unreadable).expect("made");

    let runtime = open(&bench);
    let launch = |argv: [String; 3]| LaunchSpec {
        container: "main".to_owned(),
        image: None,
        is_step: false,
        command: argv.into(),
        args: Vec::new(),
        env: runtime.environment(&record().uid, &Pod::default(), "main"),
        working_dir: None,
        mounts: Vec::new(),
        block_devices: Vec::new(),
        stop_signal: StopSignal::default(),
        termination_message: TerminationMessage::default(),
        credentials: Credentials::default(),
        cpus: None,
        devices: ContainerDevices::default(),
    };
    let error = runtime
        .start(&record(), &Pod::default(), &launch(shell(&script)))
        .await
        .expect_err("it waits");
    assert!(error.to_string().contains("pods/u1/containers"), "{error}");
    runtime.remove(&record()).await.expect_err("it may run");
    runtime.relist().await.expect("listed");
    assert!(is_alive(&first) && state(&runtime).is_none());

    std::fs::remove_dir(&unreadable).expect("removed");
    runtime.relist().await.expect("listed");
    assert!(matches!(state(&runtime), Some(RunState::Running { .. })), "it is adopted");
    runtime.remove(&record()).await.expect_err("it runs");
    runtime
        .start(&record(), &Pod::default(), &launch(shell(&script)))
        .await
        .expect("it runs already");
    assert_eq!(content(&pids).await, first, "no second process");
    runtime.stop(&record().uid, "main", StopRequest::KILL).await.expect("it runs");
}

#[tokio::test]
async fn no_file_of_a_run_has_its_environment_or_its_command() {
    let bench = Bench::new(&[]);
    let runtime = open(&bench);
    start(&runtime, ": hunter2; exec sleep 1000").await;
    let mut waiting = vec![bench.edged_dir()];
    let mut read = 0;
    while let Some(path) = waiting.pop() {
        let found = std::fs::symlink_metadata(&path).expect("it exists");
        if found.is_dir() {
            let entries = std::fs::read_dir(&path).expect("listed");
            waiting.extend(entries.map(|entry| entry.expect("an entry").path()));
        } else if found.is_file() {
            let text = String::from_utf8_lossy(&std::fs::read(&path).expect("read")).into_owned();
            let is_clean = !text.contains("correct horse") && !text.contains("hunter2");
            assert!(is_clean, "{}: {text}", path.display());
            read += 1;
        }
    }
    assert!(read >= 2, "the state and the lock at least");
    runtime.stop(&record().uid, "main", StopRequest::KILL).await.expect("it runs");
}
