//! The flags of each part: small, quick, and on loopback alone.

use std::path::Path;

use crate::certificates::{Certificates, FRONT_PROXY};
use crate::part::Part;

/// The ports of the parts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ports {
    pub(crate) api: u16,
    pub(crate) etcd: u16,
    pub(crate) etcd_peers: u16,
    pub(crate) controller_manager: u16,
    pub(crate) scheduler: u16,
}

/// What the flags name.
#[derive(Debug)]
pub(crate) struct FlagDependencies<'a> {
    pub(crate) ports: Ports,
    pub(crate) certificates: &'a Certificates,
    /// The folder of all data.
    pub(crate) data: &'a Path,
    /// The kubeconfig of the part itself.
    pub(crate) kubeconfig: &'a Path,
    /// Whether a controller-manager creates service accounts.
    pub(crate) has_controllers: bool,
}

impl FlagDependencies<'_> {
    /// The flags of `part`.
    pub(crate) fn of(&self, part: Part) -> Vec<String> {
        match part {
            Part::Etcd => self.etcd(),
            Part::ApiServer => self.api_server(),
            Part::ControllerManager => self.controller_manager(),
            Part::Scheduler => self.scheduler(),
        }
    }

    fn etcd(&self) -> Vec<String> {
        let clients = format!("http://127.0.0.1:{}", self.ports.etcd);
        let peers = format!("http://127.0.0.1:{}", self.ports.etcd_peers);
        vec![
            format!("--data-dir={}", self.data.join("etcd").display()),
            format!("--listen-client-urls={clients}"),
            format!("--advertise-client-urls={clients}"),
            format!("--listen-peer-urls={peers}"),
            format!("--initial-advertise-peer-urls={peers}"),
            format!("--initial-cluster=default={peers}"),
            // A killed process loses nothing by it; only a power cut would.
            "--unsafe-no-fsync".to_owned(),
            "--log-level=warn".to_owned(),
        ]
    }

    fn api_server(&self) -> Vec<String> {
        let mut flags = vec![
            format!("--etcd-servers=http://127.0.0.1:{}", self.ports.etcd),
            format!("--secure-port={}", self.ports.api),
            "--bind-address=127.0.0.1".to_owned(),
            "--advertise-address=127.0.0.1".to_owned(),
            // An endpoint may not be in the loopback range.
            "--endpoint-reconciler-type=none".to_owned(),
            "--service-cluster-ip-range=10.96.0.0/16".to_owned(),
            "--authorization-mode=Node,RBAC".to_owned(),
            "--enable-admission-plugins=NodeRestriction".to_owned(),
            "--enable-bootstrap-token-auth".to_owned(),
            "--allow-privileged=true".to_owned(),
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local".to_owned(),
            "--kubelet-preferred-address-types=InternalIP,Hostname".to_owned(),
            format!("--requestheader-allowed-names={FRONT_PROXY}"),
            "--requestheader-extra-headers-prefix=X-Remote-Extra-".to_owned(),
            "--requestheader-group-headers=X-Remote-Group".to_owned(),
            "--requestheader-username-headers=X-Remote-User".to_owned(),
        ];
        if !self.has_controllers {
            // It would refuse every pod.
            flags.push("--disable-admission-plugins=ServiceAccount".to_owned());
        }
        for (flag, file) in [
            ("client-ca-file", "ca.crt"),
            ("kubelet-certificate-authority", "ca.crt"),
            ("kubelet-client-certificate", "kubelet-client.crt"),
            ("kubelet-client-key", "kubelet-client.key"),
            // Without a CA of their own, controller-manager and scheduler complain all the time.
            ("requestheader-client-ca-file", "front-proxy-ca.crt"),
            ("proxy-client-cert-file", "front-proxy.crt"),
            ("proxy-client-key-file", "front-proxy.key"),
            ("service-account-key-file", "service-account.pub"),
            ("service-account-signing-key-file", "service-account.key"),
        ] {
            flags.push(self.file(flag, file));
        }
        flags.extend(self.serving());
        flags
    }

    fn controller_manager(&self) -> Vec<String> {
        let mut flags = vec![
            format!("--kubeconfig={}", self.kubeconfig.display()),
            format!("--secure-port={}", self.ports.controller_manager),
            "--bind-address=127.0.0.1".to_owned(),
            "--leader-elect=false".to_owned(),
            "--use-service-account-credentials=true".to_owned(),
            "--controllers=*,bootstrapsigner,tokencleaner".to_owned(),
            "--kube-api-qps=200".to_owned(),
            "--kube-api-burst=400".to_owned(),
            // The default is a folder of the machine, which it creates.
            format!("--flex-volume-plugin-dir={}", self.data.join("flexvolume").display()),
        ];
        for (flag, file) in [
            ("cluster-signing-cert-file", "ca.crt"),
            ("cluster-signing-key-file", "ca.key"),
            ("root-ca-file", "ca.crt"),
            ("service-account-private-key-file", "service-account.key"),
        ] {
            flags.push(self.file(flag, file));
        }
        flags.extend(self.serving());
        flags
    }

    fn scheduler(&self) -> Vec<String> {
        let mut flags = vec![
            format!("--kubeconfig={}", self.kubeconfig.display()),
            format!("--secure-port={}", self.ports.scheduler),
            "--bind-address=127.0.0.1".to_owned(),
            "--leader-elect=false".to_owned(),
            "--kube-api-qps=500".to_owned(),
            "--kube-api-burst=1000".to_owned(),
        ];
        flags.extend(self.serving());
        flags
    }

    fn serving(&self) -> [String; 2] {
        [self.file("tls-cert-file", "server.crt"), self.file("tls-private-key-file", "server.key")]
    }

    fn file(&self, flag: &str, file: &str) -> String {
        format!("--{flag}={}", self.certificates.file(file).display())
    }
}
