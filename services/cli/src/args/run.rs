//! The arguments of every command that starts a service.

use std::path::PathBuf;

use clap::Args;
use headwater_settings::{Flags, LogFormat, MetricsAt};

#[derive(Debug, Args)]
pub struct RunArgs {
    /// Address of metrics and health over HTTP, or `off` [default: a free port of 127.0.0.1;
    /// DIR/metrics.addr has the address in use]
    #[arg(long, value_name = "ADDR|off")]
    pub metrics: Option<MetricsAt>,
    /// Send spans to this OTLP receiver over gRPC; the same as OTEL_EXPORTER_OTLP_ENDPOINT
    #[arg(long, value_name = "URL")]
    pub otlp_endpoint: Option<String>,
    /// Format of log lines: auto is text on a terminal and JSON otherwise [default: auto]
    #[arg(long, value_name = "FORMAT")]
    pub log_format: Option<LogFormat>,
    /// Settings file (TOML)
    #[arg(long, value_name = "FILE", env = "HEADWATER_CONFIG", hide_env_values = true)]
    pub config: Option<PathBuf>,
    /// Print each setting with its origin, and exit
    #[arg(long)]
    pub print_config: bool,
}

impl RunArgs {
    /// Returns the flags that were given.
    pub fn flags(&self) -> Flags {
        Flags::default()
            .with("metrics", self.metrics)
            .with("otlp_endpoint", self.otlp_endpoint.as_ref())
            .with("log_format", self.log_format)
    }
}
