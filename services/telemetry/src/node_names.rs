//! The names of nodes in metrics. Names of sites and machines are of use to a stranger, and the
//! endpoint has no authentication: beyond loopback it serves numbers in their place, unless a setting
//! permits the names.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use prometheus::proto::{LabelPair, MetricFamily};

/// The label that names a node.
const NODE: &str = "node";

/// The label that names a stream, and what the name of a node's private stream begins with.
const STREAM: &str = "stream";
const PRIVATE_STREAM: &str = "node/";

/// Whether metrics name nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeNames {
    /// They do.
    Served,
    /// A number takes the place of each name: its position among the names of the process.
    Numbered,
}

impl NodeNames {
    /// Whether metrics name nodes at this address.
    pub fn at(address: SocketAddr, permitted: bool) -> Self {
        if permitted || address.ip().is_loopback() { Self::Served } else { Self::Numbered }
    }

    /// Replaces the names in the labels of `families`, if they are not to be served.
    pub(crate) fn apply(self, families: &mut [MetricFamily]) {
        if self == Self::Served {
            return;
        }
        let metrics = families.iter().flat_map(MetricFamily::get_metric);
        let labels = metrics.flat_map(|metric| metric.get_label());
        let names: BTreeSet<String> =
            labels.filter_map(split).map(|(_, name)| name.to_owned()).collect();
        let numbers: Vec<String> = names.into_iter().collect();
        for metric in families.iter_mut().flat_map(|family| family.mut_metric()) {
            for label in metric.mut_label() {
                let Some((prefix, name)) = split(label) else { continue };
                let Ok(position) = numbers.binary_search_by(|known| known.as_str().cmp(name))
                else {
                    continue;
                };
                let value = format!("{prefix}{}", position + 1);
                label.set_value(value);
            }
        }
    }
}

/// The name of a node in the value of a label, and what precedes it.
fn split(label: &LabelPair) -> Option<(&'static str, &str)> {
    match label.name() {
        // The databases of the cloud have no node.
        NODE => Some(("", label.value())).filter(|(_, name)| !name.is_empty()),
        STREAM => Some((PRIVATE_STREAM, label.value().strip_prefix(PRIVATE_STREAM)?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use prometheus::{IntGaugeVec, Opts, Registry, TextEncoder};

    use super::*;

    fn text(names: NodeNames) -> String {
        let registry = Registry::new();
        let family = |name: &str, labels: &[&str]| {
            let family = IntGaugeVec::new(Opts::new(name, "A gauge."), labels).expect("a name");
            registry.register(Box::new(family.clone())).expect("registers");
            family
        };
        let (connected, seq) = (family("connected", &["node"]), family("seq", &["node", "stream"]));
        for (name, value) in [("well-7", 7), ("dyke-3", 3)] {
            connected.with_label_values(&[name]).set(value);
            seq.with_label_values(&[name, &format!("node/{name}")]).set(value);
        }
        seq.with_label_values(&["dyke-3", "cluster"]).set(1);
        connected.with_label_values(&[""]).set(0);
        let mut families = registry.gather();
        names.apply(&mut families);
        TextEncoder::new().encode_to_string(&families).expect("text")
    }

    #[test]
    fn a_number_takes_the_place_of_a_name_in_every_label() {
        let numbered = text(NodeNames::Numbered);
        for line in [
            "connected{node=\"\"} 0\n",
            "connected{node=\"1\"} 3\n",
            "connected{node=\"2\"} 7\n",
            "seq{node=\"1\",stream=\"cluster\"} 1\n",
            "seq{node=\"1\",stream=\"node/1\"} 3\n",
            "seq{node=\"2\",stream=\"node/2\"} 7\n",
        ] {
            assert!(numbered.contains(line), "{line} is not in {numbered}");
        }
        assert!(!numbered.contains("well") && !numbered.contains("dyke"), "{numbered}");
        assert!(
            text(NodeNames::Served).contains("seq{node=\"well-7\",stream=\"node/well-7\"} 7\n")
        );
    }

    #[test]
    fn names_are_served_on_loopback_or_where_a_setting_permits_it() {
        for (address, permitted, names) in [
            ("127.0.0.1:9464", false, NodeNames::Served),
            ("[::1]:9464", false, NodeNames::Served),
            ("0.0.0.0:9464", false, NodeNames::Numbered),
            ("[::]:9464", false, NodeNames::Numbered),
            ("192.0.2.7:9464", false, NodeNames::Numbered),
            ("192.0.2.7:9464", true, NodeNames::Served),
        ] {
            let address: SocketAddr = address.parse().expect("an address");
            assert_eq!(NodeNames::at(address, permitted), names, "{address} {permitted}");
        }
    }
}
