//! The settings of `edge`.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use headwater_edge::upstream::META_SYNC_INTERVAL;
use headwater_edge::{HubAddress, LocalUser};
use headwater_event::NodeName;
use headwater_identity::Principal;
use headwater_settings::LogFormat;
use headwater_settings::{DATA_DEFAULT, Events, Runtime};
use headwater_settings::{InvalidSetting, MetricsAt, Settings, duration_text};
use headwater_telemetry::error_chain;
use nix::unistd::{Uid, User};
use serde::{Deserialize, Serialize};

use super::cri::Cri;
use super::images::Images;
use super::kubelet::Kubelet;
use super::pods::PodBounds;
use super::pressure::Pressure;
use super::process::{PartSettings, ProcessSettings};
use super::resources::Resources;
use super::streams::Streams;
use crate::tls::Tls;

/// The settings of an edge.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EdgeSettings {
    /// The node.
    pub(crate) node: Option<NodeName>,
    /// The addresses of hubs, comma-separated.
    pub(crate) hub: String,
    /// Whether this process also runs the node's pods.
    pub(crate) edged: bool,
    /// The runtime of the pods; there is no default.
    pub(crate) runtime: Option<Runtime>,
    /// Whether pods may run as root.
    pub(crate) allow_root: bool,
    /// The number of pods that the node has room for. The default is that of the runtime.
    pub(crate) pods_max: Option<u32>,
    /// The node's address, and that of its pods. The default is loopback.
    pub(crate) node_address: Option<IpAddr>,
    /// Which Events of its pods the node sends.
    pub(crate) events: Events,
    /// When the node lacks a resource.
    pub(crate) pressure: Pressure,
    /// What the machine keeps from its pods.
    pub(crate) resources: Resources,
    /// The container runtime.
    pub(crate) cri: Cri,
    /// How the images of pods are pulled, and when they are removed.
    pub(crate) images: Images,
    /// The folder of the node's static pods.
    pub(crate) static_pods: Option<PathBuf>,
    /// The server with a kubelet's paths.
    pub(crate) kubelet: Kubelet,
    /// The streams of API servers through a hub.
    pub(crate) streams: Streams,
    /// The user that the local API serves besides the edge's own and root.
    pub(crate) api_user: Option<String>,
    /// The socket of the local API, outside the data directory.
    pub(crate) api_socket: Option<PathBuf>,
    /// The interval of the pod status snapshots besides those on change.
    #[serde(with = "duration_text")]
    pub(crate) sync_interval: Duration,
    /// The certificate of the CA of hubs.
    pub(crate) tls_ca: Option<PathBuf>,
    /// The node's own certificate.
    pub(crate) tls_cert: Option<PathBuf>,
    /// Its key.
    pub(crate) tls_key: Option<PathBuf>,
    /// Whether to connect to hubs without TLS, on loopback addresses.
    pub(crate) insecure_loopback: bool,
    /// The data directory.
    pub(crate) data: PathBuf,
    /// The address of metrics and health.
    pub(crate) metrics: MetricsAt,
    /// Whether metrics on an address beyond loopback name the node.
    pub(crate) metrics_node_names: bool,
    /// The format of log lines.
    pub(crate) log_format: LogFormat,
    /// The receiver of spans; `OTEL_*` variables may name it too.
    pub(crate) otlp_endpoint: Option<String>,
}

impl Default for EdgeSettings {
    fn default() -> Self {
        Self {
            node: None,
            hub: String::new(),
            edged: true,
            runtime: None,
            allow_root: false,
            pods_max: None,
            node_address: None,
            events: Events::default(),
            pressure: Pressure::default(),
            resources: Resources::default(),
            cri: Cri::default(),
            images: Images::default(),
            static_pods: None,
            kubelet: Kubelet::default(),
            streams: Streams::default(),
            api_user: None,
            api_socket: None,
            sync_interval: META_SYNC_INTERVAL,
            tls_ca: None,
            tls_cert: None,
            tls_key: None,
            insecure_loopback: false,
            data: DATA_DEFAULT.into(),
            metrics: MetricsAt::default(),
            metrics_node_names: false,
            log_format: LogFormat::Auto,
            otlp_endpoint: None,
        }
    }
}

impl Settings for EdgeSettings {
    fn check(&self) -> Result<(), InvalidSetting> {
        if self.node.is_none() {
            return Err(InvalidSetting::new("node", "set the name of the node: --node NAME"));
        }
        let hubs = self.hubs()?;
        match (self.edged, self.runtime) {
            (true, None) => {
                let what = "set the runtime of the pods: --runtime process, cri or hollow; or \
                            set --no-edged if `headwater edged` runs them";
                return Err(InvalidSetting::new("runtime", what));
            }
            (false, Some(_)) => {
                let what = "with --no-edged this process runs no pods: set the runtime of \
                            `headwater edged` instead";
                return Err(InvalidSetting::new("runtime", what));
            }
            _ => {}
        }
        let of_pods = [
            ("pods_max", self.pods_max.is_some()),
            ("node_address", self.node_address.is_some()),
            ("static_pods", self.static_pods.is_some()),
        ];
        if let Some((key, _)) = of_pods.into_iter().find(|(_, is_set)| *is_set && !self.edged) {
            let what = format!(
                "with --no-edged this process runs no pods: set {key} of `headwater edged` instead"
            );
            return Err(InvalidSetting::new(key, what));
        }
        self.pod_bounds().check()?;
        self.cri.check(self.runtime)?;
        self.kubelet.door()?;
        self.streams.check(self.edged)?;
        if !self.edged && self.kubelet.listen.is_some() {
            let what = "with --no-edged this process runs no pods: set kubelet.listen of `headwater \
                        edged` instead";
            return Err(InvalidSetting::new("kubelet.listen", what));
        }
        if self.api_user.is_some() && self.api_socket.is_none() {
            let what = "set the socket of the local API to a path that this user can reach, such as \
                        /run/headwater/edge.sock: the data directory is closed to others";
            return Err(InvalidSetting::new("api_socket", what));
        }
        let has_tls = self.tls().files()?.is_some();
        if let Some(far) = hubs.iter().find(|hub| !has_tls && !hub.is_loopback()) {
            let what =
                format!("{far} is not loopback: without TLS an edge connects to loopback only");
            return Err(InvalidSetting::new("hub", what));
        }
        Ok(())
    }
}

impl EdgeSettings {
    /// Returns the bounds of the node's pods.
    pub(crate) fn pod_bounds(&self) -> PodBounds {
        PodBounds {
            pods_max: self.pods_max,
            pressure: self.pressure,
            resources: self.resources,
            events: self.events,
            node_address: self.node_address,
            images: self.images.clone(),
            static_pods: self.static_pods.clone(),
        }
    }

    /// Returns the addresses of hubs.
    ///
    /// # Errors
    /// An address is invalid, or there is none.
    pub(crate) fn hubs(&self) -> Result<Vec<HubAddress>, InvalidSetting> {
        if self.hub.trim().is_empty() {
            let what = "set the addresses of hubs: --hub HOST:PORT, several with commas";
            return Err(InvalidSetting::new("hub", what));
        }
        let hubs = self.hub.split(',').map(|hub| hub.trim().parse());
        hubs.collect::<Result<_, _>>().map_err(|error| InvalidSetting::new("hub", error))
    }

    /// Returns the user that the local API serves besides the edge's own and root.
    ///
    /// # Errors
    /// The reason and the remedy, for people.
    pub(crate) fn local_user(&self) -> Result<Option<LocalUser>, String> {
        self.api_user.as_ref().map(|name| user_of("api_user", name)).transpose()
    }

    /// Returns the TLS settings.
    pub(crate) fn tls(&self) -> Tls<'_> {
        Tls {
            ca: self.tls_ca.as_ref(),
            certificate: self.tls_cert.as_ref(),
            key: self.tls_key.as_ref(),
            insecure_loopback: self.insecure_loopback,
        }
    }
}

impl PartSettings for EdgeSettings {
    fn process(&self) -> ProcessSettings<'_> {
        ProcessSettings {
            data: &self.data,
            metrics: self.metrics,
            metrics_node_names: self.metrics_node_names,
            log_format: self.log_format,
            otlp_endpoint: self.otlp_endpoint.as_deref(),
        }
    }

    fn check_files(&self) -> Result<(), String> {
        let tls = self.tls().connector().map_err(|error| error_chain(&error))?;
        if let (Some(tls), Some(node)) = (tls, &self.node) {
            let owner = Principal::Node(node.clone());
            tls.check_owner(&owner).map_err(|error| error_chain(&error))?;
        }
        self.kubelet.check_files()?;
        self.local_user().map(drop)
    }

    fn owner(&self) -> String {
        owner_of("edge", self.node.as_ref())
    }
}

/// Looks up the user that a setting names, or its number.
///
/// # Errors
/// The reason and the remedy, for people.
pub(super) fn user_of(setting: &str, name: &str) -> Result<LocalUser, String> {
    let found = match name.parse() {
        Ok(id) => User::from_uid(Uid::from_raw(id)),
        Err(_) => User::from_name(name),
    };
    match found {
        Ok(Some(User { uid, gid, .. })) => {
            Ok(LocalUser { user: uid.as_raw(), group: gid.as_raw() })
        }
        Ok(None) => {
            Err(format!("{setting}: this machine has no user {name}: make it, or name another"))
        }
        Err(error) => Err(format!("{setting}: user {name} cannot be looked up: {error}")),
    }
}

/// Returns the owner of a data directory: the part and its node.
pub(super) fn owner_of(part: &str, node: Option<&NodeName>) -> String {
    node.map_or_else(|| part.to_owned(), |node| format!("{part} {node}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole() -> EdgeSettings {
        EdgeSettings {
            node: Some("gw-7".parse().expect("a name")),
            hub: "127.0.0.1:7300, [::1]:7301".to_owned(),
            runtime: Some(Runtime::Hollow),
            insecure_loopback: true,
            ..EdgeSettings::default()
        }
    }

    #[test]
    fn what_an_edge_cannot_do_without_is_asked_for() {
        whole().check().expect("enough");
        assert_eq!(whole().hubs().expect("two").len(), 2);
        for (wrong, key, reason) in [
            (EdgeSettings { node: None, ..whole() }, "node", "--node"),
            (EdgeSettings { hub: " ".to_owned(), ..whole() }, "hub", "--hub"),
            (EdgeSettings { hub: "127.0.0.1".to_owned(), ..whole() }, "hub", "127.0.0.1"),
            (EdgeSettings { hub: "192.0.2.1:7300".to_owned(), ..whole() }, "hub", "loopback"),
            (
                EdgeSettings { insecure_loopback: false, ..whole() },
                "tls_cert",
                "--insecure-loopback",
            ),
            (EdgeSettings { runtime: None, ..whole() }, "runtime", "--runtime"),
            (EdgeSettings { edged: false, ..whole() }, "runtime", "headwater edged"),
            (
                EdgeSettings { edged: false, runtime: None, pods_max: Some(9), ..whole() },
                "pods_max",
                "headwater edged",
            ),
            (
                EdgeSettings {
                    edged: false,
                    runtime: None,
                    node_address: Some(IpAddr::from([192, 0, 2, 7])),
                    ..whole()
                },
                "node_address",
                "headwater edged",
            ),
            (EdgeSettings { pods_max: Some(0), ..whole() }, "pods_max", "1 to 10000"),
            (EdgeSettings { api_user: Some("0".to_owned()), ..whole() }, "api_socket", "can reach"),
        ] {
            let error = wrong.check().expect_err(reason);
            assert_eq!(error.key, key);
            assert!(error.reason.contains(reason), "{reason}: {}", error.reason);
        }
        EdgeSettings { edged: false, runtime: None, ..whole() }.check().expect("no pods here");
    }

    #[test]
    fn the_user_of_the_local_api_is_a_user_of_the_machine() {
        let of = |name: &str| EdgeSettings { api_user: Some(name.to_owned()), ..whole() };
        let root = Ok(Some(LocalUser { user: 0, group: 0 }));
        assert_eq!(of("0").local_user(), root);
        assert_eq!(of("root").local_user(), root);
        assert_eq!(whole().local_user(), Ok(None));
        let error = of("no-such-user").local_user().expect_err("unknown");
        assert!(error.contains("no-such-user"), "{error}");
    }

    #[test]
    fn a_directory_belongs_to_a_part_and_a_node() {
        assert_eq!(whole().owner(), "edge gw-7");
    }
}
