//! The ports of the machine that a pod takes. Pure.
//!
//! The rules are those of the scheduler (`pkg/scheduler/framework/plugins/nodeports`), by which a kubelet judges a pod once
//! more: a port of one address is taken by another pod with the same port and protocol on that address, or on all.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Container, Pod};

use crate::pod::{init_containers, is_sidecar, main_containers};

/// The protocol of a port that states none.
const TCP: &str = "TCP";

/// A port of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostPort {
    port: i32,
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

/// The ports that a pod takes: those of the containers that run for its whole life. In the network of the machine a port of
/// a container is one of the machine.
pub(crate) fn host_ports(pod: &Pod) -> Vec<HostPort> {
    let is_on_host = pod.spec.as_ref().and_then(|spec| spec.host_network) == Some(true);
    let sidecars = init_containers(pod).iter().filter(|container| is_sidecar(container));
    let ports = |container: &Container| container.ports.clone().unwrap_or_default();
    let ports = main_containers(pod).iter().chain(sidecars).flat_map(ports);
    let taken = ports.filter_map(|it| {
        let stated = it.host_port.filter(|port| *port > 0);
        let address = it.host_ip.as_deref().and_then(|text| text.parse::<IpAddr>().ok());
        Some(HostPort {
            port: stated.or(is_on_host.then_some(it.container_port))?,
            protocol: it.protocol.unwrap_or_else(|| TCP.to_owned()),
            address: address.filter(|address| !address.is_unspecified()),
        })
    });
    taken.collect()
}

/// Whether a pod would take a port that others have.
pub(crate) fn are_taken<'a>(
    ports: &[HostPort],
    others: impl IntoIterator<Item = &'a HostPort>,
) -> bool {
    others.into_iter().any(|other| ports.iter().any(|port| port.conflicts_with(other)))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn ports(spec: Value) -> Vec<HostPort> {
        host_ports(&serde_json::from_value(json!({"spec": spec})).expect("a pod"))
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
}
