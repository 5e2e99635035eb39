//! Settings: flag over `HEADWATER_*` over file over default, and where each came from.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use figment::Figment;
use figment::providers::{Env, Format, Serialized, Toml};
use headwater_event::{NameError, NodeName};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::cli::{Runtime, Up};
use crate::telemetry::log::LogFormat;

/// How many nodes there are unless told otherwise: two show that a node has its own stream.
const NODES_DEFAULT: &str = "2";

/// How often a node derives its pod status snapshot besides on change: KubeEdge's
/// `PodStatusSyncInterval`.
const SYNC_INTERVAL_DEFAULT: &str = "60s";

/// How long a superseded event stays readable (DESIGN: resume by tail, time travel, audit).
const REPLAY_WINDOW_DEFAULT: &str = "7d";

/// How long Ctrl-C waits for pods beyond their own grace periods before it kills them.
const STOP_GRACE_DEFAULT: &str = "30s";

/// Where metrics and health are served: on this machine only, and several processes of it do not
/// meet at one port; which it is stands in the data directory.
const METRICS_DEFAULT: &str = "127.0.0.1:0";

/// What turns metrics and health off.
const METRICS_OFF: &str = "off";

/// How log lines are written.
const LOG_FORMAT_DEFAULT: &str = "auto";

/// The longest duration that is taken, a century: clocks count no further than they must.
const DURATION_MAX: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// The most nodes that one process is asked to be.
const NODES_MAX: usize = 10_000;

/// Variables that are no settings of `up`, though they begin with `HEADWATER_`.
const NO_SETTINGS: [&str; 4] = ["DATA", "CONFIG", "LOG", "TEST_CLOCK_SHIFT"];

/// The settings of `up`.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(crate) struct Settings {
    /// How many nodes, or their names, comma-separated.
    #[serde(deserialize_with = "text_or_number")]
    pub(crate) nodes: String,
    /// What runs the pods.
    pub(crate) runtime: Runtime,
    /// How often each node derives its pod status snapshot besides on change.
    #[serde(with = "duration_text")]
    pub(crate) sync_interval: Duration,
    /// How long a superseded event stays readable.
    #[serde(with = "duration_text")]
    pub(crate) replay_window: Duration,
    /// How long a stop waits for pods before it kills them.
    #[serde(with = "duration_text")]
    pub(crate) stop_grace: Duration,
    /// Whether to go on when every manifest is gone at once.
    pub(crate) allow_empty: bool,
    /// Where metrics and health are served.
    pub(crate) metrics: MetricsAt,
    /// How log lines are written.
    pub(crate) log_format: LogFormat,
    /// Where spans are sent; `OTEL_*` variables may say so too.
    pub(crate) otlp_endpoint: Option<String>,
}

/// Where metrics and health are served, if anywhere. Port 0 is any free one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct MetricsAt(pub(crate) Option<SocketAddr>);

/// It is no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is neither an address like 127.0.0.1:9464 nor `{METRICS_OFF}`")]
pub(crate) struct NoAddress(String);

/// Settings with where each came from.
#[derive(Debug)]
pub(crate) struct Configured {
    /// The settings.
    pub(crate) settings: Settings,
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
    /// A value has the wrong form; the source names the key and its origin.
    #[error("wrong setting: {0}")]
    Wrong(String),
    /// The nodes are not a number or names.
    #[error("{given:?}: {reason}")]
    Nodes {
        /// As given.
        given: String,
        /// What is wrong.
        reason: String,
    },
}

impl FromStr for MetricsAt {
    type Err = NoAddress;

    fn from_str(text: &str) -> Result<Self, NoAddress> {
        if text == METRICS_OFF {
            return Ok(Self(None));
        }
        let address = text.parse().map_err(|_| NoAddress(text.to_owned()))?;
        Ok(Self(Some(address)))
    }
}

impl TryFrom<String> for MetricsAt {
    type Error = NoAddress;

    fn try_from(text: String) -> Result<Self, NoAddress> {
        text.parse()
    }
}

impl fmt::Display for MetricsAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(address) => write!(f, "{address}"),
            None => f.write_str(METRICS_OFF),
        }
    }
}

impl From<MetricsAt> for String {
    fn from(at: MetricsAt) -> Self {
        at.to_string()
    }
}

impl Configured {
    /// Puts the layers together.
    ///
    /// # Errors
    /// Names the setting, its value and its origin.
    pub(crate) fn of(args: &Up) -> Result<Self, SettingsError> {
        let mut figment = Figment::from(Serialized::defaults(defaults()));
        if let Some(file) = &args.config {
            if file.is_dir() {
                return Err(SettingsError::Folder(file.clone()));
            }
            if !file.is_file() {
                return Err(SettingsError::NoFile(file.clone()));
            }
            figment = figment.merge(Toml::file_exact(file));
        }
        let figment = figment
            .merge(Env::prefixed("HEADWATER_").ignore(&NO_SETTINGS))
            .merge(Serialized::from(flags(args), figment::Profile::Default));
        let settings: Settings =
            figment.extract().map_err(|error| SettingsError::Wrong(wrong(&error, args)))?;
        if let Err(error) = settings.node_names() {
            let place = place("nodes", figment.find_metadata("nodes"), args);
            return Err(SettingsError::Wrong(format!("{place}: {error}")));
        }
        let origins = origins(&figment, &settings, args);
        Ok(Self { settings, origins })
    }
}

impl Settings {
    /// The names of the nodes: `node-1`, `node-2`, ... where a number was given.
    ///
    /// # Errors
    /// When it is neither a number in range nor a list of node names.
    pub(crate) fn node_names(&self) -> Result<Vec<NodeName>, SettingsError> {
        let wrong = |reason: String| SettingsError::Nodes { given: self.nodes.clone(), reason };
        let names: Vec<String> = match self.nodes.parse::<usize>() {
            Ok(0) => return Err(wrong("there must be at least one node".to_owned())),
            Ok(count) if count > NODES_MAX => {
                return Err(wrong(format!("one process runs at most {NODES_MAX} nodes")));
            }
            Ok(count) => (1..=count).map(|n| format!("node-{n}")).collect(),
            Err(_) => self.nodes.split(',').map(|name| name.trim().to_owned()).collect(),
        };
        let mut nodes = names
            .into_iter()
            .map(NodeName::try_from)
            .collect::<Result<Vec<_>, NameError>>()
            .map_err(|error| wrong(error.to_string()))?;
        let count = nodes.len();
        // node-2 before node-10.
        nodes.sort_by(|a, b| (a.as_str().len(), a).cmp(&(b.as_str().len(), b)));
        nodes.dedup();
        if nodes.len() < count {
            return Err(wrong("a name stands there twice".to_owned()));
        }
        Ok(nodes)
    }
}

/// What is wrong, and where it was said: figment's own text speaks of this program's source.
fn wrong(error: &figment::Error, args: &Up) -> String {
    use figment::error::Kind;
    let key = error.path.last().cloned().unwrap_or_default().to_lowercase();
    let place = place(&key, error.metadata.as_ref(), args);
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
fn place(key: &str, said: Option<&figment::Metadata>, args: &Up) -> String {
    let from_environment = said.is_some_and(|metadata| metadata.name.contains("environment"));
    match said.and_then(|metadata| metadata.source.as_ref()) {
        // A file that cannot be read at all has no key.
        Some(figment::Source::File(path)) if key.is_empty() => path.display().to_string(),
        Some(figment::Source::File(path)) => format!("{} in {}", key, path.display()),
        _ if from_environment => format!("HEADWATER_{}", key.to_uppercase()),
        _ if flags(args).contains_key(key) => format!("--{}", key.replace('_', "-")),
        _ => key.to_owned(),
    }
}

fn defaults() -> Map<String, Value> {
    let mut defaults = Map::new();
    defaults.insert("nodes".to_owned(), NODES_DEFAULT.into());
    defaults.insert("runtime".to_owned(), "process".into());
    defaults.insert("sync_interval".to_owned(), SYNC_INTERVAL_DEFAULT.into());
    defaults.insert("replay_window".to_owned(), REPLAY_WINDOW_DEFAULT.into());
    defaults.insert("stop_grace".to_owned(), STOP_GRACE_DEFAULT.into());
    defaults.insert("allow_empty".to_owned(), false.into());
    defaults.insert("metrics".to_owned(), METRICS_DEFAULT.into());
    defaults.insert("log_format".to_owned(), LOG_FORMAT_DEFAULT.into());
    defaults.insert("otlp_endpoint".to_owned(), Value::Null);
    defaults
}

/// What was said on the command line, and nothing else.
fn flags(args: &Up) -> Map<String, Value> {
    let mut flags = Map::new();
    if let Some(nodes) = &args.nodes {
        flags.insert("nodes".to_owned(), nodes.clone().into());
    }
    if let Some(runtime) = args.runtime {
        flags.insert("runtime".to_owned(), serde_json::to_value(runtime).unwrap_or_default());
    }
    if let Some(interval) = args.sync_interval {
        flags.insert("sync_interval".to_owned(), interval.to_string().into());
    }
    if args.allow_empty {
        flags.insert("allow_empty".to_owned(), true.into());
    }
    if let Some(at) = args.metrics {
        flags.insert("metrics".to_owned(), at.to_string().into());
    }
    if let Some(format) = args.log_format {
        flags.insert("log_format".to_owned(), serde_json::to_value(format).unwrap_or_default());
    }
    if let Some(endpoint) = &args.otlp_endpoint {
        flags.insert("otlp_endpoint".to_owned(), endpoint.clone().into());
    }
    flags
}

fn origins(figment: &Figment, settings: &Settings, args: &Up) -> Vec<String> {
    let Ok(Value::Object(values)) = serde_json::to_value(settings) else { return Vec::new() };
    let flags = flags(args);
    values
        .iter()
        .map(|(key, value)| {
            let origin = if flags.contains_key(key) {
                format!("flag --{}", key.replace('_', "-"))
            } else {
                match figment.find_metadata(key) {
                    Some(metadata) => match &metadata.source {
                        Some(figment::Source::File(path)) => path.display().to_string(),
                        _ if metadata.name.contains("environment") => {
                            format!("HEADWATER_{}", key.to_uppercase())
                        }
                        _ => "default".to_owned(),
                    },
                    None => "default".to_owned(),
                }
            };
            format!("{key} = {value}  # {origin}")
        })
        .collect()
}

/// A number of nodes may stand in a file or variable without quotes.
fn text_or_number<'de, D: serde::Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "want a number above 0, or names as \"a,b\"")]
    enum TextOrNumber {
        Text(String),
        Number(u64),
    }
    Ok(match TextOrNumber::deserialize(from)? {
        TextOrNumber::Text(text) => text,
        TextOrNumber::Number(number) => number.to_string(),
    })
}

/// A duration as people write it: `90s`, `7d`.
mod duration_text {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(duration: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&humantime::format_duration(*duration))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        let text = String::deserialize(from)?;
        let duration = humantime::parse_duration(&text)
            .map_err(|error| D::Error::custom(format!("{text:?} is no duration: {error}")))?;
        if duration.is_zero() {
            return Err(D::Error::custom("a duration must not be zero"));
        }
        if duration > super::DURATION_MAX {
            let most = humantime::format_duration(super::DURATION_MAX);
            return Err(D::Error::custom(format!("{text:?} is too long: at most {most}")));
        }
        Ok(duration)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    fn up(args: &[&str]) -> Up {
        let cli = Cli::try_parse_from(["headwater", "up"].iter().chain(args)).expect("usage");
        let Command::Up(up) = cli.command else { unreachable!("`up` was asked for") };
        up
    }

    fn nodes(text: &str) -> Result<Vec<String>, String> {
        match Configured::of(&up(&["m", &format!("--nodes={text}")])) {
            Ok(configured) => Ok(configured
                .settings
                .node_names()
                .map_err(|error| error.to_string())?
                .iter()
                .map(ToString::to_string)
                .collect()),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn nodes_are_a_number_or_names() {
        assert_eq!(nodes("3"), Ok(vec!["node-1".into(), "node-2".into(), "node-3".into()]));
        assert_eq!(nodes("gw-b,gw-a"), Ok(vec!["gw-a".into(), "gw-b".into()]));
        for wrong in ["0", "a,a", "A", "", "10001", "-1"] {
            assert!(nodes(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_flag_beats_the_file_and_the_file_beats_the_default() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let file = dir.path().join("headwater.toml");
        std::fs::write(&file, "nodes = 5\nsync_interval = \"7s\"\n").expect("written");
        let file = file.to_str().expect("UTF-8");
        let configured =
            Configured::of(&up(&["m", "--config", file, "--nodes", "4"])).expect("configured");
        assert_eq!(configured.settings.nodes, "4");
        assert_eq!(configured.settings.sync_interval, Duration::from_secs(7));
        let said = configured.origins.join("\n");
        assert!(said.contains("nodes = \"4\"  # flag --nodes"), "{said}");
        assert!(said.contains("sync_interval = \"7s\"  # ") && said.contains("headwater.toml"));
        assert!(said.contains("runtime = \"process\"  # default"), "{said}");
    }

    #[test]
    fn a_wrong_setting_is_named() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let file = dir.path().join("headwater.toml");
        for (text, named) in [
            ("node = 5", "node"),
            ("sync_interval = \"soon\"", "soon"),
            ("runtime = \"docker\"", "docker"),
            ("replay_window = \"0s\"", "zero"),
            ("metrics = \"9464\"", "127.0.0.1:9464"),
            ("log_format = \"xml\"", "xml"),
        ] {
            std::fs::write(&file, text).expect("written");
            let args = up(&["m", "--config", file.to_str().expect("UTF-8")]);
            let error = Configured::of(&args).expect_err(text).to_string();
            assert!(error.contains(named), "{text}: {error}");
        }
        let zero = Configured::of(&up(&["m", "--sync-interval", "0s"])).expect_err("zero");
        assert_eq!(zero.to_string(), "wrong setting: --sync-interval: a duration must not be zero");
        let args = up(&["m", "--config", "/no/such/file"]);
        assert!(matches!(Configured::of(&args), Err(SettingsError::NoFile(_))));
    }
}
