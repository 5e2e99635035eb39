//! Trouble with connections, where its operator looks for it: in `status` of the part that has it.

use std::net::{SocketAddr, TcpListener};
use std::thread;

use headwater_broker::ClusterSettings;
use headwater_e2e::fleet::Fleet;

const POD: &str = "\
apiVersion: v1
kind: Pod
metadata: {name: web}
spec: {nodeName: gw-1, containers: [{name: web, image: web}]}
";

/// The troubles in the status of a part, as its table shows them.
fn troubles(fleet: &Fleet, part: &str) -> Option<String> {
    let text = fleet.part(part).text(&["status"])?;
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("trouble  ")).collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

/// Whether a part names no trouble.
fn is_well(fleet: &Fleet, part: &str) -> bool {
    fleet.part(part).text(&["status"]).is_some_and(|text| !text.contains("trouble  "))
}

/// Waits until a part names one trouble, which begins so. It never names a node that has a pod as one
/// that nothing is for.
fn wait_for_only(fleet: &Fleet, part: &str, trouble: &str) {
    fleet.wait_for(&format!("{part}: only {trouble:?}"), |fleet| {
        let lines = troubles(fleet, part)?;
        assert!(!lines.contains("gw-1: it is connected, but nothing is for it"), "{lines}");
        (lines.starts_with(trouble) && lines.lines().count() == 1).then_some(())
    });
}

/// An address where nothing listens: port 1 of this machine.
fn closed() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 1))
}

/// An address where something that is no hub closes every connection.
fn no_hub() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    thread::spawn(move || listener.incoming().for_each(drop));
    address
}

#[test]
fn a_wrong_hub_and_a_node_that_nothing_is_for_are_named_in_the_status() {
    let mut fleet = Fleet::on_one_broker(1);
    fleet.write("web.yaml", POD);
    fleet.add_controller("controller");
    fleet.add_hub("hub");
    fleet.wait_until_reconciled("hub");

    let (closed, no_hub) = (closed(), no_hub());
    for (node, hub, reason) in
        [("gw-2", closed, "it does not respond: Connection refused"), ("gw-3", no_hub, "")]
    {
        fleet.add_edge_with(node, &[hub], &["--insecure-loopback"]);
        let lines = fleet.wait_for("the trouble of the edge", |fleet| troubles(fleet, node));
        assert!(lines.contains(&format!("hub {hub}")) && lines.contains(reason), "{lines}");
    }

    fleet.add_edge("gw-1", &["hub"]);
    fleet.add_edge("gw-9", &["hub"]);
    // gw-1 has a pod. On a busy machine other troubles come, and go again.
    let expected = "trouble  gw-9: it is connected, but nothing is for it";
    wait_for_only(&fleet, "controller", expected);
    fleet.wait_for("an edge without trouble", |fleet| is_well(fleet, "gw-1").then_some(()));
}

#[test]
fn a_silent_broker_and_a_silent_hub_are_named_long_before_anything_gives_up() {
    // Nothing is unreachable and no append fails for a minute, so that only the wait for an answer can be the trouble.
    let patient = &["unreachable.after=60s", "delivery.timeout=60s"];
    let mut fleet = Fleet::with_kafka_settings(ClusterSettings::default(), 1, patient);
    fleet.write("web.yaml", POD);
    fleet.add_controller("controller");
    fleet.add_hub("hub");
    fleet.add_edge("gw-1", &["hub"]);
    fleet.wait_until_reconciled("hub");
    let wait_until_well = |fleet: &Fleet| {
        fleet.wait_for("a status without trouble", |fleet| {
            let parts = ["controller", "hub", "gw-1"];
            parts.iter().all(|part| is_well(fleet, part)).then_some(())
        });
    };
    wait_until_well(&fleet);

    fleet.kafka.broker(1).freeze().expect("it freezes");
    for part in ["controller", "hub"] {
        let expected =
            format!("trouble  Kafka at {} has not answered since ", fleet.kafka.bootstrap());
        wait_for_only(&fleet, part, &expected);
    }
    fleet.kafka.broker(1).thaw().expect("it continues");
    wait_until_well(&fleet);

    // An edge that starts waits for the welcome of its hub.
    fleet.part("hub").freeze();
    fleet.part_mut("gw-1").kill();
    fleet.part_mut("gw-1").start_again();
    let hub = format!("hub {} has not answered for more than 3 s", fleet.hub_address("hub"));
    fleet.wait_for("the silent hub", |fleet| {
        troubles(fleet, "gw-1").filter(|lines| lines.contains(&hub))
    });
    fleet.part("hub").thaw();
    wait_until_well(&fleet);
}
