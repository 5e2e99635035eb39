//! The command line as its users type it: errors name their cause, answers use the words of kubectl,
//! and every exit status has its documented meaning.

use std::cell::RefCell;
use std::fs;
use std::io::Write;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Output, Stdio};
use std::thread;

use headwater_daemon::end_within;
use headwater_e2e::running::{Running, WAIT, headwater, output};
use serde_json::Value;

/// Two pods that write and one that waits for a ConfigMap that is not there. The second one ends only when it is
/// killed, so that a watch sees it end.
const MANIFESTS: &str = "\
apiVersion: v1
kind: ConfigMap
metadata: {name: words, labels: {app: web}, annotations: {note: \"\\e[2Jgone\"}}
data: {word: first}
---
apiVersion: v1
kind: Pod
metadata: {name: web-1, labels: {app: web, tier: front}}
spec:
  nodeName: node-1
  terminationGracePeriodSeconds: 2
  volumes: [{name: words, configMap: {name: words}}]
  containers:
  - name: main
    command: [sh, -c, 'for n in 1 2 3 4 5; do echo line $n; done; while :; do sleep 1; done']
  - name: side
    command: [sh, -c, 'echo from the side; while :; do sleep 1; done']
---
apiVersion: v1
kind: Pod
metadata: {name: web-2, labels: {app: web, tier: back}}
spec:
  nodeName: node-2
  terminationGracePeriodSeconds: 2
  containers: [{name: main, command: [sh, -c, 'trap \"\" TERM; while :; do sleep 1; done']}]
---
apiVersion: v1
kind: Pod
metadata: {name: waits, labels: {app: other}}
spec:
  nodeName: node-2
  volumes: [{name: none, configMap: {name: nowhere}}]
  containers: [{name: main, command: [sh, -c, 'while :; do sleep 1; done']}]
";

fn stderr_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn shown(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn wrong_usage_names_what_is_wrong_and_ends_in_2() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name).display().to_string();
    fs::write(at("file"), "").expect("a file");
    let file = at("file");
    let config = |name: &str, text: &str| {
        fs::write(at(name), text).expect("a file");
        at(name)
    };
    let (unknown, malformed) = (config("a.toml", "colour = 1"), config("b.toml", "nodes = ["));
    for (args, named) in [
        (&["get"][..], "TYPE [NAME...]"),
        (&["get", "cronjobs"], "there is no type \"cronjobs\"; there are pods,"),
        (&["describe", "deploy/web"], "`headwater get deployments` shows the deployments"),
        (&["logs", "web", "-l", "app=web"], "--selector"),
        (&["get", "podz"], "did you mean pods?"),
        (&["get", "pods", "-o", "go-template={{.items}}"], "use jsonpath=TEMPLATE"),
        (&["get", "pods", "-o", "jsonpath={.items"], "a brace is not closed"),
        (&["get", "pods", "-o", "custom-columns=NAME"], "write it like NAME:.metadata.name"),
        (&["get", "pods", "-o", "xml"], "table, wide, json, yaml, name, jsonpath=TEMPLATE"),
        (&["get", "pod/a", "b"], "b is not TYPE/NAME"),
        (&["get", "pods", "a", "-l", "app=web"], "names and a selector"),
        (&["get", "pods", "-l", "app in (a"], "a parenthesis is not closed"),
        (&["get", "pods", "--field-selector", "phase"], "wrong field selector"),
        (&["get", "pods", "--sort-by", ".a["], "a bracket is not closed"),
        (&["get", "pods", "-n", "a", "-A"], "--all-namespaces"),
        (&["get", "pods", "-w", "--at", "3"], "--at"),
        (&["get", "pods,cm", "-w"], "--watch takes one TYPE"),
        (&["get", "pods", "--bogus"], "--bogus"),
        (&["describe"], "TYPE [NAME...]"),
        (&["logs"], "<POD>"),
        (&["logs", "web", "--tail", "many"], "--tail"),
        (&["logs", "web", "--since", "yesterday"], "--since"),
        (&["logs", "svc/web"], "only pods have logs"),
        (&["logs", "web", "-c", "a", "--all-containers"], "--all-containers"),
        (&["history"], "<STREAM>"),
        (&["history", "cluster", "--from", "x"], "--from"),
        (&["history", "cluster", "-f", "--to", "3"], "--to"),
        (&["history", "cluster", "--tail", "0"], "--tail"),
        (&["diff", "cluster"], "--from"),
        (&["status", "--sort", "size"], "worst"),
        (&["status", "-o", "yaml"], "wide"),
        (&["link", "break", "node-1"], "cut"),
        (&["completion", "tcsh"], "bash"),
        (&["frobnicate"], "frobnicate"),
        (&["up"], "MANIFESTS"),
        (&["up", &file], "name the folder it lies in"),
        (&["up", "m", "--nodes", "0"], "there must be at least one node"),
        (&["up", "m", "--nodes", "a,A"], "--nodes: \"a,A\": \"A\" is not a DNS-1123"),
        (&["up", "m", "--runtime", "docker"], "process"),
        (&["up", "m", "--sync-interval", "soon"], "--sync-interval"),
        (&["up", "m", "--sync-interval", "0s"], "must not be zero"),
        (&["up", "m", "--config", "/no/such/file"], "there is no settings file"),
        (&["up", "m", "--config", &unknown], "colour in"),
        (&["up", "m", "--config", &malformed], "b.toml"),
    ] {
        let refused = output(headwater().args(args).current_dir(folder.path()));
        let stderr = stderr_of(&refused);
        assert_eq!(refused.status.code(), Some(2), "{args:?}: {stderr}");
        assert!(stderr.contains(named), "{args:?} does not name {named:?}: {stderr}");
        // No colours: stderr is no terminal.
        assert!(stderr.starts_with("error: ") && refused.stdout.is_empty(), "{args:?}: {stderr}");
        assert!(!stderr.contains('\u{1b}'), "{args:?}: {stderr}");
    }
    for (variable, value, named) in [
        ("HEADWATER_NODEZ", "3", "HEADWATER_NODEZ: there is no such setting; there are"),
        ("HEADWATER_NODES", "-3", "HEADWATER_NODES: want a number above 0"),
        ("HEADWATER_RUNTIME", "docker", "HEADWATER_RUNTIME: there is no \"docker\""),
        ("HEADWATER_STOP_GRACE", "x", "HEADWATER_STOP_GRACE: \"x\" is no duration"),
    ] {
        let mut command = headwater();
        command.args(["up", "."]).env(variable, value).current_dir(folder.path());
        let refused = output(&mut command);
        assert_eq!(refused.status.code(), Some(2), "{variable}: {}", stderr_of(&refused));
        assert!(stderr_of(&refused).contains(named), "{variable}: {}", stderr_of(&refused));
    }
}

#[test]
fn without_a_server_the_error_names_the_remedy() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = |name: &str| {
        let dir = folder.path().join(name);
        fs::create_dir(&dir).expect("a folder");
        dir
    };
    let (idle, left, stranger) = (dir("idle"), dir("left"), dir("stranger"));
    drop(UnixListener::bind(left.join("headwater.sock")).expect("a socket"));
    let listener = UnixListener::bind(stranger.join("headwater.sock")).expect("a socket");
    thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            // The client may disconnect first.
            let _ = stream.write_all(&[0xff; 4096]);
        }
    });
    let none = folder.path().join("none");
    for (data, named) in [
        (&none, "start `headwater up MANIFESTS --data"),
        (&idle, "start it with `headwater up`"),
        (&left, "start it with `headwater up`"),
        (&stranger, "is not headwater"),
    ] {
        for args in [&["get", "pods"][..], &["status"], &["verify"], &["logs", "web"]] {
            let refused = output(headwater().args(args).arg("--data").arg(data));
            let stderr = stderr_of(&refused);
            assert_eq!(refused.status.code(), Some(1), "{args:?}: {stderr}");
            assert!(stderr.contains(named), "{args:?} at {}: {stderr}", data.display());
            assert!(stderr.contains(&*data.to_string_lossy()), "it names the place: {stderr}");
        }
    }
}

#[test]
fn a_reader_that_stops_is_no_failure() {
    for args in [&["--help"][..], &["get", "--help"], &["up", ".", "--print-config"]] {
        let mut command = headwater();
        let mut process = command
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("starts");
        drop(process.stdout.take());
        let output = end_within(process, WAIT).expect("it ends");
        assert!(
            output.status.success() && output.stderr.is_empty(),
            "{args:?}: {}",
            stderr_of(&output)
        );
    }
}

fn web() -> (tempfile::TempDir, Running) {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("all.yaml"), MANIFESTS).expect("written");
    let running = Running::start(&[folder.path().to_str().expect("UTF-8")]);
    running.wait_for("two of three pods", |running| {
        let table = running.text(&["get", "pods", "--no-headers"])?;
        (table.matches(" Running ").count() == 2 && table.contains("ContainerCreating"))
            .then_some(())
    });
    running.wait_until_in_step();
    (folder, running)
}

#[test]
fn what_is_asked_is_answered_as_kubectl_does() {
    let (folder, running) = web();
    objects(&running);
    templates(&running);
    not_found(&running);
    past(&running);
    logs(&running);
    story(&running);
    status(&running);
    streams(&running);
    completion(&running.data());
    removal(&running, &folder.path().join("all.yaml"));
}

fn names(running: &Running, args: &[&str]) -> Vec<String> {
    let text = running.text(&[args, &["-o", "name"]].concat()).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn objects(running: &Running) {
    for (args, expected) in [
        (&["get", "po"][..], &["pod/waits", "pod/web-1", "pod/web-2"][..]),
        (&["get", "po", "web-2", "web-1"], &["pod/web-2", "pod/web-1"]),
        (&["get", "pod/web-1", "cm/words"], &["pod/web-1", "configmap/words"]),
        (&["get", "po,cm", "-l", "app=web"], &["pod/web-1", "pod/web-2", "configmap/words"]),
        (&["get", "po", "-l", "tier in (front)"], &["pod/web-1"]),
        (&["get", "po", "-l", "!tier"], &["pod/waits"]),
        (&["get", "po", "--field-selector", "spec.nodeName=node-1"], &["pod/web-1"]),
        (
            &["get", "po", "--sort-by", "{.metadata.labels.tier}"],
            &["pod/waits", "pod/web-2", "pod/web-1"],
        ),
        (&["get", "no"], &["node/node-1", "node/node-2"]),
    ] {
        assert_eq!(names(running, args), expected, "{args:?}");
    }
    let header = |args: &[&str]| {
        let text = running.text(args).unwrap_or_default();
        text.lines().next().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(header(&["get", "po"]), "NAME READY STATUS RESTARTS AGE");
    assert_eq!(header(&["get", "po", "-A"]), "NAMESPACE NAME READY STATUS RESTARTS AGE");
    assert_eq!(header(&["get", "po", "--show-labels"]), "NAME READY STATUS RESTARTS AGE LABELS");
    let one = running.json(&["get", "po", "web-1", "-o", "json"]).expect("JSON");
    assert_eq!(one["kind"], "Pod");
    let list = running.json(&["get", "po", "-o", "json"]).expect("JSON");
    assert_eq!(
        (list["kind"].as_str(), list["items"].as_array().map(Vec::len)),
        (Some("List"), Some(3))
    );
    let yaml = running.text(&["get", "cm", "words", "-o", "yaml"]).expect("YAML");
    assert!(yaml.contains("word: first") && !yaml.contains('\u{1b}'), "{yaml}");
}

fn templates(running: &Running) {
    let text = |args: &[&str]| running.text(args).unwrap_or_default();
    for (template, expected) in [
        ("{.items[*].metadata.name}", "waits web-1 web-2"),
        (
            "{range .items[*]}{.metadata.name}{\"\\t\"}{.spec.nodeName}{\"\\n\"}{end}",
            "waits\tnode-2\nweb-1\tnode-1\nweb-2\tnode-2\n",
        ),
        ("{.items[?(@.spec.nodeName==\"node-1\")].metadata.labels.tier}", "front"),
    ] {
        assert_eq!(text(&["get", "po", "-o", &format!("jsonpath={template}")]), expected);
    }
    assert_eq!(text(&["get", "po", "web-1", "-o", "jsonpath={.metadata.labels.app}"]), "web");
    let columns =
        "custom-columns=NAME:.metadata.name,C:.spec.containers[*].name,T:.metadata.labels.tier";
    assert_eq!(
        text(&["get", "po", "-o", columns]),
        "NAME    C           T\nwaits   main        <none>\nweb-1   main,side   front\n\
         web-2   main        back\n"
    );
    assert_eq!(
        text(&["get", "cm", "-o", "custom-columns=N:.metadata.name", "--no-headers"]),
        "words\n"
    );
}

/// A moment at which the pods did not exist yet, one at which they did, and those that have no state.
fn past(running: &Running) {
    let events = running.history("node/node-1");
    let time = |at: usize| events[at]["time"].as_str().expect("a time").to_owned();
    let (first, last) = (time(0), time(events.len() - 1));
    let last_seq = events.len().to_string();
    // Ages count up to that moment: a pod that was just made has an age of a second or so.
    let then = running.text(&["get", "po", "web-1", "--no-headers", "--at", &last]);
    let then = then.expect("the past");
    let age = then.split_whitespace().nth(4).expect("an age").trim_end_matches('s').to_owned();
    assert!(age.parse::<u64>().is_ok_and(|age| age <= 5), "{then}");
    // A stream has no statuses.
    let at_seq = ["get", "po", "web-1", "--no-headers", "--node", "node-1", "--at", &last_seq];
    let at_seq: Vec<String> =
        running.text(&at_seq).expect("the past").split_whitespace().map(str::to_owned).collect();
    assert_eq!(at_seq[..4], ["web-1", "<unknown>", "<unknown>", "<unknown>"], "{at_seq:?}");
    let described =
        running.text(&["describe", "po", "web-1", "--node", "node-1", "--at", &last_seq]);
    let described = described.expect("the past");
    assert!(described.contains("Status:           <unknown>\n"), "{described}");
    for (args, named) in [
        (&["get", "po", "--at", "2030-01-01T00:00:00Z"][..], "is in the future: node/node-1 has"),
        (&["get", "po", "--at", "2020-01-01T00:00:00Z"], "is before the states in the log: "),
        (&["get", "po", "--node", "node-1", "--at", "99d"], "is before the states in the log: "),
        (&["diff", "node/node-1", "--from", "99d"], "is before the states in the log: "),
    ] {
        let output = running.ask(args);
        let stderr = stderr_of(&output);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {stderr}");
        for expected in [named, &first, "(seq 1)"] {
            assert!(stderr.contains(expected), "{args:?} does not name {expected}: {stderr}");
        }
    }
    assert!(running.text(&["get", "po", "--at", "0s"]).is_some_and(|text| text.contains("web-2")));
    let from_nothing = running.ask(&["diff", "node/node-1", "--from", "0", "--to", &last]);
    assert_eq!(from_nothing.status.code(), Some(3), "{}", stderr_of(&from_nothing));
    let same = running.ask(&["diff", "node/node-1", "--from", &last, "--to", "0s"]);
    assert_eq!((same.status.code(), shown(&same).as_str()), (Some(0), ""));
}

fn not_found(running: &Running) {
    let missing = running.ask(&["get", "pods", "web-1", "none", "other"]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(shown(&missing).contains("web-1"), "what is there is shown");
    assert_eq!(
        stderr_of(&missing),
        "Error from server (NotFound): pods \"none\" not found\n\
         Error from server (NotFound): pods \"other\" not found\n"
    );
    let empty = running.ask(&["get", "svc"]);
    assert_eq!(empty.status.code(), Some(0));
    assert_eq!(stderr_of(&empty), "No resources found in default namespace.\n");
    for (args, code, named) in [
        (&["describe", "pod", "none"][..], 1, "(NotFound): pods \"none\" not found"),
        (&["logs", "none"], 1, "(NotFound): pods \"none\" not found"),
        (&["logs", "web-1", "-c", "none"], 2, "it has main, side"),
        (&["logs", "web-1", "-c", "main", "--previous"], 1, "has no earlier run"),
        (&["get", "pods", "--node", "node-9"], 1, "there are node-1, node-2"),
        (&["get", "pods", "--at", "3"], 2, "needs --node"),
        (&["get", "pods", "--at", "yesterday"], 2, "--at \"yesterday\" is neither a seq nor"),
        (&["diff", "cluster", "--from", "x"], 2, "--from \"x\" is neither a seq nor"),
        (&["get", "pods", "wbe-1"], 1, "pods \"wbe-1\" not found; did you mean web-1?"),
        (&["history", "node/nod-1"], 1, "; did you mean node/node-1?"),
        (&["status", "--node", "ndoe-2"], 1, "; did you mean node-2?"),
        (&["get", "pods", "--sort-by", ".spec.nodename"], 1, "--sort-by .spec.nodename: no listed"),
        (&["get", "pods", "--node", "node-1", "--at", "99"], 1, "has not reached seq 99"),
        (&["history", "node/node-9"], 1, "there is no stream node/node-9"),
        (&["history", "node"], 2, "node"),
        (&["history", "node/node-1", "--from", "3", "--to", "2"], 2, "is above --to"),
        (&["status", "--node", "node-9"], 1, "nodes \"node-9\" not found"),
        (&["verify", "node-9"], 1, "not found; there are node-1, node-2"),
        (&["link", "cut", "node-9"], 1, "not found; there are node-1, node-2"),
    ] {
        let output = running.ask(args);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {}", stderr_of(&output));
        assert!(stderr_of(&output).contains(named), "{args:?}: {}", stderr_of(&output));
    }
}

fn logs(running: &Running) {
    running.wait_for("both containers' lines", |running| {
        let text = running.text(&["logs", "web-1", "--all-containers"])?;
        (text.contains("line 5") && text.contains("from the side")).then_some(())
    });
    let defaulted = running.ask(&["logs", "web-1", "--tail", "2"]);
    assert_eq!(shown(&defaulted), "line 4\nline 5\n");
    assert_eq!(stderr_of(&defaulted), "Defaulted container \"main\" out of: main, side\n");
    let text = |args: &[&str]| running.text(args).unwrap_or_default();
    assert_eq!(text(&["logs", "pod/web-1", "-c", "side"]), "from the side\n");
    assert_eq!(text(&["logs", "web-1", "-c", "main", "--tail", "0"]), "");
    assert_eq!(
        text(&["logs", "web-1", "--all-containers", "--prefix", "--tail", "1"]),
        "[pod/web-1/main] line 5\n[pod/web-1/side] from the side\n"
    );
    let stamped = text(&["logs", "web-1", "-c", "side", "--timestamps"]);
    let (time, line) = stamped.split_once(' ').expect("a time, then the line");
    assert!(
        time.starts_with("20") && time.ends_with('Z') && line == "from the side\n",
        "{stamped}"
    );
    assert_eq!(text(&["logs", "web-1", "-c", "side", "--since", "10h"]), "from the side\n");
}

fn story(running: &Running) {
    let text = running.text(&["describe", "pod", "web-1"]).expect("described");
    for expected in [
        "Node:             node-1 (in step)",
        "configmap/words   created",
        "PodApplied",
        "Running, 2 of 2 ready",
        "Streams of node-1:",
    ] {
        assert!(text.contains(expected), "{expected:?} in\n{text}");
    }
    let waits = running.text(&["describe", "pod", "waits"]).expect("described");
    assert!(waits.contains("default/configmap/nowhere, which does not exist"), "{waits}");
    let config = running.text(&["describe", "cm", "words"]).expect("described");
    assert!(config.contains("Used By:          pod/default/web-1"), "{config}");
    assert!(config.contains("Events in node/node-1:"), "{config}");
    assert!(config.contains("\\u{1b}[2Jgone") && !config.contains('\u{1b}'), "{config}");
    let node = running.text(&["describe", "node", "node-1"]).expect("described");
    for expected in ["Identity:         incarnation 1, boot 1", "Disk:             ok", "web-1"] {
        assert!(node.contains(expected), "{expected:?} in\n{node}");
    }
}

fn status(running: &Running) {
    let text = running.text(&["status"]).expect("a status");
    assert!(text.starts_with("nodes    2 of 2 connected: 2 in step\nlag      none\n"), "{text}");
    let wide = running.text(&["status", "-o", "wide", "--node", "node-2"]).expect("a status");
    assert!(wide.contains("cluster") && !wide.contains("node/node-1"), "{wide}");
    assert_eq!(names(running, &["status", "--sort", "name"]), ["node/node-1", "node/node-2"]);
    let document = running.json(&["status", "-o", "json"]).expect("JSON");
    assert_eq!(document["summary"]["in_step"], 2);
    assert_eq!(document["writer_epoch"], 1);
    for node in document["nodes"].as_array().expect("nodes") {
        assert_eq!((&node["state"], &node["disk"]["state"]), (&"in step".into(), &"ok".into()));
        assert!(node["disk"]["free_bytes"].as_u64() > Some(0), "{node}");
        assert!(node["disk"]["store_bytes"].as_u64() > Some(0), "{node}");
    }
}

fn streams(running: &Running) {
    let rows = running.text(&["history", "node/node-1", "--no-headers"]).expect("events");
    assert_eq!(rows.lines().count(), running.history("node/node-1").len());
    let tail = running.text(&["history", "node/node-1", "--no-headers", "--tail", "1"]);
    assert_eq!(tail.as_deref(), rows.lines().last().map(|row| format!("{row}\n")).as_deref());
    let wide = running.text(&["history", "node/node-1", "-o", "wide"]).expect("events");
    let header: Vec<&str> = wide.lines().next().unwrap_or_default().split_whitespace().collect();
    assert_eq!(header[4..], ["KEY", "UID", "VERSION", "SIZE", "HASH"], "{wide}");
    let diff = running.ask(&["diff", "node/node-1", "--from", "0", "-o", "json"]);
    assert_eq!(diff.status.code(), Some(3), "something differs");
    let lines: Vec<Value> =
        shown(&diff).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert!(lines.iter().all(|line| line["change"] == "added"), "{lines:?}");
    let last = rows.lines().count().to_string();
    let same = running.ask(&["diff", "node/node-1", "--from", &last, "--to", &last]);
    assert_eq!((same.status.code(), shown(&same).as_str()), (Some(0), ""));
    let verdicts = running.text(&["verify", "-o", "json"]).expect("all agree");
    assert_eq!(verdicts.matches("\"agrees\":true").count(), 4, "{verdicts}");
}

/// A pod that is removed is Terminating while it ends, and Deleted at last.
fn removal(running: &Running, file: &Path) {
    let documents: Vec<&str> =
        MANIFESTS.split("---\n").filter(|document| !document.contains("name: web-2")).collect();
    let seen = RefCell::new(Vec::new());
    running.follow(
        &["get", "po", "-w", "--no-headers"],
        || fs::write(file, documents.join("---\n")).expect("edited"),
        |line| {
            let mut cells = line.split_whitespace();
            if cells.next() == Some("web-2") {
                seen.borrow_mut().push(cells.nth(1).unwrap_or_default().to_owned());
            }
            seen.borrow().last().is_some_and(|status| status == "Deleted")
        },
    );
    let seen = seen.into_inner();
    assert!(seen.contains(&"Terminating".to_owned()), "{seen:?}");
    let gone = running.ask(&["get", "po", "web-2"]);
    assert_eq!(gone.status.code(), Some(1), "{}", shown(&gone));
}

/// As the script of bash asks.
fn completion(data: &Path) {
    let candidates = |words: &[&str]| {
        let mut command = headwater();
        command.arg("--").arg("headwater").args(words);
        command.env("COMPLETE", "bash").env("HEADWATER_DATA", data).env("_CLAP_IFS", "\n");
        command.env("_CLAP_COMPLETE_INDEX", words.len().to_string());
        shown(&output(&mut command)).lines().map(str::to_owned).collect::<Vec<_>>()
    };
    for (words, expected) in [
        (&["get", "po"][..], &["pods"][..]),
        (&["get", "pods", "we"], &["web-1", "web-2"]),
        (&["get", "pod/wa"], &["pod/waits"]),
        (&["describe", "no", ""], &["node-1", "node-2"]),
        (&["logs", "web"], &["web-1", "web-2"]),
        (&["history", "c"], &["cluster"]),
        (&["link", "cut", "node-"], &["node-1", "node-2"]),
        (&["verify", "node-2"], &["node-2"]),
        (&["get", "pods", "-n", "none", "we"], &[]),
        (&["get", "pods", ""], &["waits", "web-1", "web-2"]),
        (&["get", "pods", "-o", ""], &["wide", "jsonpath=", "custom-columns="]),
        (&["logs", "web-1", "-c", ""], &["main", "side"]),
        (&["history", "node/node-1", "--from", ""], &["1", "2", "3"]),
        (&["diff", "node/node-1", "--from", ""], &["1", "2", "3"]),
        (&["get", "pods", "--node", "node-1", "--at", ""], &["1", "2", "3"]),
    ] {
        let found = candidates(words);
        assert!(!found.iter().any(|one| one.starts_with('-')), "{words:?}: {found:?}");
        assert!(
            expected.iter().all(|one| found.iter().any(|found| found == one)),
            "{words:?}: {found:?}"
        );
        assert_eq!(found.is_empty(), expected.is_empty(), "{words:?}: {found:?}");
    }
}
