//! What a scenario file may say, and how it is named what it may not.

use super::*;

const SMALL: &str = r#"
about = "a"
limit = "b"
targets = ["embedded"]
duration = "10s"
warm_up = "1s"
edges = { count = 2, kind = "real" }
objects = { pods_per_edge = 3 }

[load]
arrival = "poisson"
rate = 100.0
mix = [{ kind = "pod", share = 1.0, bytes = 1024, fresh = 128 }]

[[faults]]
at = "5s"
do = "kill"
to = "hub"
"#;

fn parse(text: &str, sets: &[(&str, &str)]) -> Result<Scenario, Failure> {
    let sets: Vec<_> = sets.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    Scenario::parse("small.toml", "small", text, &sets)
}

#[test]
fn every_scenario_of_this_build_is_whole() {
    for name in names() {
        let scenario = Scenario::load(name, &[]).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(scenario.name, name);
        scenario.target(None).expect("its first");
    }
}

#[test]
fn a_flag_replaces_the_value_of_the_file() {
    let sets = [("duration", "7s"), ("edges.count", "7"), ("load.rate", "250.5")];
    let scenario = parse(SMALL, &sets).expect("whole");
    assert_eq!(scenario.duration, Duration::from_secs(7));
    assert_eq!((scenario.edges.count, scenario.load.rate), (7, 250.5));
    assert_eq!(scenario.name, "small");
}

#[test]
fn a_wrong_key_is_named_with_its_file() {
    for (sets, named) in [
        (("load.rat", "3"), "load.rat: unknown field `rat`"),
        (("edges.kind", "heavy"), "edges.kind: unknown variant `heavy`"),
        (("duration", "soon"), "duration: want a duration"),
        (("load.rate", "0.0"), "load.rate: 0 is not above 0"),
        (("edges.count", "0"), "edges.count: 0 is not in"),
        (("objects.services", "-1"), "objects.services: invalid value"),
        (("about.more", "x"), "about.more: about has no keys"),
        (("record", "[\"round-trip\"]"), "record: round-trip wants edges.echo"),
        (("duration", "4s"), "faults.at: 5s lies behind the end"),
        (("targets", "[]"), "targets: names none"),
    ] {
        let error = parse(SMALL, &[sets]).expect_err(named).to_string();
        assert!(error.starts_with("small.toml: ") && error.contains(named), "{error}");
    }
    let error = parse("about = ", &[]).expect_err("no TOML").to_string();
    assert!(error.contains("small.toml is no TOML"), "{error}");
}

#[test]
fn what_changes_must_be_there_and_what_is_done_must_be_possible() {
    let text = SMALL.replace("kind = \"pod\", share", "kind = \"service\", share");
    let error = parse(&text, &[]).expect_err("no service").to_string();
    assert!(error.contains("there is no service to change"), "{error}");
    let text = SMALL.replace("do = \"kill\"", "do = \"cut\"");
    let error = parse(&text, &[]).expect_err("no link").to_string();
    assert!(error.contains("cut cannot be done to hub"), "{error}");
}

#[test]
fn an_unsupported_target_is_named() {
    let scenario = parse(SMALL, &[]).expect("whole");
    let error = scenario.target(Some(TargetKind::Cluster)).expect_err("not there").to_string();
    assert_eq!(error, "small does not run on cluster, but on embedded");
    let error = Scenario::load("flood", &[]).expect_err("not there").to_string();
    assert!(error.contains("there is no scenario \"flood\""), "{error}");
}
