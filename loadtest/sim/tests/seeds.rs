//! Fresh seeds, the same seeds each time, and that a seed is a whole run.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use headwater_sim::{Run, run};

/// The seeds that are run every time: from 1 to this.
const SEEDS: u64 = 500;

/// Seeds side by side: each is a thread of its own.
const AT_ONCE: usize = 2;

/// How many seeds are run twice.
const TWICE: u64 = 20;

/// What the seeds of every time meet in all, at least: about half of what they met when this was written. A
/// simulation that no longer meets it shows nothing about it.
const MET: [(&str, u64); 12] = [
    ("second controller", 140),
    ("controller crashed", 440),
    ("controller disks lost", 170),
    ("frozen writer woke", 340),
    ("late append arrived", 110),
    ("hub crashed", 450),
    ("hub disk lost", 180),
    ("API server restarted", 470),
    ("API server frozen", 430),
    ("API server forgot its history", 240),
    ("requests fail", 450),
    ("pod let go after its end", 2_000),
];

/// What seeds came to together.
#[derive(Default)]
struct Outcome {
    failures: Vec<String>,
    /// How often what happened.
    counts: BTreeMap<&'static str, u64>,
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Runs `seeds`, some side by side.
fn all(seeds: &[u64]) -> Outcome {
    let next = AtomicU64::new(0);
    let outcome = Mutex::new(Outcome::default());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let seed = usize::try_from(index).ok().and_then(|index| seeds.get(index));
                    let Some(seed) = seed else { return };
                    let ran = std::panic::catch_unwind(|| run(*seed, false));
                    outcome.lock().expect("no panic holds it").add(*seed, ran.ok());
                }
            });
        }
    });
    outcome.into_inner().expect("no panic held it")
}

impl Outcome {
    /// Adds a run; `None`: it panicked.
    fn add(&mut self, seed: u64, run: Option<Run>) {
        let Some(run) = run else {
            return self.failures.push(format!("seed {seed}: I13 panicked"));
        };
        self.failures.extend(run.failure());
        for (what, count) in run.counts {
            *self.counts.entry(what).or_default() += count;
        }
    }

    fn check(&self) {
        let Self { failures, .. } = self;
        assert!(failures.is_empty(), "{} failed:\n{}", failures.len(), failures.join("\n"));
    }
}

/// One seed of `HEADWATER_SIM_SEED`, or as many fresh ones as `HEADWATER_SIM_SEEDS` says.
#[test]
fn fresh_seeds() {
    let seeds: Vec<u64> = match number("HEADWATER_SIM_SEED") {
        Some(seed) => vec![seed],
        None => {
            let Some(count) = number("HEADWATER_SIM_SEEDS") else { return };
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let first = now.as_secs() << 16;
            eprintln!("seeds {first} and the next {count}");
            (first..first + count).collect()
        }
    };
    all(&seeds).check();
}

#[test]
fn the_same_seeds_as_ever() {
    let seeds: Vec<u64> = (1..=SEEDS).collect();
    let outcome = all(&seeds);
    outcome.check();
    for (what, least) in MET {
        let met = outcome.counts.get(what).copied().unwrap_or_default();
        assert!(met >= least, "{what}: {met} times in {SEEDS} seeds, at least {least}");
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    for seed in 1..=TWICE {
        let (once, again) = (run(seed, true), run(seed, true));
        let differs = once.kept.iter().zip(&again.kept).find(|(once, again)| once != again);
        assert_eq!(differs, None, "seed {seed}");
        assert_eq!(once, again, "seed {seed}");
    }
}
