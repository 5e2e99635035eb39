//! Settings: flag over `HEADWATER_*` over file over default, and where each came from.
//!
//! Every command that runs has a struct of its own, with the defaults as its `Default`; how the
//! layers are put together, and how what is wrong is named, is the same for all.

pub(crate) mod controller;
mod duration;
pub(crate) mod edge;
pub(crate) mod edged;
mod flags;
pub(crate) mod hub;
mod log_format;
mod metrics_at;
mod nodes;
pub(crate) mod up;

use std::path::{Path, PathBuf};

use figment::providers::{Env, Format, Serialized, Toml};
use figment::{Figment, Profile};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::kafka::{Kafka, KafkaTableError};

pub(crate) use self::duration::duration_text;
pub(crate) use self::flags::Flags;
pub(crate) use self::log_format::LogFormat;
pub(crate) use self::metrics_at::MetricsAt;
pub(crate) use self::nodes::{NodesError, node_names, text_or_number};

/// Variables that are no settings, though they begin with `HEADWATER_`.
const NO_SETTINGS: [&str; 3] = ["CONFIG", "LOG", "TEST_CLOCK_SHIFT"];

/// What stands for a value that nobody is to see.
const MASKED: &str = "***";

/// What the name of a setting with such a value holds.
const SECRET_NAMES: [&str; 3] = ["password", "secret", ".pem"];

/// The settings of a command that runs.
pub(crate) trait Settings: Default + Serialize + DeserializeOwned {
    /// Variables of the command's own that are no settings, without `HEADWATER_`.
    const NO_SETTINGS: &'static [&'static str] = &[];

    /// Whether the values, each of the right form, can be used.
    ///
    /// # Errors
    /// Names the first that cannot.
    fn check(&self) -> Result<(), Unusable>;
}

/// A value of the right form that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unusable {
    /// The setting.
    pub(crate) key: String,
    /// What is wrong, and what to do.
    pub(crate) reason: String,
}

impl Unusable {
    /// `key` cannot be used, and why.
    pub(crate) fn new(key: impl Into<String>, reason: impl ToString) -> Self {
        Self { key: key.into(), reason: reason.to_string() }
    }
}

/// Settings with where each came from.
#[derive(Debug)]
pub(crate) struct Configured<S> {
    /// The settings.
    pub(crate) settings: S,
    /// `key = value  # origin`, one line each.
    pub(crate) origins: Vec<String>,
}

/// Why the settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SettingsError {
    /// The file named does not exist.
    #[error("there is no settings file {}", .0.display())]
    NoFile(PathBuf),
    /// The file named is a folder.
    #[error("settings are a file, and {} is a folder", .0.display())]
    Folder(PathBuf),
    /// A value cannot be used; the text names the setting and its origin.
    #[error("wrong setting: {0}")]
    Wrong(String),
}

impl<S: Settings> Configured<S> {
    /// Puts the layers together.
    ///
    /// # Errors
    /// Names the setting, its value and its origin.
    pub(crate) fn of(file: Option<&Path>, flags: &Flags) -> Result<Self, SettingsError> {
        let mut figment = Figment::from(Serialized::defaults(S::default()));
        if let Some(file) = file {
            if file.is_dir() {
                return Err(SettingsError::Folder(file.to_owned()));
            }
            if !file.is_file() {
                return Err(SettingsError::NoFile(file.to_owned()));
            }
            figment = figment.merge(Toml::file_exact(file));
        }
        let ignored: Vec<&str> = NO_SETTINGS.iter().chain(S::NO_SETTINGS).copied().collect();
        let variables = Env::prefixed("HEADWATER_").ignore(&ignored);
        let figment = figment
            .merge(variables.map(|name| key_of_variable(name.as_str()).into()))
            .merge(Serialized::from(flags.values(), Profile::Default));
        let layers = Layers { figment: &figment, flags };
        let settings: S =
            figment.extract().map_err(|error| SettingsError::Wrong(layers.wrong(&error)))?;
        settings.check().map_err(|Unusable { key, reason }| {
            let place = layers.place(&key, figment.find_metadata(&key));
            SettingsError::Wrong(format!("{place}: {reason}"))
        })?;
        let origins = layers.origins(&settings);
        Ok(Self { settings, origins })
    }
}

/// The layers, to say where a value came from.
struct Layers<'l> {
    figment: &'l Figment,
    flags: &'l Flags,
}

impl Layers<'_> {
    /// What is wrong, and where it was said: figment's own text speaks of this program's source.
    fn wrong(&self, error: &figment::Error) -> String {
        use figment::error::Kind;
        let key = error.path.join(".").to_lowercase();
        let place = self.place(&key, error.metadata.as_ref());
        match &error.kind {
            Kind::UnknownField(_, known) => {
                format!("{place}: there is no such setting; there are {}", known.join(", "))
            }
            Kind::UnknownVariant(given, known) => {
                format!("{place}: there is no {given:?}; there are {}", known.join(", "))
            }
            kind => format!("{place}: {kind}"),
        }
    }

    /// A setting as a person would find it: where it was said.
    fn place(&self, key: &str, said: Option<&figment::Metadata>) -> String {
        if let Some(flag) = self.flags.flag(key) {
            return format!("--{flag}");
        }
        match said.and_then(|metadata| metadata.source.as_ref()) {
            // A file that cannot be read at all has no key.
            Some(figment::Source::File(path)) if key.is_empty() => path.display().to_string(),
            Some(figment::Source::File(path)) => format!("{} in {}", key, path.display()),
            _ if said.is_some_and(is_environment) => variable_of_key(key),
            _ => key.to_owned(),
        }
    }

    fn origins(&self, settings: &impl Serialize) -> Vec<String> {
        let Ok(Value::Object(values)) = serde_json::to_value(settings) else { return Vec::new() };
        let mut leaves = Vec::new();
        flatten("", &values, &mut leaves);
        leaves
            .into_iter()
            .map(|(key, value)| {
                let origin = match (self.flags.flag(&key), self.figment.find_metadata(&key)) {
                    (Some(flag), _) => format!("flag --{flag}"),
                    (None, Some(metadata)) => match &metadata.source {
                        Some(figment::Source::File(path)) => path.display().to_string(),
                        _ if is_environment(metadata) => variable_of_key(&key),
                        _ => "default".to_owned(),
                    },
                    (None, None) => "default".to_owned(),
                };
                let is_secret = SECRET_NAMES.iter().any(|name| key.contains(name));
                let value = if is_secret { MASKED.into() } else { value.clone() };
                format!("{key} = {value}  # {origin}")
            })
            .collect()
    }
}

fn is_environment(metadata: &figment::Metadata) -> bool {
    metadata.name.contains("environment")
}

/// The setting that a variable means, its prefix taken off: what is Kafka's own has dots in its
/// name, which a variable cannot have.
fn key_of_variable(name: &str) -> String {
    let name = name.to_lowercase();
    match name.strip_prefix("kafka_") {
        Some(of_kafka) => format!("kafka.{}", of_kafka.replace('_', ".")),
        None if name == "kafka" => "kafka.brokers".to_owned(),
        None => name,
    }
}

fn variable_of_key(key: &str) -> String {
    match key {
        "kafka.brokers" => "HEADWATER_KAFKA".to_owned(),
        key => format!("HEADWATER_{}", key.replace('.', "_").to_uppercase()),
    }
}

/// Whether the `[kafka]` table can be used.
fn check_kafka(kafka: &Kafka) -> Result<(), Unusable> {
    kafka.check().map_err(|error| match error {
        KafkaTableError::Wrong { name, given, reason } => {
            Unusable::new(format!("kafka.{name}"), format!("{given}: {reason}"))
        }
        error => Unusable::new("kafka", error),
    })
}

/// As [`check_kafka`], and that there are brokers: a part of the cloud cannot be without.
fn check_kafka_is_named(kafka: &Kafka) -> Result<(), Unusable> {
    match &kafka.brokers {
        None => Err(Unusable::new("kafka.brokers", "say where Kafka is: --kafka HOST:PORT,...")),
        Some(_) => check_kafka(kafka),
    }
}

/// The values of a table and of those within, each under its whole name.
fn flatten<'v>(within: &str, values: &'v Map<String, Value>, into: &mut Vec<(String, &'v Value)>) {
    for (name, value) in values {
        let name = if within.is_empty() { name.clone() } else { format!("{within}.{name}") };
        match value {
            Value::Object(values) => flatten(&name, values, into),
            value => into.push((name, value)),
        }
    }
}

#[cfg(test)]
mod examples;
#[cfg(test)]
mod tests;
