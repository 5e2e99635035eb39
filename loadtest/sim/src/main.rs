//! Runs the simulation by hand: one seed with its trace, or many and what happened in them.
//!
//! `--seed N` runs one seed, `--trace` prints what happened in it; `--seeds N` runs that many
//! from `--seed` on.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    let mut seed = 1;
    let mut seeds = 1;
    let mut prints_trace = false;
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut number = || words.next().and_then(|word| word.parse().ok());
        match word.as_str() {
            "--trace" => prints_trace = true,
            "--seed" => match number() {
                Some(number) => seed = number,
                None => return usage(),
            },
            "--seeds" => match number() {
                Some(number) => seeds = number,
                None => return usage(),
            },
            _ => return usage(),
        }
    }
    let began = Instant::now();
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    let mut virtual_ms = 0;
    let mut failures = 0;
    for seed in seed..seed + seeds {
        let run = headwater_sim::run(seed, prints_trace);
        run.kept.iter().for_each(|line| println!("{line}"));
        if let Some(failure) = run.failure() {
            eprintln!("{failure}");
            failures += 1;
        }
        for (what, count) in &run.counts {
            *counts.entry(what).or_default() += count;
        }
        virtual_ms += run.virtual_ms;
        if seeds == 1 {
            eprintln!("trace {} of {} lines", run.trace, run.lines);
        }
    }
    for (what, count) in &counts {
        eprintln!("{:>9.2} {what}", *count as f64 / seeds as f64);
    }
    let took = began.elapsed();
    eprintln!(
        "{seeds} seeds, {failures} failed, {:.1} ms each, {:.1} virtual minutes each",
        took.as_secs_f64() * 1e3 / seeds as f64,
        virtual_ms as f64 / 6e4 / seeds as f64,
    );
    if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn usage() -> ExitCode {
    eprintln!("usage: headwater-sim [--seed N] [--seeds N] [--trace]");
    ExitCode::from(2)
}
