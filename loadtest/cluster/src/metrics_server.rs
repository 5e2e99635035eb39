//! Kubernetes' server of metrics, which `kubectl top` asks through the API server. It asks the kubelets' servers of all nodes.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use headwater_daemon::{CacheFolder, Daemon, DaemonError, Readiness, free_ports};

use crate::error::ClusterError;
use crate::source;

/// Its folder in the cache.
const CACHE: &str = "metrics-server";

/// Its file, named after its package.
const PROGRAM: &str = "metrics-server";

/// The names of nodes are those of a file that only this server sees.
const SCRIPT: &str = "mount --bind \"$1\" /etc/hosts && shift && exec \"$@\"";

/// The time limit of a connection to it.
const CONNECT_WITHIN: Duration = Duration::from_secs(1);

/// The server; it is killed when dropped.
#[derive(Debug)]
pub struct MetricsServer {
    _daemon: Daemon,
    port: u16,
}

/// It listens on this port.
#[derive(Debug)]
struct Listens(u16);

impl Readiness for Listens {
    fn is_ready(&mut self) -> bool {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.0));
        TcpStream::connect_timeout(&address, CONNECT_WITHIN).is_ok()
    }
}

impl MetricsServer {
    /// Builds it, once on a machine, and starts it. `hosts`: each name with its address, for the nodes.
    /// `certificates` has those of a control plane, `folder` its own files.
    ///
    /// # Errors
    /// It cannot be had, or does not listen in time.
    pub fn start(
        kubeconfig: &Path,
        certificates: &Path,
        hosts: &[(&str, Ipv4Addr)],
        folder: &Path,
    ) -> Result<Self, ClusterError> {
        let cache = CacheFolder::find("the server of metrics", CACHE)?;
        let home = source::metrics_server().prepare(&cache, "go".as_ref(), |_| Ok(()))?;
        let [port] = free_ports()?;
        let file = folder.join("hosts");
        let lines = hosts.iter().map(|(name, address)| format!("{address} {name}\n"));
        let text = lines.fold("127.0.0.1 localhost\n".to_owned(), |text, line| text + &line);
        fs::write(&file, text).map_err(DaemonError::file(&file))?;
        let (kubeconfig, certificates) = (kubeconfig.display(), certificates.display());
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "--", "sh", "-c", SCRIPT, "sh"])
            .arg(&file)
            .arg(home.join(PROGRAM));
        command.args([
            format!("--secure-port={port}"),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--cert-dir={}", folder.join("certificates").display()),
            format!("--kubeconfig={kubeconfig}"),
            format!("--authentication-kubeconfig={kubeconfig}"),
            format!("--authorization-kubeconfig={kubeconfig}"),
            "--kubelet-insecure-tls".to_owned(),
            format!("--kubelet-client-certificate={certificates}/kubelet-client.crt"),
            format!("--kubelet-client-key={certificates}/kubelet-client.key"),
            "--kubelet-use-node-status-port".to_owned(),
            "--kubelet-preferred-address-types=InternalDNS".to_owned(),
            "--metric-resolution=10s".to_owned(),
            "--kubelet-request-timeout=5s".to_owned(),
        ]);
        let log = folder.join("metrics-server.log");
        let mut daemon = Daemon::new("the server of metrics", command, log, Listens(port));
        daemon.start()?;
        Ok(Self { _daemon: daemon, port })
    }

    /// Its port on loopback.
    pub fn port(&self) -> u16 {
        self.port
    }
}
