//! The settings of `controller`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use headwater_controller::source::manifest::data_directory_of;
use headwater_controller::{ClusterStream, WriterTimings};
use headwater_event::NodeName;
use headwater_settings::DATA_DEFAULT;
use headwater_settings::LogFormat;
use headwater_settings::{
    InvalidSetting, MetricsAt, Settings, duration_text, node_names, text_or_number,
};
use headwater_telemetry::error_chain;
use serde::{Deserialize, Serialize};

use super::check_kafka_is_named;
use super::kubernetes::Kubernetes;
use super::process::{PartSettings, ProcessSettings};
use crate::kafka::Kafka;
use crate::tls::Tls;

/// The shortest silence of a writer before a standby claims: a broker that elects a leader answers
/// again within it.
const SILENCE_MIN: Duration = Duration::from_secs(3);

/// The fewest heartbeats that must be missing before a standby claims: a single one may be late.
const HEARTBEATS_MISSED_MIN: u32 = 2;

/// The settings of a controller.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ControllerSettings {
    /// The folder of manifests.
    pub(crate) manifests: Option<PathBuf>,
    /// The socket that receives objects.
    pub(crate) objects: Option<PathBuf>,
    /// The nodes besides those that the objects name: their number, or their names; empty: none.
    #[serde(deserialize_with = "text_or_number")]
    pub(crate) nodes: String,
    /// Whether to remove everything when all manifests disappear at once.
    pub(crate) allow_empty: bool,
    /// Whether to refuse manifests that a cluster would not accept.
    pub(crate) strict: bool,
    /// The address for hubs; without one, nodes' presence comes from the log.
    pub(crate) listen: Option<SocketAddr>,
    /// Where hubs reach that address, HOST:PORT. Default: the address itself.
    pub(crate) advertise: Option<String>,
    /// The certificate of the CA of hubs.
    pub(crate) tls_ca: Option<PathBuf>,
    /// The controller's own certificate.
    pub(crate) tls_cert: Option<PathBuf>,
    /// Its key.
    pub(crate) tls_key: Option<PathBuf>,
    /// Whether to serve hubs without TLS, on a loopback address.
    pub(crate) insecure_loopback: bool,
    /// The interval of the writer's heartbeats; equal for all controllers of a log.
    #[serde(with = "duration_text")]
    pub(crate) heartbeat_interval: Duration,
    /// The number of missed heartbeats after which a standby claims the log.
    pub(crate) heartbeats_missed: u32,
    /// How long the sources may be lost before the writer yields the log to a standby.
    #[serde(with = "duration_text")]
    pub(crate) source_loss_max: Duration,
    /// Whether the log has an object that several nodes use once in a partition.
    pub(crate) share_objects: bool,
    /// Which nodes get the stream `cluster`.
    pub(crate) cluster_stream: ClusterStream,
    /// The settings of a Kubernetes API.
    pub(crate) kubernetes: Kubernetes,
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

impl Default for ControllerSettings {
    fn default() -> Self {
        let timings = WriterTimings::default();
        Self {
            manifests: None,
            objects: None,
            nodes: String::new(),
            allow_empty: false,
            strict: false,
            listen: None,
            advertise: None,
            tls_ca: None,
            tls_cert: None,
            tls_key: None,
            insecure_loopback: false,
            heartbeat_interval: timings.heartbeat_interval,
            heartbeats_missed: timings.heartbeats_missed,
            source_loss_max: timings.source_loss_max,
            share_objects: true,
            cluster_stream: ClusterStream::Auto,
            kubernetes: Kubernetes::default(),
            kafka: Kafka::default(),
            data: DATA_DEFAULT.into(),
            metrics: MetricsAt::default(),
            log_format: LogFormat::Auto,
            otlp_endpoint: None,
        }
    }
}

impl Settings for ControllerSettings {
    fn check(&self) -> Result<(), InvalidSetting> {
        let has_own = self.manifests.is_some() || self.objects.is_some();
        self.kubernetes.check(has_own)?;
        if !has_own && self.kubernetes.access().is_none() {
            let what = "set a source of objects: --manifests DIR, --objects SOCKET, or both; or a \
                        Kubernetes API: --kubeconfig FILE or --in-cluster";
            return Err(InvalidSetting::new("manifests", what));
        }
        if !self.nodes.is_empty() {
            node_names(&self.nodes).map_err(|error| InvalidSetting::new("nodes", error))?;
        }
        if self.heartbeats_missed < HEARTBEATS_MISSED_MIN {
            let what = "want at least 2: one late heartbeat would change the writer";
            return Err(InvalidSetting::new("heartbeats_missed", what));
        }
        if self.timings().silence_max() < SILENCE_MIN {
            let what = "heartbeat_interval times heartbeats_missed is below 3s; a shorter pause of \
                        the log would change the writer";
            return Err(InvalidSetting::new("heartbeat_interval", what));
        }
        self.check_lane()?;
        check_kafka_is_named(&self.kafka)
    }
}

impl PartSettings for ControllerSettings {
    fn owner(&self) -> String {
        "controller".to_owned()
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
        self.manifests.as_deref().map_or(Ok(()), manifests_are_there)?;
        if let Some(access) = self.kubernetes.access() {
            access.check().map_err(|error| error_chain(&error))?;
        }
        if self.listen.is_some() {
            self.tls().acceptor().map_err(|error| error_chain(&error))?;
        }
        Ok(())
    }
}

impl ControllerSettings {
    /// Checks the address for hubs.
    fn check_lane(&self) -> Result<(), InvalidSetting> {
        let Some(listen) = self.listen else {
            let of_lane = [
                ("advertise", self.advertise.is_some()),
                ("tls_ca", self.tls_ca.is_some()),
                ("tls_cert", self.tls_cert.is_some()),
                ("tls_key", self.tls_key.is_some()),
                ("insecure_loopback", self.insecure_loopback),
            ];
            let unused = of_lane.into_iter().find(|(_, is_set)| *is_set);
            return unused.map_or(Ok(()), |(key, _)| {
                let what = "it is for the address where hubs connect: set --listen ADDR:PORT, too";
                Err(InvalidSetting::new(key, what))
            });
        };
        if self.tls().files()?.is_none() && !listen.ip().is_loopback() {
            let what = format!(
                "{listen} is not loopback: without TLS a controller listens on loopback only"
            );
            return Err(InvalidSetting::new("listen", what));
        }
        if let Some(advertise) = &self.advertise
            && !is_reachable(advertise)
        {
            let what = format!(
                "hubs cannot connect to {advertise:?}: want the name or the address of this machine, \
                 and a port, HOST:PORT"
            );
            return Err(InvalidSetting::new("advertise", what));
        }
        if self.advertise.is_none() && listen.ip().is_unspecified() {
            let what = format!(
                "hubs cannot connect to {listen}: set the address at which they reach this \
                 controller, --advertise HOST:PORT"
            );
            return Err(InvalidSetting::new("advertise", what));
        }
        Ok(())
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

    /// Returns the settings of claims and heartbeats.
    pub(crate) fn timings(&self) -> WriterTimings {
        WriterTimings {
            heartbeat_interval: self.heartbeat_interval,
            heartbeats_missed: self.heartbeats_missed,
            source_loss_max: self.source_loss_max,
        }
    }

    /// Returns the names of the nodes besides those that objects name.
    pub(crate) fn node_names(&self) -> Vec<NodeName> {
        node_names(&self.nodes).unwrap_or_default()
    }
}

/// Whether an address, HOST:PORT, names a machine and a port.
fn is_reachable(address: &str) -> bool {
    if let Ok(address) = address.parse::<SocketAddr>() {
        return !address.ip().is_unspecified() && address.port() != 0;
    }
    let Some((host, port)) = address.rsplit_once(':') else { return false };
    let is_name = headwater_event::name::check_dns1123_subdomain(&host.to_ascii_lowercase());
    is_name.is_ok() && port.parse::<u16>().is_ok_and(|port| port != 0)
}

/// Checks that `folder` is a readable folder, and no part of a data directory.
///
/// # Errors
/// The reason, for people.
pub(crate) fn manifests_are_there(folder: &Path) -> Result<(), String> {
    match folder.metadata() {
        Ok(found) if found.is_dir() => match data_directory_of(folder) {
            None => Ok(()),
            Some(data) => Err(format!(
                "{} lies in the data directory {}, where pods write: name a folder outside of it",
                folder.display(),
                data.display()
            )),
        },
        Ok(_) => Err(format!("{} is a file: name the folder it lies in", folder.display())),
        Err(error) => Err(format!("{} cannot be read: {error}", folder.display())),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use headwater_settings::Settings;

    use super::{ControllerSettings, is_reachable};

    #[test]
    fn a_silence_of_less_than_three_seconds_or_two_heartbeats_is_refused() {
        let refused = |interval_ms, heartbeats_missed| {
            let mut settings = ControllerSettings {
                objects: Some("objects.sock".into()),
                heartbeat_interval: Duration::from_millis(interval_ms),
                heartbeats_missed,
                ..ControllerSettings::default()
            };
            settings.kafka.brokers = Some("kafka:9092".to_owned());
            settings.check().err().map(|invalid| invalid.key)
        };
        for (interval_ms, missed) in [(3_000, 4), (1_500, 2), (1_000, 3), (750, 4)] {
            assert_eq!(refused(interval_ms, missed), None, "{interval_ms} ms, {missed}");
        }
        for (interval_ms, missed) in [(1_499, 2), (999, 3), (749, 4), (0, 4)] {
            let key = refused(interval_ms, missed);
            assert_eq!(key.as_deref(), Some("heartbeat_interval"), "{interval_ms} ms, {missed}");
        }
        for missed in [0, 1] {
            assert_eq!(refused(30_000, missed).as_deref(), Some("heartbeats_missed"));
        }
    }

    #[test]
    fn an_address_for_hubs_names_a_machine_and_a_port() {
        for right in ["10.0.0.1:7301", "[fd00::1]:7301", "controller-0.example.org:7301", "Host:1"]
        {
            assert!(is_reachable(right), "{right}");
        }
        for wrong in ["", "host", "host:", "host:0", "host:70000", "0.0.0.0:1", "[::]:1", "a b:1"] {
            assert!(!is_reachable(wrong), "{wrong}");
        }
    }
}
