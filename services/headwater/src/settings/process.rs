//! The settings that every process of a part has.

use std::path::Path;

use headwater_settings::{LogFormat, MetricsAt, Settings};

/// The settings of a part, among them those of every process.
pub(crate) trait PartSettings: Settings {
    /// Those of every process.
    fn process(&self) -> ProcessSettings<'_>;

    /// The owner of the data directory: another part, or the part of another node, is refused.
    fn owner(&self) -> String;

    /// Checks the files that the settings name.
    ///
    /// # Errors
    /// In words, what is wrong.
    fn check_files(&self) -> Result<(), String> {
        Ok(())
    }
}

/// The settings of every process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessSettings<'s> {
    /// The data directory.
    pub(crate) data: &'s Path,
    /// Where metrics and health are served.
    pub(crate) metrics: MetricsAt,
    /// How log lines are written.
    pub(crate) log_format: LogFormat,
    /// Where spans are sent; `OTEL_*` variables may say so too.
    pub(crate) otlp_endpoint: Option<&'s str>,
}
