//! Kubernetes' own tests on edges with the hollow runtime.
//!
//! `conformance/cases.yaml` lists the cases of whole files. A list that lacks a conformance case of
//! these files fails; so does a case that it lists as passing and that does not pass. Some run in every
//! check, all of them with `cargo xtask survive conformance --rounds 1`, a part of them with
//! `HEADWATER_CONFORMANCE_CASES=WORDS` before it.

use std::num::NonZeroUsize;
use std::time::Duration;

use headwater_cluster::{ControlPlaneSettings, Program, SuiteCase, SuiteRun};
use headwater_e2e::running::Running;
use serde_json::json;

use crate::case_list::{CaseList, failures};
use crate::world::{USER, create, deployed, kubectl, node, without_controllers};

/// See [`CaseList`].
const LIST: &str = include_str!("conformance/cases.yaml");

/// The mark of a case that every cluster passes.
const CONFORMANCE: &str = "[Conformance]";

/// As many as the cases need: some place pods on two nodes at once, some on each.
const NODES: [&str; 3] = ["gw-1", "gw-2", "gw-3"];

/// An address for documentation. Nothing connects to a hollow pod, and the API refuses loopback as the
/// endpoint of a Service.
const NODE_ADDRESS: &str = "198.51.100.7";

/// Cases at once. They wait most of their time.
const AT_ONCE: NonZeroUsize = NonZeroUsize::new(6).expect("not zero");

/// The time limit of the cases of every check, which take a minute, and of all cases, which take 25.
const CHECK_WITHIN: Duration = Duration::from_mins(6);
const ROUND_WITHIN: Duration = Duration::from_mins(45);

/// The variable with the number of rounds of all cases.
const ROUNDS: &str = "HEADWATER_CONFORMANCE_ROUNDS";

/// The variable with words that the names of a round's cases have in common: a part of all cases.
const CASES: &str = "HEADWATER_CONFORMANCE_CASES";

/// The cases that pass at least: a case may not leave the list for the excluded ones unnoticed.
const PASSING_MIN: usize = 93;

/// Those of them that every check runs.
const EVERY_CHECK_MIN: usize = 13;

#[test]
fn the_list_has_every_conformance_case_of_its_files() {
    let program = Program::prepare().expect("the suite");
    let suite = SuiteCase::all(&program).expect("its cases");
    let list = CaseList::parse(LIST);
    assert_eq!(list.differences(&suite, CONFORMANCE), [""; 0]);
    assert!(list.selected(true, "").len() >= PASSING_MIN);
    assert!(list.selected(false, "").len() >= EVERY_CHECK_MIN);
}

#[test]
fn cases_of_kubernetes_pass_on_edges() {
    let list = CaseList::parse(LIST);
    let rounds: Option<u64> =
        std::env::var(ROUNDS).ok().map(|text| text.parse().expect("a number"));
    let (cluster, kubeconfig) = deployed(ControlPlaneSettings::default());
    // `up` is the controller. Pods of the deployment would be pending, and a case of the scheduler waits
    // until none is.
    without_controllers(&cluster);
    for name in NODES {
        // By default the controller changes tolerations of pods, and their generation with it. Some
        // cases count generations.
        let mut node = node(name);
        node["metadata"]["annotations"] = json!({"headwater/offline": "evict"});
        create(&cluster, &node);
    }
    let kubeconfig = kubeconfig.display().to_string();
    let nodes = NODES.join(",");
    let up = ["--kubeconfig", &kubeconfig, "--nodes", &nodes, "--node-address", NODE_ADDRESS];
    let running = Running::start(&[&up[..], &["--runtime", "hollow"]].concat());
    running.wait_for("the nodes to be ready", |_| {
        let ready = "jsonpath={.items[*].status.conditions[?(@.type==\"Ready\")].status}";
        let ready = kubectl(&cluster, &["get", "nodes", "-o", ready]);
        (ready.split_whitespace().filter(|status| *status == "True").count() == NODES.len())
            .then_some(())
    });
    let cases = list.selected(rounds.is_some(), &std::env::var(CASES).unwrap_or_default());
    let within = if rounds.is_some() { ROUND_WITHIN } else { CHECK_WITHIN };
    for round in 0..rounds.unwrap_or(1) {
        let folder = running.folder().join(format!("suite-{round}"));
        let run = SuiteRun { cases: &cases, at_once: AT_ONCE, within, folder: &folder };
        let results = run.run(&cluster).expect("the suite runs");
        let failures = failures(&cases, &results);
        println!("of {} cases failed {}", cases.len(), failures.len());
        assert!(failures.is_empty(), "{failures:#?}\n{}", running.output());
    }
    let log = cluster.audit_log().expect("an audit log");
    assert_eq!(log.refused(USER), [""; 0], "the roles refuse what the controller does");
}
