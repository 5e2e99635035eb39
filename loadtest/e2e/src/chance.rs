//! Repeatable randomness: a seed, printed with every failure.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// Random numbers of one seed.
#[derive(Debug)]
pub struct Chance {
    seed: u64,
    random: StdRng,
}

impl Chance {
    /// The seed in the variable `name`, else a new one; printed, so that a failure can be repeated.
    ///
    /// # Panics
    /// When the variable holds no number.
    pub fn from_env(name: &str) -> Self {
        let given = std::env::var(name).ok();
        let seed = given.map(|text| text.parse().expect("the seed is a number"));
        let seed = seed.unwrap_or_else(rand::random);
        println!("again: {name}={seed}");
        Self::of(seed)
    }

    /// Random numbers of `seed`.
    pub fn of(seed: u64) -> Self {
        Self { seed, random: StdRng::seed_from_u64(seed) }
    }

    /// The seed.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// A number below `end`, which is not 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.random.random_range(0..end)
    }

    /// One of `all`, which are not none.
    pub fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[usize::try_from(self.below(all.len() as u64)).unwrap_or_default()]
    }
}
