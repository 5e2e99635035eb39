//! The settings of `hub`.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{MetricsAt, Settings, Unusable, check_kafka_is_named};
use crate::cli::DATA_DEFAULT;
use crate::kafka::Kafka;
use crate::part::{PartSettings, ProcessSettings};
use crate::telemetry::log::LogFormat;

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
    /// Whether to serve without TLS, on a loopback address.
    pub(crate) insecure_loopback: bool,
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
        let host = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
        Self {
            listen: None,
            name: host.unwrap_or_else(|| NAME_DEFAULT.to_owned()),
            insecure_loopback: false,
            kafka: Kafka::default(),
            data: DATA_DEFAULT.into(),
            metrics: MetricsAt::default(),
            log_format: LogFormat::Auto,
            otlp_endpoint: None,
        }
    }
}

impl Settings for HubSettings {
    fn check(&self) -> Result<(), Unusable> {
        let Some(listen) = self.listen else {
            return Err(Unusable::new("listen", "say where edges connect: --listen ADDR:PORT"));
        };
        if !listen.ip().is_loopback() {
            let what =
                format!("{listen} is not loopback: without TLS a hub serves this machine alone");
            return Err(Unusable::new("listen", what));
        }
        if !self.insecure_loopback {
            let what = "without TLS whoever is on this machine may be any node: say \
                        --insecure-loopback where that is wanted";
            return Err(Unusable::new("listen", what));
        }
        check_kafka_is_named(&self.kafka)
    }
}

impl PartSettings for HubSettings {
    fn process(&self) -> ProcessSettings<'_> {
        ProcessSettings {
            data: &self.data,
            metrics: self.metrics,
            log_format: self.log_format,
            otlp_endpoint: self.otlp_endpoint.as_deref(),
        }
    }
}
