//! The parts as processes of their own, on a real Kafka.

use headwater_broker::ClusterSettings;
use headwater_e2e::chance::Chance;
use headwater_e2e::fleet::Fleet;
use headwater_e2e::running::http_get;
use serde_json::Value;

/// Few, so that a claim in each is quick.
const PARTITIONS: u32 = 3;

const POD: &str = "\
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: default}
spec:
  nodeName: gw-1
  containers:
  - {name: web, image: web, envFrom: [{configMapRef: {name: colours}}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: colours, namespace: default}
data: {sky: blue}
";

/// The topic of what edges get.
const DOWNSTREAM: &str = "headwater.downstream.v1";

/// The size, in bytes, of the records that the log takes in a test of larger ones.
const RECORD_BYTES_MAX: &str = "262144";

/// Characters that take more than that in a record, even compressed.
const LARGE: usize = 800_000;

/// Every event of the node's stream, as the part reads it from the log.
fn events(fleet: &Fleet, part: &str) -> Vec<Value> {
    fleet.wait_for(&format!("the history that {part} reads"), |fleet| {
        fleet.part(part).history("node/gw-1").filter(|events| events.len() >= 2)
    })
}

#[test]
fn manifests_come_in_at_the_controller_and_every_hub_folds_them() {
    let mut fleet = Fleet::on_one_broker(PARTITIONS);
    fleet.write("web.yaml", POD);
    fleet.add_controller("controller");
    fleet.add_hub("hub-a");
    fleet.add_hub("hub-b");
    for part in ["controller", "hub-a", "hub-b"] {
        fleet.wait_until_reconciled(part);
        let status = fleet.part(part).status().expect("it answers");
        let kind = part.split_once('-').map_or(part, |(kind, _)| kind);
        assert_eq!(status["part"], kind, "{status}");
    }
    let pods = fleet.part("controller").text(&["get", "pods", "-o", "name"]);
    assert_eq!(pods.as_deref().map(str::trim), Some("pod/web"), "{}", fleet.outputs());
    let before = events(&fleet, "controller");
    for hub in ["hub-a", "hub-b"] {
        assert_eq!(events(&fleet, hub), before, "the log is one");
    }

    // Each part reports its stop; after a restart it reports nothing twice.
    for part in ["controller", "hub-a", "hub-b"] {
        let status = fleet.part_mut(part).stop().expect("it ran");
        assert_eq!(status.code(), Some(0), "{}", fleet.outputs());
        fleet.part_mut(part).start_again();
    }
    // And one that is killed in the midst of it.
    fleet.part_mut("hub-a").kill();
    fleet.part_mut("hub-a").start_again();
    for part in ["controller", "hub-a", "hub-b"] {
        fleet.wait_until_reconciled(part);
    }
    assert_eq!(events(&fleet, "hub-a"), before);

    // What changes while a hub is frozen is there when it goes on.
    fleet.part("hub-b").freeze();
    fleet.write("web.yaml", &POD.replace("blue", "grey"));
    let changed = fleet.wait_for("the change", |fleet| {
        fleet.part("hub-a").history("node/gw-1").filter(|events| events.len() > before.len())
    });
    assert_eq!(changed.len(), before.len() + 1, "one object changed: {changed:?}");
    fleet.part("hub-b").thaw();
    assert_eq!(events(&fleet, "hub-b"), changed);
}

#[test]
fn a_part_that_cannot_start_names_the_reason() {
    let mut fleet = Fleet::on_one_broker(PARTITIONS);
    let brokers = fleet.kafka.bootstrap();
    let start = |fleet: &mut Fleet, name: &str, more: &[&str]| {
        let args = ["hub", "--listen", "127.0.0.1:0", "--insecure-loopback", "--kafka", &brokers];
        fleet.add(name, args.iter().chain(more).map(|arg| (*arg).to_owned()).collect());
        let code = fleet.part_mut(name).ended().and_then(|status| status.code());
        (code, fleet.part(name).output())
    };
    // The topics have one replica, which no argument allows.
    let (code, output) = start(&mut fleet, "unsafe", &[]);
    assert_eq!(code, Some(1), "{output}");
    assert!(output.contains("--allow-unsafe-topics"), "{output}");
    let (code, output) = start(&mut fleet, "missing", &["--kafka-set", "topic.prefix=other"]);
    assert_eq!(code, Some(1), "{output}");
    assert!(output.contains("other.downstream.v1") && output.contains("topics create"), "{output}");
    let (code, output) = start(&mut fleet, "usage", &["--kafka-set", "acks=1"]);
    assert_eq!(code, Some(2), "{output}");
    assert!(output.contains("acks"), "{output}");
}

#[test]
fn of_two_controllers_one_is_a_standby_and_takes_over() {
    let mut fleet = Fleet::on_one_broker(PARTITIONS);
    fleet.write("web.yaml", POD);
    fleet.add_controller("first");
    fleet.wait_until_reconciled("first");
    let before = events(&fleet, "first");
    fleet.add_controller("second");
    // One is a standby. It takes over when the writer releases the log, and when the writer is silent. A
    // writer that the machine delays may be silent too, so the roles are not given.
    for end in ["stopped", "killed"] {
        let (writer, other) = fleet.wait_for("a writer and a standby", |fleet| {
            let stands_by = |name| fleet.part(name).status()?["stands_by"].as_bool();
            match (stands_by("first")?, stands_by("second")?) {
                (false, true) => Some(("first", "second")),
                (true, false) => Some(("second", "first")),
                _ => None,
            }
        });
        if end == "stopped" {
            let status = fleet.part_mut(writer).stop().expect("it ran");
            assert_eq!(status.code(), Some(0), "{}", fleet.outputs());
        } else {
            fleet.part_mut(writer).kill();
        }
        fleet.wait_for("the other writes", |fleet| {
            (fleet.part(other).status()?["stands_by"] == false).then_some(())
        });
        fleet.wait_until_reconciled(other);
        assert_eq!(events(&fleet, other), before, "{end}: no event is appended twice");
        fleet.part_mut(writer).start_again();
    }
}

#[test]
fn an_object_that_is_too_large_for_the_log_is_named_by_readyz_until_it_fits() {
    let unsafe_topics = ["allow.unsafe.topics=true"];
    let mut fleet =
        Fleet::with_kafka_settings(ClusterSettings::default(), PARTITIONS, &unsafe_topics);
    let smaller = [["max.message.bytes", RECORD_BYTES_MAX]];
    fleet.kafka.set(DOWNSTREAM, &smaller).expect("Kafka takes it");
    let mut chance = Chance::of(7);
    let mut large = String::new();
    while large.len() < LARGE {
        large += &format!("{:x}", chance.below(u64::MAX));
    }
    fleet.write("web.yaml", &POD.replace("blue", &format!("\"{large}\"")));
    fleet.add_controller("controller");
    let verbose = |fleet: &Fleet| http_get(fleet.part("controller").data(), "/readyz?verbose");
    let is_named = |answer: &str| answer.contains("warn: default/configmap/colours has ");
    fleet.wait_for("the object in the answer of a ready controller", |fleet| {
        let answer = verbose(fleet)?;
        let is_ready = answer.starts_with("HTTP/1.1 200 ");
        (is_ready && is_named(&answer) && answer.contains("; make it smaller")).then_some(())
    });
    fleet.write("web.yaml", POD);
    fleet.wait_for("the object in the log", |fleet| {
        let answer = verbose(fleet)?;
        (answer.starts_with("HTTP/1.1 200 ") && !is_named(&answer)).then_some(())
    });
    assert!(events(&fleet, "controller").len() >= 2, "the pod and its ConfigMap");
}
