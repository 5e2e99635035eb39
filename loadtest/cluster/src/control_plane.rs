//! The parts together, their data, and their clients.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;

use headwater_daemon::{Daemon, DaemonError, DataFolder, free_ports};

use crate::audit::{AUDIT_POLICY, AuditLog};
use crate::certificates::{Certificates, write_private};
use crate::error::ClusterError;
use crate::flags::{FlagDependencies, Ports};
use crate::health::{Probe, Probes, TlsClient};
use crate::kubeconfig;
use crate::part::Part;
use crate::program::Program;

/// The user of [`ControlPlane::kubeconfig`], and the group that may do everything.
const ADMIN: &str = "admin";
const MASTERS: &str = "system:masters";

/// What shows that the controllers work: the first of them creates it, and no pod comes before.
const DEFAULT_ACCOUNT: &str = "/api/v1/namespaces/default/serviceaccounts/default";

/// How a control plane is to be.
#[derive(Clone, Debug)]
pub struct ControlPlaneSettings {
    /// The parts beside etcd and the API server, which are always there.
    pub parts: Vec<Part>,
    /// Flags of a part after those that it gets anyway. Of a flag that is there twice the last one
    /// counts, or both, if it is a list.
    pub flags: BTreeMap<Part, Vec<String>>,
    /// The folder of the data; else one that goes with the control plane. What is there already is
    /// started on as it is.
    pub data: Option<PathBuf>,
    /// The port of the API; else any that is free.
    pub port: Option<u16>,
    /// Whether the API server keeps an audit log: [`ControlPlane::audit_log`].
    pub audit: bool,
}

impl Default for ControlPlaneSettings {
    fn default() -> Self {
        let (parts, flags) = (Part::ALL.to_vec(), BTreeMap::new());
        Self { parts, flags, data: None, port: None, audit: false }
    }
}

/// A control plane; its parts are killed when it is dropped.
#[derive(Debug)]
pub struct ControlPlane {
    parts: BTreeMap<Part, Daemon>,
    program: Program,
    certificates: Certificates,
    server: String,
    kubeconfig: PathBuf,
    /// Dropped after the parts.
    folder: DataFolder,
}

impl ControlPlane {
    /// Starts one; when this returns, its API answers, pods can be created, and each part is ready.
    ///
    /// # Errors
    /// The program cannot be had, or a part is not ready in time.
    pub fn start(settings: ControlPlaneSettings) -> Result<Self, ClusterError> {
        if let Some(port) = settings.port {
            TcpListener::bind((Ipv4Addr::LOCALHOST, port))
                .map_err(|source| ClusterError::PortTaken { port, source })?;
        }
        let program = Program::prepare()?;
        let folder = DataFolder::open(settings.data)?;
        let [api, etcd, etcd_peers, controller_manager, scheduler] = free_ports()?;
        let api = settings.port.unwrap_or(api);
        let ports = Ports { api, etcd, etcd_peers, controller_manager, scheduler };
        let certificates = Certificates::open(folder.path().join("certificates"))?;
        let mut cluster = Self {
            parts: BTreeMap::new(),
            program,
            certificates,
            server: format!("https://127.0.0.1:{api}"),
            kubeconfig: folder.path().join("kubeconfig"),
            folder,
        };
        cluster.write_kubeconfig(&cluster.kubeconfig, ADMIN, Some(MASTERS))?;
        let mut parts = BTreeSet::from([Part::Etcd, Part::ApiServer]);
        parts.extend(settings.parts);
        let has_controllers = parts.contains(&Part::ControllerManager);
        for part in parts {
            let mut more = settings.flags.get(&part).cloned().unwrap_or_default();
            if part == Part::ApiServer && settings.audit {
                more.extend(cluster.audit_flags()?);
            }
            let daemon = cluster.daemon(part, ports, has_controllers, &more)?;
            cluster.parts.insert(part, daemon);
        }
        cluster.resume()?;
        Ok(cluster)
    }

    fn daemon(
        &self,
        part: Part,
        ports: Ports,
        has_controllers: bool,
        more: &[String],
    ) -> Result<Daemon, ClusterError> {
        let name = part.name();
        let data = self.folder.path();
        let kubeconfig = data.join(format!("{name}.kubeconfig"));
        if let Some(user) = user_of(part) {
            self.write_kubeconfig(&kubeconfig, user, None)?;
        }
        let dependencies = FlagDependencies {
            ports,
            certificates: &self.certificates,
            data,
            kubeconfig: &kubeconfig,
            has_controllers,
        };
        let mut command = self.program.command(name);
        command.args(dependencies.of(part)).args(more);
        let probes = Probes(self.probes(part, ports)?);
        Ok(Daemon::new(name, command, data.join(format!("{name}.log")), probes))
    }

    fn probes(&self, part: Part, ports: Ports) -> Result<Vec<Probe>, ClusterError> {
        let authority = &self.certificates.authority;
        let credentials = authority.issue_client(ADMIN, Some(MASTERS))?;
        let tls = Some(TlsClient::new(authority, &credentials)?);
        let port = ports.api;
        Ok(match part {
            Part::Etcd => vec![Probe { port: ports.etcd, path: "/readyz", tls: None }],
            Part::ApiServer => vec![Probe { port, path: "/readyz", tls }],
            Part::ControllerManager => vec![
                Probe { port: ports.controller_manager, path: "/healthz", tls: tls.clone() },
                Probe { port, path: DEFAULT_ACCOUNT, tls },
            ],
            Part::Scheduler => vec![Probe { port: ports.scheduler, path: "/readyz", tls }],
        })
    }

    /// Starts the parts that do not run, on their data, and returns when they are ready.
    ///
    /// # Errors
    /// A part is not ready in time.
    pub fn resume(&mut self) -> Result<(), ClusterError> {
        for part in [Part::Etcd, Part::ApiServer] {
            self.part(part).start()?;
        }
        // The others give up if the API is long in coming, and need nothing of each other.
        for daemon in self.parts.values_mut() {
            daemon.begin()?;
        }
        for daemon in self.parts.values_mut() {
            daemon.started()?;
        }
        Ok(())
    }

    /// Stops the parts in an orderly way, the last one first. The data stays.
    ///
    /// # Errors
    /// A process cannot be signalled.
    pub fn stop(&mut self) -> Result<(), ClusterError> {
        Ok(self.parts.values_mut().rev().try_for_each(Daemon::stop)?)
    }

    /// Kills all parts at once, as `kill -9` does. The data stays.
    ///
    /// # Errors
    /// A process cannot be signalled.
    pub fn kill(&mut self) -> Result<(), ClusterError> {
        Ok(self.parts.values_mut().try_for_each(Daemon::kill)?)
    }

    /// One of its parts.
    ///
    /// # Panics
    /// The settings left it out.
    pub fn part(&mut self, part: Part) -> &mut Daemon {
        let daemon = self.parts.get_mut(&part);
        daemon.unwrap_or_else(|| panic!("a control plane without {}", part.name()))
    }

    /// The address of the API, such as `https://127.0.0.1:6443`.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// The kubeconfig of an administrator, who may do everything.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// A kubeconfig of `user`, in `group`: without a group, or a right of its own, the user may do
    /// next to nothing.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn kubeconfig_of(&self, user: &str, group: Option<&str>) -> Result<PathBuf, ClusterError> {
        let folder = self.folder.path().join("users");
        fs::create_dir_all(&folder).map_err(DaemonError::file(&folder))?;
        let path = folder.join(format!("{}.kubeconfig", user.replace('/', "-")));
        self.write_kubeconfig(&path, user, group)?;
        Ok(path)
    }

    /// A kubeconfig of a service account, by a token that lasts an hour.
    ///
    /// # Errors
    /// There is no such account, or the file cannot be written.
    pub fn kubeconfig_of_account(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<PathBuf, ClusterError> {
        let output = self.kubectl().args(["create", "token", name, "-n", namespace]).output();
        let output = output
            .map_err(|source| DaemonError::Program { program: "kubectl".to_owned(), source })?;
        if !output.status.success() {
            let complaint = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(ClusterError::NoToken {
                account: format!("{namespace}/{name}"),
                complaint,
            });
        }
        let folder = self.folder.path().join("users");
        fs::create_dir_all(&folder).map_err(DaemonError::file(&folder))?;
        let path = folder.join(format!("{namespace}-{name}.kubeconfig"));
        let token = String::from_utf8_lossy(&output.stdout);
        let authority = &self.certificates.authority;
        let text = kubeconfig::text_of_token(&self.server, authority, token.trim());
        write_private(&path, &text)?;
        Ok(path)
    }

    /// The audit log so far.
    ///
    /// # Errors
    /// It cannot be read: the settings left it out, or a line is not an event.
    pub fn audit_log(&self) -> Result<AuditLog, ClusterError> {
        let path = self.audit_file();
        let text = fs::read_to_string(&path).map_err(DaemonError::file(&path))?;
        Ok(AuditLog::parse(&text)?)
    }

    fn audit_file(&self) -> PathBuf {
        self.folder.path().join("audit.log")
    }

    /// The flags of the audit log, whose policy they name.
    fn audit_flags(&self) -> Result<[String; 2], DaemonError> {
        let policy = self.folder.path().join("audit-policy.yaml");
        fs::write(&policy, AUDIT_POLICY).map_err(DaemonError::file(&policy))?;
        Ok([
            format!("--audit-policy-file={}", policy.display()),
            format!("--audit-log-path={}", self.audit_file().display()),
        ])
    }

    fn write_kubeconfig(
        &self,
        path: &Path,
        user: &str,
        group: Option<&str>,
    ) -> Result<(), ClusterError> {
        let authority = &self.certificates.authority;
        let credentials = authority.issue_client(user, group)?;
        Ok(write_private(path, &kubeconfig::text(&self.server, authority, &credentials))?)
    }

    /// A command that runs kubectl as the administrator. Another `--kubeconfig` makes it another
    /// user.
    pub fn kubectl(&self) -> Command {
        let mut command = self.program.kubectl();
        command.env("KUBECONFIG", &self.kubeconfig);
        command.env("KUBECACHEDIR", self.folder.path().join("kubectl-cache"));
        command
    }

    /// The program of its parts.
    pub fn program(&self) -> &Program {
        &self.program
    }
}

/// As whom a part asks the API.
fn user_of(part: Part) -> Option<&'static str> {
    match part {
        Part::Etcd | Part::ApiServer => None,
        Part::ControllerManager => Some("system:kube-controller-manager"),
        Part::Scheduler => Some("system:kube-scheduler"),
    }
}
