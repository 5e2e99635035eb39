//! The settings of `controller`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use headwater_controller::WriterTimings;
use headwater_event::NodeName;
use headwater_settings::DATA_DEFAULT;
use headwater_settings::LogFormat;
use headwater_settings::{
    InvalidSetting, MetricsAt, Settings, duration_text, node_names, text_or_number,
};
use serde::{Deserialize, Serialize};

use super::check_kafka_is_named;
use super::process::{PartSettings, ProcessSettings};
use crate::kafka::Kafka;

/// The settings of a controller.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ControllerSettings {
    /// Folder of manifests.
    pub(crate) manifests: Option<PathBuf>,
    /// Socket that takes objects.
    pub(crate) objects: Option<PathBuf>,
    /// The nodes that there are besides those that the objects name: how many, or their names;
    /// empty: none.
    #[serde(deserialize_with = "text_or_number")]
    pub(crate) nodes: String,
    /// Whether to go on when every manifest is gone at once.
    pub(crate) allow_empty: bool,
    /// How often the writer of the log appends a heartbeat; the same for all controllers of a log.
    #[serde(with = "duration_text")]
    pub(crate) heartbeat_interval: Duration,
    /// How many heartbeats must be missed before a standby claims the log.
    pub(crate) heartbeats_missed: u32,
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

impl Default for ControllerSettings {
    fn default() -> Self {
        let timings = WriterTimings::default();
        Self {
            manifests: None,
            objects: None,
            nodes: String::new(),
            allow_empty: false,
            heartbeat_interval: timings.heartbeat_interval,
            heartbeats_missed: timings.heartbeats_missed,
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
        if self.manifests.is_none() && self.objects.is_none() {
            let what = "say where objects come from: --manifests DIR, --objects SOCKET, or both";
            return Err(InvalidSetting::new("manifests", what));
        }
        if !self.nodes.is_empty() {
            node_names(&self.nodes).map_err(|error| InvalidSetting::new("nodes", error))?;
        }
        if self.heartbeats_missed == 0 {
            return Err(InvalidSetting::new("heartbeats_missed", "want at least 1"));
        }
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
            log_format: self.log_format,
            otlp_endpoint: self.otlp_endpoint.as_deref(),
        }
    }

    fn check_files(&self) -> Result<(), String> {
        self.manifests.as_deref().map_or(Ok(()), manifests_are_there)
    }
}

impl ControllerSettings {
    /// How it deals with other controllers of the log.
    pub(crate) fn timings(&self) -> WriterTimings {
        WriterTimings {
            heartbeat_interval: self.heartbeat_interval,
            heartbeats_missed: self.heartbeats_missed,
        }
    }

    /// The names of the nodes that are there besides those that objects name.
    pub(crate) fn node_names(&self) -> Vec<NodeName> {
        node_names(&self.nodes).unwrap_or_default()
    }
}

/// Whether `folder` can hold manifests.
///
/// # Errors
/// In words, why not.
pub(crate) fn manifests_are_there(folder: &Path) -> Result<(), String> {
    match folder.metadata() {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => Err(format!("{} is no folder: name the folder it lies in", folder.display())),
        Err(error) => Err(format!("{} cannot be read: {error}", folder.display())),
    }
}
