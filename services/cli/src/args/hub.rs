//! The flags of the commands that reach pods through a hub.

use clap::Args;
use headwater_event::NodeName;

use super::tls::TlsArgs;

/// The hub through which a command reaches a pod.
#[derive(Clone, Debug, Default, Args)]
pub struct HubArgs {
    /// Reach the pod through this port of a hub, from any machine: that of its --kubelet-listen
    #[arg(long, value_name = "HOST:PORT")]
    pub hub: Option<String>,
    /// The pod's node: with --hub, the container is the pod's first one then, too
    #[arg(long, value_name = "NAME", requires = "hub")]
    pub node: Option<NodeName>,
    #[command(flatten)]
    pub tls: TlsArgs,
}
