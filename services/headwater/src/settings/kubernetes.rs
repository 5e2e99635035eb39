//! The settings of a controller that follows a Kubernetes API: the `[kubernetes]` table.

use std::path::PathBuf;

use headwater_kubernetes::{
    Access, ActAs, EDGE_NODES, EventLevel, KubeletAddress, KubernetesSettings, OfflinePolicy,
    check_selector,
};
use headwater_settings::InvalidSetting;
use serde::{Deserialize, Serialize};

/// The table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Kubernetes {
    /// The kubeconfig by which the API is reached.
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Its context; `None`: the current one.
    pub(crate) context: Option<String>,
    /// Whether the API is that of the cluster in which the controller runs as a pod.
    pub(crate) in_cluster: bool,
    /// The label selector of edge nodes.
    pub(crate) node_selector: String,
    /// The label selector of Services, Endpoints and EndpointSlices; `None`: all.
    pub(crate) service_selector: Option<String>,
    /// Whether Endpoints are taken besides EndpointSlices.
    pub(crate) endpoints: bool,
    /// Whether the objects of another cluster replace those in the log.
    pub(crate) allow_other_cluster: bool,
    /// As whom the controller writes about a node.
    pub(crate) act_as: ActAs,
    /// What becomes of the pods of a node that is away.
    pub(crate) offline: OfflinePolicy,
    /// Which Events of the nodes the controller writes.
    pub(crate) events: EventLevel,
    /// Where API servers reach the kubelet's servers of the nodes: a hub; `None`: at each node.
    pub(crate) kubelet_address: Option<String>,
}

impl Default for Kubernetes {
    fn default() -> Self {
        Self {
            kubeconfig: None,
            context: None,
            in_cluster: false,
            node_selector: EDGE_NODES.to_owned(),
            service_selector: None,
            endpoints: false,
            allow_other_cluster: false,
            act_as: ActAs::default(),
            offline: OfflinePolicy::default(),
            events: EventLevel::default(),
            kubelet_address: None,
        }
    }
}

impl Kubernetes {
    /// How the API is reached; `None`: the controller follows no API.
    pub(crate) fn access(&self) -> Option<Access> {
        match &self.kubeconfig {
            Some(file) => {
                Some(Access::Kubeconfig { file: file.clone(), context: self.context.clone() })
            }
            None => self.in_cluster.then_some(Access::InCluster),
        }
    }

    /// Where the objects are from, in words; `None`: from no API.
    pub(crate) fn origin(&self) -> Option<String> {
        self.access().map(|access| match access {
            Access::Kubeconfig { file, .. } => format!("the cluster of {}", file.display()),
            Access::InCluster => "the cluster of its pod".to_owned(),
        })
    }

    /// Which objects the source takes.
    pub(crate) fn source(&self) -> KubernetesSettings {
        KubernetesSettings {
            node_selector: self.node_selector.clone(),
            service_selector: self.service_selector.clone(),
            endpoints: self.endpoints,
            allow_other_cluster: self.allow_other_cluster,
        }
    }

    /// Where API servers reach the kubelet's servers of the nodes, if not at each node.
    pub(crate) fn kubelet(&self) -> Option<KubeletAddress> {
        self.kubelet_address.as_ref().and_then(|address| address.parse().ok())
    }

    /// Checks the table. `others` is whether the controller has another source, too.
    pub(crate) fn check(&self, others: bool) -> Result<(), InvalidSetting> {
        let selectors = [
            ("node_selector", Some(&self.node_selector)),
            ("service_selector", self.service_selector.as_ref()),
        ];
        for (name, selector) in selectors {
            if let Some(selector) = selector {
                check_selector(selector).map_err(|error| invalid(name, error))?;
            }
        }
        if let Some(address) = &self.kubelet_address {
            let parsed = address.parse::<KubeletAddress>();
            parsed.map_err(|error| invalid("kubelet_address", error))?;
        }
        if self.kubeconfig.is_some() && self.in_cluster {
            let what = "a controller follows one API: set kubeconfig or in_cluster, not both";
            return Err(invalid("in_cluster", what));
        }
        let Some(_) = self.access() else {
            return match &self.context {
                Some(_) => {
                    let what = "it is a context of a kubeconfig: set --kubeconfig FILE, too";
                    Err(invalid("context", what))
                }
                None => Ok(()),
            };
        };
        if others {
            let name = if self.in_cluster { "in_cluster" } else { "kubeconfig" };
            let what = "a controller that follows a Kubernetes API has no other source: unset \
                        manifests and objects, or run another controller on another log";
            return Err(invalid(name, what));
        }
        Ok(())
    }
}

fn invalid(name: &str, what: impl ToString) -> InvalidSetting {
    InvalidSetting::new(format!("kubernetes.{name}"), what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(change: impl FnOnce(&mut Kubernetes), others: bool) -> String {
        let mut table = Kubernetes::default();
        change(&mut table);
        let error = table.check(others).expect_err("it cannot be used");
        format!("{}: {}", error.key, error.reason)
    }

    #[test]
    fn a_table_that_cannot_be_used_is_named_with_what_to_do() {
        Kubernetes::default().check(true).expect("no API");
        let text = refused(|table| table.node_selector = "a b".into(), false);
        assert!(text.starts_with("kubernetes.node_selector: \"a b\" is no requirement"), "{text}");
        let text = refused(|table| table.context = Some("c".into()), false);
        assert!(
            text.starts_with("kubernetes.context: ") && text.contains("--kubeconfig"),
            "{text}"
        );
        let text = refused(|table| table.in_cluster = true, true);
        assert!(text.contains("unset manifests and objects"), "{text}");
        let both = |table: &mut Kubernetes| {
            (table.in_cluster, table.kubeconfig) = (true, Some("k".into()));
        };
        assert!(refused(both, false).contains("not both"));
    }
}
