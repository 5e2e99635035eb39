//! The rule of dependencies: which crate may use which.
//!
//! This table is the source; ARCHITECTURE.md draws the same arrows.

use super::Finding;
use super::manifest::{Dependency, Kind};
use super::tree::Crate;

/// The crates of ours that each crate may depend on. The table omits those that compose: they may
/// depend on all.
const MAY_USE: [(&str, &[&str]); 30] = [
    ("headwater-event", &[]),
    ("headwater-object", &["event"]),
    ("headwater-log", &["event"]),
    ("headwater-store", &["event"]),
    ("headwater-owner", &[]),
    ("headwater-embedded", &["event", "log", "owner", "store"]),
    ("headwater-kafka", &["event", "log", "owner"]),
    ("headwater-rocks", &["event", "owner", "store"]),
    ("headwater-view", &["event", "object", "store"]),
    ("headwater-follow", &["event", "log", "owner", "store", "view"]),
    ("headwater-session", &["event"]),
    ("headwater-telemetry", &[]),
    ("headwater-identity", &["event"]),
    ("headwater-proto", &["event", "session"]),
    ("headwater-lane", &["event", "identity", "proto", "session", "telemetry"]),
    ("headwater-tunnel", &["proto"]),
    ("headwater-check", &["event", "session"]),
    (
        "headwater-hub",
        &[
            "event",
            "follow",
            "identity",
            "log",
            "object",
            "owner",
            "proto",
            "session",
            "store",
            "telemetry",
            "tunnel",
            "view",
        ],
    ),
    (
        "headwater-controller",
        &["event", "follow", "log", "object", "owner", "proto", "store", "telemetry", "view"],
    ),
    ("headwater-kubernetes", &["controller", "event", "object", "telemetry"]),
    (
        "headwater-edge",
        &[
            "event",
            "identity",
            "object",
            "owner",
            "proto",
            "session",
            "store",
            "telemetry",
            "tunnel",
            "view",
        ],
    ),
    ("headwater-edged", &["event", "object", "proto", "telemetry"]),
    ("headwater-cri", &["edged", "event"]),
    ("headwater-csi", &["edged", "event"]),
    ("headwater-devices", &["edged"]),
    ("headwater-kubelet", &["edged", "identity"]),
    ("headwater-settings", &["event"]),
    (
        "headwater-operator",
        &[
            "controller",
            "edge",
            "edged",
            "event",
            "hub",
            "log",
            "object",
            "owner",
            "proto",
            "store",
            "telemetry",
            "view",
        ],
    ),
    (
        "headwater-cli",
        &[
            "event",
            "identity",
            "kubelet",
            "object",
            "operator",
            "owner",
            "proto",
            "settings",
            "telemetry",
        ],
    ),
    ("xtask", &[]),
];

/// The crates that compose: the program, and the tests from outside.
const MAY_USE_ALL: [&str; 2] = ["services/headwater", "loadtest/"];

/// The storage with native code. Only the crates that compose choose it; tests elsewhere use the
/// in-memory twins.
const NATIVE: [&str; 3] = ["headwater-rocks", "headwater-embedded", "headwater-kafka"];

/// Libraries that only one folder may name.
const NAMED_ONCE: [(&str, &str); 3] =
    [("rocksdb", "storage/rocks"), ("rdkafka", "storage/kafka"), ("kube", "services/kubernetes")];

/// The folder that may name them too: it measures our use of a library against the bare library.
const MEASURES_THE_BARE: &str = "loadtest/bench";

/// The crates that must not reach an async runtime: nothing in them waits.
pub(crate) const PURE: [&str; 4] =
    ["headwater-event", "headwater-object", "headwater-session", "headwater-check"];

/// Checks the dependencies of one crate.
pub(crate) fn check(one: &Crate) -> Vec<Finding> {
    let path = format!("{}/Cargo.toml", one.folder);
    let mut findings = Vec::new();
    if !one.manifest.inherits_lints {
        findings.push(Finding::of(&path, "add `[lints] workspace = true`"));
    }
    let composes = MAY_USE_ALL.iter().any(|folder| one.folder.starts_with(folder))
        && one.manifest.name != "headwater-check";
    let allowed = MAY_USE.iter().find(|(name, _)| *name == one.manifest.name);
    if allowed.is_none() && !composes {
        let what = "a new crate: list what it may depend on in ops/xtask/src/tidy/direction.rs";
        findings.push(Finding::of(&path, what));
    }
    for dependency in &one.manifest.dependencies {
        let mut object = |what: String| findings.push(Finding::of(&path, what));
        let name = &dependency.name;
        if !dependency.is_inherited {
            object(format!("write `{name}.workspace = true`: only the root has versions"));
        }
        if let Some((_, folder)) = NAMED_ONCE.iter().find(|(only, _)| only == name)
            && one.folder != *folder
            && one.folder != MEASURES_THE_BARE
        {
            object(format!("only {folder} may name {name}"));
        }
        if let Some((_, allowed)) = allowed
            && !composes
            && !may_use(&one.manifest.name, allowed, dependency)
        {
            object(format!("{} must not depend on {name}", one.manifest.name));
        }
    }
    findings
}

fn may_use(user: &str, allowed: &[&str], dependency: &Dependency) -> bool {
    let Some(ours) = dependency.name.strip_prefix("headwater-") else { return true };
    if NATIVE.contains(&dependency.name.as_str()) {
        // The embedded log is tested on the engine that it ships with.
        return dependency.kind == Kind::Dev && user == "headwater-embedded";
    }
    allowed.contains(&ours) || dependency.kind == Kind::Dev
}

/// Checks what a pure crate reaches, from the lines of `cargo tree`.
pub(crate) fn reaches_runtime(name: &str, reached: &str) -> Option<Finding> {
    let runtime = reached.lines().any(|line| line.split_whitespace().next() == Some("tokio"));
    runtime.then(|| Finding::of(name, "reaches tokio; this crate must not need a runtime"))
}

#[cfg(test)]
mod tests {
    use super::super::manifest::Manifest;
    use super::*;

    fn findings(folder: &str, name: &str, tables: &str) -> Vec<String> {
        let text = format!("[package]\nname = \"{name}\"\n[lints]\nworkspace = true\n{tables}");
        let one = Crate { folder: folder.into(), manifest: Manifest::parse(&text).expect("TOML") };
        check(&one).into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn an_arrow_against_the_direction_is_found() {
        let tables = "[dependencies]\nheadwater-view.workspace = true\nbytes.workspace = true\n";
        assert_eq!(
            findings("storage/event", "headwater-event", tables),
            ["headwater-event must not depend on headwater-view"]
        );
        assert!(findings("services/hub", "headwater-hub", tables).is_empty());
    }

    #[test]
    fn a_service_never_reaches_the_native_engine() {
        for table in ["dependencies", "dev-dependencies"] {
            let tables = format!("[{table}]\nheadwater-rocks.workspace = true\n");
            assert_eq!(findings("services/edge", "headwater-edge", &tables).len(), 1, "{table}");
            assert!(findings("services/headwater", "headwater", &tables).is_empty(), "{table}");
            assert!(findings("loadtest/e2e", "headwater-e2e", &tables).is_empty(), "{table}");
        }
        let tables = "[dev-dependencies]\nheadwater-rocks.workspace = true\n";
        assert!(findings("storage/embedded", "headwater-embedded", tables).is_empty());
    }

    #[test]
    fn tests_may_use_what_the_crate_may_not() {
        let tables = "[dev-dependencies]\nheadwater-log.workspace = true\n";
        assert!(findings("services/edge", "headwater-edge", tables).is_empty());
    }

    #[test]
    fn rocksdb_is_named_in_one_place() {
        let tables = "[dependencies]\nrocksdb.workspace = true\n";
        assert_eq!(
            findings("services/headwater", "headwater", tables),
            ["only storage/rocks may name rocksdb"]
        );
        assert!(findings("storage/rocks", "headwater-rocks", tables).is_empty());
        assert!(findings("loadtest/bench", "headwater-bench", tables).is_empty());
        assert_eq!(findings("loadtest/e2e", "headwater-e2e", tables).len(), 1);
    }

    #[test]
    fn only_the_root_has_versions() {
        assert_eq!(
            findings("storage/event", "headwater-event", "[dependencies]\nbytes = \"1\"\n"),
            ["write `bytes.workspace = true`: only the root has versions"]
        );
    }

    #[test]
    fn a_new_crate_must_be_listed() {
        assert_eq!(findings("storage/new", "headwater-new", "").len(), 1);
    }

    #[test]
    fn a_pure_crate_that_reaches_a_runtime_is_found() {
        assert!(reaches_runtime("headwater-event", "bytes v1\ntokio v1.5 (*)\n").is_some());
        assert!(reaches_runtime("headwater-event", "bytes v1\ntokio-util v0.7\n").is_none());
    }
}
