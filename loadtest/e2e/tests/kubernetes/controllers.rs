//! Two controllers of one cluster and one log.

use std::time::{Duration, Instant};

use headwater_cluster::{ControlPlane, ControlPlaneSettings, Part};
use headwater_e2e::fleet::Fleet;

use crate::world::{USER, create, deployed, kubectl, node, pod, without_controllers, words};

/// Few, so that a claim in each is quick.
const PARTITIONS: u32 = 3;

const TWO: [&str; 2] = ["first", "second"];

const HEARTBEAT: Duration = Duration::from_secs(3);

/// The silence after which a standby takes a writer for dead, in heartbeats.
const SILENCE: u32 = 4;

/// A killed writer is replaced within 20 s. The silence is 12 s of it, and the rest is what a hand-over
/// takes, too: to claim the log and to reconcile. A busy machine adds at most this, in heartbeats, and no second silence.
const LATE_MAX: u32 = 3;

/// Hubs connect to a controller, which learns from them that an edge is there.
const LISTENING: [&str; 3] = ["--listen", "127.0.0.1:0", "--insecure-loopback"];

fn writes(fleet: &Fleet, name: &str) -> bool {
    let status = fleet.part(name).status();
    status.is_some_and(|status| status["stands_by"] == false && status["reconciled"] == true)
}

fn arrives(fleet: &Fleet, name: &str) {
    fleet.wait_for(&format!("{name} at the edge"), |fleet| {
        let pods = fleet.part("gw-1").text(&["get", "pods", "-o", "name"])?;
        pods.lines().any(|line| line == format!("pod/{name}")).then_some(())
    });
}

fn waits_until_ready(fleet: &Fleet, cluster: &ControlPlane) {
    let ready = "jsonpath={.status.conditions[?(@.type==\"Ready\")].status}";
    fleet.wait_for("the edge ready at the API", |_| {
        (kubectl(cluster, &["get", "node", "gw-1", "-o", ready]) == "True").then_some(())
    });
}

/// The cluster has the controllers that take a silent node for lost, and evict its pods.
#[test]
fn a_stopped_writer_hands_over_at_once_and_a_killed_one_is_replaced() {
    let parts = vec![Part::ControllerManager];
    let (cluster, kubeconfig) =
        deployed(ControlPlaneSettings { parts, ..ControlPlaneSettings::default() });
    without_controllers(&cluster);
    create(&cluster, &node("gw-1"));
    create(&cluster, &words());
    let mut fleet = Fleet::on_one_broker(PARTITIONS);
    for name in TWO {
        let listening = LISTENING.map(str::to_owned);
        fleet.add_kubernetes_controller(name, &kubeconfig, &listening);
    }
    fleet.add_hub("hub");
    fleet.add_edge("gw-1", &["hub"]);
    create(&cluster, &pod("before", "gw-1"));
    arrives(&fleet, "before");
    let writer = fleet.wait_for("a writer and a standby", |fleet| {
        let [first, second] = TWO.map(|name| writes(fleet, name));
        let both = TWO.iter().all(|name| fleet.part(name).status().is_some());
        (both && first != second).then_some(if first { 0 } else { 1 })
    });
    let (one, other) = (TWO[writer], TWO[1 - writer]);
    waits_until_ready(&fleet, &cluster);

    let stopped = fleet.part_mut(one).stop().expect("it ran");
    assert_eq!(stopped.code(), Some(0), "{}", fleet.outputs());
    let since = Instant::now();
    fleet.wait_for("the standby writes", |fleet| writes(fleet, other).then_some(()));
    let handed_over = since.elapsed();
    assert!(handed_over < HEARTBEAT * SILENCE, "the log was not released: {handed_over:?}");
    create(&cluster, &pod("after-stop", "gw-1"));
    arrives(&fleet, "after-stop");

    fleet.part_mut(one).start_again();
    fleet.wait_for("a standby", |fleet| {
        (fleet.part(one).status()?["stands_by"] == true).then_some(())
    });
    let since = Instant::now();
    fleet.part_mut(other).kill();
    fleet.wait_for("the other writes", |fleet| writes(fleet, one).then_some(()));
    let replaced = since.elapsed();
    println!("handed over after {handed_over:?}, replaced after {replaced:?}");
    // What a busy machine adds to a hand-over, it adds to a replacement.
    let more = replaced.saturating_sub(handed_over).as_secs_f64() / HEARTBEAT.as_secs_f64();
    assert!(
        more <= f64::from(SILENCE + LATE_MAX),
        "a kill took {more:.1} heartbeats more than a hand-over: {handed_over:?}, {replaced:?}"
    );
    create(&cluster, &pod("after-kill", "gw-1"));
    arrives(&fleet, "after-kill");
    waits_until_ready(&fleet, &cluster);
    let lost = ["get", "events", "-A", "--field-selector=reason=NodeNotReady", "-o", "name"];
    assert_eq!(kubectl(&cluster, &lost), "", "the cluster took the edge for lost");
    let pods = kubectl(&cluster, &["get", "pods", "-o", "name"]);
    assert_eq!(pods, "pod/after-kill\npod/after-stop\npod/before\n", "nothing is evicted");
    let log = cluster.audit_log().expect("an audit log");
    assert_eq!(log.refused(USER), [""; 0]);
}
