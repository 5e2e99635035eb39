//! The pod of this machine that a command reaches, and the container in it.

use headwater_kubelet::client::NodeClient;
use k8s_openapi::api::core::v1::Pod;

use crate::args::Target;
use crate::exit::Failure;

/// A pod on a node of this machine.
pub(super) struct PodTarget {
    pub(super) node: NodeClient,
    pub(super) pod: Pod,
}

impl PodTarget {
    /// Finds the pod: `up` has several nodes, each with a pod worker of its own.
    pub(super) async fn find(
        target: &Target,
        namespace: &str,
        word: &str,
    ) -> Result<Self, Failure> {
        let name = pod_name(word)?;
        let nodes = NodeClient::all(&target.data)?;
        if nodes.is_empty() {
            return Err(Failure::message(format!(
                "no pod worker uses the directory {}: name with --data the directory of `headwater \
                 edge`, `edged` or `up` on the pod's own machine",
                target.data.display()
            )));
        }
        let mut unreachable = None;
        for node in nodes {
            // A socket without a server is of a process that was killed.
            let pods = match node.pods().await {
                Ok(pods) => pods,
                Err(error) => {
                    unreachable = Some(error);
                    continue;
                }
            };
            let is_meant = |pod: &Pod| {
                pod.metadata.name.as_deref() == Some(name)
                    && pod.metadata.namespace.as_deref() == Some(namespace)
            };
            if let Some(pod) = pods.into_iter().find(is_meant) {
                return Ok(Self { node, pod });
            }
        }
        match unreachable {
            Some(error) => Err(error.into()),
            None => Err(Failure::not_found("pods", name)),
        }
    }

    /// The pod's name.
    pub(super) fn name(&self) -> &str {
        self.pod.metadata.name.as_deref().unwrap_or_default()
    }

    /// The container that is meant: the first one, unless another is named.
    pub(super) fn container(&self, named: Option<&str>) -> Result<String, Failure> {
        let containers = self.pod.spec.iter().flat_map(|spec| &spec.containers);
        let first = containers.map(|container| container.name.as_str()).next();
        let name = named.or(first);
        name.map(str::to_owned).ok_or_else(|| Failure::message("the pod has no containers"))
    }
}

/// The pod's name in `NAME` or `pod/NAME`.
fn pod_name(word: &str) -> Result<&str, Failure> {
    match word.split_once('/') {
        None => Ok(word),
        Some(("pod" | "pods" | "po", name)) => Ok(name),
        Some((of, _)) => Err(Failure::Usage(format!("{of} is no pod: name a pod"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_named_with_its_type_or_without() {
        for word in ["web", "pod/web", "po/web"] {
            assert_eq!(pod_name(word).expect("a pod"), "web");
        }
        assert!(matches!(pod_name("svc/web"), Err(Failure::Usage(_))));
    }
}
