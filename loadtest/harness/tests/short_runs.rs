//! Short runs of real scenarios, from an empty disk to the record, the report and the box.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use headwater_loadtest::deployment::Deployment;
use headwater_loadtest::disks::NodeDisks;
use headwater_loadtest::object::NAMESPACE;
use headwater_loadtest::record::Run;
use headwater_loadtest::report;
use headwater_loadtest::run::{Live, Observer, RunSettings, run};
use headwater_loadtest::scenario::Scenario;
use headwater_loadtest::target::{Place, Target, TargetSettings};
use headwater_store::{Durability, Range, WriteBatch};
use serde_json::{Value, json};

/// Prints the progress into the test's output.
struct PrintedProgress;

impl Observer for PrintedProgress {
    fn phase(&self, what: &str) {
        println!("{what}");
    }

    fn live(&self, _: Live) {}
}

/// A few seconds of a scenario.
fn short(
    name: &str,
    place: Place,
    sets: &[(&str, &str)],
    tamper: Option<fn(&NodeDisks)>,
) -> (tempfile::TempDir, Run) {
    let small = [
        ("duration", "3s"),
        ("warm_up", "500ms"),
        ("objects.pods_per_edge", "10"),
        ("load.rate", "100.0"),
    ];
    let sets: Vec<_> =
        small.iter().chain(sets).map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    let scenario = Scenario::load(name, &sets).unwrap_or_else(|error| panic!("{error}"));
    let out = tempfile::tempdir().expect("a folder");
    let settings = RunSettings { scenario, place, seed: 42, out: out.path().to_owned(), tamper };
    let record =
        run(settings, Arc::new(PrintedProgress)).unwrap_or_else(|error| panic!("{error:?}"));
    (out, record)
}

#[test]
fn propagation_in_one_process_is_measured_and_right() {
    let (out, record) = short("propagation", Place::Embedded, &[("edges.count", "2")], None);
    let found = &record.correctness;
    assert!(found.right, "{found:?}");
    assert_eq!((found.edges, found.account.missing), (2, 0));
    assert!(found.replicas >= 2 && found.statuses == 20, "{found:?}");
    assert!(
        found.account.intended > 200
            && found.account.seen + found.account.overwritten == found.account.intended
    );
    let propagation = record.propagation.as_ref().expect("a right run has latencies");
    assert!(propagation.quantiles.count > 100, "{:?}", propagation.quantiles);
    assert!(propagation.quantiles.p50_ms.is_some_and(|p50| p50 > 0.0));
    assert!(propagation.quantiles.p99_ms.is_none(), "300 samples carry no p99");
    let names: Vec<_> = record.costs.processes.iter().map(|of| of.name.as_str()).collect();
    assert_eq!(names, ["up", "loadtest"]);
    let wire = record.wire.as_ref().expect("the hub says what passed through its sockets");
    assert!(wire.down_bytes > 10_000 && wire.up_bytes > 1_000 && wire.connects >= 2, "{wire:?}");

    let read = Run::read(out.path()).expect("the record");
    assert_eq!(read, record, "what is read is what was written");
    assert!(out.path().join("propagation.hlog").is_file());
    let html = report::html(&record);
    assert!(html.matches("<svg").count() >= 4, "{}", html.len());
}

/// Changes one byte of an object in the replica.
fn damage(disks: &NodeDisks) {
    let rows = disks.state.scan(&Range::all(), usize::MAX).expect("readable");
    let at = |value: &Bytes| value.windows(5).position(|window| window == b"fresh");
    let found = rows.into_iter().find_map(|row| Some((at(&row.1)?, row)));
    let (at, (key, value)) = found.expect("an object");
    let mut value = value.to_vec();
    value[at] ^= 1;
    let mut batch = WriteBatch::default();
    batch.put(key, value);
    disks.state.write(batch, Durability::Synced).expect("writable");
}

#[test]
fn a_damaged_edge_makes_the_box_wrong_and_the_figures_vanish() {
    let sets = [("edges.count", "1"), ("duration", "1s")];
    let (out, record) = short("propagation", Place::Embedded, &sets, Some(damage));
    assert!(!record.correctness.right);
    let first = &record.correctness.findings.first;
    assert!(first.iter().any(|finding| finding.contains("its objects make")), "{first:?}");
    assert!(record.propagation.is_none() && !out.path().join("propagation.hlog").exists());
    let html = report::html(&record);
    assert!(html.contains("THE RUN WAS WRONG") && !html.contains("Latency, milliseconds"));
}

#[test]
fn light_edges_on_a_real_kafka_echo_what_they_received() {
    let sets = [("edges.count", "4"), ("load.rate", "60.0")];
    let (_out, record) = short("metasync", Place::Cluster, &sets, None);
    let found = &record.correctness;
    assert!(found.right, "{found:?}");
    assert_eq!((found.edges, found.statuses), (4, 40), "{found:?}");
    let [down, back] = [&record.propagation, &record.round_trip]
        .map(|of| of.as_ref().expect("measured").quantiles.clone());
    assert!(down.count > 100 && back.count > 20, "{down:?} {back:?}");
    // Of changes that a busy machine delays, all count on the way down, and the last one of each pod comes back: so their
    // medians are not those of the same changes.
    let is_later = back.min_ms >= down.min_ms && back.count <= down.count;
    assert!(is_later, "what comes back went down first: {down:?} {back:?}");
    let wire = record.wire.expect("counted");
    assert!(wire.down_bytes > 10_000 && wire.up_bytes > 1_000 && wire.connects >= 4, "{wire:?}");
    let length = record.scenario.duration;
    assert_eq!(length, Duration::from_secs(3));
}

#[test]
fn a_run_on_a_deployment_is_measured_and_leaves_it_as_it_was() {
    let started = TargetSettings { place: Place::Cluster, nodes: Vec::new(), streams: None };
    let there = Target::start(started).unwrap_or_else(|error| panic!("{error}"));
    let deployment = Deployment {
        objects: there.objects().to_owned(),
        operator: there.picture(),
        metrics: there.metrics("controller").expect("it serves them"),
        hub: there.hub().expect("it listens"),
        kafka: there.brokers().expect("they run"),
    };
    let config = |namespace: &str| {
        let metadata = json!({ "name": "c", "namespace": namespace });
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata })
    };
    // A foreign object, and one that an aborted run left.
    say(&deployment.objects, &[config("default"), config(NAMESPACE)]);

    let sets = [("edges.count", "2"), ("load.rate", "60.0")];
    let (_out, record) = short("metasync", Place::Attached(deployment), &sets, None);
    let found = &record.correctness;
    assert!(found.right, "{found:?}");
    assert_eq!((found.edges, found.statuses, found.account.missing), (2, 20, 0), "{found:?}");
    assert!(record.edges_are.contains("its error is 0"), "{}", record.edges_are);
    let back = record.round_trip.expect("measured").quantiles;
    assert!(back.count > 20, "{back:?}");

    let asked = |args: &[&str]| {
        let output = there.ask("controller", args).expect("it is a part");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    for kind in ["pod", "configmap"] {
        let left = asked(&["get", kind, "-n", NAMESPACE, "-o", "name"]);
        assert_eq!(left.trim(), "", "nothing is left");
    }
    let theirs = asked(&["get", "configmap", "-n", "default", "-o", "name"]);
    assert_eq!(theirs.trim(), "configmap/c", "it was never the run's");
}

/// Says objects, and returns once the controller has them.
fn say(socket: &Path, objects: &[Value]) {
    let mut stream = UnixStream::connect(socket).expect("it listens");
    for object in objects {
        writeln!(stream, "{}", json!({ "object": object })).expect("it hears");
    }
    stream.shutdown(Shutdown::Write).expect("open");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("text");
    assert!(answer.contains("\"refused\":0") || answer.contains("\"refused\": 0"), "{answer}");
}
