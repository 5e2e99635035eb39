//! The ports of the machine that a pod takes.
//!
//! The rules are those of the scheduler (`pkg/scheduler/framework/plugins/nodeports`), by which a kubelet judges a pod once
//! more: a port of one address is taken by another pod with the same port and protocol on that address, or on all.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use k8s_openapi::api::core::v1::{Container, PodSpec};
use serde::Deserialize;
use serde_json::Value;

use crate::pod_rules::list;

/// The protocol of a port that states none.
const TCP: &str = "TCP";

/// A port of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPort {
    port: u16,
    protocol: String,
    /// `None`: every address of the machine.
    address: Option<IpAddr>,
}

impl HostPort {
    fn conflicts_with(&self, other: &Self) -> bool {
        let is_same_address = match (self.address, other.address) {
            (Some(own), Some(other)) => own == other,
            _ => true,
        };
        self.port == other.port && self.protocol == other.protocol && is_same_address
    }
}

/// As `8080/TCP`, or `10.0.0.1:8080/TCP`.
impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { port, protocol, address } = self;
        match address {
            Some(address) => write!(f, "{}/{protocol}", SocketAddr::new(*address, *port)),
            None => write!(f, "{port}/{protocol}"),
        }
    }
}

/// The ports that a pod takes: those of the containers that run for its whole life. In the network of the machine a port of
/// a container is one of the machine. A port beyond 65535 is none.
pub fn host_ports(spec: &PodSpec) -> Vec<HostPort> {
    let is_on_host = spec.host_network == Some(true);
    let is_sidecar = |it: &&Container| it.restart_policy.as_deref() == Some("Always");
    let sidecars = spec.init_containers.iter().flatten().filter(is_sidecar);
    let ports = spec.containers.iter().chain(sidecars).flat_map(|it| it.ports.iter().flatten());
    let taken = ports.filter_map(|it| {
        let stated = it.host_port.filter(|port| *port > 0);
        let port = stated.or(is_on_host.then_some(it.container_port))?;
        let address = it.host_ip.as_deref().and_then(|text| text.parse::<IpAddr>().ok());
        Some(HostPort {
            port: port.try_into().ok()?,
            protocol: it.protocol.clone().unwrap_or_else(|| TCP.to_owned()),
            address: address.filter(|address| !address.is_unspecified()),
        })
    });
    taken.collect()
}

/// The ports that the pod in `pod` takes. An object that is no pod of the API takes none.
pub fn host_ports_of(pod: &Value) -> Vec<HostPort> {
    let spec = &pod["spec"];
    // Most pods state no port of the machine, and their types need not be read.
    let is_stated = spec["hostNetwork"] == true || states_host_port(spec);
    let spec = is_stated.then(|| PodSpec::deserialize(spec));
    spec.and_then(Result::ok).map(|spec| host_ports(&spec)).unwrap_or_default()
}

fn states_host_port(spec: &Value) -> bool {
    let mut containers = ["containers", "initContainers"].into_iter().flat_map(|it| list(spec, it));
    containers.any(|it| list(it, "ports").iter().any(|port| !port["hostPort"].is_null()))
}

/// Whether a pod would take a port that others have.
pub fn are_taken<'a>(ports: &[HostPort], others: impl IntoIterator<Item = &'a HostPort>) -> bool {
    others.into_iter().any(|other| ports.iter().any(|port| port.conflicts_with(other)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ports(spec: Value) -> Vec<HostPort> {
        host_ports_of(&json!({"spec": spec}))
    }

    fn one(port: Value) -> Vec<HostPort> {
        ports(json!({"containers": [{"name": "a", "ports": [port]}]}))
    }

    #[test]
    fn a_port_is_taken_by_its_number_its_protocol_and_its_address() {
        let of =
            |address: &str| one(json!({"containerPort": 1, "hostPort": 80, "hostIP": address}));
        let udp = one(json!({"containerPort": 1, "hostPort": 80, "protocol": "UDP"}));
        let other = one(json!({"containerPort": 1, "hostPort": 81}));
        let without = one(json!({"containerPort": 80}));
        let (all, first, second) = (of("0.0.0.0"), of("10.0.0.1"), of("10.0.0.2"));
        for (own, others, expected) in [
            (&all, &all, true),
            (&all, &of(""), true),
            (&all, &first, true),
            (&first, &of("::"), true),
            (&first, &first, true),
            (&first, &second, false),
            (&all, &udp, false),
            (&all, &other, false),
            (&all, &without, false),
        ] {
            assert_eq!(are_taken(own, others), expected, "{own:?} {others:?}");
        }
    }

    #[test]
    fn sidecars_take_ports_and_so_do_containers_in_the_network_of_the_machine() {
        let own = [json!({"containerPort": 80, "hostPort": 80})];
        let found = ports(json!({
            "containers": [{"name": "a"}],
            "initContainers": [
                {"name": "step", "ports": own},
                {"name": "side", "ports": own, "restartPolicy": "Always"},
            ],
        }));
        assert_eq!(found.len(), 1);
        let on_host = ports(json!({"hostNetwork": true,
            "containers": [{"name": "a", "ports": [{"containerPort": 80}]}]}));
        assert_eq!(on_host, found);
    }

    #[test]
    fn a_port_is_written_as_in_a_url() {
        let of = |port: Value| one(port)[0].to_string();
        assert_eq!(of(json!({"containerPort": 1, "hostPort": 80})), "80/TCP");
        let v6 = json!({"containerPort": 1, "hostPort": 53, "protocol": "UDP", "hostIP": "::1"});
        assert_eq!(of(v6), "[::1]:53/UDP");
    }

    #[test]
    fn an_object_that_is_no_pod_takes_no_port() {
        assert_eq!(ports(json!({"containers": 7})), []);
        assert_eq!(one(json!({"containerPort": 1, "hostPort": 70000})), []);
    }
}
