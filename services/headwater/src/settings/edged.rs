//! The settings of `edged`.

use std::net::IpAddr;
use std::path::PathBuf;

use headwater_edge::LocalUser;
use headwater_event::NodeName;
use headwater_settings::LogFormat;
use headwater_settings::{DATA_DEFAULT, Events, Runtime};
use headwater_settings::{InvalidSetting, MetricsAt, Settings};
use serde::{Deserialize, Serialize};

use super::cri::Cri;
use super::edge::{owner_of, user_of};
use super::images::Images;
use super::kubelet::Kubelet;
use super::pods::PodBounds;
use super::pressure::Pressure;
use super::process::{PartSettings, ProcessSettings};
use super::resources::Resources;

/// The settings of a pod worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EdgedSettings {
    /// The local API of the node's edge.
    pub(crate) edge: Option<PathBuf>,
    /// The node.
    pub(crate) node: Option<NodeName>,
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
    /// A socket of that server for the node's edge, where the data directory is closed to it.
    pub(crate) streams_socket: Option<PathBuf>,
    /// The user of that edge.
    pub(crate) streams_user: Option<String>,
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

impl Default for EdgedSettings {
    fn default() -> Self {
        Self {
            edge: None,
            node: None,
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
            streams_socket: None,
            streams_user: None,
            data: DATA_DEFAULT.into(),
            metrics: MetricsAt::default(),
            metrics_node_names: false,
            log_format: LogFormat::Auto,
            otlp_endpoint: None,
        }
    }
}

impl Settings for EdgedSettings {
    fn check(&self) -> Result<(), InvalidSetting> {
        let missing = [
            ("edge", self.edge.is_none(), "set the socket of the edge's local API: --edge SOCKET"),
            ("node", self.node.is_none(), "set the name of the node: --node NAME"),
            (
                "runtime",
                self.runtime.is_none(),
                "set the runtime of the pods: --runtime process, cri or hollow",
            ),
        ];
        match missing.into_iter().find(|(_, is_missing, _)| *is_missing) {
            Some((key, _, what)) => Err(InvalidSetting::new(key, what)),
            None => {
                self.cri.check(self.runtime)?;
                self.kubelet.door()?;
                if self.streams_socket.is_some() != self.streams_user.is_some() {
                    let what = "streams_socket and streams_user go together: the socket for the \
                                node's edge, and the user of the edge";
                    return Err(InvalidSetting::new("streams_socket", what));
                }
                self.pod_bounds().check()
            }
        }
    }
}

impl EdgedSettings {
    /// Returns the user of the node's edge, for whom there is a socket.
    ///
    /// # Errors
    /// The reason and the remedy, for people.
    pub(crate) fn streams_user(&self) -> Result<Option<LocalUser>, String> {
        self.streams_user.as_ref().map(|name| user_of("streams_user", name)).transpose()
    }

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
}

impl PartSettings for EdgedSettings {
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
        self.kubelet.check_files()
    }

    fn owner(&self) -> String {
        owner_of("edged", self.node.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_pod_worker_cannot_do_without_is_asked_for() {
        let whole = EdgedSettings {
            edge: Some("edge.sock".into()),
            node: Some("gw-7".parse().expect("a name")),
            runtime: Some(Runtime::Hollow),
            ..EdgedSettings::default()
        };
        whole.check().expect("enough");
        assert_eq!(whole.owner(), "edged gw-7");
        let pressure = Pressure { disk_available_percent: 100, ..Pressure::default() };
        for (wrong, key) in [
            (EdgedSettings { edge: None, ..whole.clone() }, "edge"),
            (EdgedSettings { node: None, ..whole.clone() }, "node"),
            (EdgedSettings { runtime: None, ..whole.clone() }, "runtime"),
            (EdgedSettings { pods_max: Some(0), ..whole.clone() }, "pods_max"),
            (EdgedSettings { pressure, ..whole.clone() }, "pressure.disk_available_percent"),
        ] {
            assert_eq!(wrong.check().expect_err(key).key, key);
        }
    }
}
