//! Workloads unfold as their controllers do: rollouts step by step, Jobs to their end, StatefulSets in
//! order; and what `get` and `logs` show of them.

use std::fs;
use std::path::Path;

use headwater_e2e::running::Running;
use serde_json::{Value, json};

/// Prints its version and runs; Ready once the gate is there.
fn template(version: &str, gate: &Path) -> Value {
    let script = format!("echo version {version}; while :; do sleep 1; done");
    let probe = json!({
        "exec": {"command": ["test", "-e", gate]}, "periodSeconds": 1, "failureThreshold": 1,
        // A program that starts late has not failed.
        "timeoutSeconds": 30,
    });
    json!({
        "metadata": {"labels": {"app": "web"}},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [
                {"name": "main", "command": ["sh", "-c", script], "readinessProbe": probe},
            ],
        },
    })
}

fn workload(kind: &str, name: &str, spec: Value) -> Value {
    let api_version = if kind == "Job" { "batch/v1" } else { "apps/v1" };
    json!({
        "apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec,
    })
}

/// A folder of manifests and gates beside each other.
struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        let files = Self(tempfile::tempdir().expect("a folder"));
        fs::create_dir(files.0.path().join("manifests")).expect("a folder");
        files
    }

    fn write(&self, workload: &Value) {
        let name = workload["metadata"]["name"].as_str().expect("a name");
        let hidden = self.0.path().join("manifests").join(format!(".{name}"));
        fs::write(&hidden, workload.to_string()).expect("written");
        fs::rename(hidden, self.0.path().join(format!("manifests/{name}.json"))).expect("renamed");
    }

    fn gate(&self, name: &str) -> std::path::PathBuf {
        self.0.path().join(name)
    }

    fn open(&self, name: &str) {
        fs::write(self.gate(name), "").expect("written");
    }

    fn start(&self) -> Running {
        let manifests = self.0.path().join("manifests").display().to_string();
        Running::start(&[&manifests, "--nodes", "2"])
    }
}

/// The rows of a table without its header and ages.
fn rows(running: &Running, what: &str) -> Vec<String> {
    let table = running.text(&["get", what, "--no-headers"]).unwrap_or_default();
    let row = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words[..words.len() - 1].join(" ")
    };
    table.lines().map(row).collect()
}

fn wait_for_row(running: &Running, what: &str, row: &str) {
    running.wait_for(&format!("{what} {row}"), |running| {
        rows(running, what).iter().any(|one| one == row).then_some(())
    });
}

fn pod_names(running: &Running) -> Vec<String> {
    let pods = running.items(&["get", "pods"]);
    pods.iter().filter_map(|pod| pod["metadata"]["name"].as_str().map(str::to_owned)).collect()
}

fn ready_pods(running: &Running) -> usize {
    let is_ready = |pod: &Value| {
        let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|one| one["type"] == "Ready" && one["status"] == "True")
    };
    running.items(&["get", "pods"]).iter().filter(|pod| is_ready(pod)).count()
}

#[test]
fn a_deployment_rolls_within_its_bounds_and_a_restart_continues_the_rollout() {
    let files = Files::new();
    files.open("first");
    let deployment = |version: &str, gate: &str| {
        workload(
            "Deployment",
            "web",
            json!({
                "replicas": 2,
                "strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
                "template": template(version, &files.gate(gate)),
            }),
        )
    };
    files.write(&deployment("one", "first"));
    let mut running = files.start();
    wait_for_row(&running, "deploy", "web 2/2 2 2");
    let old = pod_names(&running);

    files.write(&deployment("two", "second"));
    // One more than asked for, and it is not Ready: the rollout waits.
    wait_for_row(&running, "deploy", "web 2/2 1 2");
    let halfway = pod_names(&running);
    assert!(halfway.len() == 3 && old.iter().all(|name| halfway.contains(name)), "{halfway:?}");
    let new = halfway.iter().find(|name| !old.contains(name)).expect("a new pod");
    running.wait_for("the probe that the new pod waits for", |running| {
        let text = running.text(&["describe", "pod", new])?;
        let waits = text.lines().find(|line| line.starts_with("Waits For:"))?;
        let probe = waits.contains("container main: readiness probe has failed since 2");
        (probe && waits.ends_with("Z: command exited with 1")).then_some(())
    });
    running.kill();
    running.start_again();
    running.wait_until_in_step();
    wait_for_row(&running, "deploy", "web 2/2 1 2");
    assert_eq!(pod_names(&running), halfway);

    files.open("second");
    running.wait_for("the rollout", |running| {
        let (pods, ready) = (pod_names(running), ready_pods(running));
        assert!(pods.len() <= 3 && ready >= 2, "{ready} of {pods:?} are Ready");
        (!pods.iter().any(|name| old.contains(name))).then_some(())
    });
    wait_for_row(&running, "deploy", "web 2/2 2 2");

    let deployment = running.json(&["get", "deploy", "web", "-o", "json"]).expect("it is there");
    assert_eq!(deployment["status"]["updatedReplicas"], 2);
    assert_eq!(deployment["spec"]["strategy"]["rollingUpdate"]["maxSurge"], 1);
    logs(&running);
    let refused = running.ask(&["get", "deploy", "--node", "node-1"]);
    let refused = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.contains("deployments are not replicated"), "{refused}");
}

#[test]
fn a_deployment_waits_while_it_is_paused_and_a_rollout_without_progress_is_a_trouble() {
    let files = Files::new();
    files.open("first");
    let deployment = |version: &str, gate: &str, is_paused: bool| {
        workload(
            "Deployment",
            "web",
            json!({
                "replicas": 1, "paused": is_paused, "progressDeadlineSeconds": 2,
                "strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
                "template": template(version, &files.gate(gate)),
            }),
        )
    };
    let progressing = |running: &Running| {
        let deployment = running.json(&["get", "deploy", "web", "-o", "json"])?;
        let condition = &deployment["status"]["conditions"][0];
        assert_eq!(condition["type"], "Progressing");
        Some((condition["status"].as_str()?.to_owned(), condition["reason"].as_str()?.to_owned()))
    };
    let wait_for = |running: &Running, status: &str, reason: &str| {
        running.wait_for(reason, |running| {
            (progressing(running)? == (status.to_owned(), reason.to_owned())).then_some(())
        });
    };
    files.write(&deployment("one", "first", false));
    let running = files.start();
    wait_for(&running, "True", "NewReplicaSetAvailable");
    let old = pod_names(&running);

    files.write(&deployment("two", "second", true));
    wait_for(&running, "Unknown", "DeploymentPaused");
    wait_for_row(&running, "deploy", "web 1/1 0 1");
    assert_eq!(pod_names(&running), old, "its template takes no effect");

    // The watch begins before the change, and shows it.
    let ready_row =
        |row: &str, line: &str| line.split_whitespace().take(4).eq(row.split_whitespace());
    running.follow(
        &["get", "deploy", "-w", "--no-headers"],
        || files.write(&deployment("two", "second", false)),
        |line| ready_row("web 1/1 1 1", line),
    );
    wait_for(&running, "False", "ProgressDeadlineExceeded");
    let trouble = "web.json:1: Deployment default/web: its rollout has made no progress for 2 s";
    running.wait_for("the trouble", |running| {
        running.text(&["status"])?.contains(&format!("trouble  {trouble}")).then_some(())
    });
    files.open("second");
    wait_for(&running, "True", "NewReplicaSetAvailable");
    running.wait_for("a status without trouble", |running| {
        (!running.text(&["status"])?.contains("trouble  ")).then_some(())
    });
    assert!(pod_names(&running).iter().all(|name| !old.contains(name)));
}

/// The logs of the pods of a Deployment.
fn logs(running: &Running) {
    // A pod may be Ready before its program has written.
    let selected = running.wait_for("the lines of both pods", |running| {
        let selected = running.text(&["logs", "-l", "app=web", "--prefix"])?;
        (selected.lines().count() >= 2).then_some(selected)
    });
    let lines: Vec<&str> = selected.lines().collect();
    assert_eq!(lines.len(), 2, "{selected}");
    for name in pod_names(running) {
        let line = format!("[pod/{name}/main] version two");
        assert!(lines.contains(&&*line), "{selected}");
    }
    let one = running.ask(&["logs", "deploy/web"]);
    assert_eq!(String::from_utf8_lossy(&one.stdout), "version two\n");
    let note = String::from_utf8_lossy(&one.stderr).into_owned();
    assert!(note.starts_with("Found 2 pods, using pod/web-"), "{note}");
    let none = running.ask(&["logs", "deploy/nothing"]);
    let none = String::from_utf8_lossy(&none.stderr).into_owned();
    assert!(none.contains("deployment \"nothing\" has no pod in namespace default"), "{none}");
    let many = running.ask(&["logs", "-l", "app=web", "-f", "--max-log-requests", "1"]);
    let many = String::from_utf8_lossy(&many.stderr).into_owned();
    assert!(many.contains("2 pods are selected, and at most 1"), "{many}");
}

#[test]
fn a_job_ends_complete_or_failed_and_stays_so_over_a_restart() {
    let files = Files::new();
    let job = |name: &str, script: &str, mut spec: Value| {
        spec["template"] = json!({"spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "main", "command": ["sh", "-c", script]}],
        }});
        workload("Job", name, spec)
    };
    files.write(&job("three", "exit 0", json!({"completions": 3, "parallelism": 2})));
    files.write(&job("broken", "exit 3", json!({"backoffLimit": 0})));
    let endless = "while :; do sleep 1; done";
    files.write(&job("late", endless, json!({"activeDeadlineSeconds": 1})));
    let mut running = files.start();
    for _ in 0..2 {
        for (name, row) in [
            ("three", "three Complete 3/3"),
            ("broken", "broken Failed 0/1"),
            ("late", "late Failed 0/1"),
        ] {
            running.wait_for(row, |running| {
                let is_it = |one: &String| one.starts_with(row);
                rows(running, "jobs").iter().any(is_it).then_some(())
            });
            let of = format!("jobs/{name}");
            let job = running.json(&["get", &of, "-o", "json"]).expect("it is there");
            let reason = &job["status"]["conditions"][0]["reason"];
            match name {
                "broken" => assert_eq!(reason, "BackoffLimitExceeded"),
                "late" => assert_eq!(reason, "DeadlineExceeded"),
                _ => assert_eq!(job["status"]["succeeded"], 3),
            }
        }
        // The pod of the late Job has ended, too.
        running.wait_for("all pods ended", |running| {
            let pods = running.items(&["get", "pods"]);
            let has_ended = |pod: &Value| pod["status"]["phase"] != "Running";
            (pods.len() == 3 + 1 + 1 && pods.iter().all(has_ended)).then_some(())
        });
        running.kill();
        running.start_again();
        running.wait_until_in_step();
    }
}

#[test]
fn a_stateful_set_comes_in_order_and_a_daemon_set_is_on_every_node() {
    let files = Files::new();
    files.open("daemon");
    let spec = json!({"replicas": 3, "template": template("one", &files.gate("set"))});
    files.write(&workload("StatefulSet", "db", spec));
    let spec = json!({"template": template("one", &files.gate("daemon"))});
    files.write(&workload("DaemonSet", "agent", spec));
    let spec = json!({"replicas": 1, "template": template("one", &files.gate("daemon"))});
    files.write(&workload("ReplicaSet", "plain", spec));
    let running = files.start();
    wait_for_row(&running, "ds", "agent 2 2 2 2 2 <none>");
    wait_for_row(&running, "rs", "plain 1 1 1");
    let set = |running: &Running| -> Vec<String> {
        pod_names(running).into_iter().filter(|name| name.starts_with("db-")).collect()
    };
    // The first is not Ready, so that the second does not come.
    wait_for_row(&running, "sts", "db 0/3");
    assert_eq!(set(&running), ["db-0"]);
    files.open("set");
    wait_for_row(&running, "sts", "db 3/3");
    assert_eq!(set(&running), ["db-0", "db-1", "db-2"]);
}

#[test]
fn a_source_without_workloads_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("objects.sock").display().to_string();
    let running = Running::start(&["--objects", &socket, "--runtime", "hollow", "--nodes", "gw-a"]);
    running.wait_for("an answer", |running| running.text(&["status"]));
    let refused = running.ask(&["get", "jobs"]);
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{text}");
    assert!(text.contains("has no workloads, so that there are no jobs"), "{text}");
}
