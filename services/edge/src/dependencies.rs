//! The dependencies of an edge besides its engines: clocks, random numbers and metrics. A test or a
//! simulation passes its own.

use std::fmt;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::metrics::EdgeCounts;

/// What an edge needs from outside, besides its configuration and its engines.
#[derive(Clone, Debug)]
pub struct EdgeDependencies {
    /// The clocks.
    pub clock: Arc<dyn Clock>,
    /// Random numbers.
    pub chance: Arc<dyn Chance>,
    /// The metrics of this edge.
    pub metrics: EdgeCounts,
}

/// The clocks of an edge.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Milliseconds since the Unix epoch. Data for people; orders nothing.
    fn wall_ms(&self) -> i64;

    /// Milliseconds of a clock that never goes back. For every wait and deadline.
    fn monotonic_ms(&self) -> u64;
}

/// The source of random numbers of an edge.
pub trait Chance: Send + Sync + fmt::Debug {
    /// Draws the next number; all its bits are random.
    fn draw(&self) -> u64;
}

/// The machine's clocks.
#[derive(Debug)]
pub struct SystemClock {
    started: Instant,
}

/// The random number generator of the process.
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
    /// A clock whose monotonic time begins now.
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
