//! The arguments of `edge` and `edged`.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::Args;
use headwater_settings::{Events, Flags, Runtime};
use serde_json::Value;

use super::part::Process;
use super::tls::TlsArgs;

/// The container runtime of a node.
#[derive(Debug, Args)]
pub struct CriArgs {
    /// Socket of the container runtime, with `cri` [default: /run/containerd/containerd.sock]
    #[arg(long, value_name = "SOCKET")]
    pub cri_endpoint: Option<PathBuf>,
    /// Use the container runtime though it runs pods of another agent, with `cri`
    #[arg(long)]
    pub share_runtime: bool,
    /// Forbid what gives a pod the host, with `cri`: privileged, hostPath, hostNetwork, hostPID
    #[arg(long, value_name = "NAME,...")]
    pub forbid: Option<String>,
}

/// The server with a kubelet's paths.
#[derive(Debug, Args)]
pub struct KubeletArgs {
    /// Address at which API servers reach pods for `kubectl logs`, `exec`, `attach` and
    /// `port-forward`: a kubelet's has port 10250 or 10350. It needs certificates, in the settings
    /// file [default: none]
    #[arg(long, value_name = "IP:PORT")]
    pub kubelet_listen: Option<SocketAddr>,
    /// Serve --kubelet-listen without TLS, on a loopback address: every user of the machine may then
    /// run commands in pods
    #[arg(long)]
    pub kubelet_insecure_loopback: bool,
}

/// The runtime of the pods of a node.
#[derive(Debug, Args)]
pub struct Pods {
    /// Runtime of the pods. There is no default, because `process` runs every pod's command on this
    /// host: as the user that the pod names if this is root, otherwise as this user
    #[arg(long)]
    pub runtime: Option<Runtime>,
    /// Allow pods to run as root, as they then do with `process` if they name no user
    #[arg(long)]
    pub allow_root: bool,
    #[command(flatten)]
    pub cri: CriArgs,
    #[command(flatten)]
    pub kubelet: KubeletArgs,
    /// Number of pods that the node has room for; more of them fail
    /// [default: 110; hollow: 10000]
    #[arg(long, value_name = "N")]
    pub pods_max: Option<u32>,
    /// Address that the node states for itself and its pods [default: 127.0.0.1]
    #[arg(long, value_name = "IP")]
    pub node_address: Option<IpAddr>,
    /// Folder with pods of the node itself, one in each file: they run without a cloud [default: none]
    #[arg(long, value_name = "DIR")]
    pub static_pods: Option<PathBuf>,
    /// Events of the pods that the node sends to the cloud [default: warnings]
    #[arg(long)]
    pub events: Option<Events>,
}

#[derive(Debug, Args)]
pub struct Edge {
    /// The node
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,
    /// Addresses of hubs: the edge uses any of them, and tries another when one does not respond
    #[arg(long, value_name = "HOST:PORT,...")]
    pub hub: Option<String>,
    #[command(flatten)]
    pub pods: Pods,
    /// Run no pods: `headwater edged` runs them, as a process of its own
    #[arg(long)]
    pub no_edged: bool,
    /// Interval of the pod status snapshots, besides those on change [default: 60s]
    #[arg(long, value_name = "DURATION")]
    pub sync_interval: Option<humantime::Duration>,
    /// User that the local API serves besides this one and root; it needs --api-socket
    #[arg(long, value_name = "USER")]
    pub api_user: Option<String>,
    /// Socket of the local API, instead of nodes/NAME/edge.sock in the data directory
    #[arg(long, value_name = "SOCKET")]
    pub api_socket: Option<PathBuf>,
    #[command(flatten)]
    pub tls: TlsArgs,
    /// Name the node in metrics on an address beyond loopback, where it is numbered otherwise
    #[arg(long)]
    pub metrics_node_names: bool,
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
    /// Name the node in metrics on an address beyond loopback, where it is numbered otherwise
    #[arg(long)]
    pub metrics_node_names: bool,
    #[command(flatten)]
    pub process: Process,
}

impl Pods {
    /// Adds the flags given here to `flags`.
    fn flags(&self, flags: Flags) -> Flags {
        flags
            .with("runtime", self.runtime)
            .switch("allow_root", self.allow_root)
            .all(self.cri.given())
            .all(self.kubelet.given())
            .with("pods_max", self.pods_max)
            .with("node_address", self.node_address)
            .with("static_pods", self.static_pods.as_ref())
            .with("events", self.events)
    }
}

impl Edge {
    /// Returns the flags that were given.
    pub fn flags(&self) -> Flags {
        let no_edged = self.no_edged.then(|| ("edged".to_owned(), "no-edged", false.into()));
        self.pods
            .flags(self.tls.flags(self.process.flags()))
            .with("node", self.node.as_ref())
            .with("hub", self.hub.as_ref())
            .with("api_user", self.api_user.as_ref())
            .with("api_socket", self.api_socket.as_ref())
            .with("sync_interval", self.sync_interval.map(|interval| interval.to_string()))
            .switch("metrics_node_names", self.metrics_node_names)
            .all(no_edged.into_iter().collect())
    }
}

impl Edged {
    /// Returns the flags that were given.
    pub fn flags(&self) -> Flags {
        self.pods
            .flags(self.process.flags())
            .with("edge", self.edge.as_ref())
            .with("node", self.node.as_ref())
            .switch("metrics_node_names", self.metrics_node_names)
    }
}

impl KubeletArgs {
    /// The flags that were given: settings of the table `kubelet`.
    pub fn given(&self) -> Vec<(String, &'static str, Value)> {
        let listen = self.kubelet_listen.map(|address| {
            ("kubelet.listen".to_owned(), "kubelet-listen", address.to_string().into())
        });
        let insecure = self.kubelet_insecure_loopback;
        let insecure = insecure.then(|| {
            ("kubelet.insecure_loopback".to_owned(), "kubelet-insecure-loopback", true.into())
        });
        [listen, insecure].into_iter().flatten().collect()
    }
}

impl CriArgs {
    /// The flags that were given: settings of the table `cri`.
    pub fn given(&self) -> Vec<(String, &'static str, Value)> {
        let text = |path: &PathBuf| path.to_string_lossy().into_owned().into();
        let endpoint = self.cri_endpoint.as_ref();
        let endpoint = endpoint.map(|path| ("cri.endpoint".to_owned(), "cri-endpoint", text(path)));
        let shares = self.share_runtime;
        let shares = shares.then(|| ("cri.share_runtime".to_owned(), "share-runtime", true.into()));
        let forbid = self.forbid.as_ref();
        let forbid = forbid.map(|names| ("cri.forbid".to_owned(), "forbid", names.clone().into()));
        [endpoint, shares, forbid].into_iter().flatten().collect()
    }
}
