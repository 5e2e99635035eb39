//! What an edge reads besides its engines: the clocks and chance. Arguments, so that a test
//! decides them.

use std::fmt;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::metrics::EdgeCounts;

/// What an edge is started with besides its configuration.
#[derive(Clone, Debug)]
pub struct EdgeDependencies {
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Random numbers.
    pub chance: Arc<dyn Chance>,
    /// What it counts.
    pub metrics: EdgeCounts,
}

/// What time it is.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Milliseconds since the Unix epoch: data for people, orders nothing.
    fn wall_ms(&self) -> i64;

    /// Milliseconds of a clock that never goes back: for every wait and deadline.
    fn monotonic_ms(&self) -> u64;
}

/// Where an edge gets its random numbers.
pub trait Chance: Send + Sync + fmt::Debug {
    /// The next number, every bit of it random.
    fn draw(&self) -> u64;
}

/// The machine's clocks.
#[derive(Debug)]
pub struct SystemClock {
    started: Instant,
}

/// The random numbers of the process.
#[derive(Debug, Default)]
pub struct SystemChance;

impl Default for EdgeDependencies {
    fn default() -> Self {
        Self {
            clock: Arc::new(SystemClock::new()),
            chance: Arc::new(SystemChance),
            metrics: EdgeCounts::default(),
        }
    }
}

impl SystemClock {
    /// A clock whose monotonic side begins now.
    pub fn new() -> Self {
        Self { started: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn wall_ms(&self) -> i64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    }

    fn monotonic_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

impl Chance for SystemChance {
    fn draw(&self) -> u64 {
        rand::random()
    }
}
