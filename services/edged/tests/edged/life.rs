//! Containers start, end and start again.

use std::time::Instant;

use headwater_edged::{Edged, RuntimeKind};
use serde_json::{Value, json};

use crate::bench::{
    Bench, condition, content, is_ready, is_running, log, log_files, script_pod, startup_probe,
    until,
};
use crate::fake_edge::statuses;

#[tokio::test]
async fn a_pod_runs_its_command_and_reports_it() {
    let mut pod = script_pod("web", "u1", "echo hello; echo oops >&2; exec sleep 1000");
    pod["metadata"]["generation"] = json!(3);
    let bench = Bench::new(&[pod]);
    let edged = bench.edged().await;
    let status = bench.edge.until_status("web", "a ready pod", is_ready).await;
    assert!(is_running(&status));
    for kind in ["PodScheduled", "Initialized", "ContainersReady", "PodReadyToStartContainers"] {
        assert_eq!(condition(&status, kind), "True", "{kind}");
    }
    assert_eq!(status["hostIP"], "127.0.0.1");
    assert_eq!(status["podIP"], "127.0.0.1");
    assert_eq!(status["observedGeneration"], 3);
    let container = &status["containerStatuses"][0];
    assert_eq!((&container["restartCount"], &container["started"]), (&json!(0), &json!(true)));
    let both = |log: &String| log.contains("stdout F hello\n") && log.contains("stderr F oops\n");
    until("both outputs in the log", || Some(log(&edged.logs(), "web", false)).filter(both)).await;
    assert_eq!(edged.stop_pods(std::time::Duration::from_mins(1)).await, 0);
}

#[tokio::test]
async fn a_pod_that_is_to_run_once_succeeds_or_fails_for_good() {
    let mut good = script_pod("good", "u1", "exit 0");
    good["spec"]["restartPolicy"] = json!("Never");
    let mut bad = script_pod("bad", "u2", "exit 7");
    bad["spec"]["restartPolicy"] = json!("Never");
    let mut killed = script_pod("killed", "u3", "kill -9 $$");
    killed["spec"]["restartPolicy"] = json!("Never");
    let bench = Bench::new(&[good, bad, killed]);
    let edged = bench.edged().await;
    let ended = |status: &Value| status["phase"] != "Pending" && !is_running(status);
    let good = bench.edge.until_status("good", "an end", |s| s["phase"] == "Succeeded").await;
    assert_eq!(good["containerStatuses"][0]["state"]["terminated"]["reason"], "Completed");
    assert_eq!(condition(&good, "Ready"), "False");
    let bad = bench.edge.until_status("bad", "an end", ended).await;
    assert_eq!(bad["phase"], "Failed");
    assert_eq!(bad["containerStatuses"][0]["state"]["terminated"]["exitCode"], 7);
    let killed = bench.edge.until_status("killed", "an end", ended).await;
    let terminated = &killed["containerStatuses"][0]["state"]["terminated"];
    assert_eq!((&terminated["exitCode"], &terminated["signal"]), (&json!(137), &json!(9)));
    edged.stop().await;
}

#[tokio::test]
async fn a_container_that_keeps_failing_waits_between_its_starts() {
    let bench = Bench::new(&[script_pod("loop", "u1", "echo run; exit 3")]);
    let edged = bench.edged().await;
    let waits = |status: &Value| {
        status["containerStatuses"][0]["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    };
    let status = bench.edge.until_status("loop", "a back-off", waits).await;
    let container = &status["containerStatuses"][0];
    assert_eq!(container["lastState"]["terminated"]["exitCode"], 3);
    assert_eq!(status["phase"], "Running", "a pod that was once started is not pending");
    let again = |status: &Value| status["containerStatuses"][0]["restartCount"].as_i64() >= Some(3);
    bench.edge.until_status("loop", "three restarts", again).await;
    // The run before the present one is another one at any moment.
    let has_line = |log: &String| log.contains("stdout F run\n");
    until("the previous log", || Some(log(&edged.logs(), "loop", true)).filter(has_line)).await;
    let runs = bench.edged_dir().join("pods/u1/containers/main");
    let kept = std::fs::read_dir(runs).expect("runs").count();
    assert!(kept <= 4, "two runs, the root and perhaps one being made: {kept}");
    edged.stop_pods(std::time::Duration::from_secs(5)).await;
}

#[tokio::test]
async fn init_containers_run_in_order_before_the_others_and_sidecars_stay() {
    let dir = tempfile::tempdir().expect("a directory");
    let order = dir.path().join("order");
    let step = |name: &str, script: &str| {
        let script = format!("echo {name} >> {}; {script}", order.display());
        json!({"name": name, "command": ["sh", "-c", script]})
    };
    let mut pod = script_pod("web", "u1", "");
    let mut sidecar = step("sidecar", "exec sleep 1000");
    sidecar["restartPolicy"] = json!("Always");
    // A process that was started may not have run its first line.
    sidecar["startupProbe"] = startup_probe(&format!("grep -q sidecar {}", order.display()));
    pod["spec"]["initContainers"] = json!([step("first", "true"), sidecar, step("second", "true")]);
    pod["spec"]["containers"] = json!([step("main", "exec sleep 1000")]);
    let bench = Bench::new(&[pod]);
    let edged = bench.edged().await;
    let status = bench.edge.until_status("web", "a ready pod", is_ready).await;
    // Ready means that the process was started, not that it has run its first line.
    let all = || std::fs::read_to_string(&order).ok().filter(|text| text.lines().count() >= 4);
    assert_eq!(until("a line of each", all).await, "first\nsidecar\nsecond\nmain\n");
    let init = &status["initContainerStatuses"];
    assert_eq!(init[0]["state"]["terminated"]["exitCode"], 0);
    assert!(!init[1]["state"]["running"].is_null(), "the sidecar stays");
    edged.stop_pods(std::time::Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_failed_init_container_of_a_pod_that_never_restarts_fails_the_pod() {
    let mut pod = script_pod("web", "u1", "exec sleep 1000");
    pod["spec"]["restartPolicy"] = json!("Never");
    pod["spec"]["initContainers"] = json!([{"name": "init", "command": ["false"]}]);
    let bench = Bench::new(&[pod]);
    let edged = bench.edged().await;
    let status = bench.edge.until_status("web", "failure", |s| s["phase"] == "Failed").await;
    let waiting = &status["containerStatuses"][0]["state"]["waiting"];
    assert_eq!(waiting["reason"], "PodInitializing", "the main container never ran");
    edged.stop().await;
}

#[tokio::test]
async fn a_pod_that_is_active_for_too_long_ends_and_fails_with_the_reason() {
    let bench = Bench::new(&[]);
    let listens = bench.path("listens");
    let script = format!(
        "trap 'exit 0' TERM; echo yes > {}; while :; do sleep 0.02; done",
        listens.display()
    );
    let mut pod = script_pod("job", "u1", &script);
    bench.edge.apply(&pod);
    let began = Instant::now();
    let first = bench.edged().await;
    // A shell that has not set its trap yet ends with another code.
    content(&listens).await;
    // It lies ahead.
    pod["spec"]["activeDeadlineSeconds"] = json!(began.elapsed().as_secs() + 1);
    bench.edge.apply(&pod);
    let failed = |s: &Value| s["phase"] == "Failed";
    let status = bench.edge.until_status("job", "failure", failed).await;
    assert_eq!(status["reason"], "DeadlineExceeded");
    let message = "Pod was active on the node longer than the specified deadline";
    assert_eq!(status["message"], message);
    assert_eq!(status["containerStatuses"][0]["state"]["terminated"]["exitCode"], 0);
    first.stop().await;
    let count = bench.edge.operations().len();
    let second = bench.edged().await;
    let again = bench.edge.status_after(count, "job").await;
    assert_eq!(again, status, "the pod has failed for good");
    second.stop().await;
}

#[tokio::test]
async fn what_a_container_leaves_to_say_is_in_its_status() {
    let mut pod = script_pod("job", "u1", "printf done > $HEADWATER_ROOT/var/end; echo log");
    pod["spec"]["restartPolicy"] = json!("Never");
    pod["spec"]["containers"][0]["terminationMessagePath"] = json!("/var/end");
    let mut silent = script_pod("silent", "u2", "echo one; echo two; exit 3");
    silent["spec"]["restartPolicy"] = json!("Never");
    silent["spec"]["containers"][0]["terminationMessagePolicy"] = json!("FallbackToLogsOnError");
    let bench = Bench::new(&[pod, silent]);
    let edged = bench.edged().await;
    for (name, phase, wanted) in [("job", "Succeeded", "done"), ("silent", "Failed", "one\ntwo\n")]
    {
        let status = bench.edge.until_status(name, "an end", |s| s["phase"] == phase).await;
        let message = &status["containerStatuses"][0]["state"]["terminated"]["message"];
        assert_eq!(message, wanted);
    }
    edged.stop().await;
}

#[tokio::test]
async fn the_status_names_a_changed_image_of_a_process_that_runs() {
    let mut pod = script_pod("web", "u1", "exec sleep 1000");
    pod["spec"]["containers"][0]["image"] = json!("web:1");
    let bench = Bench::new(std::slice::from_ref(&pod));
    let first = bench.edged().await;
    bench.edge.until_status("web", "a ready pod", is_ready).await;
    pod["spec"]["containers"][0]["image"] = json!("web:2");
    bench.edge.apply(&pod);
    let has_condition = |s: &Value| {
        let conditions = s["conditions"].as_array().expect("conditions");
        conditions.iter().any(|c| c["type"] == "headwater/RestartNeeded" && c["status"] == "True")
    };
    let named = bench.edge.until_status("web", "the condition", has_condition).await;
    assert_eq!(named["containerStatuses"][0]["image"], "web:1", "this image runs");
    first.stop().await;
    let count = bench.edge.operations().len();
    let second = bench.edged().await;
    let again = bench.edge.status_after(count, "web").await;
    assert_eq!(again, named, "the next pod worker knows the image of the run");
    second.stop_pods(std::time::Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_container_without_a_command_waits_with_advice() {
    let mut pod = script_pod("web", "u1", "");
    pod["spec"]["containers"] = json!([{"name": "main", "image": "nginx:1.27"}]);
    let bench = Bench::new(&[pod]);
    let edged = bench.edged().await;
    let waits =
        |s: &Value| s["containerStatuses"][0]["state"]["waiting"]["reason"] == "ImageNotSupported";
    let status = bench.edge.until_status("web", "a refusal", waits).await;
    assert_eq!(status["phase"], "Pending");
    let message = &status["containerStatuses"][0]["state"]["waiting"]["message"];
    assert!(message.as_str().is_some_and(|m| m.contains("nginx:1.27") && m.contains("command")));
    edged.stop().await;
}

#[tokio::test]
async fn a_command_that_cannot_be_started_is_reported_and_tried_again() {
    let mut pod = script_pod("web", "u1", "");
    pod["spec"]["containers"][0]["command"] = json!(["/no/such/program"]);
    let bench = Bench::new(&[pod]);
    let edged = bench.edged().await;
    let tried = |s: &Value| {
        s["containerStatuses"][0]["restartCount"].as_i64() >= Some(2)
            && !s["containerStatuses"][0]["lastState"]["terminated"].is_null()
    };
    let status = bench.edge.until_status("web", "a second try", tried).await;
    let last = &status["containerStatuses"][0]["lastState"]["terminated"];
    assert_eq!((&last["reason"], &last["exitCode"]), (&json!("StartError"), &json!(128)));
    assert!(last["message"].as_str().is_some_and(|m| m.contains("/no/such/program")));
    edged.stop().await;
}

#[tokio::test]
async fn what_a_container_leaves_running_ends_with_it() {
    let bench = Bench::new(&[]);
    let pid_file = bench.path("child.pid");
    // A child in a session of its own: not in the container's process group.
    let script = format!(
        "setsid sh -c 'echo $$ > {}; exec sleep 1000' & while [ ! -s {} ]; \
                          do :; done; exit 0",
        pid_file.display(),
        pid_file.display()
    );
    let mut pod = script_pod("job", "u1", &script);
    pod["spec"]["restartPolicy"] = json!("Never");
    bench.edge.apply(&pod);
    let edged = bench.edged().await;
    bench.edge.until_status("job", "an end", |s| s["phase"] == "Succeeded").await;
    let pid = content(&pid_file).await;
    assert!(!crate::bench::is_alive(&pid), "the daemon outlived its container");
    edged.stop().await;
}

#[tokio::test]
async fn a_shim_that_is_not_there_is_named() {
    let bench = Bench::new(&[script_pod("web", "u1", "exec sleep 1000")]);
    let mut config = bench.config();
    if let RuntimeKind::Process(process) = &mut config.runtime {
        process.shim = vec!["/no/such/shim".to_owned()];
    }
    let edged = Edged::spawn(config).await.expect("starts");
    let named = |s: &Value| {
        let last = &s["containerStatuses"][0]["lastState"]["terminated"]["message"];
        last.as_str().is_some_and(|message| message.contains("/no/such/shim"))
    };
    bench.edge.until_status("web", "the shim's name", named).await;
    edged.stop().await;
}

#[tokio::test]
async fn a_log_is_kept_in_few_files_that_read_as_one() {
    let script = "i=0; while [ $i -lt 300 ]; do echo line-$i; i=$((i+1)); done; exec sleep 1000";
    let bench = Bench::new(&[script_pod("web", "u1", script)]);
    let mut config = bench.config();
    config.settings.log_bytes_max = 2000;
    config.settings.log_files_max = 3;
    let edged = Edged::spawn(config).await.expect("starts");
    let text = || log(&edged.logs(), "web", false);
    until("the last line", || text().ends_with("line-299\n").then_some(())).await;
    // The files may have rotated while they were read; now nothing is written any more.
    let text = text();
    let numbers: Vec<u32> =
        text.lines().filter_map(|line| line.rsplit_once("line-")?.1.parse().ok()).collect();
    let wanted: Vec<u32> = (numbers[0]..300).collect();
    assert_eq!(numbers, wanted, "the newest lines, in order and without a hole");
    assert!(numbers[0] > 100, "the oldest are gone");
    assert_eq!(log_files(&edged.logs(), "web", false).len(), 3);
    edged.stop_pods(std::time::Duration::from_secs(5)).await;
}

#[tokio::test]
async fn an_unchanged_status_is_not_reported_again() {
    let mut clock = script_pod("clock", "u2", "sleep 0.5");
    clock["spec"]["restartPolicy"] = json!("Never");
    let bench = Bench::new(&[script_pod("web", "u1", "exec sleep 1000")]);
    let mut config = bench.config();
    config.settings.resync = std::time::Duration::from_millis(5);
    let edged = Edged::spawn(config).await.expect("the pod worker starts");
    bench.edge.until_status("web", "a ready pod", is_ready).await;
    bench.edge.apply(&clock);
    bench.edge.until_status("clock", "an end", |s| s["phase"] == "Succeeded").await;
    let all = statuses(&bench.edge.operations(), "web");
    assert!(all.windows(2).all(|two| two[0] != two[1]), "{} statuses", all.len());
    edged.stop_pods(std::time::Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_containers_own_policy_counts_before_that_of_its_pod() {
    let mut pod = script_pod("job", "u1", "exit 7");
    pod["spec"]["containers"][0]["restartPolicy"] = json!("Never");
    let bench = Bench::new(std::slice::from_ref(&pod));
    let edged = bench.edged().await;
    let status = bench.edge.until_status("job", "an end", |s| s["phase"] == "Failed").await;
    assert_eq!(status["containerStatuses"][0]["restartCount"], 0);
    edged.stop().await;
}
