//! The downward API: fields of a pod and resources of a container, as text.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Container, Pod, ResourceFieldSelector};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::requests::{self, Amounts};
use crate::pod::{account, all_containers};

/// The source of fields.
#[derive(Clone, Debug)]
pub(crate) struct FieldSource<'a> {
    /// The pod.
    pub(crate) pod: &'a Pod,
    /// The node it runs on.
    pub(crate) node: &'a str,
    /// The node's address.
    pub(crate) node_address: IpAddr,
    /// The pod's addresses: the node's, unless the runtime gives the pod its own.
    pub(crate) pod_addresses: Vec<IpAddr>,
    /// What the node has for its pods.
    pub(crate) allocatable: Amounts,
}

#[cfg(test)]
impl<'a> FieldSource<'a> {
    /// The fields of `pod` on a node of four processors and 8 GiB on loopback.
    pub(crate) fn on_a_test_node(pod: &'a Pod) -> Self {
        let address = IpAddr::from([127, 0, 0, 1]);
        let allocatable =
            Amounts { cpu_milli: 4000, memory_bytes: 8 << 30, storage_bytes: 64 << 30 };
        let (node, pod_addresses) = ("gw-1", vec![address]);
        Self { pod, node, node_address: address, pod_addresses, allocatable }
    }
}

impl FieldSource<'_> {
    /// The field at `path`, as text.
    ///
    /// # Errors
    /// There is no such field.
    pub(crate) fn field(&self, path: &str) -> Result<String, String> {
        let metadata = &self.pod.metadata;
        let owned = |text: &Option<String>| text.clone().unwrap_or_default();
        if let Some((map, key)) = subscript(path) {
            let entries = match map {
                "metadata.labels" => &metadata.labels,
                "metadata.annotations" => &metadata.annotations,
                _ => return Err(unknown(path)),
            };
            return Ok(entries.as_ref().and_then(|e| e.get(key)).cloned().unwrap_or_default());
        }
        Ok(match path {
            "metadata.name" => owned(&metadata.name),
            "metadata.namespace" => owned(&metadata.namespace),
            "metadata.uid" => owned(&metadata.uid),
            "metadata.labels" => lines(metadata.labels.as_ref()),
            "metadata.annotations" => lines(metadata.annotations.as_ref()),
            "spec.nodeName" => self.node.to_owned(),
            "spec.serviceAccountName" => account(self.pod).to_owned(),
            "status.hostIP" | "status.hostIPs" => self.node_address.to_string(),
            "status.podIP" => joined(self.pod_addresses.iter().take(1)),
            "status.podIPs" => joined(&self.pod_addresses),
            _ => return Err(unknown(path)),
        })
    }
}

/// Addresses as a kubelet writes them: with commas between them.
fn joined<'a>(addresses: impl IntoIterator<Item = &'a IpAddr>) -> String {
    let addresses: Vec<String> = addresses.into_iter().map(IpAddr::to_string).collect();
    addresses.join(",")
}

fn unknown(path: &str) -> String {
    format!("fieldRef {path:?} is not supported")
}

/// `metadata.labels['app']` is the map `metadata.labels` and the key `app`.
fn subscript(path: &str) -> Option<(&str, &str)> {
    path.strip_suffix("']")?.split_once("['")
}

/// One `key="value"` a line, sorted, as a kubelet writes them.
fn lines(entries: Option<&std::collections::BTreeMap<String, String>>) -> String {
    let lines: Vec<_> =
        entries.into_iter().flatten().map(|(key, value)| format!("{key}={value:?}")).collect();
    lines.join("\n")
}

/// A container's resource in units of the divisor, rounded up. As a kubelet decides it, a limit that
/// is not set is what the node has, and a request that is not set is the limit of the container, else
/// zero.
///
/// # Errors
/// There is no such resource or container.
pub(crate) fn resource(
    fields: &FieldSource<'_>,
    selector: &ResourceFieldSelector,
    own: Option<&Container>,
) -> Result<String, String> {
    let container = match &selector.container_name {
        Some(name) => all_containers(fields.pod)
            .find(|c| c.name == *name)
            .ok_or_else(|| format!("resourceFieldRef names no container: {name:?}"))?,
        None => own.ok_or("resourceFieldRef names no container")?,
    };
    let wanted = || format!("resourceFieldRef {:?} is not supported", selector.resource);
    let (set, name) = selector.resource.split_once('.').ok_or_else(wanted)?;
    let resources = container.resources.as_ref();
    let limit = || resources.and_then(|resources| resources.limits.as_ref()?.get(name));
    let request = || resources.and_then(|resources| resources.requests.as_ref()?.get(name));
    let amount = match set {
        "limits" => limit().map_or_else(|| allocatable(fields.allocatable, name), number)?,
        "requests" => request().or_else(limit).map_or(Ok(0.0), number)?,
        _ => return Err(wanted()),
    };
    // As in Kubernetes, a divisor of 0 is the default, 1.
    let divisor = selector.divisor.as_ref().map_or(Ok(1.0), number)?;
    let divisor = if divisor == 0.0 { 1.0 } else { divisor };
    Ok(format!("{:.0}", (amount / divisor).ceil()))
}

/// How much of a resource the node has for its pods, which is the limit of a container that has none of its own; none of
/// a resource that the node does not report.
fn allocatable(amounts: Amounts, resource: &str) -> Result<f64, String> {
    match resource {
        requests::CPU => number(&Quantity(format!("{}m", amounts.cpu_milli))),
        requests::MEMORY => number(&Quantity(amounts.memory_bytes.to_string())),
        requests::STORAGE => number(&Quantity(amounts.storage_bytes.to_string())),
        _ => Ok(0.0),
    }
}

/// A quantity as a number: `500m`, `64Mi`, `1e3`.
pub(crate) fn number(quantity: &Quantity) -> Result<f64, String> {
    const SUFFIXES: [(&str, f64); 15] = [
        ("Ki", 1024.0),
        ("Mi", 1_048_576.0),
        ("Gi", 1_073_741_824.0),
        ("Ti", 1_099_511_627_776.0),
        ("Pi", 1_125_899_906_842_624.0),
        ("Ei", 1_152_921_504_606_846_976.0),
        ("n", 1e-9),
        ("u", 1e-6),
        ("m", 1e-3),
        ("k", 1e3),
        ("M", 1e6),
        ("G", 1e9),
        ("T", 1e12),
        ("P", 1e15),
        ("E", 1e18),
    ];
    let text = quantity.0.as_str();
    let (digits, factor) = SUFFIXES
        .iter()
        .find_map(|(suffix, factor)| Some((text.strip_suffix(suffix)?, *factor)))
        .unwrap_or((text, 1.0));
    let number: f64 = digits.parse().map_err(|_| format!("{text:?} is not a quantity"))?;
    Ok(number * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_addresses_of_a_pod_with_two_are_joined_and_its_address_is_the_first() {
        let pod = Pod::default();
        let addresses = ["10.244.0.7", "fd00::7"].map(|it| it.parse().expect("an address"));
        let fields =
            FieldSource { pod_addresses: addresses.into(), ..FieldSource::on_a_test_node(&pod) };
        for (path, text) in [
            ("status.podIP", "10.244.0.7"),
            ("status.podIPs", "10.244.0.7,fd00::7"),
            ("status.hostIP", "127.0.0.1"),
            ("status.hostIPs", "127.0.0.1"),
        ] {
            assert_eq!(fields.field(path).as_deref(), Ok(text), "{path}");
        }
    }
}
