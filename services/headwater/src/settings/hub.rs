//! The settings of `hub`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use headwater_hub::HubLimits;
use headwater_settings::DATA_DEFAULT;
use headwater_settings::LogFormat;
use headwater_settings::{InvalidSetting, MetricsAt, Settings, duration_text};
use headwater_telemetry::error_chain;
use serde::{Deserialize, Serialize};

use super::check_kafka_is_named;
use super::kubelet::Kubelet;
use super::process::{PartSettings, ProcessSettings};
use crate::kafka::Kafka;
use crate::tls::Tls;

/// The name of a hub whose host has no name.
const NAME_DEFAULT: &str = "hub";

/// The settings of a hub.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HubSettings {
    /// The address for edges.
    pub(crate) listen: Option<SocketAddr>,
    /// The name of the hub in `status`.
    pub(crate) name: String,
    /// The certificate of the CA of nodes.
    pub(crate) tls_ca: Option<PathBuf>,
    /// The hub's own certificate.
    pub(crate) tls_cert: Option<PathBuf>,
    /// Its key.
    pub(crate) tls_key: Option<PathBuf>,
    /// Whether to serve without TLS, on a loopback address.
    pub(crate) insecure_loopback: bool,
    /// The sessions that it admits a second after a burst of `hellos_at_once`. It is equal for all
    /// hubs of a log, because a hub that stops hands its edges over at twice this rate.
    pub(crate) hellos_per_second: u32,
    /// The sessions that it admits at once before that rate applies.
    pub(crate) hellos_at_once: u32,
    /// The connections of one address that have not sent their hello.
    pub(crate) address_pending_max: usize,
    /// The time limit of the handover of edges at a stop.
    #[serde(with = "duration_text")]
    pub(crate) handover_within: Duration,
    /// The time in which an edge confirms that it opens a stream for a client.
    #[serde(with = "duration_text")]
    pub(crate) dial_receipt_within: Duration,
    /// The kubelet's servers of all of its nodes, on one port.
    pub(crate) kubelet: Kubelet,
    /// The settings of Kafka.
    pub(crate) kafka: Kafka,
    /// The data directory.
    pub(crate) data: PathBuf,
    /// The address of metrics and health.
    pub(crate) metrics: MetricsAt,
    /// The format of log lines.
    pub(crate) log_format: LogFormat,
    /// The receiver of spans; `OTEL_*` variables may name it too.
    pub(crate) otlp_endpoint: Option<String>,
}

impl Default for HubSettings {
    fn default() -> Self {
        let limits = HubLimits::default();
        let host = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
        Self {
            listen: None,
            name: host.unwrap_or_else(|| NAME_DEFAULT.to_owned()),
            tls_ca: None,
            tls_cert: None,
            tls_key: None,
            insecure_loopback: false,
            hellos_per_second: limits.hellos_per_second,
            hellos_at_once: limits.hellos_at_once,
            address_pending_max: limits.address_pending_max,
            handover_within: limits.handover_within,
            dial_receipt_within: limits.dial_receipt_within,
            kubelet: Kubelet::default(),
            kafka: Kafka::default(),
            data: DATA_DEFAULT.into(),
            metrics: MetricsAt::default(),
            log_format: LogFormat::Auto,
            otlp_endpoint: None,
        }
    }
}

impl Settings for HubSettings {
    fn check(&self) -> Result<(), InvalidSetting> {
        let Some(listen) = self.listen else {
            return Err(InvalidSetting::new(
                "listen",
                "set the address for edges: --listen ADDR:PORT",
            ));
        };
        let has_tls = self.tls().files()?.is_some();
        if !has_tls && !listen.ip().is_loopback() {
            let what =
                format!("{listen} is not loopback: without TLS a hub listens on loopback only");
            return Err(InvalidSetting::new("listen", what));
        }
        let counts = [
            ("hellos_per_second", self.hellos_per_second == 0),
            ("hellos_at_once", self.hellos_at_once == 0),
            ("address_pending_max", self.address_pending_max == 0),
        ];
        for (setting, is_zero) in counts {
            if is_zero {
                return Err(InvalidSetting::new(setting, "want at least 1: no edge could connect"));
            }
        }
        self.kubelet.door()?;
        check_kafka_is_named(&self.kafka)
    }
}

impl PartSettings for HubSettings {
    fn owner(&self) -> String {
        "hub".to_owned()
    }

    fn process(&self) -> ProcessSettings<'_> {
        ProcessSettings {
            data: &self.data,
            metrics: self.metrics,
            // They count nodes and name none.
            metrics_node_names: false,
            log_format: self.log_format,
            otlp_endpoint: self.otlp_endpoint.as_deref(),
        }
    }

    fn check_files(&self) -> Result<(), String> {
        self.tls().acceptor().map(drop).map_err(|error| error_chain(&error))?;
        self.kubelet.check_files()
    }
}

impl HubSettings {
    /// Returns the bounds on all of its edges together.
    pub(crate) fn limits(&self) -> HubLimits {
        HubLimits {
            hellos_per_second: self.hellos_per_second,
            hellos_at_once: self.hellos_at_once,
            address_pending_max: self.address_pending_max,
            handover_within: self.handover_within,
            dial_receipt_within: self.dial_receipt_within,
            ..HubLimits::default()
        }
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
