//! Settings of every layer, and the errors of wrong ones.

use std::time::Duration;

use clap::Parser;
use headwater_cli::args::{Cli, Command, Up};
use headwater_settings::{LayeredSettings, SettingsError};
use proptest::prelude::*;

use super::*;

fn args(args: &[&str]) -> Up {
    let cli = Cli::try_parse_from(["headwater", "up"].iter().chain(args)).expect("usage");
    let Command::Up(up) = cli.command else { unreachable!("the command is `up`") };
    up
}

fn configured(args: &Up) -> Result<LayeredSettings<up::Settings>, SettingsError> {
    LayeredSettings::load(args.running.config.as_deref(), &up::flags(args))
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
    let origins = configured.origins.join("\n");
    assert!(origins.contains("nodes = \"4\"  # flag --nodes"), "{origins}");
    assert!(origins.contains("sync_interval = \"7s\"  # ") && origins.contains("headwater.toml"));
    assert!(origins.contains("runtime = \"process\"  # default"), "{origins}");
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

fn hub(args: &[&str]) -> Result<LayeredSettings<hub::HubSettings>, SettingsError> {
    let cli = Cli::try_parse_from(["headwater", "hub"].iter().chain(args)).expect("usage");
    let Command::Hub(args) = cli.command else { unreachable!("the command is `hub`") };
    LayeredSettings::load(args.process.running.config.as_deref(), &args.flags())
}

fn controller(
    args: &[&str],
) -> Result<LayeredSettings<controller::ControllerSettings>, SettingsError> {
    let cli = Cli::try_parse_from(["headwater", "controller"].iter().chain(args)).expect("usage");
    let Command::Controller(args) = cli.command else { unreachable!("it is `controller`") };
    LayeredSettings::load(args.process.running.config.as_deref(), &args.flags())
}

#[test]
fn without_tls_a_controller_listens_for_hubs_on_loopback_only() {
    let listening = |listen| {
        let args =
            ["--kafka", "a:1", "--manifests", "m", "--insecure-loopback", "--listen", listen];
        controller(&args).map(|configured| configured.settings.listen.is_some())
    };
    for anywhere in ["0.0.0.0:7301", "192.0.2.1:7301", "[::]:7301"] {
        let refusal = listening(anywhere).expect_err("refused").to_string();
        assert!(refusal.contains("without TLS a controller listens on loopback only"), "{refusal}");
    }
    for here in ["127.0.0.1:7301", "[::1]:7301"] {
        assert!(listening(here).expect("allowed"), "{here}");
    }
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
    let origins = configured.origins.join("\n");
    assert!(origins.contains("kafka.brokers = \"b:2,c:3\"  # flag --kafka"), "{origins}");
    assert!(
        origins.contains("kafka.linger.ms = \"5\"  # ") && origins.contains("hub.toml"),
        "{origins}"
    );
    assert!(origins.contains("kafka.topic.prefix = \"headwater\"  # default"), "{origins}");
    assert!(
        origins.contains("kafka.sasl.password = \"***\"") && !origins.contains("hush"),
        "{origins}"
    );
}

#[test]
fn a_missing_required_setting_is_named() {
    let refusal = |args: &[&str]| hub(args).expect_err("refused").to_string();
    let kafka = ["--kafka", "a:1"];
    let with = |args: &[&'static str]| [&kafka, args].concat();
    assert!(refusal(&["--listen", "127.0.0.1:1", "--insecure-loopback"]).contains("--kafka"));
    assert!(refusal(&kafka).contains("--listen"));
    assert!(refusal(&with(&["--listen", "127.0.0.1:1"])).contains("--insecure-loopback"));
    let anywhere = with(&["--listen", "0.0.0.0:1", "--insecure-loopback"]);
    assert!(refusal(&anywhere).contains("not loopback"));
    let nonsense = with(&["--listen", "here", "--insecure-loopback"]);
    assert!(refusal(&nonsense).starts_with("wrong setting: --listen:"), "{}", refusal(&nonsense));
}

/// A settings file: valid lines and invalid ones.
fn file() -> impl Strategy<Value = String> {
    let key = "(nodes|runtime|sync_interval|replay_window|stop_grace|allow_empty|strict|metrics|\
               metrics_node_names|log_format|otlp_endpoint|[a-z_.]{0,6})";
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
                // A round trip through `--print-config` yields the same settings.
                let written = serde_json::to_value(&settings).expect("values of JSON");
                let read: up::Settings = serde_json::from_value(written).expect("as written");
                prop_assert_eq!(read, settings);
            }
            Err(error) => {
                let message = error.to_string();
                prop_assert!(message.contains("headwater.toml"), "{text}\n{message}");
            }
        }
    }
}
