//! Settings: flag over `HEADWATER_*` over file over default, and where each came from.

use std::path::PathBuf;
use std::time::Duration;

use figment::Figment;
use figment::providers::{Env, Format, Serialized, Toml};
use headwater_event::{NameError, NodeName};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::cli::{Runtime, Up};

/// How many nodes there are unless told otherwise: two show that a node has its own stream.
const NODES_DEFAULT: &str = "2";

/// How often a node derives its pod status snapshot besides on change: KubeEdge's
/// `PodStatusSyncInterval`.
const SYNC_INTERVAL_DEFAULT: &str = "60s";

/// How long a superseded event stays readable (DESIGN: resume by tail, time travel, audit).
const REPLAY_WINDOW_DEFAULT: &str = "7d";

/// How long Ctrl-C waits for pods beyond their own grace periods before it kills them.
const STOP_GRACE_DEFAULT: &str = "30s";

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
}

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
    /// A value has the wrong form; the source names the key and its origin.
    #[error("wrong setting: {0}")]
    Wrong(String),
    /// The nodes are not a number or names.
    #[error("wrong setting nodes = {given:?}: {reason}")]
    Nodes {
        /// As given.
        given: String,
        /// What is wrong.
        reason: String,
    },
}

impl Configured {
    /// Puts the layers together.
    ///
    /// # Errors
    /// Names the setting, its value and its origin.
    pub(crate) fn of(args: &Up) -> Result<Self, SettingsError> {
        let mut figment = Figment::from(Serialized::defaults(defaults()));
        if let Some(file) = &args.config {
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
        settings.node_names()?;
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
    let from_environment =
        error.metadata.as_ref().is_some_and(|metadata| metadata.name.contains("environment"));
    let place = match error.metadata.as_ref().and_then(|metadata| metadata.source.as_ref()) {
        Some(figment::Source::File(path)) => format!("{} in {}", key, path.display()),
        _ if from_environment => format!("HEADWATER_{}", key.to_uppercase()),
        _ if flags(args).contains_key(&key) => format!("--{}", key.replace('_', "-")),
        _ => key,
    };
    match &error.kind {
        Kind::UnknownField(_, known) => {
            format!("{place}: there is no such setting; there are {}", known.join(", "))
        }
        kind => format!("{place}: {kind}"),
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
    #[serde(untagged)]
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
