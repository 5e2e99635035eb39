//! The arguments of `edge` and `edged`.

use std::path::PathBuf;

use clap::Args;
use headwater_settings::{Flags, Runtime};

use super::part::Process;
use super::tls::TlsArgs;

/// What runs the pods of a node.
#[derive(Debug, Args)]
pub struct Pods {
    /// What runs the pods; there is no default, for `process` runs any pod's command as this user
    #[arg(long)]
    pub runtime: Option<Runtime>,
    /// Run pods as root, where this is root and they are processes of this host
    #[arg(long)]
    pub allow_root: bool,
}

#[derive(Debug, Args)]
pub struct Edge {
    /// The node
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,
    /// Where hubs listen: any of them will do, and each is tried when another does not answer
    #[arg(long, value_name = "HOST:PORT,...")]
    pub hub: Option<String>,
    #[command(flatten)]
    pub pods: Pods,
    /// Run no pods: `headwater edged` does, as a process of its own
    #[arg(long)]
    pub no_edged: bool,
    /// How often the pod status snapshot is derived besides on change [default: 60s]
    #[arg(long, value_name = "DURATION")]
    pub sync_interval: Option<humantime::Duration>,
    #[command(flatten)]
    pub tls: TlsArgs,
    #[command(flatten)]
    pub process: Process,
}

#[derive(Debug, Args)]
pub struct Edged {
    /// The local API of the node's edge: DIR/nodes/NAME/edge.sock of the edge's data directory
    #[arg(long, value_name = "SOCKET")]
    pub edge: Option<PathBuf>,
    /// The node
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,
    #[command(flatten)]
    pub pods: Pods,
    #[command(flatten)]
    pub process: Process,
}

impl Pods {
    /// `flags`, and those given here.
    fn flags(&self, flags: Flags) -> Flags {
        flags.with("runtime", self.runtime).switch("allow_root", self.allow_root)
    }
}

impl Edge {
    /// The flags given.
    pub fn flags(&self) -> Flags {
        let no_edged = self.no_edged.then(|| ("edged".to_owned(), "no-edged", false.into()));
        self.pods
            .flags(self.tls.flags(self.process.flags()))
            .with("node", self.node.as_ref())
            .with("hub", self.hub.as_ref())
            .with("sync_interval", self.sync_interval.map(|interval| interval.to_string()))
            .all(no_edged.into_iter().collect())
    }
}

impl Edged {
    /// The flags given.
    pub fn flags(&self) -> Flags {
        self.pods
            .flags(self.process.flags())
            .with("edge", self.edge.as_ref())
            .with("node", self.node.as_ref())
    }
}
