//! Databases that are lost, cut short or rotten. A copy is rebuilt without loss; damage to an original
//! is named and waits for an operator. No part shows wrong data, and no pod is touched.
//!
//! `HEADWATER_DAMAGE_SEED=N` for other places, `HEADWATER_DAMAGE_FLIPS=N` for more of them.

#[path = "damage/bench.rs"]
mod bench;
#[path = "damage/fault.rs"]
mod fault;

use headwater_e2e::chance::Chance;

use bench::Bench;
use fault::{End, Fault};

const SEED: &str = "HEADWATER_DAMAGE_SEED";
const FLIPS: &str = "HEADWATER_DAMAGE_FLIPS";

/// Bits that are flipped in each kind of database.
const FLIPS_DEFAULT: u64 = 45;

/// The same places in each run, unless a seed is given: a result must be repeatable.
fn chance() -> Chance {
    let given = std::env::var(SEED).ok();
    Chance::of(given.map_or(7, |text| text.parse().expect("the seed is a number")))
}

fn flips() -> u64 {
    let given = std::env::var(FLIPS).ok();
    given.map_or(FLIPS_DEFAULT, |text| text.parse().expect("the flips are a number"))
}

/// Each way to lose a part of a database.
fn losses() -> Vec<Fault> {
    let ends = [End::Wal, End::Table, End::Manifest, End::Current];
    let cut = ends.iter().flat_map(|end| {
        [
            Fault::Emptied(*end),
            Fault::CutShort(*end, 1),
            Fault::CutShort(*end, 2),
            Fault::Gone(*end),
        ]
    });
    [Fault::Removed].into_iter().chain(cut).collect()
}

#[test]
fn a_state_database_that_lost_a_part_is_whole_again_and_no_pod_noticed() {
    let mut bench = Bench::start(chance());
    for fault in losses() {
        bench.damage_state(fault);
    }
    bench.stop();
}

#[test]
fn a_flipped_bit_in_a_state_database_changes_nothing_that_is_shown() {
    let mut bench = Bench::start(chance());
    for _ in 0..flips() {
        bench.damage_state(Fault::Flipped);
    }
    bench.stop();
}

#[test]
fn an_outbox_that_lost_a_part_begins_the_next_boot_with_everything() {
    let mut bench = Bench::start(chance());
    for fault in losses() {
        bench.damage_outbox(fault);
    }
    for _ in 0..flips() / 5 {
        bench.damage_outbox(Fault::Flipped);
    }
    bench.stop();
}

#[test]
fn the_folds_of_hub_and_controller_are_folded_again_and_nothing_is_appended() {
    let mut bench = Bench::start(chance());
    let folds = ["cloud/hub", "cloud/controller/published", "cloud/controller/picture"];
    for fold in folds {
        for fault in losses() {
            bench.damage_fold(fold, fault);
        }
        for _ in 0..flips() / 9 {
            bench.damage_fold(fold, Fault::Flipped);
        }
    }
    bench.lose_folds(&folds);
    bench.stop();
}

#[test]
fn a_damaged_log_is_named_and_nothing_is_deleted_at_any_edge() {
    let mut bench = Bench::start(chance());
    // A log of which nothing at all is left begins anew: see below.
    bench.settle_in_tables();
    let mut named = 0;
    for fault in losses().into_iter().filter(|fault| *fault != Fault::Removed) {
        named += u32::from(bench.damage_log(fault));
    }
    for _ in 0..flips() / 5 {
        named += u32::from(bench.damage_log(Fault::Flipped));
    }
    assert!(named > 5, "damage to the log is named, not passed over");
    bench.stop();
}

#[test]
fn a_log_that_is_lost_begins_anew_and_a_lost_cloud_is_refused() {
    let mut bench = Bench::start(chance());
    bench.lose_log();
    bench.lose_cloud();
    bench.stop();
}
