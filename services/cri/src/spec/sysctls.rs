//! The kernel parameters that a pod sets in its own namespaces (`pkg/kubelet/sysctl`).

use headwater_edged::container::WaitReason;
use k8s_openapi::api::core::v1::Pod;

use super::StringMap;
use super::{NodeFacts, pod_security, refused, spec};

/// Parameters that are of the pod alone and have no effect on another one (`safe_sysctls.go`). Every
/// kernel that is maintained has all of them in its namespaces.
const SAFE: [&str; 12] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
];

/// The beginnings of parameters that the namespace of the network has.
const NETWORK: [&str; 1] = ["net."];

/// Those that the namespace of inter-process communication has
/// (`component-helpers/node/util/sysctl/namespace.go`).
const COMMUNICATION: [&str; 4] = ["kernel.shm", "kernel.msg", "kernel.sem", "fs.mqueue."];

/// The node cannot allow a parameter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} cannot be allowed, because no pod has it for itself: use a name below net., kernel.shm, kernel.msg, \
     kernel.sem or fs.mqueue., or such a beginning with a * after it, comma-separated"
)]
pub struct UnknownSysctl(String);

/// The parameters that a node allows besides the safe ones: names and beginnings of names (`net.*`), with commas between
/// them, as a kubelet's `allowedUnsafeSysctls`.
///
/// # Errors
/// A name is none, or no namespace has it.
pub fn allowed_sysctls(text: &str) -> Result<Vec<String>, UnknownSysctl> {
    let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
    words
        .map(|word| {
            let name = normalized(word);
            let plain = name.strip_suffix('*').unwrap_or(&name);
            let is_name = plain
                .bytes()
                .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'/'));
            let is_known = begins(plain, &NETWORK) || begins(plain, &COMMUNICATION);
            if is_name && is_known { Ok(name) } else { Err(UnknownSysctl(word.to_owned())) }
        })
        .collect()
}

/// The parameters that the pod sets.
///
/// # Errors
/// One is not safe and the node does not allow it, or it would change the host.
pub(super) fn sysctls(pod: &Pod, node: &NodeFacts) -> Result<StringMap, WaitReason> {
    let named = pod_security(pod).sysctls.iter().flatten().enumerate();
    named
        .map(|(index, sysctl)| {
            let name = normalized(&sysctl.name);
            check(&name, pod, node).map_err(|why| {
                refused(format!("spec.securityContext.sysctls[{index}]: {name:?} {why}"))
            })?;
            Ok((name, sysctl.value.clone()))
        })
        .collect()
}

fn check(name: &str, pod: &Pod, node: &NodeFacts) -> Result<(), &'static str> {
    let is_allowed = |pattern: &String| match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => name == pattern,
    };
    if !SAFE.contains(&name) && !node.allowed_sysctls.iter().any(is_allowed) {
        return Err("is not safe: use a safe one, or allow it on the node (allowed_sysctls)");
    }
    let shares = |shared: Option<bool>| shared == Some(true);
    if begins(name, &NETWORK) {
        if shares(spec(pod).host_network) {
            return Err("would change the host: not with hostNetwork");
        }
    } else if begins(name, &COMMUNICATION) {
        if shares(spec(pod).host_ipc) {
            return Err("would change the host: not with hostIPC");
        }
    } else {
        return Err("is of the whole machine: no namespace has it");
    }
    Ok(())
}

fn begins(name: &str, prefixes: &[&str]) -> bool {
    prefixes.iter().any(|prefix| name.starts_with(prefix))
}

/// The name with dots, by the rule of sysctl.d(5): the first separator says which one is used.
fn normalized(name: &str) -> String {
    match name.find(['.', '/']) {
        Some(at) if name.as_bytes()[at] == b'/' => {
            let swapped = |character| match character {
                '/' => '.',
                '.' => '/',
                other => other,
            };
            name.chars().map(swapped).collect()
        }
        _ => name.to_owned(),
    }
}
