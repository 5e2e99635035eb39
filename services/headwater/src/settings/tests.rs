//! What a person may say, and what is said back.

use std::time::Duration;

use clap::Parser;
use proptest::prelude::*;

use super::nodes::NODES_MAX;
use super::*;
use crate::cli::{Cli, Command, Up};

fn args(args: &[&str]) -> Up {
    let cli = Cli::try_parse_from(["headwater", "up"].iter().chain(args)).expect("usage");
    let Command::Up(up) = cli.command else { unreachable!("`up` was asked for") };
    up
}

fn configured(args: &Up) -> Result<Configured<up::Settings>, SettingsError> {
    Configured::of(args.running.config.as_deref(), &up::flags(args))
}

fn nodes(text: &str) -> Result<Vec<String>, String> {
    match configured(&args(&["m", &format!("--nodes={text}")])) {
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
        configured(&args(&["m", "--config", file, "--nodes", "4"])).expect("configured");
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
        let args = args(&["m", "--config", file.to_str().expect("UTF-8")]);
        let error = configured(&args).expect_err(text).to_string();
        assert!(error.contains(named), "{text}: {error}");
    }
    let zero = configured(&args(&["m", "--sync-interval", "0s"])).expect_err("zero");
    assert_eq!(zero.to_string(), "wrong setting: --sync-interval: a duration must not be zero");
    let args = args(&["m", "--config", "/no/such/file"]);
    assert!(matches!(configured(&args), Err(SettingsError::NoFile(_))));
}

fn hub(args: &[&str]) -> Result<Configured<hub::HubSettings>, SettingsError> {
    let cli = Cli::try_parse_from(["headwater", "hub"].iter().chain(args)).expect("usage");
    let Command::Hub(args) = cli.command else { unreachable!("`hub` was asked for") };
    Configured::of(args.process.running.config.as_deref(), &args.flags())
}

#[test]
fn a_part_has_settings_of_its_own() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join("hub.toml");
    let text = "listen = \"127.0.0.1:1\"\ninsecure_loopback = true\n[kafka]\nbrokers = \"a:1\"\n\
                sasl.password = \"hush\"\nlinger.ms = 5\n";
    std::fs::write(&file, text).expect("written");
    let file = file.to_str().expect("UTF-8");
    let configured = hub(&["--config", file, "--kafka", "b:2,c:3"]).expect("configured");
    assert_eq!(configured.settings.kafka.brokers.as_deref(), Some("b:2,c:3"));
    assert_eq!(configured.settings.kafka.client["linger.ms"], "5");
    let said = configured.origins.join("\n");
    assert!(said.contains("kafka.brokers = \"b:2,c:3\"  # flag --kafka"), "{said}");
    assert!(said.contains("kafka.linger.ms = \"5\"  # ") && said.contains("hub.toml"), "{said}");
    assert!(said.contains("kafka.topic.prefix = \"headwater\"  # default"), "{said}");
    assert!(said.contains("kafka.sasl.password = \"***\"") && !said.contains("hush"), "{said}");
}

#[test]
fn what_a_part_cannot_be_without_is_said() {
    let said = |args: &[&str]| hub(args).expect_err("refused").to_string();
    let kafka = ["--kafka", "a:1"];
    let with = |args: &[&'static str]| [&kafka, args].concat();
    assert!(said(&["--listen", "127.0.0.1:1", "--insecure-loopback"]).contains("--kafka"));
    assert!(said(&kafka).contains("--listen"));
    assert!(said(&with(&["--listen", "127.0.0.1:1"])).contains("--insecure-loopback"));
    let anywhere = with(&["--listen", "0.0.0.0:1", "--insecure-loopback"]);
    assert!(said(&anywhere).contains("not loopback"));
    let nonsense = with(&["--listen", "here", "--insecure-loopback"]);
    assert!(said(&nonsense).starts_with("wrong setting: --listen:"), "{}", said(&nonsense));
}

#[test]
fn a_variable_names_a_setting() {
    for (name, key) in [
        ("DATA", "data"),
        ("KAFKA", "kafka.brokers"),
        ("KAFKA_SASL_PASSWORD", "kafka.sasl.password"),
        ("SYNC_INTERVAL", "sync_interval"),
    ] {
        assert_eq!(key_of_variable(name), key);
        assert_eq!(variable_of_key(key), format!("HEADWATER_{name}"));
    }
}

/// A settings file as people write it, and worse.
fn file() -> impl Strategy<Value = String> {
    let key = "(nodes|runtime|sync_interval|replay_window|stop_grace|allow_empty|metrics|\
               log_format|otlp_endpoint|[a-z_.]{0,6})";
    let value = prop_oneof![
        "(true|false|[-+]?[0-9_]{1,22}|-?[0-9]{1,3}e[0-9]{1,4}|nan|inf)",
        "\"([0-9]{1,20}(ns|ms|s|m|h|d|w|y| )?){0,4}\"",
        "\"(off|process|hollow|json|[0-9.:]{0,20}|[a-z0-9,. -]{0,20})\"",
        "[\\[{]{1,40}",
        any::<String>().prop_map(|text| format!("{text:?}")),
    ];
    let line = (key, value).prop_map(|(key, value)| format!("{key} = {value}\n"));
    proptest::collection::vec(line, 0..4).prop_map(|lines| lines.concat())
}

proptest! {
    #[test]
    fn any_settings_file_is_taken_or_named(
        text in prop_oneof![4 => file(), 1 => any::<String>()],
    ) {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let file = dir.path().join("headwater.toml");
        std::fs::write(&file, &text).expect("written");
        match configured(&args(&["m", "--config", file.to_str().expect("UTF-8")])) {
            Ok(configured) => {
                let settings = configured.settings;
                prop_assert!(settings.node_names().is_ok());
                // Written down they are the same again, as `--print-config` shows them.
                let written = serde_json::to_value(&settings).expect("values of JSON");
                let read: up::Settings = serde_json::from_value(written).expect("as written");
                prop_assert_eq!(read, settings);
            }
            Err(error) => {
                let said = error.to_string();
                prop_assert!(said.contains("headwater.toml"), "{text}\n{said}");
            }
        }
    }

    #[test]
    fn any_text_is_an_address_of_metrics_or_is_named(
        text in prop_oneof!["[0-9a-f:.\\[\\]%]{0,24}", any::<String>()],
    ) {
        match text.parse::<MetricsAt>() {
            Ok(at) => prop_assert_eq!(at.to_string().parse(), Ok(at)),
            Err(error) => {
                let said = error.to_string();
                prop_assert!(said.contains(&format!("{text:?}")), "{}", said);
            }
        }
    }

    #[test]
    fn any_text_is_nodes_or_is_named(
        text in prop_oneof![
            "[0-9]{1,22}",
            "[a-z0-9.-]{1,8}(, ?[a-z0-9.-]{1,8}){0,3}",
            any::<String>(),
        ],
    ) {
        match node_names(&text) {
            Ok(nodes) => {
                prop_assert!(!nodes.is_empty() && nodes.len() <= NODES_MAX);
                let names: Vec<_> = nodes.iter().map(|node| node.as_str()).collect();
                let names = names.join(",");
                // Names like `7` are a number where they stand alone.
                if names.parse::<usize>().is_err() {
                    prop_assert_eq!(node_names(&names).ok(), Some(nodes));
                }
            }
            Err(error) => {
                let said = error.to_string();
                prop_assert!(said.contains(&format!("{text:?}")), "{}", said);
            }
        }
    }
}
