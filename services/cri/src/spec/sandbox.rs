//! What a sandbox is asked to be.

use headwater_edged::container::WaitReason;
use headwater_edged::pod::PodRecord;
use k8s_openapi::api::core::v1::Pod;

use super::dns::dns_config;
use super::hostname::PodName;
use super::labels::{log_directory, sandbox_annotations, sandbox_labels};
use super::pod_resources::{overhead_resources, sandbox_resources};
use super::ports::port_mappings;
use super::sysctls::sysctls;
use super::{NodeFacts, cgroup_parent, refused, security, spec};
use crate::proto::{LinuxPodSandboxConfig, PodSandboxConfig, PodSandboxMetadata};

/// Decides what the sandbox of a pod is asked to be (`kuberuntime_sandbox.go`,
/// `generatePodSandboxConfig`). `attempt` is its number, from 0.
///
/// # Errors
/// The pod asks for something that the runtime or the machine does not have.
pub fn sandbox_config(
    pod: &Pod,
    record: &PodRecord,
    attempt: u32,
    node: &NodeFacts,
) -> Result<PodSandboxConfig, WaitReason> {
    let (name, namespace) = (record.key.name(), record.key.namespace().unwrap_or_default());
    let hostname = if spec(pod).host_network == Some(true) {
        // The host's name stays: a runtime refuses another one.
        String::new()
    } else {
        PodName::of(pod, name, namespace, node)?.of_kernel(pod)?
    };
    let of_driver = |driver| cgroup_parent(&node.cgroup_root, driver, pod, &record.uid);
    let cgroup_parent = node.cgroup_driver.map(of_driver);
    Ok(PodSandboxConfig {
        metadata: Some(PodSandboxMetadata {
            name: name.to_owned(),
            uid: record.uid.as_str().to_owned(),
            namespace: namespace.to_owned(),
            attempt,
        }),
        hostname,
        log_directory: log_directory(record, node).to_string_lossy().into_owned(),
        dns_config: Some(dns_config(pod, namespace, node)),
        port_mappings: port_mappings(pod)?,
        labels: sandbox_labels(pod, record, node),
        annotations: sandbox_annotations(pod),
        linux: Some(LinuxPodSandboxConfig {
            cgroup_parent: cgroup_parent.unwrap_or_default(),
            security_context: Some(security::of_sandbox(pod, node)?),
            sysctls: sysctls(pod, node)?,
            overhead: overhead_resources(pod),
            resources: Some(sandbox_resources(pod)),
        }),
    })
}

/// The handler of the runtime that runs the pod: the one of its RuntimeClass, else the default one,
/// whose name is empty.
///
/// # Errors
/// The node does not know the class, or the runtime does not have its handler.
pub fn runtime_handler(pod: &Pod, node: &NodeFacts) -> Result<String, WaitReason> {
    let class = spec(pod).runtime_class_name.as_deref().filter(|class| !class.is_empty());
    let Some(class) = class else { return Ok(String::new()) };
    let Some(handler) = node.runtime_classes.get(class) else {
        return Err(refused(format!(
            "spec.runtimeClassName: the node does not know RuntimeClass {class:?}"
        )));
    };
    // A runtime that names no handlers refuses one that it does not have by itself.
    if !node.handlers.is_empty() && !node.handlers.contains_key(handler) {
        return Err(refused(format!(
            "spec.runtimeClassName: the runtime has no handler {handler:?}, which RuntimeClass \
             {class:?} names"
        )));
    }
    Ok(handler.clone())
}
