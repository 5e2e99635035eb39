//! What the page "Kafka" of the documentation and the examples beside it say is what is done.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use headwater_kafka::topics::{Direction, TopicPlan};

use crate::rights_table::{ADMIN, PARTS, RIGHTS, Right};

const PAGE: &str = include_str!("../../../../ops/docs/kafka.md");
const STRIMZI: &str = include_str!("../../../../ops/deploy/strimzi/headwater.yaml");
const SETTINGS: &str = include_str!("../../src/settings.rs");

#[test]
fn the_page_names_every_setting_of_a_topic_with_its_value() {
    let positions = TopicPlan::new(Direction::Positions).settings();
    for (name, value) in TopicPlan::new(Direction::Downstream).settings() {
        let row = PAGE.lines().find(|line| line.starts_with(&format!("| `{name}` | `{value}`")));
        let row = row.unwrap_or_else(|| panic!("{name} = {value} is in no row"));
        let of_positions = &positions[&name];
        let has_positions = row.contains(&format!("positions: `{of_positions}`"));
        assert_eq!(has_positions, *of_positions != value, "{name} of positions: {row}");
    }
}

#[test]
fn the_page_names_every_setting_of_the_client_with_its_reason() {
    // The tables of the source are the truth; each of their lines is `kind("name", "value", "why")`
    // or `("name", "why")`, over one line or several.
    let source: String = SETTINGS.split("#[cfg(test)]").next().unwrap_or_default().to_owned();
    let tables = source.split("const COMMON").nth(1).expect("the tables");
    let texts: Vec<&str> = tables.split('"').skip(1).step_by(2).collect();
    let named = texts.iter().filter(|text| text.contains('.') && !text.contains(' '));
    let mut count = 0;
    for name in named {
        assert!(PAGE.contains(&format!("`{name}`")), "{name} is not on the page");
        count += 1;
    }
    assert!(count > 25, "only {count} names were found in the source");
    for reason in texts.iter().filter(|text| text.contains(' ')) {
        assert!(PAGE.contains(reason), "the page does not say: {reason}");
    }
}

#[test]
fn every_test_that_the_page_names_is_there() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut sources = String::new();
    for folder in ["storage", "services", "loadtest"] {
        gather(&top.join(folder), &mut sources);
    }
    let table = PAGE.split("## What happens when").nth(1).expect("the table");
    let table = table.split("\n## ").next().unwrap_or_default();
    let mut rows = 0;
    for row in table.lines().filter(|line| line.starts_with("| ")).skip(1) {
        let tests = row.trim_end_matches(" |").rsplit("| ").next().unwrap_or_default();
        let tests: Vec<&str> = tests.split('`').skip(1).step_by(2).collect();
        assert!(!tests.is_empty(), "no test: {row}");
        for test in tests {
            assert!(sources.contains(&format!("fn {test}(")), "there is no test {test}");
        }
        rows += 1;
    }
    assert!(rows > 20, "only {rows} rows were found");
}

#[test]
fn the_topics_for_strimzi_are_as_topics_create_makes_them() {
    let documents = STRIMZI.split("\n---\n").filter(|text| text.contains("kind: KafkaTopic"));
    let documents: Vec<&str> = documents.collect();
    let named = [
        ("headwater.downstream.v1", Direction::Downstream),
        ("headwater.upstream.v1", Direction::Upstream),
        ("headwater.positions.v1", Direction::Positions),
    ];
    assert_eq!(documents.len(), named.len());
    for (text, (name, direction)) in documents.into_iter().zip(named) {
        let plan = TopicPlan::new(direction);
        let has = |line: String| assert!(text.lines().any(|is| is == line), "{name}: no {line:?}");
        has(format!("  name: {name}"));
        has(format!("  partitions: {}", plan.partitions));
        has(format!("  replicas: {}", plan.replicas));
        let config = text.split("  config:\n").nth(1).unwrap_or_default().lines();
        let config: BTreeMap<String, String> = config
            .filter_map(|line| line.trim().split_once(": "))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        assert_eq!(config, plan.settings(), "{name}");
    }
}

#[test]
fn the_page_names_every_right_and_no_other() {
    let table = PAGE.split("\n## ACLs\n").nth(1).expect("the table");
    let table = table.split("\n## ").next().unwrap_or_default();
    let rows: Vec<&str> = table.lines().filter(|line| line.starts_with("| ")).skip(1).collect();
    let shown: BTreeSet<String> = rows.iter().flat_map(|row| rows_by_part(row)).collect();
    let wanted = RIGHTS.iter().map(|right| {
        let Right { user, resource, operations } = right;
        format!("{user} | {} | {}", resource.on_page(), operations.join(", "))
    });
    assert_eq!(shown, wanted.collect());
}

#[test]
fn the_users_for_strimzi_have_every_right_and_no_other() {
    let documents = STRIMZI.split("\n---\n").filter(|text| text.contains("kind: KafkaUser"));
    let documents: Vec<&str> = documents.collect();
    assert_eq!(documents.len(), PARTS.len());
    for (text, part) in documents.into_iter().zip(PARTS) {
        assert!(text.contains(&format!("\n  name: headwater-{part}\n")), "{part}: {text}");
        let rules = text.split("      - resource:\n").skip(1).map(|rule| {
            let value = |name: &str| {
                let line = rule.lines().find_map(|line| line.trim().strip_prefix(name));
                line.unwrap_or_else(|| panic!("{part}: no {name} in {rule}")).to_owned()
            };
            ["type: ", "name: ", "patternType: ", "operations: "].map(value)
        });
        let wanted = RIGHTS.iter().filter(|right| right.user == part).map(|right| {
            let [kind, name, pattern] = right.resource.for_strimzi().map(str::to_owned);
            [kind, name, pattern, format!("[{}]", right.operations.join(", "))]
        });
        assert_eq!(rules.collect::<BTreeSet<_>>(), wanted.collect(), "{part}");
    }
}

/// A row of the page's table of rights, for each user that it names.
fn rows_by_part(row: &str) -> Vec<String> {
    let (users, right) =
        row.trim_matches(['|', ' ']).split_once(" | ").expect("a row has three columns");
    let users: Vec<&str> = match users {
        // The commands of an operator have one user.
        _ if users.starts_with("`topics ") => vec![ADMIN],
        _ => PARTS.into_iter().filter(|part| users.split(", ").any(|user| user == *part)).collect(),
    };
    assert!(!users.is_empty(), "a row without a user: {row}");
    users.into_iter().map(|user| format!("{user} | {right}")).collect()
}

fn gather(folder: &Path, into: &mut String) {
    let entries = fs::read_dir(folder).expect("a folder of the project");
    for path in entries.flatten().map(|entry| entry.path()).collect::<Vec<PathBuf>>() {
        if path.is_dir() {
            gather(&path, into);
        } else if path.extension().is_some_and(|it| it == "rs") {
            into.push_str(&fs::read_to_string(&path).expect("text"));
        }
    }
}
