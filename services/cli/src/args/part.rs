//! The arguments of `controller` and `hub`.

use std::path::PathBuf;

use clap::Args;
use headwater_settings::Flags;

use super::edge::KubeletArgs;
use super::kafka::KafkaArgs;
use super::kubernetes::KubernetesArgs;
use super::run::RunArgs;
use super::tls::TlsArgs;

/// The arguments of every part.
#[derive(Debug, Args)]
pub struct Process {
    /// Data directory of this part [default: headwater-data]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    #[command(flatten)]
    pub running: RunArgs,
    /// Check the settings and the files that they name, and exit without a start (exit status 2: a
    /// setting is invalid)
    #[arg(long, conflicts_with = "print_config")]
    pub check: bool,
}

#[derive(Debug, Args)]
pub struct Controller {
    /// Folder of Kubernetes manifests: YAML or JSON, with subfolders
    #[arg(long, value_name = "DIR", conflicts_with_all = ["kubeconfig", "in_cluster"])]
    pub manifests: Option<PathBuf>,
    /// Receive objects as JSON lines on this unix socket, which the controller creates
    #[arg(long, value_name = "SOCKET", conflicts_with_all = ["kubeconfig", "in_cluster"])]
    pub objects: Option<PathBuf>,
    #[command(flatten)]
    pub kubernetes: KubernetesArgs,
    /// The nodes besides those that the objects name: their number (named node-1, node-2, ...), or
    /// their names, comma-separated
    #[arg(long, value_name = "N|NAME,...")]
    pub nodes: Option<String>,
    /// When all manifests disappear at once, remove their objects
    #[arg(long)]
    pub allow_empty: bool,
    /// Refuse manifests that a cluster would not accept (unknown fields, a selector that does not
    /// match its template, a mistyped kind, a key twice) instead of a warning
    #[arg(long)]
    pub strict: bool,
    /// Address for hubs, which send the presence of their nodes; port 0 chooses a free port
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<String>,
    /// Where hubs reach that address [default: the address itself]
    #[arg(long, value_name = "HOST:PORT")]
    pub advertise: Option<String>,
    #[command(flatten)]
    pub tls: TlsArgs,
    #[command(flatten)]
    pub kafka: KafkaArgs,
    #[command(flatten)]
    pub process: Process,
}

#[derive(Debug, Args)]
pub struct Hub {
    /// Address for edges; port 0 chooses a free port. DIR/hub.addr has the address in use
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<String>,
    /// Name of the hub in `status` [default: the host's name]
    #[arg(long)]
    pub name: Option<String>,
    #[command(flatten)]
    pub kubelet: KubeletArgs,
    #[command(flatten)]
    pub tls: TlsArgs,
    #[command(flatten)]
    pub kafka: KafkaArgs,
    #[command(flatten)]
    pub process: Process,
}

impl Process {
    /// Returns the flags that were given.
    pub fn flags(&self) -> Flags {
        self.running.flags().with("data", self.data.as_ref())
    }
}

impl Controller {
    /// Returns the flags that were given.
    pub fn flags(&self) -> Flags {
        self.tls
            .flags(self.process.flags().all(self.kafka.given()).all(self.kubernetes.given()))
            .with("listen", self.listen.as_ref())
            .with("advertise", self.advertise.as_ref())
            .with("manifests", self.manifests.as_ref())
            .with("objects", self.objects.as_ref())
            .with("nodes", self.nodes.as_ref())
            .switch("allow_empty", self.allow_empty)
            .switch("strict", self.strict)
    }
}

impl Hub {
    /// Returns the flags that were given.
    pub fn flags(&self) -> Flags {
        self.tls
            .flags(self.process.flags().all(self.kafka.given()))
            .with("listen", self.listen.as_ref())
            .with("name", self.name.as_ref())
            .all(self.kubelet.given())
    }
}
