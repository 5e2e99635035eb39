//! The parts of the cloud as processes of their own, in words.

use std::path::PathBuf;

use clap::Args;

use crate::kafka::KafkaArgs;
use crate::settings::{Flags, MetricsAt};
use crate::telemetry::log::LogFormat;
use crate::tls::TlsArgs;

/// What every part takes.
#[derive(Debug, Args)]
pub(crate) struct Process {
    /// Data directory, of this part alone [default: headwater-data]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
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
    /// Check the settings and the files that they name without starting, and stop (exit status
    /// 2: something is wrong)
    #[arg(long, conflicts_with = "print_config")]
    pub(crate) check: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Controller {
    /// Folder of Kubernetes manifests: YAML or JSON, folders in it too
    #[arg(long, value_name = "DIR")]
    pub(crate) manifests: Option<PathBuf>,
    /// Take objects as JSON lines on this unix socket, which is made
    #[arg(long, value_name = "SOCKET")]
    pub(crate) objects: Option<PathBuf>,
    /// The nodes that there are besides those that the objects name: how many (named node-1,
    /// node-2, ...), or their names, comma-separated
    #[arg(long, value_name = "N|NAME,...")]
    pub(crate) nodes: Option<String>,
    /// Go on when every manifest is gone at once, and remove what they described
    #[arg(long)]
    pub(crate) allow_empty: bool,
    #[command(flatten)]
    pub(crate) kafka: KafkaArgs,
    #[command(flatten)]
    pub(crate) process: Process,
}

#[derive(Debug, Args)]
pub(crate) struct Hub {
    /// Where edges connect; port 0 is any free one. Where it is stands in DIR/hub.addr
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<String>,
    /// The hub's name, as `status` says which hub serves a node [default: the host's name]
    #[arg(long)]
    pub(crate) name: Option<String>,
    #[command(flatten)]
    pub(crate) tls: TlsArgs,
    #[command(flatten)]
    pub(crate) kafka: KafkaArgs,
    #[command(flatten)]
    pub(crate) process: Process,
}

impl Process {
    /// The flags given.
    pub(crate) fn flags(&self) -> Flags {
        Flags::default()
            .with("data", self.data.as_ref())
            .with("metrics", self.metrics)
            .with("otlp_endpoint", self.otlp_endpoint.as_ref())
            .with("log_format", self.log_format)
    }
}

impl Controller {
    /// The flags given.
    pub(crate) fn flags(&self) -> Flags {
        self.process
            .flags()
            .all(self.kafka.given())
            .with("manifests", self.manifests.as_ref())
            .with("objects", self.objects.as_ref())
            .with("nodes", self.nodes.as_ref())
            .switch("allow_empty", self.allow_empty)
    }
}

impl Hub {
    /// The flags given.
    pub(crate) fn flags(&self) -> Flags {
        self.tls
            .flags(self.process.flags().all(self.kafka.given()))
            .with("listen", self.listen.as_ref())
            .with("name", self.name.as_ref())
    }
}
