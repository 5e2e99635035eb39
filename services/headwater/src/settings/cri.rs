//! The `[cri]` table: the container runtime of a node's pods. Settings of `edge`, `edged` and `up`.

use std::net::IpAddr;
use std::path::PathBuf;

use headwater_cri::CriSettings;
use headwater_cri::spec::{CgroupDriver, Forbidden, allowed_sysctls};
use headwater_csi::CsiSettings;
use headwater_settings::{InvalidSetting, Runtime};
use serde::{Deserialize, Serialize};

/// Where containerd listens on every distribution.
const ENDPOINT_DEFAULT: &str = "/run/containerd/containerd.sock";

/// As a kubelet's default.
const CLUSTER_DOMAIN_DEFAULT: &str = "cluster.local";

/// A kubelet's folder, which storage drivers know.
const KUBELET_DIR: &str = "/var/lib/kubelet";

/// A scheme that kubelets and crictl want before the path of a socket.
const UNIX: &str = "unix://";

/// The settings of a container runtime.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Cri {
    /// The socket of the runtime.
    pub(crate) endpoint: String,
    /// Whether to use a runtime that runs pods of another agent.
    pub(crate) share_runtime: bool,
    /// What pods do not get, comma-separated.
    pub(crate) forbid: String,
    /// The sysctls that pods may set besides the safe ones, comma-separated.
    pub(crate) allowed_sysctls: String,
    /// The name servers of the cluster, comma-separated.
    pub(crate) cluster_dns: String,
    /// The domain of the cluster.
    pub(crate) cluster_domain: String,
    /// Who makes cgroups, where the runtime does not say so.
    pub(crate) cgroup_driver: Driver,
    /// A kubelet's tree, in which storage drivers register and mount volumes; empty for no drivers.
    pub(crate) plugins_dir: String,
    /// The folder in which device plugins register; without one none can.
    pub(crate) device_plugin_dir: String,
}

/// See [`CgroupDriver`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Driver {
    /// The runtime itself, by directories.
    #[default]
    Cgroupfs,
    /// The service manager, by slices.
    Systemd,
}

impl Default for Cri {
    fn default() -> Self {
        Self {
            endpoint: ENDPOINT_DEFAULT.to_owned(),
            share_runtime: false,
            forbid: String::new(),
            allowed_sysctls: String::new(),
            cluster_dns: String::new(),
            cluster_domain: CLUSTER_DOMAIN_DEFAULT.to_owned(),
            cgroup_driver: Driver::default(),
            plugins_dir: String::new(),
            device_plugin_dir: String::new(),
        }
    }
}

impl Cri {
    /// Checks the table. It says something only with the runtime `cri`.
    ///
    /// # Errors
    /// The setting, and what to do.
    pub(crate) fn check(&self, runtime: Option<Runtime>) -> Result<(), InvalidSetting> {
        if runtime != Some(Runtime::Cri) && *self != Self::default() {
            let what = "there is no container runtime: set the runtime of the pods to cri, or leave \
                        these settings out";
            return Err(InvalidSetting::new("cri", what));
        }
        self.drivers()?;
        self.settings().map(drop)
    }

    /// The settings of storage drivers; `None`: there are none.
    ///
    /// # Errors
    /// As [`Cri::check`].
    pub(crate) fn drivers(&self) -> Result<Option<CsiSettings>, InvalidSetting> {
        let dir = &self.plugins_dir;
        if !dir.is_empty() && !dir.starts_with('/') {
            let what = format!(
                "{dir:?} is no absolute path: set one, such as {KUBELET_DIR}, or \"\" for no \
                 storage drivers"
            );
            return Err(InvalidSetting::new("cri.plugins_dir", what));
        }
        let settings = || CsiSettings { root: dir.into(), call_within: None };
        Ok((!dir.is_empty()).then(settings))
    }

    /// The socket of the runtime.
    pub(crate) fn socket(&self) -> &str {
        self.endpoint.strip_prefix(UNIX).unwrap_or(&self.endpoint)
    }

    /// The settings of the runtime.
    ///
    /// # Errors
    /// As [`Cri::check`].
    pub(crate) fn settings(&self) -> Result<CriSettings, InvalidSetting> {
        let endpoint = self.socket();
        if !endpoint.starts_with('/') {
            let what = format!(
                "{:?} is no socket: set an absolute path, such as {ENDPOINT_DEFAULT}",
                self.endpoint
            );
            return Err(InvalidSetting::new("cri.endpoint", what));
        }
        if !self.device_plugin_dir.is_empty() && !self.device_plugin_dir.starts_with('/') {
            let what = format!(
                "{:?}: set an absolute path, such as /var/lib/kubelet/device-plugins",
                self.device_plugin_dir
            );
            return Err(InvalidSetting::new("cri.device_plugin_dir", what));
        }
        let forbidden: Result<Forbidden, _> = self.forbid.parse();
        let allowed = allowed_sysctls(&self.allowed_sysctls)
            .map_err(|error| InvalidSetting::new("cri.allowed_sysctls", error))?;
        let servers = self.cluster_dns.split(',').map(str::trim).filter(|word| !word.is_empty());
        let servers: Result<Vec<IpAddr>, _> = servers.map(str::parse).collect();
        let not_addresses = |error| {
            let what =
                format!("{:?}: {error}: set IP addresses, comma-separated", self.cluster_dns);
            InvalidSetting::new("cri.cluster_dns", what)
        };
        Ok(CriSettings {
            share_runtime: self.share_runtime,
            forbidden: forbidden.map_err(|error| InvalidSetting::new("cri.forbid", error))?,
            allowed_sysctls: allowed,
            cluster_dns: servers.map_err(not_addresses)?,
            cluster_domain: self.cluster_domain.clone(),
            cgroup_driver: match self.cgroup_driver {
                Driver::Cgroupfs => CgroupDriver::Cgroupfs,
                Driver::Systemd => CgroupDriver::Systemd,
            },
            has_device_plugins: self.device_plugin_dir().is_some(),
            ..CriSettings::new(endpoint.into())
        })
    }

    /// The folder in which device plugins register.
    pub(crate) fn device_plugin_dir(&self) -> Option<PathBuf> {
        (!self.device_plugin_dir.is_empty()).then(|| PathBuf::from(&self.device_plugin_dir))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_of_a_runtime_has_an_absolute_path_with_or_without_a_scheme() {
        let of =
            |endpoint: &str| Cri { endpoint: endpoint.to_owned(), ..Cri::default() }.settings();
        for endpoint in ["/run/c.sock", "unix:///run/c.sock"] {
            assert_eq!(of(endpoint).expect("a socket").endpoint, PathBuf::from("/run/c.sock"));
        }
        for endpoint in ["", "run/c.sock", "tcp://127.0.0.1:1"] {
            let wrong = of(endpoint).expect_err(endpoint);
            assert_eq!(wrong.key, "cri.endpoint");
            assert!(wrong.reason.contains("absolute path"), "{}", wrong.reason);
        }
    }

    #[test]
    fn sysctls_that_are_allowed_reach_the_runtime() {
        let allowed = "kernel.msg*, net.core.somaxconn".to_owned();
        let settings = Cri { allowed_sysctls: allowed, ..Cri::default() }.settings();
        let allowed = settings.expect("they can be allowed").allowed_sysctls;
        assert_eq!(allowed, ["kernel.msg*", "net.core.somaxconn"]);
    }

    #[test]
    fn what_cannot_be_had_is_named_with_its_setting() {
        let wrong = Cri { forbid: "hostpath".to_owned(), ..Cri::default() };
        let wrong = wrong.check(Some(Runtime::Cri)).expect_err("no such word");
        assert_eq!(wrong.key, "cri.forbid");
        assert!(wrong.reason.contains("hostPath"), "{}", wrong.reason);
        let wrong = Cri { allowed_sysctls: "net.*,vm.swappiness".to_owned(), ..Cri::default() };
        let wrong = wrong.check(Some(Runtime::Cri)).expect_err("of the whole machine");
        assert_eq!(wrong.key, "cri.allowed_sysctls");
        assert!(wrong.reason.contains("vm.swappiness"), "{}", wrong.reason);
        let wrong = Cri { cluster_dns: "10.96.0.10,dns".to_owned(), ..Cri::default() };
        let wrong = wrong.check(Some(Runtime::Cri)).expect_err("no address");
        assert_eq!(wrong.key, "cri.cluster_dns");
        let wrong = Cri { plugins_dir: "lib/kubelet".to_owned(), ..Cri::default() };
        let wrong = wrong.check(Some(Runtime::Cri)).expect_err("no absolute path");
        assert_eq!(wrong.key, "cri.plugins_dir");
        let none = Cri { plugins_dir: String::new(), ..Cri::default() };
        assert!(none.drivers().expect("no drivers").is_none());
        let wrong = Cri { device_plugin_dir: "device-plugins".to_owned(), ..Cri::default() };
        let wrong = wrong.check(Some(Runtime::Cri)).expect_err("a relative path");
        assert_eq!(wrong.key, "cri.device_plugin_dir");
        let unused = Cri { share_runtime: true, ..Cri::default() };
        unused.check(Some(Runtime::Process)).expect_err("it says nothing");
        Cri::default().check(Some(Runtime::Process)).expect("nothing is set");
    }
}
