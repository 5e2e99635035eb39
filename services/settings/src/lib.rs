//! Settings: flag over `HEADWATER_*` over file over default, and where each came from.
//!
//! Every command that runs has a struct of its own, with the defaults as its `Default`; how the
//! layers are put together, and how what is wrong is named, is the same for all.

mod duration;
mod events;
mod flags;
mod log_format;
mod metrics_at;
mod nodes;
mod runtime;

use std::path::{Path, PathBuf};

use figment::providers::{Env, Format, Serialized, Toml};
use figment::{Figment, Profile};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

pub use self::duration::duration_text;
pub use self::events::Events;
pub use self::flags::Flags;
pub use self::log_format::LogFormat;
pub use self::metrics_at::{MetricsAt, NoAddress};
pub use self::nodes::{NODES_MAX, NodesError, node_names, text_or_number};
pub use self::runtime::Runtime;

/// The data directory, unless a flag or a variable names another.
pub const DATA_DEFAULT: &str = "headwater-data";

/// Variables that are no settings, though they begin with `HEADWATER_`.
const NO_SETTINGS: [&str; 3] = ["CONFIG", "LOG", "TEST_CLOCK_SHIFT"];

/// The replacement of a secret value.
const MASKED: &str = "***";

/// What the name of a setting with such a value holds.
const SECRET_NAMES: [&str; 3] = ["password", "secret", ".pem"];

/// The settings of a command that runs.
pub trait Settings: Default + Serialize + DeserializeOwned {
    /// Variables of the command's own that are no settings, without `HEADWATER_`.
    const NO_SETTINGS: &'static [&'static str] = &[];

    /// Whether the values, each of the right form, can be used.
    ///
    /// # Errors
    /// Names the first that cannot.
    fn check(&self) -> Result<(), InvalidSetting>;
}

/// A value of the right form that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidSetting {
    /// The setting.
    pub key: String,
    /// What is wrong, and what to do.
    pub reason: String,
}

impl InvalidSetting {
    /// `key` cannot be used, and why.
    pub fn new(key: impl Into<String>, reason: impl ToString) -> Self {
        Self { key: key.into(), reason: reason.to_string() }
    }
}

/// Settings with where each came from.
#[derive(Debug)]
pub struct LayeredSettings<S> {
    /// The settings.
    pub settings: S,
    /// `key = value  # origin`, one line each.
    pub origins: Vec<String>,
}

/// Why the settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
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

impl<S: Settings> LayeredSettings<S> {
    /// Puts the layers together.
    ///
    /// # Errors
    /// Names the setting, its value and its origin.
    pub fn load(file: Option<&Path>, flags: &Flags) -> Result<Self, SettingsError> {
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
        settings.check().map_err(|InvalidSetting { key, reason }| {
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
    /// The error and its place; figment's own text names types of this program.
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

    /// The place of a setting: its flag, variable, or file.
    fn place(&self, key: &str, metadata: Option<&figment::Metadata>) -> String {
        if let Some(flag) = self.flags.flag(key) {
            return format!("--{flag}");
        }
        match metadata.and_then(|metadata| metadata.source.as_ref()) {
            // A file that cannot be read at all has no key.
            Some(figment::Source::File(path)) if key.is_empty() => path.display().to_string(),
            Some(figment::Source::File(path)) => format!("{} in {}", key, path.display()),
            _ if metadata.is_some_and(is_environment) => variable_of_key(key),
            _ => key.to_owned(),
        }
    }

    fn origins(&self, settings: &impl Serialize) -> Vec<String> {
        leaves(settings)
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
                let value = if is_secret { MASKED.into() } else { value };
                format!("{key} = {value}  # {origin}")
            })
            .collect()
    }
}

fn is_environment(metadata: &figment::Metadata) -> bool {
    metadata.name.contains("environment")
}

/// The tables whose entries have variables of their own, `HEADWATER_TABLE_ENTRY`.
const TABLES: [&str; 4] = ["images", "kubernetes", "pressure", "resources"];

/// The setting that a variable means, its prefix taken off: what is Kafka's own has dots in its
/// name, which a variable cannot have.
fn key_of_variable(name: &str) -> String {
    let name = name.to_lowercase();
    if let Some((table, entry)) = TABLES.iter().find_map(|table| {
        let entry = name.strip_prefix(table)?.strip_prefix('_')?;
        Some((table, entry))
    }) {
        return format!("{table}.{entry}");
    }
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

/// The values of `settings`, each under its whole name: a dot separates a table from its entries.
pub fn leaves(settings: &impl Serialize) -> Map<String, Value> {
    let mut leaves = Map::new();
    if let Ok(Value::Object(values)) = serde_json::to_value(settings) {
        flatten("", values, &mut leaves);
    }
    leaves
}

fn flatten(table: &str, values: Map<String, Value>, leaves: &mut Map<String, Value>) {
    for (name, value) in values {
        let name = if table.is_empty() { name } else { format!("{table}.{name}") };
        match value {
            Value::Object(values) => flatten(&name, values, leaves),
            value => {
                leaves.insert(name, value);
            }
        }
    }
}

#[cfg(test)]
mod tests;
