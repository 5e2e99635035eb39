//! The names of resources that device plugins have, and what containers ask of them. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod};

use crate::container::quantity::value;
use crate::pod::{init_containers, is_sidecar, main_containers};

/// The domain of what Kubernetes itself has.
const OWN_DOMAIN: &str = "kubernetes.io/";

/// The beginning of names in quotas.
const OF_QUOTAS: &str = "requests.";

/// The longest name after the domain.
const NAME_BYTES_MAX: usize = 63;

/// The longest domain, with the beginning that quotas put before it.
const DOMAIN_BYTES_MAX: usize = 253 - OF_QUOTAS.len();

/// What one container asks of one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) container: String,
    /// The container ends before the next one starts, and leaves its devices to those after it.
    pub(super) is_step: bool,
    pub(super) resource: String,
    pub(super) count: usize,
}

/// Whether a device plugin can have a resource of this name: a qualified one of a domain that is not Kubernetes' own
/// (`IsExtendedResourceName`).
pub fn is_extended(name: &str) -> bool {
    let Some((domain, last)) = name.split_once('/') else { return false };
    let is_own = name.contains(OWN_DOMAIN) || name.starts_with(OF_QUOTAS);
    let is_end = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let is_label = |label: &str| {
        let is_part = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        let ends = (label.as_bytes().first(), label.as_bytes().last());
        is_end(ends.0) && is_end(ends.1) && label.bytes().all(is_part)
    };
    let is_last = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    !is_own
        && domain.len() <= DOMAIN_BYTES_MAX
        && domain.split('.').all(is_label)
        && last.len() <= NAME_BYTES_MAX
        && is_end(last.as_bytes().first())
        && is_end(last.as_bytes().last())
        && last.bytes().all(is_last)
}

/// The devices that the container asks for, by resource.
pub(super) fn devices_of(container: &Container) -> BTreeMap<&str, usize> {
    let limits = container.resources.iter().flat_map(|own| own.limits.iter().flatten());
    let devices = limits.filter(|(name, _)| is_extended(name)).filter_map(|(name, limit)| {
        let count = usize::try_from(value(limit)?).ok()?;
        (count > 0).then_some((name.as_str(), count))
    });
    devices.collect()
}

/// What the containers of the pod ask for, in the order in which they start.
pub(super) fn requests(pod: &Pod) -> Vec<Request> {
    let steps = init_containers(pod).iter().map(|it| (it, !is_sidecar(it)));
    let mains = main_containers(pod).iter().map(|it| (it, false));
    let of = |(container, is_step): (&Container, bool)| {
        let devices = devices_of(container).into_iter();
        let request = |(resource, count): (&str, usize)| Request {
            container: container.name.clone(),
            is_step,
            resource: resource.to_owned(),
            count,
        };
        devices.map(request).collect::<Vec<_>>()
    };
    steps.chain(mains).flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_plugin_has_a_qualified_name_of_a_foreign_domain() {
        for name in ["example.com/gpu", "a/b", "x-1.example.com/A_b.c-d"] {
            assert!(is_extended(name), "{name}");
        }
        let long = format!("example.com/{}", "a".repeat(64));
        let wide = format!("{}/gpu", "a.".repeat(130));
        for name in [
            "",
            "cpu",
            "gpu",
            "/gpu",
            "example.com/",
            "example.com/../x",
            "../x",
            "../../etc/passwd",
            "a/b/c",
            "kubernetes.io/gpu",
            "node.kubernetes.io/gpu",
            "requests.example.com/gpu",
            "Example.com/gpu",
            "-a/b",
            "a..b/c",
            "a/-b",
            "a/b\0",
            "a/b c",
            "ü/b",
            &long,
            &wide,
        ] {
            assert!(!is_extended(name), "{name:?}");
        }
    }

    #[test]
    fn requests_come_in_the_order_of_starts() {
        let of = |name: &str, limits: serde_json::Value| json!({"name": name, "resources": {"limits": limits}});
        let mut sidecar = of("side", json!({"e.com/a": "1"}));
        sidecar["restartPolicy"] = json!("Always");
        let spec = json!({
            "initContainers": [of("init", json!({"e.com/a": "2", "cpu": "1"})), sidecar],
            "containers": [of("main", json!({"e.com/b": 1, "e.com/a": "3", "e.com/none": "0"}))],
        });
        let pod: Pod = serde_json::from_value(json!({"spec": spec})).expect("a pod");
        let found: Vec<_> = requests(&pod)
            .into_iter()
            .map(|it| format!("{} {} {} {}", it.container, it.is_step, it.resource, it.count))
            .collect();
        let wanted = [
            "init true e.com/a 2",
            "side false e.com/a 1",
            "main false e.com/a 3",
            "main false e.com/b 1",
        ];
        assert_eq!(found, wanted);
    }
}
