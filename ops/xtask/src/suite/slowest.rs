//! The slowest tests of a run.

use std::fmt;

/// Tests that the report lists.
const COUNT: usize = 10;

/// The durations of tests, from libtest's output.
#[derive(Debug, Default)]
pub(super) struct Slowest {
    /// Seconds, and the test with its program.
    tests: Vec<(f64, String)>,
}

impl Slowest {
    /// Adds the tests of a program, from lines of the form `test NAME ... ok <1.234s>`.
    pub(super) fn add(&mut self, program: &str, output: &str) {
        for line in output.lines() {
            if let Some((test, seconds)) = parse(line) {
                self.tests.push((seconds, format!("{program}: {test}")));
            }
        }
    }
}

impl fmt::Display for Slowest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut tests: Vec<_> = self.tests.iter().collect();
        tests.sort_by(|a, b| b.0.total_cmp(&a.0));
        write!(f, "== slowest of {} tests", tests.len())?;
        for (seconds, test) in tests.into_iter().take(COUNT) {
            write!(f, "\n{seconds:>7.1} s  {test}")?;
        }
        Ok(())
    }
}

fn parse(line: &str) -> Option<(&str, f64)> {
    let (test, result) = line.strip_prefix("test ")?.split_once(" ... ")?;
    let (_, time) = result.rsplit_once('<')?;
    Some((test, time.trim_end().strip_suffix("s>")?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_tests_come_first() {
        let mut slowest = Slowest::default();
        slowest.add(
            "a x",
            "\nrunning 2 tests\ntest quick ... ok <0.010s>\ntest slow ... FAILED <61.5s>\n",
        );
        slowest.add("b y", "test plain ... ok\ntest result: ok. 1 passed\n");
        assert_eq!(
            slowest.to_string(),
            "== slowest of 2 tests\n   61.5 s  a x: slow\n    0.0 s  a x: quick"
        );
    }
}
