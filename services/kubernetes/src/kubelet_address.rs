//! Where API servers reach the kubelet's server of a node, if not at the node: at a hub, which has one port
//! for all of its nodes.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use headwater_event::NodeName;
use serde_json::{Value, json};

/// What the node's name takes the place of.
const NODE: &str = "*";

/// An address for the kubelet's servers of all nodes: an IP address, a name, or a name that begins with
/// `*.`, in which a node's name takes the place of the star.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubeletAddress {
    host: String,
    port: u16,
}

/// The text is no such address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is no address of a hub: write HOST:PORT, such as *.edges.example.org:10250 or \
     192.0.2.1:10250"
)]
pub struct KubeletAddressError {
    text: String,
}

impl KubeletAddress {
    /// Puts the address into the status of a Node, in the place of the node's own.
    pub(crate) fn put(&self, node: &NodeName, status: &mut Value) {
        let kinds: &[&str] = match self.host.parse::<IpAddr>() {
            Ok(_) => &["InternalIP"],
            // By default an API server takes the first, and one that kubeadm sets up the first that it
            // finds of another order.
            Err(_) => &["Hostname", "InternalDNS"],
        };
        let host = match self.host.strip_prefix(NODE) {
            Some(domain) => format!("{node}{domain}"),
            None => self.host.clone(),
        };
        let address = |kind: &&str| json!({"type": *kind, "address": host});
        status["addresses"] = kinds.iter().map(address).collect();
        status["daemonEndpoints"] = json!({"kubeletEndpoint": {"Port": self.port}});
    }
}

impl FromStr for KubeletAddress {
    type Err = KubeletAddressError;

    fn from_str(text: &str) -> Result<Self, KubeletAddressError> {
        if let Ok(address) = text.parse::<SocketAddr>() {
            return Ok(Self { host: address.ip().to_string(), port: address.port() });
        }
        let error = || KubeletAddressError { text: text.to_owned() };
        let (host, port) = text.rsplit_once(':').ok_or_else(error)?;
        let name = host.strip_prefix("*.").unwrap_or(host);
        headwater_event::name::check_dns1123_subdomain(name).map_err(|_| error())?;
        let port = port.parse().ok().filter(|port| *port != 0).ok_or_else(error)?;
        Ok(Self { host: host.to_owned(), port })
    }
}

impl fmt::Display for KubeletAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Only an IPv6 address has a colon.
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_put_in_the_place_of_the_nodes_own() {
        let put = |text: &str| {
            let address: KubeletAddress = text.parse().expect(text);
            assert_eq!(address.to_string(), text);
            let mut status = json!({
                "addresses": [{"type": "Hostname", "address": "gw-1"}], "capacity": {"cpu": "1"},
            });
            address.put(&"gw-1".parse().expect("a name"), &mut status);
            assert_eq!(status["capacity"]["cpu"], "1");
            assert_eq!(status["daemonEndpoints"]["kubeletEndpoint"]["Port"], 10250);
            status["addresses"].clone()
        };
        assert_eq!(put("192.0.2.1:10250"), json!([{"type": "InternalIP", "address": "192.0.2.1"}]));
        assert_eq!(
            put("[2001:db8::1]:10250"),
            json!([{"type": "InternalIP", "address": "2001:db8::1"}])
        );
        let named = |name: &str| json!([{"type": "Hostname", "address": name}, {"type": "InternalDNS", "address": name}]);
        assert_eq!(put("hub.example.org:10250"), named("hub.example.org"));
        assert_eq!(put("*.edges.example.org:10250"), named("gw-1.edges.example.org"));
        for text in ["", "hub", "hub:0", "hub:x", "*:1", "a.*.b:1", "https://hub:1", "a b:1"] {
            assert!(text.parse::<KubeletAddress>().is_err(), "{text}");
        }
    }
}
