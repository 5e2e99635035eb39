//! Metrics and health of a real `headwater up`, asked over HTTP and read as a linter reads them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{ErrorKind, Seek as _, Write as _};
use std::process::Command;

use headwater_daemon::output_within;
use headwater_e2e::running::{Running, WAIT, headwater, output};

const POD: &str = "\
apiVersion: v1
kind: Pod
metadata: {name: counted}
spec:
  nodeName: node-1
  terminationGracePeriodSeconds: 2
  containers:
  - {name: sleep, command: [sleep, '1000']}
";

/// The most series of one family: labels are nodes, streams, and short lists.
const SERIES_MAX: usize = 400;

/// Units as names may end in them, before `_total`.
const UNITS: [&str; 4] = ["seconds", "bytes", "ratio", "celsius"];

/// What names must not say: base units only, and no types.
const FOREIGN: [&str; 9] =
    ["ms", "millis", "milliseconds", "micros", "minutes", "kb", "mb", "gauge", "counter"];

/// Families that an operator looks for first.
const WANTED: [&str; 12] = [
    "headwater_build_info",
    "headwater_edge_applied_seq",
    "headwater_edge_durable_seq",
    "headwater_edge_replication_lag_events",
    "headwater_edge_apply_duration_seconds",
    "headwater_edge_propagation_seconds",
    "headwater_edge_outbox_records",
    "headwater_edge_connected",
    "headwater_edged_pods",
    "headwater_edged_container_starts_total",
    "headwater_store_wal_bytes",
    "process_resident_memory_bytes",
];

/// A family of the text format.
#[derive(Default)]
struct Family {
    help: Option<String>,
    kind: Option<String>,
    /// Name and labels of each sample, and its value.
    samples: Vec<(String, f64)>,
}

fn running() -> (tempfile::TempDir, Running) {
    running_with(&[])
}

fn running_with(args: &[&str]) -> (tempfile::TempDir, Running) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    fs::write(folder.path().join("pod.yaml"), POD).expect("written");
    let running = Running::start(&[&[folder.path().to_str().expect("UTF-8")], args].concat());
    running.wait_for_pods(1, |status| status == "Running");
    running.wait_until_in_step();
    (folder, running)
}

/// The status line and the body of an answer.
fn get(running: &Running, path: &str) -> Option<(String, String)> {
    let answer = running.http_get(path)?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some((head.lines().next()?.to_owned(), body.to_owned()))
}

fn families(text: &str) -> BTreeMap<String, Family> {
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').expect("a help text");
            let known = families.entry(name.to_owned()).or_default().help.replace(help.to_owned());
            assert!(known.is_none(), "{name} is helped twice");
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a type");
            let known = families.entry(name.to_owned()).or_default().kind.replace(kind.to_owned());
            assert!(known.is_none(), "{name} is typed twice");
        } else {
            let (series, value) = line.rsplit_once(' ').expect("a sample");
            let name = series.split('{').next().expect("a name");
            let base = ["_bucket", "_sum", "_count"].iter().find_map(|end| {
                let base = name.strip_suffix(end)?;
                families.get(base)?.kind.as_deref().filter(|kind| *kind == "histogram")?;
                Some(base.to_owned())
            });
            let family = families.entry(base.unwrap_or_else(|| name.to_owned())).or_default();
            family.samples.push((series.to_owned(), value.parse().expect("a number")));
        }
    }
    families
}

fn lint(name: &str, family: &Family) {
    let kind = family.kind.as_deref().unwrap_or_else(|| panic!("{name} has no TYPE"));
    let help = family.help.as_deref().unwrap_or_else(|| panic!("{name} has no HELP"));
    assert!(help.len() > 10, "{name}: {help:?} explains little");
    assert!(
        name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'),
        "{name} has letters of others"
    );
    assert!(
        name.starts_with("headwater_") || name.starts_with("process_"),
        "{name} has no prefix of ours"
    );
    assert_eq!(kind == "counter", name.ends_with("_total"), "{name} is a {kind}");
    let words: Vec<&str> = name.split('_').collect();
    for foreign in FOREIGN {
        assert!(!words.contains(&foreign), "{name} has {foreign}");
    }
    let bare = name.strip_suffix("_total").unwrap_or(name);
    let at = words.iter().position(|word| UNITS.contains(word));
    let is_rate = bare.ends_with("_per_second");
    if let Some(at) = at.filter(|_| !is_rate) {
        let after = &words[at + 1..];
        let is_last = matches!(after, [] | ["total" | "max"]);
        assert!(is_last, "{name}: the unit goes last");
    }
    assert!(family.samples.len() <= SERIES_MAX, "{name}: {} series", family.samples.len());
    let unique: BTreeSet<_> = family.samples.iter().map(|(series, _)| series).collect();
    assert_eq!(unique.len(), family.samples.len(), "{name} has a series twice");
    for (series, value) in &family.samples {
        assert!(!value.is_nan(), "{series}");
        for unbounded in ["pod=", "uid=", "key=", "name=", "container=", "trace_id="] {
            assert!(!series.contains(unbounded), "{series} has no bound");
        }
    }
}

#[test]
fn metrics_are_clean_and_follow_the_work() {
    let (_folder, mut running) = running();
    let families = running.wait_for("the pod is counted", |running| {
        let (status, text) = get(running, "/metrics")?;
        assert_eq!(status, "HTTP/1.1 200 OK");
        let is_there = text.contains("headwater_edged_pods{node=\"node-1\",phase=\"Running\"} 1");
        let has_applied = text.contains("headwater_edge_applied_seq{node=\"node-1\",stream=");
        (is_there && has_applied).then(|| (families(&text), text))
    });
    let (families, text) = families;
    promtool(&text);
    for (name, family) in &families {
        lint(name, family);
    }
    for name in WANTED {
        assert!(families.contains_key(name), "{name} is missing");
    }
    let value = |series: &str| {
        let mut samples = families.values().flat_map(|family| &family.samples);
        let found = samples.find(|(known, _)| known == series);
        found.unwrap_or_else(|| panic!("no {series} in\n{text}")).1
    };
    let stream = "{node=\"node-1\",stream=\"node/node-1\"}";
    let applied = value(&format!("headwater_edge_applied_seq{stream}"));
    assert!(applied >= 2.0, "{applied}");
    assert_eq!(value(&format!("headwater_edge_durable_seq{stream}")), applied);
    assert_eq!(value("headwater_edge_connected{node=\"node-2\"}"), 1.0);
    assert_eq!(value("headwater_edged_container_starts_total{node=\"node-1\"}"), 1.0);
    assert!(value("headwater_store_wal_bytes{store=\"outbox\",node=\"node-1\"}") > 0.0);
    assert!(running.interrupt().success());
    assert!(!running.data().join("metrics.addr").exists(), "nothing is served any more");
}

#[test]
fn metrics_beyond_loopback_name_nodes_only_where_the_setting_permits_it() {
    let named = "headwater_edge_connected{node=\"node-2\"} 1";
    for (args, is_named) in [
        (&["--metrics", "0.0.0.0:0"][..], false),
        (&["--metrics", "0.0.0.0:0", "--metrics-node-names"], true),
    ] {
        let (_folder, mut running) = running_with(args);
        let text = running.wait_for("both nodes are connected", |running| {
            let (_, text) = get(running, "/metrics")?;
            let connected = text.lines().filter(|line| {
                line.starts_with("headwater_edge_connected{") && line.ends_with("} 1")
            });
            (connected.count() == 2).then_some(text)
        });
        promtool(&text);
        for (name, family) in &families(&text) {
            lint(name, family);
        }
        assert_eq!(text.contains(named), is_named, "{args:?}:\n{text}");
        assert_eq!(text.contains("node-"), is_named, "{args:?}:\n{text}");
        running.interrupt();
    }
}

/// Has the text judged by Prometheus' own tool, where there is one.
fn promtool(text: &str) {
    let mut input = tempfile::tempfile().expect("a file");
    input.write_all(text.as_bytes()).expect("written");
    input.rewind().expect("its beginning");
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "metrics"]).stdin(input);
    let judged = match output_within(&mut promtool, WAIT) {
        Ok(judged) => judged,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            eprintln!("NOT RUN: there is no promtool");
            return;
        }
        Err(error) => panic!("promtool: {error}"),
    };
    let stderr = String::from_utf8_lossy(&judged.stderr);
    assert!(judged.status.success(), "promtool: {stderr}");
}

#[test]
fn health_has_the_form_of_kubernetes() {
    let (_folder, running) = running();
    running.wait_for("it is ready", |running| {
        let (status, body) = get(running, "/readyz")?;
        (status == "HTTP/1.1 200 OK" && body == "ok").then_some(())
    });
    let (status, body) = get(&running, "/livez?verbose").expect("an answer");
    assert_eq!(status, "HTTP/1.1 200 OK", "{body}");
    assert!(body.starts_with("[+]ping ok\n") && body.ends_with("livez check passed\n"), "{body}");
    let (status, body) = get(&running, "/readyz?verbose&exclude=hub").expect("an answer");
    assert_eq!(status, "HTTP/1.1 200 OK", "{body}");
    for line in ["[+]log ok", "[+]controller ok", "[+]hub excluded: ok", "[+]node-1.edge ok"] {
        assert!(body.lines().any(|found| found == line), "{line} in {body}");
    }
    // Cut off, a node goes on with what it has: it stays ready.
    assert!(running.ask(&["link", "cut", "node-1"]).status.success());
    running.wait_for("the cut is counted", |running| {
        let (_, text) = get(running, "/metrics")?;
        text.contains("headwater_edge_connected{node=\"node-1\"} 0\n").then_some(())
    });
    let (status, body) = get(&running, "/readyz?verbose").expect("an answer");
    assert_eq!(status, "HTTP/1.1 200 OK", "{body}");
}

#[test]
fn doctor_finds_nothing_wrong_with_what_runs_and_leaves_it_alone() {
    let (_folder, running) = running();
    let output = running.ask(&["doctor", "-o", "json"]);
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let checks = found["checks"].as_array().expect("checks");
    let of = |name: &str| {
        let check = checks.iter().find(|check| check["check"] == name);
        check.unwrap_or_else(|| panic!("no check {name} in {found}"))
    };
    assert!(of("running")["found"].as_str().is_some_and(|found| found.starts_with("yes")));
    assert_eq!(of("socket headwater.sock")["found"], "a process answers");
    assert_eq!(of("layout version")["result"], "ok");
    assert!(of("disk sync")["found"].as_str().is_some_and(|found| found.contains(" ms")));
    let has_failed = checks.iter().any(|check| check["result"] == "fail");
    assert_eq!(output.status.code(), Some(if has_failed { 3 } else { 0 }), "{found}");
    running.wait_until_in_step();
}

#[test]
fn doctor_names_a_problem_and_ends_with_three() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    fs::write(folder.path().join("letter.txt"), "dear").expect("written");
    let data = folder.path().to_str().expect("UTF-8");
    let doctor = output(headwater().args(["doctor", "--data", data]));
    assert_eq!(doctor.status.code(), Some(3));
    let stdout = String::from_utf8_lossy(&doctor.stdout);
    assert!(stdout.starts_with("CHECK"), "{stdout}");
    assert!(stdout.contains("this is not a data directory"), "{stdout}");
    let entries = folder.path().read_dir().expect("reads").count();
    assert_eq!(entries, 1, "nothing was changed");
}
