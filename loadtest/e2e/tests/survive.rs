//! Parts as processes on a real Kafka, killed and frozen at seeded random moments while the source
//! keeps changing and statuses keep flowing: nothing is lost, nothing is doubled, nothing leaks,
//! and everything comes into step again.
//!
//! `HEADWATER_SURVIVE_ROUNDS=N` for more rounds, `HEADWATER_SURVIVE_SEED=N` for the same ones again.
//! (What the machine does meanwhile is not in the seed: a failure may need several tries.)

#[path = "survive/controllers.rs"]
mod controllers;
#[path = "survive/fault.rs"]
mod fault;
#[path = "survive/recovery.rs"]
mod recovery;
#[path = "survive/scene.rs"]
mod scene;

use headwater_e2e::chance::Chance;

use fault::Fault;
use recovery::Recovery;
use scene::Scene;

const SEED: &str = "HEADWATER_SURVIVE_SEED";
const ROUNDS: &str = "HEADWATER_SURVIVE_ROUNDS";

/// Each part killed and each frozen, some of them in pairs.
const ROUNDS_DEFAULT: u64 = 9;

fn rounds(default: u64) -> u64 {
    let given = std::env::var(ROUNDS).ok();
    given.map_or(default, |text| text.parse().expect("the rounds are a number"))
}

#[test]
fn a_part_or_two_that_are_killed_or_frozen_cost_nothing_but_time() {
    let mut chance = Chance::from_env(SEED);
    let mut scene = Scene::start(&["controller"], chance.seed());
    let mut recovery = Recovery::default();
    let order = Fault::order(&mut chance);
    for round in 1..=rounds(ROUNDS_DEFAULT) {
        let fault = Fault::of(round, &order, &mut chance);
        println!("round {round}: {fault} ({SEED}={})", chance.seed());
        scene.restless.begin();
        let mended = fault.strike(&mut scene.fleet);
        scene.settle();
        recovery.took(&fault.kind(), mended.elapsed());
    }
    scene.end();
    println!("{recovery}");
}
