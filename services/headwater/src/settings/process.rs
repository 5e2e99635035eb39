//! The settings that every process of a part has.

use std::path::Path;

use headwater_settings::{LogFormat, MetricsAt, Settings};

/// The settings of a part, with those of every process.
pub(crate) trait PartSettings: Settings {
    /// Returns the settings that every process has.
    fn process(&self) -> ProcessSettings<'_>;

    /// Returns the owner of the data directory, which refuses every other owner.
    fn owner(&self) -> String;

    /// Checks the files that the settings name.
    ///
    /// # Errors
    /// The reason, for people.
    fn check_files(&self) -> Result<(), String> {
        Ok(())
    }
}

/// The settings of every process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessSettings<'s> {
    /// The data directory.
    pub(crate) data: &'s Path,
    /// The address of metrics and health.
    pub(crate) metrics: MetricsAt,
    /// Whether metrics beyond loopback name nodes.
    pub(crate) metrics_node_names: bool,
    /// The format of log lines.
    pub(crate) log_format: LogFormat,
    /// The receiver of spans; `OTEL_*` variables may name it too.
    pub(crate) otlp_endpoint: Option<&'s str>,
}
