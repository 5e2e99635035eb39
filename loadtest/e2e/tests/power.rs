//! Power cuts: the whole of `headwater up` on a disk that forgets what was not synced, cut at
//! seeded random moments in the midst of its writes, while the source keeps changing and statuses
//! keep flowing. What anybody was shown is there afterwards, and no pod was started, and nothing
//! acknowledged, from what was lost.
//!
//! `HEADWATER_POWER_ROUNDS=N` for more rounds, `HEADWATER_POWER_SEED=N` for the same ones again.
//! A cut here kills pods too, as one does; the machine's boot id, which the kernel makes, stays.

#[path = "power/machine.rs"]
mod machine;
#[path = "crash/witness.rs"]
mod witness;

use std::collections::BTreeMap;
use std::time::Duration;

use headwater_check::durable;
use headwater_check::panic::check_words;
use headwater_e2e::chance::Chance;
use headwater_e2e::containers::{Container, Tree, containers};
use headwater_e2e::evidence::Evidence;
use headwater_e2e::invariants::{Broken, Invariants};
use headwater_e2e::restless::{ANCHORS, Restless, marker};
use headwater_e2e::running::Running;
use headwater_event::{Event, NodeName, Seq, StreamId};
use headwater_lossy::{Loss, Survives};

use machine::Machine;
use witness::Witness;

/// The nodes.
const NODES: [&str; 2] = ["node-1", "node-2"];

const SEED: &str = "HEADWATER_POWER_SEED";
const ROUNDS: &str = "HEADWATER_POWER_ROUNDS";
const ROUNDS_DEFAULT: u64 = 20;

/// After how many changes of the disk the power goes, at most: in a start, and later.
const STARTING_MAX: u64 = 250;
const RUNNING_MAX: u64 = 2_500;

/// The longest wait for a moment to cut: without writes the disk is cut while idle.
const PATIENCE: Duration = Duration::from_secs(15);

fn rounds() -> u64 {
    let given = std::env::var(ROUNDS).ok();
    given.map_or(ROUNDS_DEFAULT, |text| text.parse().expect("the rounds are a number"))
}

/// What survives a cut: mostly a part, in order.
fn survives(chance: &mut Chance) -> Survives {
    match chance.below(4) {
        0 => Survives::Nothing,
        _ => Survives::Prefix { seed: chance.below(u64::MAX) },
    }
}

#[test]
fn a_power_cut_at_any_moment_loses_nothing_that_anybody_was_shown() {
    let Some(mut machine) = Machine::new() else { return };
    let mut chance = Chance::from_env(SEED);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut restless = Restless::new(folder.path(), &NODES, chance.seed());
    let args = restless.args();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut running = Running::start_on(&machine.data(), &args);
    running.wait_for_pods(restless.pods().len(), |_| true);

    let mut invariants = Invariants::new(ANCHORS);
    for node in NODES {
        invariants.mark(node.parse().expect("a node"), &marker(node));
    }
    let mut witness = Witness::new(folder.path());
    let mut lost = Loss::default();
    restless.begin();
    for round in 1..=rounds() {
        let starting = round % 3 == 0;
        let changes = chance.below(if starting { STARTING_MAX } else { RUNNING_MAX });
        let survives = survives(&mut chance);
        let again = format!(
            "round {round}, {changes} changes after it {}, {survives:?} ({SEED}={})",
            if starting { "was started" } else { "answered" },
            chance.seed()
        );
        if starting {
            running.kill();
            machine.kill_what_runs();
            machine.disk.freeze_after(changes);
            running.start_again();
        } else {
            running.wait_for("an answer", |running| running.text(&["status"]).map(drop));
            witness.attend(&running);
            witness.ask(&running);
            machine.disk.freeze_after(changes);
        }
        if !machine.disk.wait_until_frozen(PATIENCE) {
            machine.disk.freeze();
        }
        // Whatever runs at this moment was started by then.
        let ran = containers(&machine.data());
        let loss = machine.power_cut(&mut running, survives);
        lost += loss;
        let evidence = invariants
            .look(&machine.data())
            .unwrap_or_else(|broken| panic!("{again}: {broken}\n{}", running.output()));
        witness.check(&evidence).unwrap_or_else(|lost| panic!("{again}: {lost}"));
        let checked = started_from_durable(&ran, &evidence);
        checked.unwrap_or_else(|broken| panic!("{again}: {broken}"));
        running.start_again();
    }

    restless.settle();
    let again = format!("at the end ({SEED}={})", chance.seed());
    running.wait_until_in_step();
    running.wait_for("what the source names runs", |running| {
        let pods = running.items(&["get", "pods", "-A"]);
        let names = pods.iter().filter_map(|pod| pod["metadata"]["name"].as_str());
        let mut names: Vec<&str> = names.collect();
        names.sort_unstable();
        let anchored = |(container, trees): (&Container, &Vec<Tree>)| {
            container.name == ANCHORS
                && matches!(trees.as_slice(), [tree] if tree.process.is_some())
        };
        let runs = containers(&running.data());
        let anchors = runs.iter().filter(|found| anchored(*found)).count();
        (restless.names_are(&names) && anchors == NODES.len()).then_some(())
    });
    restless.wait_for_word(&running, &again);
    assert_eq!(running.ask(&["verify"]).status.code(), Some(0), "{again}");
    println!("{} cuts: {lost:?}; {:?}", rounds(), machine.disk.counts());
    assert!(lost.bytes > 0 && lost.entries > 0, "the disk forgets: {lost:?}");
    check_words("up", &running.output()).expect("no panic");
    machine.power_cut(&mut running, Survives::Nothing);
    let evidence = invariants.look(&machine.data()).unwrap_or_else(|e| panic!("{again}: {e}"));
    witness.check(&evidence).unwrap_or_else(|lost| panic!("{again}: {lost}"));
}

/// No container was started from above what is durable, and is there after the cut.
fn started_from_durable(
    ran: &BTreeMap<Container, Vec<Tree>>,
    evidence: &Evidence,
) -> Result<(), Broken> {
    for (container, trees) in ran {
        if trees.len() > 1 {
            return Err(format!("{container:?} ran {} times: {trees:?}", trees.len()).into());
        }
        let node: NodeName = container.node.parse()?;
        let stream = StreamId::node(&node);
        let applied = evidence.events(&stream).iter().find(
            |event| matches!(&event.event, Event::Applied(applied) if applied.uid == container.uid),
        );
        let applied = applied.ok_or_else(|| format!("I8 {container:?} ran and is in no event"))?;
        let replica = evidence.nodes.get(&node).and_then(|node| node.replicas.get(&stream));
        let durable = replica.map_or(Seq::ZERO, |replica| replica.checkpoint.seq);
        durable::check(&node, &stream, "started a pod from", applied.seq, durable)?;
    }
    Ok(())
}

#[test]
fn a_pod_that_has_ended_for_good_does_not_begin_anew() {
    let Some(mut machine) = Machine::new() else { return };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let marks = folder.path().join("marks");
    let manifests = folder.path().join("manifests");
    std::fs::create_dir(&manifests).expect("a folder");
    let command = format!("echo ran >> {}", marks.display());
    let pod = serde_json::json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "once"},
        "spec": {
            "restartPolicy": "Never", "nodeName": "node-1",
            "containers": [{"name": "c", "command": ["sh", "-c", command]}],
        },
    });
    std::fs::write(manifests.join("once.json"), pod.to_string()).expect("written");
    let args = [manifests.to_str().expect("UTF-8"), "--nodes", "1"];
    let mut running = Running::start_on(&machine.data(), &args);
    for _ in 0..3 {
        running.wait_for_pods(1, |status| status == "Completed");
        machine.power_cut(&mut running, Survives::Nothing);
        running.start_again();
    }
    running.wait_for_pods(1, |status| status == "Completed");
    running.wait_until_in_step();
    let ran = std::fs::read_to_string(&marks).expect("it ran");
    assert_eq!(ran.lines().count(), 1, "once and no more");
    // Its directory goes with it, for good.
    std::fs::remove_file(manifests.join("once.json")).expect("removed");
    std::fs::write(manifests.join("none.json"), "").expect("written");
    machine.power_cut(&mut running, Survives::Nothing);
}
