//! A broker's properties: small, quick, and on loopback alone.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use crate::listener::Listener;

/// The ports of one node, in the order clients, brokers, controllers.
pub(crate) type Ports = [u16; 3];

/// What tests cannot wait for, and what a machine shared by several of them cannot spare. Any of
/// these can be set otherwise.
const DEFAULTS: [(&str, &str); 17] = [
    ("process.roles", "broker,controller"),
    ("listener.security.protocol.map", ""),
    ("controller.listener.names", "CONTROLLER"),
    ("inter.broker.listener.name", "BROKER"),
    ("auto.create.topics.enable", "false"),
    ("group.initial.rebalance.delay.ms", "0"),
    // Compaction and retention within seconds.
    ("log.cleaner.backoff.ms", "200"),
    ("log.retention.check.interval.ms", "1000"),
    // The default of 128 MiB is taken at the start.
    ("log.cleaner.dedupe.buffer.size", "2097152"),
    ("num.network.threads", "1"),
    ("num.io.threads", "2"),
    ("background.threads", "2"),
    ("num.recovery.threads.per.data.dir", "1"),
    ("num.replica.fetchers", "1"),
    // A dead broker is noticed within six seconds instead of nine. A stall of the machine of a few
    // seconds is none: a lone broker that is taken for dead has no leader for a second.
    ("broker.session.timeout.ms", "6000"),
    ("broker.heartbeat.interval.ms", "400"),
    ("offsets.topic.num.partitions", "1"),
];

/// The text of the properties of `node`, one of those at `ports`.
pub(crate) fn text(
    node: u32,
    ports: &BTreeMap<u32, Ports>,
    listener: Listener,
    data: &Path,
    extra: &BTreeMap<String, String>,
) -> String {
    let [clients, brokers, controllers] = ports[&node];
    let mut properties: BTreeMap<String, String> =
        DEFAULTS.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    let mut set = |name: &str, value: String| properties.insert(name.to_owned(), value);
    let voters: Vec<String> =
        ports.iter().map(|(node, ports)| format!("{node}@127.0.0.1:{}", ports[2])).collect();
    let replicas = ports.len().min(3).to_string();
    let served = format!("CLIENT://127.0.0.1:{clients},BROKER://127.0.0.1:{brokers}");
    set("node.id", node.to_string());
    set("controller.quorum.voters", voters.join(","));
    set("listeners", format!("{served},CONTROLLER://127.0.0.1:{controllers}"));
    set("advertised.listeners", served);
    let client = listener.security_protocol();
    set(
        "listener.security.protocol.map",
        format!("CLIENT:{client},BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT"),
    );
    set("log.dirs", data.display().to_string());
    for topic in ["offsets.topic", "transaction.state.log"] {
        set(&format!("{topic}.replication.factor"), replicas.clone());
    }
    set("transaction.state.log.min.isr", "1".to_owned());
    properties.extend(extra.clone());
    let mut text = String::new();
    for (name, value) in properties {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{name}={value}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_node_knows_all_voters_and_given_properties_win() {
        let ports = BTreeMap::from([(1, [11, 12, 13]), (2, [21, 22, 23])]);
        let extra = BTreeMap::from([("num.io.threads".to_owned(), "7".to_owned())]);
        let text = text(2, &ports, Listener::Ssl, Path::new("/data"), &extra);
        let has = |line: &str| assert!(text.lines().any(|one| one == line), "{line} in\n{text}");
        has("node.id=2");
        has("controller.quorum.voters=1@127.0.0.1:13,2@127.0.0.1:23");
        has("advertised.listeners=CLIENT://127.0.0.1:21,BROKER://127.0.0.1:22");
        has("listener.security.protocol.map=CLIENT:SSL,BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT");
        has("offsets.topic.replication.factor=2");
        has("num.io.threads=7");
    }
}
