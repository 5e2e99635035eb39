//! `headwater up` as its users meet it: real processes, a real disk, real faults.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use headwater_e2e::running::{Running, WAIT, headwater, output, root};
use headwater_object::host_ports::host_ports_of;
use serde_json::{Value, json};

const CONFIG: &str = "\
apiVersion: v1
kind: ConfigMap
metadata: {name: words}
data: {word: first}
";

/// Writes the word of its ConfigMap into its log, again and again.
const POD: &str = "\
apiVersion: v1
kind: Pod
metadata: {name: talker}
spec:
  nodeName: node-1
  terminationGracePeriodSeconds: 2
  volumes: [{name: words, configMap: {name: words}}]
  containers:
  - name: talk
    command: [sh, -c, 'while :; do cat \"$HEADWATER_VOLUME_WORDS/word\"; echo; sleep 0.3; done']
";

fn manifests(running: &Path) -> PathBuf {
    let folder = running.join("manifests");
    fs::create_dir_all(&folder).expect("a folder");
    fs::write(folder.join("config.yaml"), CONFIG).expect("written");
    fs::write(folder.join("pod.yaml"), POD).expect("written");
    folder
}

/// Two nodes and a pod on the first that names a ConfigMap.
fn talker() -> (tempfile::TempDir, PathBuf, Running) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let manifests = manifests(folder.path());
    let running = Running::start(&[manifests.to_str().expect("UTF-8")]);
    running.wait_for_pods(1, |status| status == "Running");
    running.wait_until_in_step();
    (folder, manifests, running)
}

fn keys(events: &[Value]) -> Vec<String> {
    let text = |event: &Value, field: &str| event[field].as_str().unwrap_or_default().to_owned();
    events.iter().map(|event| format!("{} {}", text(event, "kind"), text(event, "key"))).collect()
}

fn shared_manifests(folder: &str) -> Option<String> {
    let path = root().join("../shared/manifests").join(folder);
    if path.is_dir() {
        return Some(path.display().to_string());
    }
    assert!(std::env::var_os("CI").is_none(), "{} is missing", path.display());
    eprintln!("NOT RUN: {} is missing", path.display());
    None
}

#[test]
fn what_goes_wrong_with_a_pod_is_an_event_also_after_a_restart() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let manifests = manifests(folder.path());
    let crasher = POD.replace("talker", "crasher").replace("while :", "exit 3; while :");
    fs::write(manifests.join("crasher.yaml"), crasher).expect("written");
    let mut running = Running::start(&[manifests.to_str().expect("UTF-8")]);
    let back_off = |running: &Running| {
        let events = running.json(&["events", "-o", "json"])?;
        events["items"].as_array()?.iter().find(|event| event["reason"] == "BackOff").cloned()
    };
    let event = running.wait_for("an Event", back_off);
    assert_eq!((&event["type"], &event["count"]), (&json!("Warning"), &json!(1)), "{event:#}");
    assert_eq!(event["involvedObject"]["name"], "crasher");
    assert_eq!(event["source"]["host"], "node-1");
    let table = running.text(&["events", "--for", "pod/crasher"]).expect("it answers");
    assert!(table.starts_with("LAST SEEN") && table.contains("pod/crasher"), "{table}");
    assert_eq!(running.text(&["events", "--for", "pod/talker"]).expect("it answers"), "");
    let described = running.text(&["describe", "pod", "crasher"]).expect("described");
    assert!(described.contains("Back-off restarting failed container talk"), "{described}");
    let described = running.text(&["describe", "pod", "talker"]).expect("described");
    assert!(!described.contains("Back-off"), "{described}");
    running.interrupt();
    running.start_again();
    let again = running.wait_for("the Event", back_off);
    assert_eq!(again["metadata"]["name"], event["metadata"]["name"]);
}

#[test]
fn an_edit_appends_exactly_the_difference() {
    let (_folder, manifests, running) = talker();
    let before = running.history("node/node-1");
    assert_eq!(
        keys(&before),
        [
            "StreamsAssigned !streams",
            "ConfigMapApplied default/configmap/words",
            "PodApplied default/pod/talker",
        ],
        "what a pod names comes before the pod"
    );
    assert_eq!(keys(&running.history("node/node-2")), ["StreamsAssigned !streams"]);

    let config = manifests.join("config.yaml");
    fs::write(&config, CONFIG).expect("touched, but equal");
    fs::write(&config, CONFIG.replace("first", "second")).expect("edited");
    running.wait_for("the edit in the log", |running| {
        (running.history("node/node-1").len() > before.len()).then_some(())
    });
    running.wait_for("the edit in the pod", |running| {
        running.text(&["logs", "talker"])?.ends_with("second\n").then_some(())
    });
    fs::write(&config, "data: {word: [").expect("broken");
    running.wait_for("the broken file named", |running| {
        running.output().contains("config.yaml").then_some(())
    });
    fs::remove_file(manifests.join("pod.yaml")).expect("deleted");
    running.wait_for("the removal", |running| {
        running.items(&["get", "pods"]).is_empty().then_some(())
    });
    running.wait_for("the last event", |running| {
        (running.history("node/node-1").len() >= before.len() + 3).then_some(())
    });
    let after = running.history("node/node-1");
    assert_eq!(
        keys(&after[before.len()..]),
        [
            "ConfigMapApplied default/configmap/words",
            "PodRemoved default/pod/talker",
            "ConfigMapRemoved default/configmap/words",
        ],
        "one event per changed object; what the pod named leaves with its last user"
    );
    let seqs: Vec<u64> = after.iter().filter_map(|event| event["seq"].as_u64()).collect();
    assert_eq!(seqs, (1..=after.len() as u64).collect::<Vec<_>>(), "every seq is there");
}

#[test]
fn started_again_it_goes_on_from_its_disk() {
    let (_folder, manifests, mut running) = talker();
    let before = running.history("node/node-1");
    let uid = running.items(&["get", "pods"])[0]["metadata"]["uid"].clone();
    assert!(running.interrupt().success());
    assert!(running.text(&["status"]).is_none(), "nothing answers once it has stopped");

    fs::write(manifests.join("config.yaml"), CONFIG.replace("first", "meanwhile")).expect("edited");
    running.start_again();
    running.wait_for_pods(1, |status| status == "Running");
    running.wait_until_in_step();
    running.wait_for("what changed while it was down", |running| {
        running.text(&["logs", "talker"])?.ends_with("meanwhile\n").then_some(())
    });
    let after = running.history("node/node-1");
    assert_eq!(keys(&after[before.len()..]), ["ConfigMapApplied default/configmap/words"]);
    assert_eq!(running.items(&["get", "pods"])[0]["metadata"]["uid"], uid);
    let epoch = |event: &Value| event["writer_epoch"].as_u64();
    assert!(epoch(&after[before.len()]) > epoch(&before[0]), "another writer, a higher epoch");
}

#[test]
fn pods_outlive_a_crash_and_are_adopted() {
    let (_folder, _manifests, mut running) = talker();
    let container = |running: &Running| {
        let pod = running.items(&["get", "pods"]).into_iter().next()?;
        let status = pod["status"]["containerStatuses"][0].clone();
        status["state"]["running"].is_object().then_some(status)
    };
    let before = container(&running).expect("it runs");
    running.kill();
    running.start_again();
    running.wait_until_in_step();
    let after = running.wait_for("the pod after the crash", container);
    assert_eq!(after["containerID"], before["containerID"], "the same process");
    assert_eq!(after["restartCount"], before["restartCount"]);
    assert_eq!(after["state"], before["state"]);
    assert_eq!(running.ask(&["verify"]).status.code(), Some(0));
}

/// It ends once the file `gate` is there, and then writes `ended`.
fn slow_to_end(gate: &Path, ended: &Path) -> Value {
    let script = format!(
        "trap 'until test -e {}; do sleep 0.1; done; touch {}; exit 0' TERM; while :; do sleep 0.1; done",
        gate.display(),
        ended.display()
    );
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "slow"},
        "spec": {
            "nodeName": "node-1",
            "containers": [{"name": "main", "command": ["sh", "-c", script]}],
        },
    })
}

#[test]
fn a_removed_pod_is_terminating_until_its_node_has_ended_it_and_then_deleted() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let manifest = folder.path().join("m/pod.json");
    let (gate, ended) = (folder.path().join("gate"), folder.path().join("ended"));
    fs::create_dir(folder.path().join("m")).expect("a folder");
    let pod = slow_to_end(&gate, &ended).to_string();
    fs::write(&manifest, &pod).expect("written");
    fs::write(folder.path().join("m/config.yaml"), CONFIG).expect("written");
    let manifests = folder.path().join("m").display().to_string();
    let running = Running::start(&[&manifests]);
    // At the controller, then at the node.
    for more in [&[][..], &["--node", "node-1"]] {
        running.wait_for_pods(1, |status| status == "Running");
        running.wait_until_in_step();
        running.wait_for_processes();
        let seen = std::cell::RefCell::new(Vec::new());
        running.follow(
            &[&["get", "po", "-w", "--no-headers"], more].concat(),
            || fs::remove_file(&manifest).expect("removed"),
            |line| {
                let status = line.split_whitespace().nth(2).unwrap_or_default().to_owned();
                let (is_ending, is_last) = (status == "Terminating", status == "Deleted");
                seen.borrow_mut().push((status, ended.exists()));
                if is_ending {
                    fs::write(&gate, "").expect("opened");
                }
                is_last
            },
        );
        let seen = seen.into_inner();
        assert!(seen.contains(&("Terminating".to_owned(), false)), "{seen:?}");
        assert_eq!(seen.last(), Some(&("Deleted".to_owned(), true)), "{seen:?}");
        for file in [&gate, &ended] {
            fs::remove_file(file).expect("removed");
        }
        fs::write(&manifest, &pod).expect("written");
    }
}

#[test]
fn a_node_that_is_cut_off_goes_on_and_is_caught_up() {
    let (_folder, manifests, running) = talker();
    let ready = |running: &Running| {
        let nodes = running.items(&["get", "nodes"]);
        let node = nodes.into_iter().find(|node| node["metadata"]["name"] == "node-1")?;
        let conditions = node["status"]["conditions"].as_array()?.clone();
        conditions.into_iter().find(|c| c["type"] == "Ready")?["status"].as_str().map(str::to_owned)
    };
    running.wait_for("Ready", |running| (ready(running)? == "True").then_some(()));
    assert!(running.ask(&["link", "cut", "node-1"]).status.success());
    running.wait_for("the cloud knows", |running| (ready(running)? == "Unknown").then_some(()));

    fs::write(manifests.join("config.yaml"), CONFIG.replace("first", "later")).expect("edited");
    running.wait_for("the log goes on", |running| {
        (running.history("node/node-1").len() == 4).then_some(())
    });
    let word = |running: &Running| {
        running.items(&["get", "cm", "--node", "node-1"]).first()?["data"]["word"]
            .as_str()
            .map(str::to_owned)
    };
    assert_eq!(word(&running).as_deref(), Some("first"), "the replica is what it was");
    assert_eq!(running.ask(&["verify", "node-1"]).status.code(), Some(0), "a prefix, and whole");

    assert!(running.ask(&["link", "restore", "node-1"]).status.success());
    running.wait_until_in_step();
    assert_eq!(word(&running).as_deref(), Some("later"));
    running.wait_for("Ready again", |running| (ready(running)? == "True").then_some(()));
}

#[test]
fn the_past_is_shown_as_it_was() {
    let (_folder, manifests, running) = talker();
    for word in ["second", "third"] {
        let count = running.history("node/node-1").len();
        fs::write(manifests.join("config.yaml"), CONFIG.replace("first", word)).expect("edited");
        running
            .wait_for(word, |running| (running.history("node/node-1").len() > count).then_some(()));
    }
    let word_at = |seq: &str| {
        let items = running.items(&["get", "cm", "--node", "node-1", "--at", seq]);
        items.first().map(|item| item["data"]["word"].clone())
    };
    assert_eq!(word_at("1"), None);
    assert_eq!(word_at("3"), Some(json!("first")));
    assert_eq!(word_at("4"), Some(json!("second")));
    assert_eq!(word_at("5"), Some(json!("third")));
    let time = running.history("node/node-1")[3]["time"].as_str().expect("a time").to_owned();
    assert_eq!(word_at(&time), Some(json!("second")), "as of the moment of its event");
    let phase_at = |event: usize| {
        let time = running.history("node/node-1")[event]["time"].as_str()?.to_owned();
        let pods = running.items(&["get", "pods", "--at", &time]);
        pods.first().map(|pod| pod["status"]["phase"].clone())
    };
    assert_eq!(phase_at(2), Some(Value::Null), "it had no status yet");
    assert_eq!(phase_at(3), Some(json!("Running")), "as the node had reported by then");

    let diff = running.ask(&["diff", "node/node-1", "--from", "3", "--to", "5"]);
    let text = String::from_utf8_lossy(&diff.stdout);
    assert!(text.contains("-  word: first") && text.contains("+  word: third"), "{text}");
    assert_eq!(diff.status.code(), Some(3), "a difference was found");
    let same = running.ask(&["diff", "node/node-1", "--from", "5"]);
    assert_eq!((same.status.code(), same.stdout.len()), (Some(0), 0));

    for (args, code, named) in [
        (&["get", "cm", "--node", "node-1", "--at", "99"][..], 1, "has not reached seq 99"),
        (&["get", "cm", "--at", "3"], 2, "--node"),
        (&["get", "cm", "--at", "soon"], 2, "soon"),
        (&["get", "cm", "--node", "node-9"], 1, "node-9"),
        (&["get", "ingresses"], 2, "ingresses"),
        (&["get", "pod", "nobody"], 1, "nobody"),
        (&["history", "nonsense"], 2, "nonsense"),
        (&["logs", "talker", "-c", "other"], 2, "other"),
    ] {
        let output = running.ask(args);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {stderr}");
        assert!(stderr.contains(named), "{args:?}: {stderr}");
    }
}

#[test]
fn what_is_followed_goes_on_as_it_comes() {
    let (_folder, manifests, running) = talker();
    let edit = |word: &str| {
        fs::write(manifests.join("config.yaml"), CONFIG.replace("first", word)).expect("edited");
    };
    running.follow(&["logs", "talker", "-f"], || edit("followed"), |line| line == "followed");
    let history = ["history", "node/node-1", "-f", "--from", "5", "-o", "json"];
    edit("fifth");
    running.follow(
        &history,
        || edit("sixth"),
        |line| {
            let event: Value = serde_json::from_str(line).unwrap_or_default();
            event["object"]["data"]["word"] == "sixth"
        },
    );
    assert_eq!(running.history("node/node-1").len(), 6, "each edit is one event");
}

#[test]
fn objects_come_in_as_json_lines() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let socket = folder.path().join("objects.sock");
    let path = socket.to_str().expect("UTF-8");
    let running = Running::start(&["--objects", path, "--runtime", "hollow", "--nodes", "gw-a"]);
    running.wait_for("the socket", |_| UnixStream::connect(&socket).ok().map(|_| ()));
    let send = |lines: &[Value]| {
        let mut stream = UnixStream::connect(&socket).expect("it listens");
        stream.set_read_timeout(Some(WAIT)).expect("it can be");
        for line in lines {
            writeln!(stream, "{line}").expect("it reads");
        }
        stream.shutdown(std::net::Shutdown::Write).expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        answer
    };
    let pod = |name: &str, resource_version: &str| {
        json!({"object": {
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "resourceVersion": resource_version},
            "spec": {"nodeName": "gw-a", "containers": [{"name": "c", "image": "i"}]},
        }})
    };
    let answer = send(&[pod("one", "17"), json!({"object": {"kind": "Pod"}})]);
    assert!(answer.contains("\"error\""), "the second line is refused: {answer}");
    running.wait_for_pods(1, |status| status == "Running");
    for place in [&[][..], &["--node", "gw-a"]] {
        let pods = running.items(&[&["get", "pods"], place].concat());
        assert_eq!(pods[0]["metadata"]["resourceVersion"], "17", "{place:?}");
    }
    send(&[pod("one", "18"), pod("two", "19")]);
    running.wait_for_pods(2, |status| status == "Running");
    let applied: Vec<Value> = running
        .history("node/gw-a")
        .into_iter()
        .filter(|event| event["kind"] == "PodApplied")
        .map(|event| event["resource_version"].clone())
        .collect();
    assert_eq!(applied, ["17", "19"], "another resource version alone is no event");
    send(&["one", "two"].map(|name| json!({"delete": format!("default/pod/{name}")})));
    running.wait_for("the removal", |running| {
        running.items(&["get", "pods"]).is_empty().then_some(())
    });
}

#[test]
fn a_folder_that_is_gone_is_named_in_the_status_and_followed_again_when_it_is_back() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let manifests = manifests(folder.path());
    let path = manifests.to_str().expect("UTF-8");
    let running = Running::start(&[path, "--runtime", "hollow"]);
    running.wait_for_pods(1, |status| status == "Running");
    running.wait_until_in_step();
    let healthy = running.text(&["status"]).expect("a status");
    assert!(!healthy.contains("the source"), "{healthy}");
    let aside = manifests.with_extension("aside");
    fs::rename(&manifests, &aside).expect("moved");
    running.wait_for("the source in the status", |running| {
        let text = running.text(&["status"])?;
        let begin = "trouble  the source manifests failed at ";
        let line = text.lines().find(|line| line.starts_with(begin))?;
        assert!(line.contains("and tries again: ") && line.contains("cannot be read"), "{line}");
        Some(())
    });
    let pods = running.items(&["get", "pods"]);
    assert_eq!(pods.len(), 1, "nothing is removed");
    fs::rename(&aside, &manifests).expect("moved back");
    running.wait_for("a status without trouble", |running| {
        (!running.text(&["status"])?.contains("the source")).then_some(())
    });
    running.wait_for("the repair at the terminal", |running| {
        running.output().contains("is in order and followed again").then_some(())
    });
    assert_eq!(running.items(&["get", "pods"]).len(), 1);
}

#[test]
fn real_manifests_come_up() {
    let waiting = |status: &str| {
        matches!(status, "ContainerCreating" | "CreateContainerConfigError" | "PodInitializing")
            || status.starts_with("Init:")
    };
    for (folder, nodes, least) in [("kubernetes-examples", "3", 200), ("online-boutique", "3", 11)]
    {
        let Some(path) = shared_manifests(folder) else { continue };
        let running = Running::start(&[&path, "--nodes", nodes, "--runtime", "hollow"]);
        // One pod of a node has a port of it; the others wait for a node.
        let is_unplaced = |pod: &&Value| pod["spec"]["nodeName"].is_null();
        let settled = |pod: &Value| {
            let status = &pod["status"];
            let phase = status["phase"].as_str().unwrap_or_default();
            let reason = status["containerStatuses"].as_array().is_some_and(|containers| {
                containers.iter().any(|c| c["state"]["waiting"]["message"].is_string())
            });
            let waits_for_port = is_unplaced(&pod) && !host_ports_of(pod).is_empty();
            matches!(phase, "Running" | "Succeeded") || reason || waits_for_port
        };
        let pods = running.wait_for("every pod running, or waiting with a reason", |running| {
            let pods = running.items(&["get", "pods", "-A"]);
            (pods.len() >= least && pods.iter().all(settled)).then_some(pods)
        });
        running.wait_until_in_step();
        // A StatefulSet makes its next pod once the one before it is ready.
        running.wait_for("a table of pods that run or wait", |running| {
            let table = running.text(&["get", "pods", "-A", "--no-headers"])?;
            let statuses = table.lines().filter_map(|line| line.split_whitespace().nth(3));
            let is_done =
                |status: &&str| matches!(*status, "Running" | "Completed") || waiting(status);
            let others: Vec<_> = statuses.filter(|status| !is_done(status)).collect();
            let unplaced = running.items(&["get", "pods", "-A"]).iter().filter(is_unplaced).count();
            (others == vec!["Pending"; unplaced]).then_some(())
        });
        let nodes: BTreeSet<_> =
            pods.iter().filter_map(|pod| pod["spec"]["nodeName"].as_str()).collect();
        assert_eq!(nodes.len(), 3, "{folder}: spread over every node");
        assert_eq!(running.ask(&["verify"]).status.code(), Some(0), "{folder}");
        let output = running.output();
        let warnings: Vec<_> = output.lines().filter(|l| l.starts_with("warning")).collect();
        let once: BTreeSet<_> = warnings.iter().collect();
        assert_eq!(once.len(), warnings.len(), "each is named once:\n{output}");
        assert!(!output.contains("\"level\":"), "nothing else is printed as wrong:\n{output}");
    }
}

#[test]
fn no_file_of_a_data_directory_is_open_to_others_whoever_made_it() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (data, manifests) = (folder.path().join("data"), manifests(folder.path()));
    // What a process of this test makes would be open to everyone, and the folder is beforehand.
    nix::sys::stat::umask(nix::sys::stat::Mode::empty());
    fs::create_dir(&data).expect("made beforehand");
    let mut running = Running::start_on(&data, &[manifests.to_str().expect("UTF-8")]);
    running.wait_for_pods(1, |status| status == "Running");
    running.wait_until_in_step();
    let (open, all) = open_files(&data);
    assert_eq!(open, Vec::<PathBuf>::new());
    assert!(all > 40, "only {all} files");

    // An earlier build, or a copy, left them open.
    running.interrupt();
    let files = files(&data);
    for file in &files {
        let mode = if file.is_dir() { 0o755 } else { 0o644 };
        fs::set_permissions(file, fs::Permissions::from_mode(mode)).expect("opened");
    }
    assert!(open_files(&data).0.len() > 40);
    running.start_again();
    running.wait_for_pods(1, |status| status == "Running");
    assert_eq!(open_files(&data).0, Vec::<PathBuf>::new());
}

/// The files and directories in a data directory that others have rights in, and how many there are
/// in all.
fn open_files(data: &Path) -> (Vec<PathBuf>, usize) {
    let all = files(data);
    let count = all.len();
    let is_open = |file: &PathBuf| {
        // Files come and go.
        fs::metadata(file).is_ok_and(|found| found.permissions().mode() & 0o077 != 0)
    };
    (all.into_iter().filter(is_open).collect(), count)
}

/// Every file and directory but those of containers, which lie behind closed directories.
fn files(data: &Path) -> Vec<PathBuf> {
    let (mut found, mut waiting) = (Vec::new(), vec![data.to_owned()]);
    while let Some(path) = waiting.pop() {
        let name = path.file_name().unwrap_or_default();
        let is_volume = path.parent().is_some_and(|above| above.ends_with("volumes"));
        if path.is_symlink() || name == "rootfs" || is_volume {
            continue;
        }
        waiting.extend(fs::read_dir(&path).into_iter().flatten().flatten().map(|e| e.path()));
        found.push(path);
    }
    found
}

#[test]
fn what_does_not_run_cannot_be_asked() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let status = output(headwater().args(["status", "--data"]).arg(folder.path()));
    assert_eq!(status.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&status.stderr);
    assert!(stderr.contains("nothing runs in") && stderr.contains("headwater up"), "{stderr}");
    let missing = output(headwater().args(["up", "/no/such/folder"]));
    assert_eq!(missing.status.code(), Some(1));
    let wrong = output(headwater().args(["up", ".", "--nodes", "0"]));
    assert_eq!(wrong.status.code(), Some(2));
}

/// Writes a manifest into its volume, which lies in the data directory.
const WRITER: &str = "\
apiVersion: v1
kind: Pod
metadata: {name: writer}
spec:
  nodeName: node-1
  terminationGracePeriodSeconds: 1
  volumes: [{name: own, emptyDir: {}}]
  containers:
  - name: write
    command:
    - sh
    - -c
    - |
      printf 'apiVersion: v1\\nkind: Pod\\nmetadata: {name: evil}\\nspec: {containers: [{name: c, command: [sleep, \"9\"]}]}\\n' \
        > \"$HEADWATER_VOLUME_OWN/evil.yaml\"
      echo written
      sleep 100000
";

#[test]
fn a_data_directory_among_the_manifests_is_no_source() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    fs::write(folder.path().join("writer.yaml"), WRITER).expect("written");
    let (manifests, data) = (folder.path().to_str().expect("UTF-8"), folder.path().join("data"));
    let running = Running::start_on(&data, &[manifests]);
    running.wait_for("the manifest in the volume", |running| {
        (running.text(&["logs", "writer"])? == "written\n").then_some(())
    });
    let found = output(Command::new("find").arg(&data).args(["-name", "evil.yaml"]));
    let found = String::from_utf8(found.stdout).expect("UTF-8");
    assert_eq!(found.lines().count(), 1, "the manifest is in the data directory: {found}");

    // A change that is seen shows that the folder was looked at again.
    fs::write(folder.path().join("config.yaml"), CONFIG).expect("written");
    running.wait_for("a later look at the folder", |running| {
        (!running.items(&["get", "configmaps"]).is_empty()).then_some(())
    });
    let pods = running.items(&["get", "pods", "-A"]);
    assert_eq!(pods.len(), 1, "{pods:#?}");
    let named = running.output().matches("data: a data directory of headwater").count();
    assert_eq!(named, 1, "{}", running.output());

    let inside = data.join("nodes");
    let other = folder.path().join("other");
    let refused = output(headwater().arg("up").arg(&inside).arg("--data").arg(&other));
    let text = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{text}");
    assert!(text.contains("lies in the data directory"), "{text}");
    assert!(!other.exists(), "nothing was made");
}
