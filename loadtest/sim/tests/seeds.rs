//! Fresh seeds, the same seeds each time, and that a seed is a whole run.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use headwater_sim::run;

/// The seeds that are run every time: from 1 to this.
const SEEDS: u64 = 500;

/// Seeds side by side: each is a thread of its own.
const AT_ONCE: usize = 2;

/// How many seeds are run twice.
const TWICE: u64 = 20;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Runs `seeds`, some side by side; gives what failed.
fn all(seeds: &[u64]) -> Vec<String> {
    let next = AtomicU64::new(0);
    let failures = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let seed = usize::try_from(index).ok().and_then(|index| seeds.get(index));
                    let Some(seed) = seed else { return };
                    let ran = std::panic::catch_unwind(|| run(*seed, false).failure());
                    let failure =
                        ran.unwrap_or_else(|_| Some(format!("seed {seed}: I13 panicked")));
                    failures.lock().expect("no panic holds it").extend(failure);
                }
            });
        }
    });
    failures.into_inner().expect("no panic held it")
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
    let failures = all(&seeds);
    assert!(failures.is_empty(), "{} failed:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn the_same_seeds_as_ever() {
    let seeds: Vec<u64> = (1..=SEEDS).collect();
    let failures = all(&seeds);
    assert!(failures.is_empty(), "{} failed:\n{}", failures.len(), failures.join("\n"));
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
