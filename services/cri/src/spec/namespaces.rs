//! What a pod's containers share with each other and with the host
//! (`pkg/kubelet/kuberuntime/util/util.go`).

use k8s_openapi::api::core::v1::Pod;

use super::spec;
use crate::proto::{NamespaceMode, NamespaceOption, UserNamespace};

/// The namespaces of a pod's sandbox and its containers. `target` is the container whose processes an
/// ephemeral container sees.
pub(super) fn namespaces(pod: &Pod, target: Option<&str>) -> NamespaceOption {
    let spec = spec(pod);
    let of_node = |is_shared: Option<bool>, otherwise: NamespaceMode| {
        if is_shared == Some(true) { NamespaceMode::Node } else { otherwise }
    };
    let own_processes = if spec.share_process_namespace == Some(true) {
        NamespaceMode::Pod
    } else {
        NamespaceMode::Container
    };
    let pid = of_node(spec.host_pid, own_processes);
    let target = target.filter(|_| pid == NamespaceMode::Container);
    NamespaceOption {
        network: of_node(spec.host_network, NamespaceMode::Pod).into(),
        pid: if target.is_some() { NamespaceMode::Target } else { pid }.into(),
        ipc: of_node(spec.host_ipc, NamespaceMode::Pod).into(),
        target_id: target.unwrap_or_default().to_owned(),
        // A pod with user ids of its own is refused.
        userns_options: Some(UserNamespace {
            mode: NamespaceMode::Node.into(),
            ..UserNamespace::default()
        }),
    }
}
