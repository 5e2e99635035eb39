//! The arguments of `controller` and `hub`.

use std::path::PathBuf;

use clap::Args;
use headwater_settings::Flags;

use super::kafka::KafkaArgs;
use super::run::RunArgs;
use super::tls::TlsArgs;

/// The arguments of every part.
#[derive(Debug, Args)]
pub struct Process {
    /// Data directory, of this part alone [default: headwater-data]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    #[command(flatten)]
    pub running: RunArgs,
    /// Check the settings and the files that they name without starting, and stop (exit status
    /// 2: something is wrong)
    #[arg(long, conflicts_with = "print_config")]
    pub check: bool,
}

#[derive(Debug, Args)]
pub struct Controller {
    /// Folder of Kubernetes manifests: YAML or JSON, folders in it too
    #[arg(long, value_name = "DIR")]
    pub manifests: Option<PathBuf>,
    /// Take objects as JSON lines on this unix socket, which is made
    #[arg(long, value_name = "SOCKET")]
    pub objects: Option<PathBuf>,
    /// The nodes that there are besides those that the objects name: how many (named node-1,
    /// node-2, ...), or their names, comma-separated
    #[arg(long, value_name = "N|NAME,...")]
    pub nodes: Option<String>,
    /// Go on when every manifest is gone at once, and remove what they described
    #[arg(long)]
    pub allow_empty: bool,
    #[command(flatten)]
    pub kafka: KafkaArgs,
    #[command(flatten)]
    pub process: Process,
}

#[derive(Debug, Args)]
pub struct Hub {
    /// Address for edges; port 0 is any free one. DIR/hub.addr holds the address in use
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<String>,
    /// The hub's name, as `status` says which hub serves a node [default: the host's name]
    #[arg(long)]
    pub name: Option<String>,
    #[command(flatten)]
    pub tls: TlsArgs,
    #[command(flatten)]
    pub kafka: KafkaArgs,
    #[command(flatten)]
    pub process: Process,
}

impl Process {
    /// The flags given.
    pub fn flags(&self) -> Flags {
        self.running.flags().with("data", self.data.as_ref())
    }
}

impl Controller {
    /// The flags given.
    pub fn flags(&self) -> Flags {
        self.process
            .flags()
            .all(self.kafka.given())
            .with("manifests", self.manifests.as_ref())
            .with("objects", self.objects.as_ref())
            .with("nodes", self.nodes.as_ref())
            .switch("allow_empty", self.allow_empty)
    }
}

impl Hub {
    /// The flags given.
    pub fn flags(&self) -> Flags {
        self.tls
            .flags(self.process.flags().all(self.kafka.given()))
            .with("listen", self.listen.as_ref())
            .with("name", self.name.as_ref())
    }
}
