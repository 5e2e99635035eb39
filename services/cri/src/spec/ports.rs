//! The ports that a runtime forwards to a pod (`pkg/kubelet/container/helpers.go`, `MakePortMappings`).

use std::collections::BTreeSet;
use std::net::IpAddr;

use headwater_edged::container::WaitReason;
use headwater_edged::container::credentials;
use headwater_edged::pod::{init_containers, is_sidecar, main_containers};
use k8s_openapi::api::core::v1::{ContainerPort, Pod};

use super::{refused, spec};
use crate::proto::{PortMapping, Protocol};

/// The ports of all containers that run as long as the pod. In the host's network nothing is forwarded.
///
/// A kubelet leaves out those of sidecars, as of a container that ends before the others start. A
/// sidecar runs beside them, and its `hostPort` is honoured.
///
/// # Errors
/// A port or an address is none.
pub(super) fn port_mappings(pod: &Pod) -> Result<Vec<PortMapping>, WaitReason> {
    let sidecars = init_containers(pod).iter().filter(|container| is_sidecar(container));
    let mut mappings = Vec::new();
    for container in sidecars.chain(main_containers(pod)) {
        let mut names = BTreeSet::new();
        for (index, port) in container.ports.iter().flatten().enumerate() {
            let place = || format!("{}.ports[{index}]", credentials::path(pod, container));
            let mapping = mapping(port).map_err(|why| refused(format!("{}.{why}", place())))?;
            if names.insert(name(port)) {
                mappings.push(mapping);
            }
        }
    }
    if spec(pod).host_network == Some(true) {
        mappings.clear();
    }
    Ok(mappings)
}

/// What may occur once in a container: the name, else what the port is.
fn name(port: &ContainerPort) -> String {
    if let Some(name) = port.name.clone().filter(|name| !name.is_empty()) {
        return name;
    }
    let (protocol, address) = (port.protocol.as_deref(), port.host_ip.as_deref());
    format!("{protocol:?} {address:?} {} {:?}", port.container_port, port.host_port)
}

fn mapping(port: &ContainerPort) -> Result<PortMapping, String> {
    let number = |field: &str, number: i32| match number {
        1..=65535 => Ok(number),
        _ => Err(format!("{field}: {number} is no port: use 1 to 65535")),
    };
    let host_port = match port.host_port {
        None | Some(0) => 0,
        Some(port) => number("hostPort", port)?,
    };
    let protocol = match port.protocol.as_deref() {
        None | Some("" | "TCP") => Protocol::Tcp,
        Some("UDP") => Protocol::Udp,
        Some("SCTP") => Protocol::Sctp,
        Some(other) => return Err(format!("protocol: {other:?} is unknown: use TCP, UDP or SCTP")),
    };
    let host_ip = port.host_ip.clone().unwrap_or_default();
    if !host_ip.is_empty() && host_ip.parse::<IpAddr>().is_err() {
        return Err(format!("hostIP: {host_ip:?} is no address"));
    }
    Ok(PortMapping {
        protocol: protocol.into(),
        container_port: number("containerPort", port.container_port)?,
        host_port,
        host_ip,
    })
}
