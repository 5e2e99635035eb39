//! The parts of the cloud as processes of their own, in words.

use std::path::PathBuf;

use clap::Args;

use super::running::Running;
use crate::kafka::KafkaArgs;
use crate::settings::Flags;
use crate::tls::TlsArgs;

/// What every part takes.
#[derive(Debug, Args)]
pub(crate) struct Process {
    /// Data directory, of this part alone [default: headwater-data]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) running: Running,
    /// Check the settings and the files that they name without starting, and stop (exit status
    /// 2: something is wrong)
    #[arg(long, conflicts_with = "print_config")]
    pub(crate) check: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Controller {
    /// Folder of Kubernetes manifests: YAML or JSON, folders in it too
    #[arg(long, value_name = "DIR")]
    pub(crate) manifests: Option<PathBuf>,
    /// Take objects as JSON lines on this unix socket, which is made
    #[arg(long, value_name = "SOCKET")]
    pub(crate) objects: Option<PathBuf>,
    /// The nodes that there are besides those that the objects name: how many (named node-1,
    /// node-2, ...), or their names, comma-separated
    #[arg(long, value_name = "N|NAME,...")]
    pub(crate) nodes: Option<String>,
    /// Go on when every manifest is gone at once, and remove what they described
    #[arg(long)]
    pub(crate) allow_empty: bool,
    #[command(flatten)]
    pub(crate) kafka: KafkaArgs,
    #[command(flatten)]
    pub(crate) process: Process,
}

#[derive(Debug, Args)]
pub(crate) struct Hub {
    /// Where edges connect; port 0 is any free one. Where it is stands in DIR/hub.addr
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<String>,
    /// The hub's name, as `status` says which hub serves a node [default: the host's name]
    #[arg(long)]
    pub(crate) name: Option<String>,
    #[command(flatten)]
    pub(crate) tls: TlsArgs,
    #[command(flatten)]
    pub(crate) kafka: KafkaArgs,
    #[command(flatten)]
    pub(crate) process: Process,
}

impl Process {
    /// The flags given.
    pub(crate) fn flags(&self) -> Flags {
        self.running.flags().with("data", self.data.as_ref())
    }
}

impl Controller {
    /// The flags given.
    pub(crate) fn flags(&self) -> Flags {
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
    pub(crate) fn flags(&self) -> Flags {
        self.tls
            .flags(self.process.flags().all(self.kafka.given()))
            .with("listen", self.listen.as_ref())
            .with("name", self.name.as_ref())
    }
}
