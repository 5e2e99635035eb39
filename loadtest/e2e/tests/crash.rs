//! `kill -9` of everything at once, at seeded random moments, while the source keeps changing and
//! statuses keep flowing: nothing that was acknowledged is lost, nothing is applied twice, no pod
//! runs twice and none is left behind.
//!
//! `HEADWATER_CRASH_ROUNDS=N` for more rounds, `HEADWATER_CRASH_SEED=N` for the same ones again.
//! (What the source and the machine do meanwhile is not in the seed: a failure may need several
//! tries.)

#[path = "crash/moment.rs"]
mod moment;
#[path = "crash/witness.rs"]
mod witness;

use std::collections::BTreeMap;
use std::time::Instant;

use headwater_check::panic::{check_exit, check_words};
use headwater_e2e::chance::Chance;
use headwater_e2e::containers::{Container, Tree, containers};
use headwater_e2e::invariants::Invariants;
use headwater_e2e::restless::{ANCHORS, Restless, marker};
use headwater_e2e::running::{Running, WAIT, processes_in};
use serde_json::Value;

use moment::Moment;
use witness::Witness;

/// The nodes.
const NODES: [&str; 2] = ["node-1", "node-2"];

const SEED: &str = "HEADWATER_CRASH_SEED";
const ROUNDS: &str = "HEADWATER_CRASH_ROUNDS";
const ROUNDS_DEFAULT: u64 = 30;

fn rounds() -> u64 {
    let given = std::env::var(ROUNDS).ok();
    given.map_or(ROUNDS_DEFAULT, |text| text.parse().expect("the rounds are a number"))
}

/// The containers of the pods that no change touches.
fn anchors(running: &Running) -> BTreeMap<Container, Vec<Tree>> {
    let of_anchor = |container: &Container| container.name == ANCHORS;
    containers(&running.data()).into_iter().filter(|(container, _)| of_anchor(container)).collect()
}

/// Whether there is one on each node, whose process is there.
fn all_run(anchors: &BTreeMap<Container, Vec<Tree>>) -> bool {
    anchors.len() == NODES.len()
        && anchors.values().all(|trees| trees.iter().all(|tree| tree.process.is_some()))
}

#[test]
fn a_kill_at_any_moment_loses_nothing_and_does_nothing_twice() {
    let mut chance = Chance::from_env(SEED);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut restless = Restless::new(folder.path(), &NODES, chance.seed());
    let args = restless.args();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut running = Running::start(&args);
    running.wait_for_pods(restless.pods().len(), |_| true);
    running.wait_until_in_step();

    let mut invariants = Invariants::new(ANCHORS);
    for node in NODES {
        invariants.mark(node.parse().expect("a node"), &marker(node));
    }
    let mut witness = Witness::new(folder.path());
    let mut adopted = running.wait_for("an anchor on each node", |running| {
        let found = anchors(running);
        all_run(&found).then_some(Some(found))
    });
    restless.begin();
    for round in 1..=rounds() {
        let moment = Moment::of(round, &mut chance);
        let again = || format!("round {round}, {moment:?} ({SEED}={})", chance.seed());
        moment.wait_and_kill(&mut running, &mut witness);
        let evidence = match invariants.look(&running.data()) {
            Ok(evidence) => evidence,
            Err(broken) => panic!("{}: {broken}\n{}", again(), running.output()),
        };
        witness.check(&evidence).unwrap_or_else(|lost| panic!("{}: {lost}", again()));
        let now = anchors(&running);
        if let Some(before) = &adopted
            && !moment.stops_pods()
        {
            assert_eq!(&now, before, "{}: adopted, the same processes", again());
        }
        // Behind a stop they end, now or in a moment, and the next start begins them anew.
        adopted = (!moment.stops_pods() && all_run(&now)).then_some(now);
        running.start_again();
    }

    restless.settle();
    let again = format!("at the end ({SEED}={})", chance.seed());
    let deadline = Instant::now() + WAIT;
    loop {
        settled(&running, &restless, &again);
        assert_eq!(running.ask(&["verify"]).status.code(), Some(0), "{again}");
        witness.attend(&running);
        running.kill();
        let evidence = invariants.look(&running.data()).unwrap_or_else(|e| panic!("{again}: {e}"));
        witness.check(&evidence).unwrap_or_else(|lost| panic!("{again}: {lost}"));
        let Err(missing) = invariants.converged(&evidence) else { break };
        // Some pods go on by themselves: a kill may meet what they just did on its way.
        assert!(Instant::now() < deadline, "{again}: {missing}");
        running.start_again();
    }

    running.start_again();
    settled(&running, &restless, &again);
    let status = running.interrupt();
    check_exit("up", status.code()).expect("as designed");
    check_words("up", &running.output()).expect("no panic");
    let left = processes_in(&running.data());
    assert!(left.is_empty(), "{again}: Ctrl-C leaves no process behind: {left:?}");
}

/// Waits until the cloud and the machine agree on what is to run, and that is what the source
/// says.
fn settled(running: &Running, restless: &Restless, again: &str) {
    running.wait_until_in_step();
    running.wait_for("the pods that the source names, and their containers", |running| {
        let pods = running.items(&["get", "pods", "-A"]);
        let mut names: Vec<&str> =
            pods.iter().filter_map(|pod| pod["metadata"]["name"].as_str()).collect();
        names.sort_unstable();
        if !restless.names_are(&names) {
            return None;
        }
        let mut reported: Vec<Container> = pods.iter().flat_map(running_containers).collect();
        reported.sort();
        let found = containers(&running.data());
        let found: Vec<&Container> = found
            .iter()
            .filter(|(_, trees)| matches!(trees.as_slice(), [tree] if tree.process.is_some()))
            .map(|(container, _)| container)
            .collect();
        reported.iter().eq(found).then_some(())
    });
    restless.wait_for_word(running, again);
}

/// The containers of a pod that run, as the cloud says.
fn running_containers(pod: &Value) -> Vec<Container> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let statuses = pod["status"]["containerStatuses"].as_array().cloned().unwrap_or_default();
    let runs = statuses.into_iter().filter(|status| status["state"]["running"].is_object());
    runs.map(|status| Container {
        node: text(&pod["spec"]["nodeName"]),
        uid: text(&pod["metadata"]["uid"]),
        name: text(&status["name"]),
    })
    .collect()
}
