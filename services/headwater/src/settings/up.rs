//! The settings of `up`.

use std::net::IpAddr;
use std::time::Duration;

use headwater_cli::args::Up;
use headwater_edge::upstream::META_SYNC_INTERVAL;
use headwater_event::NodeName;
use headwater_settings::LogFormat;
use headwater_settings::Runtime;
use headwater_settings::{
    Flags, InvalidSetting, MetricsAt, NodesError, duration_text, node_names, text_or_number,
};
use serde::{Deserialize, Serialize};

use super::check_kafka;
use super::cri::Cri;
use super::images::Images;
use super::kubelet::Kubelet;
use super::kubernetes::Kubernetes;
use super::pods::check_node_address;
use super::pressure::Pressure;
use crate::kafka::Kafka;

/// The default number of nodes: two show that a node has its own stream.
const NODES_DEFAULT: &str = "2";

/// The time for which a superseded event stays readable (resume by tail, past states, audit).
const REPLAY_WINDOW_DEFAULT: Duration = Duration::from_secs(7 * 24 * 3600);

/// The time that Ctrl-C waits for pods, whatever their grace periods, before it kills them.
const STOP_GRACE_DEFAULT: Duration = Duration::from_secs(30);

/// The settings of `up`.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(crate) struct Settings {
    /// The number of nodes, or their names, comma-separated.
    #[serde(deserialize_with = "text_or_number")]
    pub(crate) nodes: String,
    /// The runtime of the pods.
    pub(crate) runtime: Runtime,
    /// The container runtime.
    #[serde(default)]
    pub(crate) cri: Cri,
    /// The kubelet's servers of the nodes, on one port.
    #[serde(default)]
    pub(crate) kubelet: Kubelet,
    /// When a node lacks a resource. The nodes share a person's machine: by default they report it, and lose no pod.
    pub(crate) pressure: Pressure,
    /// How the images of pods are pulled, and when they are removed.
    pub(crate) images: Images,
    /// The address of the nodes and of their pods. The default is loopback.
    pub(crate) node_address: Option<IpAddr>,
    /// The interval of the pod status snapshots besides those on change.
    #[serde(with = "duration_text")]
    pub(crate) sync_interval: Duration,
    /// A Kubernetes API, instead of manifests and objects.
    #[serde(default)]
    pub(crate) kubernetes: Kubernetes,
    /// The brokers of the log; without brokers the log is embedded.
    pub(crate) kafka: Kafka,
    /// The time for which a superseded event stays readable in the embedded log; on Kafka the
    /// topics have their own.
    #[serde(with = "duration_text")]
    pub(crate) replay_window: Duration,
    /// The time that a stop waits for pods before it kills them.
    #[serde(with = "duration_text")]
    pub(crate) stop_grace: Duration,
    /// Whether to remove everything when all manifests disappear at once.
    pub(crate) allow_empty: bool,
    /// Whether to refuse manifests that a cluster would not accept.
    pub(crate) strict: bool,
    /// The address of metrics and health.
    pub(crate) metrics: MetricsAt,
    /// Whether metrics on an address beyond loopback name nodes.
    pub(crate) metrics_node_names: bool,
    /// The format of log lines.
    pub(crate) log_format: LogFormat,
    /// The receiver of spans; `OTEL_*` variables may name it too.
    pub(crate) otlp_endpoint: Option<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            nodes: NODES_DEFAULT.to_owned(),
            runtime: Runtime::Process,
            cri: Cri::default(),
            kubelet: Kubelet::default(),
            pressure: Pressure { evict: false, ..Pressure::default() },
            images: Images::default(),
            node_address: None,
            sync_interval: META_SYNC_INTERVAL,
            kubernetes: Kubernetes::default(),
            // One process for everything usually has one broker, if any.
            kafka: Kafka { replicas: 1, ..Kafka::default() },
            replay_window: REPLAY_WINDOW_DEFAULT,
            stop_grace: STOP_GRACE_DEFAULT,
            allow_empty: false,
            strict: false,
            metrics: MetricsAt::default(),
            metrics_node_names: false,
            log_format: LogFormat::Auto,
            otlp_endpoint: None,
        }
    }
}

impl headwater_settings::Settings for Settings {
    // The data directory is an argument, as it is for the client commands.
    const NO_SETTINGS: &'static [&'static str] = &["DATA"];

    fn check(&self) -> Result<(), InvalidSetting> {
        self.node_names().map_err(|error| InvalidSetting::new("nodes", error))?;
        check_node_address(self.node_address)?;
        self.cri.check(Some(self.runtime))?;
        self.kubelet.door()?;
        self.pressure.check()?;
        self.images.check()?;
        // Manifests and objects are arguments: `up` compares them.
        self.kubernetes.check(false)?;
        check_kafka(&self.kafka)
    }
}

impl Settings {
    /// Returns the names of the nodes.
    ///
    /// # Errors
    /// When the setting is neither a number in range nor a list of node names.
    pub(crate) fn node_names(&self) -> Result<Vec<NodeName>, NodesError> {
        node_names(&self.nodes)
    }
}

/// The flags that were given.
pub(crate) fn flags(args: &Up) -> Flags {
    args.running
        .flags()
        .with("nodes", args.nodes.as_ref())
        .with("runtime", args.runtime)
        .all(args.cri.given())
        .all(args.kubelet.given())
        .with("node_address", args.node_address)
        .with("sync_interval", args.sync_interval.map(|interval| interval.to_string()))
        .all(args.kubernetes.given())
        .all(args.kafka.given())
        .switch("allow_empty", args.allow_empty)
        .switch("strict", args.strict)
        .switch("metrics_node_names", args.metrics_node_names)
}
