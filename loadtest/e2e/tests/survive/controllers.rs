//! Several controllers and one log: one writes, and what another one wrote meanwhile counts
//! nowhere.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use headwater_e2e::chance::Chance;
use headwater_e2e::fleet::Fleet;

use crate::recovery::Recovery;
use crate::scene::{FROZEN, Scene};
use crate::{SEED, rounds};

/// The two that fight.
const TWO: [&str; 2] = ["first", "second"];

/// Each move once.
const MOVES_DEFAULT: u64 = 3;

/// How much changes while a controller is away.
const CHANGES: u32 = 50;

/// Which of the two writes.
fn writer(fleet: &Fleet) -> &'static str {
    fleet.wait_for("one of two writes", |fleet| {
        let writes = |name: &&&str| {
            fleet.part(name).status().is_some_and(|status| status["stands_by"] == false)
        };
        let mut writers = TWO.iter().filter(writes);
        writers.next().filter(|_| writers.next().is_none()).copied()
    })
}

fn wait_until_it_writes(fleet: &Fleet, name: &str) {
    fleet.wait_for(&format!("{name} writes"), |fleet| {
        (fleet.part(name).status()?["stands_by"] == false).then_some(())
    });
}

#[test]
fn of_two_controllers_that_fight_one_counts() {
    let mut chance = Chance::from_env(SEED);
    let mut scene = Scene::start(&TWO, chance.seed());
    let mut recovery = Recovery::default();
    for round in 1..=rounds(MOVES_DEFAULT) {
        let one = writer(&scene.fleet);
        let other = if one == TWO[0] { TWO[1] } else { TWO[0] };
        scene.restless.begin();
        let move_ = if round <= MOVES_DEFAULT { round - 1 } else { chance.below(MOVES_DEFAULT) };
        let (what, since) = match move_ {
            0 => {
                // It wakes with changes in its hands that it takes for its own to write.
                scene.fleet.part(one).freeze();
                thread::sleep(FROZEN);
                wait_until_it_writes(&scene.fleet, other);
                scene.fleet.part(one).thaw();
                ("freeze 15 s the writer of two", Instant::now())
            }
            1 => {
                scene.fleet.part_mut(one).kill();
                let since = Instant::now();
                wait_until_it_writes(&scene.fleet, other);
                scene.fleet.part_mut(one).start_again();
                ("kill -9 the writer of two", since)
            }
            _ => {
                TWO.iter().for_each(|name| scene.fleet.part_mut(name).kill());
                let since = Instant::now();
                TWO.iter().for_each(|name| scene.fleet.part_mut(name).start_again());
                ("kill -9 both controllers", since)
            }
        };
        println!("round {round}: {what}, {one} wrote ({SEED}={})", chance.seed());
        scene.settle();
        recovery.took(what, since.elapsed());
    }
    scene.end();
    println!("{recovery}");
}

#[test]
fn a_controller_that_was_away_removes_what_went_meanwhile_also_without_its_disk() {
    let mut chance = Chance::from_env(SEED);
    let mut scene = Scene::start(&["controller"], chance.seed());
    let mut recovery = Recovery::default();
    for what in ["away while the source changed", "the same, its disk lost"] {
        scene.restless.begin();
        thread::sleep(Duration::from_millis(chance.below(1_000)));
        scene.restless.rest();
        scene.fleet.part_mut("controller").kill();
        let data = scene.fleet.part("controller").data().to_owned();
        if what.contains("disk") {
            fs::remove_dir_all(&data).expect("its disk is lost");
            scene.invariants.lost_picture("controller");
        }
        // No controller watches these changes.
        scene.restless.change(CHANGES);
        let since = Instant::now();
        scene.fleet.part_mut("controller").start_again();
        scene.settle();
        recovery.took(what, since.elapsed());
    }
    scene.end();
    println!("{recovery}");
}
