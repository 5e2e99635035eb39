//! What every command that runs takes, be it `up` or one part.

use std::path::PathBuf;

use clap::Args;

use crate::settings::LogFormat;
use crate::settings::{Flags, MetricsAt};

#[derive(Debug, Args)]
pub(crate) struct Running {
    /// Where metrics and health are served over HTTP, or `off` [default: a free port of
    /// 127.0.0.1, which stands in DIR/metrics.addr]
    #[arg(long, value_name = "ADDR|off")]
    pub(crate) metrics: Option<MetricsAt>,
    /// Send spans to this OTLP receiver over gRPC, as OTEL_EXPORTER_OTLP_ENDPOINT does too
    #[arg(long, value_name = "URL")]
    pub(crate) otlp_endpoint: Option<String>,
    /// How log lines are written: text on a terminal and JSON otherwise, or always one
    /// [default: auto]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) log_format: Option<LogFormat>,
    /// Settings file (TOML)
    #[arg(long, value_name = "FILE", env = "HEADWATER_CONFIG", hide_env_values = true)]
    pub(crate) config: Option<PathBuf>,
    /// Print each setting and where it came from, and stop
    #[arg(long)]
    pub(crate) print_config: bool,
}

impl Running {
    /// The flags given.
    pub(crate) fn flags(&self) -> Flags {
        Flags::default()
            .with("metrics", self.metrics)
            .with("otlp_endpoint", self.otlp_endpoint.as_ref())
            .with("log_format", self.log_format)
    }
}
