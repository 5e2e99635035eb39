//! A Kubernetes API on the command line.

use std::path::PathBuf;

use clap::Args;
use serde_json::Value;

/// The flags of a controller that follows a Kubernetes API.
#[derive(Clone, Debug, Default, Args)]
pub struct KubernetesArgs {
    /// Follow the Kubernetes API of this kubeconfig instead of manifests
    #[arg(long, value_name = "FILE", conflicts_with_all = ["manifests", "objects", "in_cluster"])]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig [default: its current context]
    #[arg(long, value_name = "NAME", requires = "kubeconfig")]
    pub context: Option<String>,
    /// Follow the Kubernetes API of the cluster in which the controller runs as a pod
    #[arg(long, conflicts_with_all = ["manifests", "objects"])]
    pub in_cluster: bool,
    /// Replace the objects in the log by those of this cluster, although they are of another one
    #[arg(long)]
    pub allow_other_cluster: bool,
}

impl KubernetesArgs {
    /// Returns the settings that were given: each with its key, the name of its flag, and its
    /// value.
    pub fn given(&self) -> Vec<(String, &'static str, Value)> {
        let file = self.kubeconfig.as_ref().map(|file| file.display().to_string());
        let flag = |is_on: bool| is_on.then_some(Value::Bool(true));
        [
            ("kubeconfig", "kubeconfig", file.map(Value::String)),
            ("context", "context", self.context.clone().map(Value::String)),
            ("in_cluster", "in-cluster", flag(self.in_cluster)),
            ("allow_other_cluster", "allow-other-cluster", flag(self.allow_other_cluster)),
        ]
        .into_iter()
        .filter_map(|(key, name, value)| Some((format!("kubernetes.{key}"), name, value?)))
        .collect()
    }
}
