//! Compares the annotated files under `ops/deploy` with the settings of the code.
//!
//! In these files, `key = value` is a required setting, and `#key = value` is a default, or an
//! example of a setting without a default.

use std::path::{Path, PathBuf};

use figment::Figment;
use figment::providers::{Format, Serialized, Toml};
use headwater_settings::{Flags, LayeredSettings, Settings, leaves as flat};
use serde_json::{Map, Value};

use super::controller::ControllerSettings;
use super::edge::EdgeSettings;
use super::edged::EdgedSettings;
use super::hub::HubSettings;

/// Settings whose default differs between machines.
const OF_THE_MACHINE: [&str; 1] = ["name"];

fn text_of(part: &str) -> (PathBuf, String) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../ops/deploy/{part}.toml"));
    let text = std::fs::read_to_string(&file).expect("each part has an example");
    (file, text)
}

/// Returns the settings in `text`, by their full names.
fn leaves<S: Settings>(text: &str) -> Map<String, Value> {
    let figment = Figment::from(Serialized::defaults(S::default())).merge(Toml::string(text));
    let settings: S = figment.extract().expect("every setting exists and has the right form");
    flat(&settings)
}

/// Returns the key of a line with a default, and the line without its mark.
fn shown(line: &str) -> Option<(&str, &str)> {
    let line = line.strip_prefix('#')?;
    let (key, _) = line.split_once(" = ")?;
    let is_key = |c: char| c.is_ascii_lowercase() || matches!(c, '_' | '.');
    (!key.is_empty() && key.chars().all(is_key)).then_some((key, line))
}

/// Checks that the file of `part` is valid, names every setting, and has the defaults of the code.
fn holds<S: Settings>(part: &str) {
    let (file, text) = text_of(part);
    LayeredSettings::<S>::load(Some(&file), &Flags::default()).expect("the file is valid");

    let (mut table, mut named, mut all) = (String::new(), Vec::new(), String::new());
    for line in text.lines() {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            table = format!("{name}.");
        }
        let line = match shown(line) {
            Some((key, line)) => {
                named.push((format!("{table}{key}"), true));
                line
            }
            None => {
                let written = line.split_once(" = ").filter(|_| !line.starts_with('#'));
                named.extend(written.map(|(key, _)| (format!("{table}{key}"), false)));
                line
            }
        };
        all.push_str(line);
        all.push('\n');
    }
    let (defaults, examples) = (flat(&S::default()), leaves::<S>(&all));
    for (key, value) in &defaults {
        let Some((_, is_default)) = named.iter().find(|(name, _)| name == key) else {
            panic!("{part}.toml does not name {key}");
        };
        if *is_default && !value.is_null() && !OF_THE_MACHINE.contains(&key.as_str()) {
            assert_eq!(&examples[key], value, "{part}.toml shows another default of {key}");
        }
    }
}

#[test]
fn the_examples_name_every_setting_and_its_default() {
    holds::<ControllerSettings>("controller");
    holds::<HubSettings>("hub");
    holds::<EdgeSettings>("edge");
    holds::<EdgedSettings>("edged");
}

#[test]
fn the_settings_of_a_controller_in_a_cluster_are_valid() {
    let (file, _) = text_of("kubernetes/base/controller");
    // As the manifest of the controllers sets it.
    let advertise = "headwater-controller-0.headwater-controller.headwater-system.svc:7301";
    let flags = Flags::default().with("advertise", Some(advertise));
    let loaded = LayeredSettings::<ControllerSettings>::load(Some(&file), &flags);
    let settings = loaded.expect("the file is valid").settings;
    assert!(settings.kubernetes.in_cluster && settings.listen.is_some());
}
