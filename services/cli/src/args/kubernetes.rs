//! A Kubernetes API on the command line.

use std::path::PathBuf;

use clap::Args;
use serde_json::Value;

/// The flags that name a Kubernetes API.
#[derive(Clone, Debug, Default, Args)]
pub struct ApiArgs {
    /// Kubeconfig by which the Kubernetes API is reached
    #[arg(long, value_name = "FILE", conflicts_with = "in_cluster")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig [default: its current context]
    #[arg(long, value_name = "NAME", requires = "kubeconfig")]
    pub context: Option<String>,
    /// The Kubernetes API is that of the cluster in which the command runs in a pod
    #[arg(long)]
    pub in_cluster: bool,
    /// As whom the controller writes about a node: as that node, which needs Kubernetes 1.36, or with
    /// its own rights [default: node]
    #[arg(long, value_parser = ["node", "self"])]
    pub act_as: Option<String>,
}

/// The flags of a controller that follows a Kubernetes API.
#[derive(Clone, Debug, Default, Args)]
pub struct KubernetesArgs {
    #[command(flatten)]
    pub api: ApiArgs,
    /// Replace the objects in the log by those of this cluster, although they are of another one
    #[arg(long)]
    pub allow_other_cluster: bool,
}

impl ApiArgs {
    /// Returns the settings that were given: each with its key, the name of its flag, and its
    /// value.
    pub fn given(&self) -> Vec<(String, &'static str, Value)> {
        let file = self.kubeconfig.as_ref().map(|file| file.display().to_string());
        [
            ("kubeconfig", "kubeconfig", file.map(Value::String)),
            ("context", "context", self.context.clone().map(Value::String)),
            ("in_cluster", "in-cluster", switch(self.in_cluster)),
            ("act_as", "act-as", self.act_as.clone().map(Value::String)),
        ]
        .into_iter()
        .filter_map(|(key, name, value)| Some((format!("kubernetes.{key}"), name, value?)))
        .collect()
    }
}

impl KubernetesArgs {
    /// Returns the settings that were given: each with its key, the name of its flag, and its
    /// value.
    pub fn given(&self) -> Vec<(String, &'static str, Value)> {
        let mut given = self.api.given();
        let key = "kubernetes.allow_other_cluster".to_owned();
        given.extend(switch(self.allow_other_cluster).map(|on| (key, "allow-other-cluster", on)));
        given
    }
}

fn switch(is_on: bool) -> Option<Value> {
    is_on.then_some(Value::Bool(true))
}
