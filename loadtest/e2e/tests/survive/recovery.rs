//! How long it took until everything was in step again.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Durations by what was done. Nothing is asserted on them.
#[derive(Debug, Default)]
pub(crate) struct Recovery(BTreeMap<String, Vec<Duration>>);

impl Recovery {
    /// After this fault it took so long.
    pub(crate) fn took(&mut self, fault: &str, duration: Duration) {
        self.0.entry(fault.to_owned()).or_default().push(duration);
    }
}

impl fmt::Display for Recovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "from the end of the fault to everything in step, seconds")?;
        writeln!(f, "{:40} {:>5} {:>7} {:>7} {:>7}", "", "times", "min", "median", "max")?;
        for (fault, took) in &self.0 {
            let mut took = took.clone();
            took.sort_unstable();
            let at = |at: usize| took.get(at).map_or(0.0, Duration::as_secs_f64);
            let (min, median, max) = (at(0), at(took.len() / 2), at(took.len() - 1));
            writeln!(f, "{fault:40} {:>5} {min:>7.1} {median:>7.1} {max:>7.1}", took.len())?;
        }
        Ok(())
    }
}
