//! `kill -9` of the edge, the pod worker, the container runtime and a pod's shim, alone and in pairs, at seeded
//! moments: containers run on, exit codes, times, counts and back-off are right, no log line is lost or doubled,
//! nothing starts twice, and nothing stays behind.
//!
//! What containerd itself cannot know is left out. A run whose start was cut off may have begun: it is a run of its own
//! with the reason `StartError` or `ContainerStatusUnknown`, and another follows. An end is lost if containerd and the pod
//! worker are killed before either has written it down. A line of a log is lost if containerd is killed after it has read
//! the line from the container's pipe and before it has written the line to the file. A shim that containerd was starting
//! when it was killed stays, and holds nothing. So does the network of a sandbox that it had not written down: see
//! [`remains::left`].
//!
//! `HEADWATER_CONTAINERS_ROUNDS=N` for more rounds, `HEADWATER_CONTAINERS_SEED=N` for the same ones again. (What the
//! machine does meanwhile is not in the seed: a failure may need several tries.)

mod gateway;
mod remains;
mod workload;

use std::thread;
use std::time::Duration;

use headwater_cri_lab::Containerd;
use headwater_e2e::chance::Chance;
use jiff::Timestamp;

use gateway::{Gateway, Part};
use workload::Workload;

const SEED: &str = "HEADWATER_CONTAINERS_SEED";
const ROUNDS: &str = "HEADWATER_CONTAINERS_ROUNDS";

/// Each part alone, and the pairs that share a fact.
const FIRST: [&[Part]; 8] = [
    &[Part::Edged],
    &[Part::Containerd],
    &[Part::Shim],
    &[Part::Edge],
    &[Part::Edged, Part::Containerd],
    &[Part::Edge, Part::Edged],
    &[Part::Containerd, Part::Shim],
    &[Part::Edged, Part::Shim],
];

/// How long after the new pods the kill comes, and how long the killed parts stay away, at most.
const AFTER_MS: u64 = 1_500;
const AWAY_MS: u64 = 700;

fn rounds() -> usize {
    let given = std::env::var(ROUNDS).ok();
    given.map_or(FIRST.len(), |text| text.parse().expect("the rounds are a number"))
}

/// The parts of a round: first those of the list, then one or two by chance.
fn parts(round: usize, chance: &mut Chance) -> Vec<Part> {
    if let Some(parts) = FIRST.get(round) {
        return parts.to_vec();
    }
    let (first, second) = (*chance.one_of(&Part::ALL), *chance.one_of(&Part::ALL));
    if first == second { vec![first] } else { vec![first, second] }
}

#[test]
fn containers_survive_the_kill_of_everything_around_them() {
    if !Containerd::is_possible() {
        return;
    }
    let mut chance = Chance::from_env(SEED);
    let mut kills = 0;
    let mut gateway = Gateway::start();
    let mut workload = Workload::new(gateway.notes());
    gateway.cloud.write(&workload.manifests());
    gateway.wait_for("the pods that run on", |gateway| workload.has_begun(gateway));
    for round in 0..rounds() {
        workload.add_jobs(round, &mut chance);
        gateway.cloud.write(&workload.manifests());
        let after = Duration::from_millis(chance.below(AFTER_MS));
        let away = Duration::from_millis(chance.below(AWAY_MS));
        let parts = parts(round, &mut chance);
        println!("round {round}: {parts:?} {after:?} after the pods, away for {away:?}");
        thread::sleep(after);
        let from = Timestamp::now();
        gateway.kill(&parts);
        if parts.contains(&Part::Containerd) {
            kills += 1;
            workload.add_runtime_kill(from, Timestamp::now());
        }
        thread::sleep(away);
        gateway.start_again(&parts);
        if parts.contains(&Part::Edged) && parts.contains(&Part::Containerd) {
            workload.add_gap(from, Timestamp::now());
        }
    }
    let again = format!("{SEED}={}", chance.seed());
    gateway
        .wait_for(&format!("the end of the jobs ({again})"), |gateway| workload.has_ended(gateway));
    workload.check(&gateway).unwrap_or_else(|wrong| {
        panic!("{again}: {wrong}\n--- edged\n{}", gateway.edged.output());
    });

    let uids = workload.uids(&gateway);
    gateway.cloud.write("---\n");
    let left = || remains::left(&gateway, &uids, kills);
    gateway.wait_for(&format!("an empty node ({again})"), |_| {
        let left = left();
        left.is_empty().then_some(()).ok_or(format!("left: {left:#?}"))
    });
}
