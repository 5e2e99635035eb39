//! Pods outlive the pod worker.

use std::path::Path;
use std::time::Duration;

use headwater_edged::Edged;
use headwater_proto::local::Operation;
use serde_json::{Value, json};

use crate::bench::{
    Bench, content, is_alive, is_ready, is_running, log, probe, script_pod, startup_probe, until,
};
use crate::fake_edge::{DEADLINE, FakeEdge, latest_status, statuses};

#[tokio::test]
async fn a_pod_outlives_the_pod_worker_and_is_adopted_by_the_next() {
    let bench = Bench::new(&[]);
    let (pid_file, go) = (bench.path("pid"), bench.path("go"));
    let script = format!(
        "echo $$ > {}; echo one; while [ ! -e {} ]; do sleep 0.02; done; echo two; exec sleep 1000",
        pid_file.display(),
        go.display()
    );
    bench.edge.apply(&script_pod("web", "u1", &script));
    let first = bench.edged().await;
    let before = bench.edge.until_status("web", "a ready pod", is_ready).await;
    let pid = content(&pid_file).await;
    let logs = first.logs();
    first.stop().await;
    assert!(is_alive(&pid), "the pod worker's stop leaves the pod");

    // No pod worker runs, and the output is kept all the same.
    std::fs::write(&go, "").expect("written");
    let has_line = |log: &String| log.contains("stdout F two\n");
    until("a line written meanwhile", || Some(log(&logs, "web", false)).filter(has_line)).await;

    let count = bench.edge.operations().len();
    let second = bench.edged().await;
    let after = bench
        .edge
        .until("a status of the adopted pod", |all| {
            latest_status(&all[count.min(all.len())..], "web").filter(is_ready)
        })
        .await;
    assert_eq!(content(&pid_file).await, pid, "no second process was started");
    assert_eq!(after["containerStatuses"][0]["restartCount"], 0);
    let started = |s: &Value| s["containerStatuses"][0]["state"]["running"]["startedAt"].clone();
    assert_eq!(started(&before), started(&after));
    assert_eq!(before["startTime"], after["startTime"]);
    assert_eq!(before["conditions"], after["conditions"], "no condition changed");

    // The end of an adopted process is noticed immediately, although it is not a child here.
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(pid.trim().parse().expect("a pid")),
        nix::sys::signal::Signal::SIGKILL,
    )
    .expect("killed");
    let restarted = |s: &Value| is_running(s) && s["containerStatuses"][0]["restartCount"] == 1;
    let status = bench.edge.until_status("web", "a restart", restarted).await;
    let last = &status["containerStatuses"][0]["lastState"]["terminated"];
    assert_eq!((&last["exitCode"], &last["signal"]), (&json!(137), &json!(9)));
    second.stop_pods(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn an_adopted_container_stays_started_and_ready_until_its_probes_fail() {
    let bench = Bench::new(&[]);
    let sick = bench.path("sick");
    let mut pod = script_pod("web", "u1", "exec sleep 1000");
    // The startup probe succeeds once only.
    let once = format!("mkdir {}", bench.path("started").display());
    pod["spec"]["containers"][0]["startupProbe"] = startup_probe(&once);
    pod["spec"]["containers"][0]["readinessProbe"] =
        probe(json!({"exec": {"command": ["test", "!", "-e", sick]}, "failureThreshold": 1}));
    bench.edge.apply(&pod);
    let first = bench.edged().await;
    let before = bench.edge.until_status("web", "a ready pod", is_ready).await;
    first.stop().await;
    let count = bench.edge.operations().len();
    let second = bench.edged().await;
    let first_status = bench.edge.status_after(count, "web").await;
    assert_eq!(first_status, before, "the restart of the pod worker changes nothing");
    std::fs::write(&sick, "").expect("written");
    let unready = bench.edge.until_status("web", "an unready pod", |s| !is_ready(s)).await;
    assert_eq!(unready["containerStatuses"][0]["started"], true);
    let statuses = statuses(&bench.edge.operations()[count..], "web");
    assert_eq!(statuses.iter().filter(|status| !is_ready(status)).count(), 1, "{statuses:#?}");

    // The failing probe has the same beginning for the next pod worker, which reports nothing new.
    let failing = |status: &Value| status["conditions"].to_string().contains("ProbeFailing");
    assert!(failing(&unready), "{unready:#}");
    second.stop().await;
    let count = bench.edge.operations().len();
    let third = bench.edged().await;
    let third_status = bench.edge.status_after(count, "web").await;
    assert_eq!(third_status, unready, "the restart of the pod worker changes nothing");
    std::fs::remove_file(&sick).expect("removed");
    let ready = bench.edge.until_status("web", "a ready pod again", is_ready).await;
    assert!(!failing(&ready), "{ready:#}");
    let statuses = crate::fake_edge::statuses(&bench.edge.operations()[count..], "web");
    assert_eq!(statuses.len(), 2, "{statuses:#?}");
    third.stop_pods(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn after_a_boot_of_the_machine_a_pod_starts_from_its_first_init_container() {
    let bench = Bench::new(&[]);
    let (order, pids) = (bench.path("order"), bench.path("pids"));
    let step = |name: &str, script: &str| {
        let script = format!("echo {name} >> {}; {script}", order.display());
        json!({"name": name, "command": ["sh", "-c", script]})
    };
    let stay = format!("echo $$$$ $PPID >> {}; exec sleep 1000", pids.display());
    let mut pod = script_pod("web", "u1", "");
    let mut sidecar = step("side", &stay);
    sidecar["restartPolicy"] = json!("Always");
    // A process that was started may not have run its first line. In each run its line comes before that of the other one.
    let has_begun =
        format!("[ `grep -c side {order}` -gt `grep -c main {order}` ]", order = order.display());
    sidecar["startupProbe"] = startup_probe(&has_begun);
    pod["spec"]["initContainers"] = json!([step("init", "true"), sidecar]);
    pod["spec"]["containers"] = json!([step("main", &stay)]);
    bench.edge.apply(&pod);
    let first = bench.edged().await;
    bench.edge.until_status("web", "a ready pod", is_ready).await;
    let lines = |path: &Path, count: usize| {
        let text = std::fs::read_to_string(path).ok();
        text.filter(|text| text.lines().count() >= count)
    };
    until("the first start", || lines(&order, 3)).await;
    let running = until("two processes", || lines(&pids, 2)).await;
    first.stop().await;

    // The machine goes down: nothing of the pod runs, and no shim could write an exit.
    for pid in running.split_whitespace().rev() {
        let pid = nix::unistd::Pid::from_raw(pid.parse().expect("a pid"));
        // The process of a shim ends with it.
        match nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL) {
            Ok(()) | Err(nix::errno::Errno::ESRCH) => {}
            Err(error) => panic!("{pid}: {error}"),
        }
    }
    let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("a boot");
    for container in ["init", "side", "main"] {
        let run = bench.edged_dir().join(format!("pods/u1/containers/{container}/0"));
        let state = std::fs::read_to_string(run.join("state.json")).expect("it ran");
        let state = state.replace(boot_id.trim(), "an-earlier-boot");
        std::fs::write(run.join("state.json"), state).expect("written");
        let is_free = || {
            let lock = std::fs::File::open(run.join("lock")).ok()?;
            lock.try_lock().ok()
        };
        until("the end of the shim", is_free).await;
    }
    let second = bench.edged().await;
    let all = until("the second start", || lines(&order, 6)).await;
    assert_eq!(all, "init\nside\nmain\n".repeat(2));
    let again = |s: &Value| is_ready(s) && s["containerStatuses"][0]["restartCount"] == 1;
    let status = bench.edge.until_status("web", "a ready pod again", again).await;
    assert_eq!(status["initContainerStatuses"][0]["restartCount"], 1);
    second.stop_pods(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn an_exit_without_a_pod_worker_is_known_to_the_next_one() {
    let bench = Bench::new(&[]);
    let go = bench.path("go");
    let script = format!("while [ ! -e {} ]; do sleep 0.02; done; exit 7", go.display());
    let mut pod = script_pod("job", "u1", &script);
    pod["spec"]["restartPolicy"] = json!("Never");
    bench.edge.apply(&pod);
    let first = bench.edged().await;
    bench.edge.until_status("job", "a running pod", is_running).await;
    first.stop().await;
    std::fs::write(&go, "").expect("written");
    let exit = bench.edged_dir().join("pods/u1/containers/main/0/exit.json");
    until("the shim's last file", || exit.exists().then_some(())).await;
    let second = bench.edged().await;
    let status = bench.edge.until_status("job", "an end", |s| s["phase"] == "Failed").await;
    assert_eq!(status["containerStatuses"][0]["state"]["terminated"]["exitCode"], 7);
    second.stop().await;
}

#[tokio::test]
async fn a_clock_that_is_set_forward_between_two_pod_workers_ends_no_pod_at_its_deadline() {
    let bench = Bench::new(&[]);
    let go = bench.path("go");
    let script = format!("while [ ! -e {} ]; do sleep 0.02; done", go.display());
    let mut pod = script_pod("job", "u1", &script);
    pod["spec"]["restartPolicy"] = json!("Never");
    pod["spec"]["activeDeadlineSeconds"] = json!(3600);
    bench.edge.apply(&pod);
    let first = bench.edged().await;
    bench.edge.until_status("job", "a running pod", is_running).await;
    first.stop().await;
    // The clock was 50 years slow when the pod began, and is right by now.
    for (file, field) in [("pod.json", "seen_at"), ("status.json", "startTime")] {
        let path = bench.edged_dir().join("pods/u1").join(file);
        let text = std::fs::read_to_string(&path).expect("it was written");
        let mut value: Value = serde_json::from_str(&text).expect("JSON");
        assert!(value[field].is_string(), "{value}");
        value[field] = json!("1976-01-01T00:00:00Z");
        std::fs::write(&path, value.to_string()).expect("written");
    }
    let count = bench.edge.operations().len();
    let second = bench.edged().await;
    bench.edge.status_after(count, "job").await;
    std::fs::write(&go, "").expect("written");
    let has_ended = |s: &Value| s["phase"] == "Succeeded" || s["phase"] == "Failed";
    let status = bench.edge.until_status("job", "an end", has_ended).await;
    assert_eq!(status["phase"], "Succeeded", "{status}");
    second.stop().await;
}

#[tokio::test]
async fn a_pod_that_has_ended_stays_so_whatever_becomes_of_its_last_run() {
    let bench = Bench::new(&[]);
    let starts = bench.path("starts");
    let script = format!("echo start >> {}; exit 7", starts.display());
    let mut pod = script_pod("job", "u1", &script);
    pod["spec"]["restartPolicy"] = json!("Never");
    bench.edge.apply(&pod);
    let first = bench.edged().await;
    let has_failed = |status: &Value| status["phase"] == "Failed";
    let status = bench.edge.until_status("job", "an end", has_failed).await;
    first.stop().await;
    // As if the runtime had lost the run's state: without the reported end, the pod would start again.
    let run = bench.edged_dir().join("pods/u1/containers/main/0");
    std::fs::write(run.join("stopped"), "").expect("written");
    let before = statuses(&bench.edge.operations(), "job").len();
    let second = bench.edged().await;
    let again = |all: &[Operation]| statuses(all, "job").get(before).cloned();
    let reported = bench.edge.until("the status again", again).await;
    assert_eq!(reported, status);
    bench.edge.apply(&script_pod("other", "u2", "exec sleep 1000"));
    bench.edge.until_status("other", "another pod", is_running).await;
    assert_eq!(content(&starts).await, "start\n");
    assert_eq!(latest_status(&bench.edge.operations(), "job"), Some(status));
    second.stop_pods(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_container_whose_shim_was_killed_is_ended_and_started_again() {
    let bench = Bench::new(&[]);
    let pid_file = bench.path("pid");
    let script = format!("echo $$ $PPID > {}; exec sleep 1000", pid_file.display());
    bench.edge.apply(&script_pod("web", "u1", &script));
    let edged = bench.edged().await;
    bench.edge.until_status("web", "a running pod", is_running).await;
    let pids = content(&pid_file).await;
    let (pid, shim) = pids.trim().split_once(' ').expect("two pids");
    let shim = nix::unistd::Pid::from_raw(shim.parse().expect("a pid"));
    nix::sys::signal::kill(shim, nix::sys::signal::Signal::SIGKILL).expect("killed");
    let restarted = |s: &Value| is_running(s) && s["containerStatuses"][0]["restartCount"] == 1;
    let status = bench.edge.until_status("web", "a restart", restarted).await;
    let last = &status["containerStatuses"][0]["lastState"]["terminated"];
    assert_eq!(last["reason"], "ContainerStatusUnknown");
    until("the end of the lost container", || (!is_alive(pid)).then_some(())).await;
    edged.stop_pods(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn stopped_pods_start_again_with_the_next_pod_worker_whatever_their_policy() {
    let mut pod = script_pod("job", "u1", "exec sleep 1000");
    pod["spec"]["restartPolicy"] = json!("Never");
    let bench = Bench::new(&[pod]);
    let first = bench.edged().await;
    bench.edge.until_status("job", "a running pod", is_running).await;
    assert_eq!(first.stop_pods(Duration::from_mins(1)).await, 0);
    let failed = |s: Value| s["phase"] == "Failed";
    let status = latest_status(&bench.edge.operations(), "job");
    assert!(!status.is_some_and(failed), "a stop of the machine is no failure of the pod");
    let second = bench.edged().await;
    let again = |s: &Value| is_running(s) && s["containerStatuses"][0]["restartCount"] == 1;
    bench.edge.until_status("job", "the pod again", again).await;
    second.stop_pods(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn an_edge_that_comes_back_receives_all_reports_again() {
    let pod = script_pod("web", "u1", "exec sleep 1000");
    let mut bench = Bench::new(std::slice::from_ref(&pod));
    let edged = bench.edged().await;
    bench.edge.until_status("web", "a ready pod", is_ready).await;
    let socket = bench.path("edge.sock");
    bench.edge = FakeEdge::start(&socket, &[pod], true);
    bench.edge.until_status("web", "a ready pod, reported again", is_ready).await;
    edged.stop_pods(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_in_the_middle_of_a_start_never_leaves_two_processes() {
    for point in [
        "pod.json",
        "containers/main/0",
        "containers/main/0/alive",
        "containers/main/0/commands.sock",
        "containers/main/0/state.json",
    ] {
        let bench = Bench::new(&[]);
        let pids = bench.path("pids");
        let script = format!("echo $$ >> {}; exec sleep 1000", pids.display());
        bench.edge.apply(&script_pod("web", "u1", &script));
        let (config, point) = (bench.config(), bench.edged_dir().join("pods/u1").join(point));
        let crash = move || {
            let runtime = tokio::runtime::Runtime::new().expect("a runtime");
            let edged = runtime.block_on(Edged::spawn(config)).expect("starts");
            let deadline = std::time::Instant::now() + DEADLINE;
            while !point.exists() {
                assert!(std::time::Instant::now() < deadline, "waited for {}", point.display());
                std::hint::spin_loop();
            }
            // Every task is dropped at its current step, before the handle.
            runtime.shutdown_timeout(DEADLINE);
            drop(edged);
        };
        tokio::task::spawn_blocking(crash).await.expect("the crash comes");
        let edged = bench.edged().await;
        bench.edge.until_status("web", "a ready pod", is_ready).await;
        let running = || {
            let pids = std::fs::read_to_string(&pids).unwrap_or_default();
            pids.lines().filter(|pid| is_alive(pid)).count()
        };
        until("one process", || (running() == 1).then_some(())).await;
        assert_eq!(edged.stop_pods(Duration::from_mins(1)).await, 0);
        assert_eq!(running(), 0, "a second process was running");
    }
}

#[tokio::test]
async fn a_failing_container_waits_on_in_the_next_pod_worker() {
    let bench = Bench::new(&[]);
    let edged = async || {
        let mut config = bench.config();
        config.settings.backoff_base = Duration::from_secs(3600);
        config.settings.backoff_cap = Duration::from_secs(3600);
        Edged::spawn(config).await.expect("the pod worker starts")
    };
    bench.edge.apply(&script_pod("web", "u1", "exit 3"));
    let first = edged().await;
    let waits = |status: &Value| {
        status["containerStatuses"][0]["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    };
    let before = bench.edge.until_status("web", "a back-off", waits).await;
    assert_eq!(before["containerStatuses"][0]["restartCount"], 1, "{before:#}");
    first.stop().await;
    let count = bench.edge.operations().len();
    let second = edged().await;
    let after = bench.edge.status_after(count, "web").await;
    assert_eq!(after, before, "the restart of the pod worker changes nothing");
    second.stop_pods(Duration::from_secs(5)).await;
}
