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
use super::process::{PartSettings, ProcessSettings};
use crate::kafka::Kafka;
use crate::tls::Tls;

/// What a hub is called where its host has no name.
const NAME_DEFAULT: &str = "hub";

/// The settings of a hub.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HubSettings {
    /// Where edges connect.
    pub(crate) listen: Option<SocketAddr>,
    /// Its name, as `status` says which hub serves a node.
    pub(crate) name: String,
    /// The certificate of the CA that nodes are checked by.
    pub(crate) tls_ca: Option<PathBuf>,
    /// The hub's own certificate.
    pub(crate) tls_cert: Option<PathBuf>,
    /// Its key.
    pub(crate) tls_key: Option<PathBuf>,
    /// Whether to serve without TLS, on a loopback address.
    pub(crate) insecure_loopback: bool,
    /// How many edges a second it lets in once `hellos_at_once` have come; the same for all hubs
    /// of a log, for one that stops hands its edges over at twice this rate.
    pub(crate) hellos_per_second: u32,
    /// How many edges may come at once before that rate holds.
    pub(crate) hellos_at_once: u32,
    /// How long a stop may take to hand the edges over.
    #[serde(with = "duration_text")]
    pub(crate) handover_within: Duration,
    /// Where the log is.
    pub(crate) kafka: Kafka,
    /// Data directory.
    pub(crate) data: PathBuf,
    /// Where metrics and health are served.
    pub(crate) metrics: MetricsAt,
    /// How log lines are written.
    pub(crate) log_format: LogFormat,
    /// Where spans are sent; `OTEL_*` variables may say so too.
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
            handover_within: limits.handover_within,
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
                "say where edges connect: --listen ADDR:PORT",
            ));
        };
        let has_tls = self.tls().files()?.is_some();
        if !has_tls && !listen.ip().is_loopback() {
            let what =
                format!("{listen} is not loopback: without TLS a hub serves this machine alone");
            return Err(InvalidSetting::new("listen", what));
        }
        for (setting, count) in
            [("hellos_per_second", self.hellos_per_second), ("hellos_at_once", self.hellos_at_once)]
        {
            if count == 0 {
                return Err(InvalidSetting::new(setting, "want at least 1: no edge could connect"));
            }
        }
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
            log_format: self.log_format,
            otlp_endpoint: self.otlp_endpoint.as_deref(),
        }
    }

    fn check_files(&self) -> Result<(), String> {
        self.tls().acceptor().map(drop).map_err(|error| error_chain(&error))
    }
}

impl HubSettings {
    /// What it allows all of its edges together.
    pub(crate) fn limits(&self) -> HubLimits {
        HubLimits {
            hellos_per_second: self.hellos_per_second,
            hellos_at_once: self.hellos_at_once,
            handover_within: self.handover_within,
            ..HubLimits::default()
        }
    }

    /// Which certificate it shows, and which it believes.
    pub(crate) fn tls(&self) -> Tls<'_> {
        Tls {
            ca: self.tls_ca.as_ref(),
            certificate: self.tls_cert.as_ref(),
            key: self.tls_key.as_ref(),
            insecure_loopback: self.insecure_loopback,
        }
    }
}
