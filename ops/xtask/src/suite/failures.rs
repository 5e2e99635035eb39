//! The failed tests of a run, with the lines around the panic of each.
//!
//! A run prints thousands of lines after a failed test. A report of its failures at the end is what a
//! reader, or a service that keeps the last lines of a run, sees first.

use std::fmt;

/// Lines of each failed test that the report repeats: some before its panic, and the panic with what follows it.
const LINES: usize = 40;

/// Of these, the lines before the panic.
const LINES_BEFORE_PANIC: usize = 15;

/// Failed tests that the report repeats in full. A cause that all tests share shows in a few.
const COUNT: usize = 10;

/// The failures of all programs.
#[derive(Debug, Default)]
pub(super) struct Failures {
    tests: Vec<FailedTest>,
}

/// A failed test, or a program that did not end as libtest does.
#[derive(Debug)]
struct FailedTest {
    name: String,
    /// The lines of its output that tell most.
    output: Vec<String>,
}

impl Failures {
    /// Adds the failures of a program that did not succeed. libtest prints the output of each failed
    /// test below a line `---- NAME stdout ----`.
    pub(super) fn add(&mut self, program: &str, output: &str) {
        let sections = output.split("\n---- ").skip(1);
        let sections = sections.filter_map(|section| section.split_once(" stdout ----\n"));
        let tests = sections.map(|(test, printed)| {
            let printed = printed.split("\nfailures:\n").next().unwrap_or_default();
            FailedTest { name: format!("{program}: {test}"), output: around_panic(printed) }
        });
        let mut tests = tests.peekable();
        if tests.peek().is_none() {
            self.tests.push(FailedTest { name: program.to_owned(), output: last(output) });
        }
        self.tests.extend(tests);
    }
}

impl fmt::Display for Failures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "== failed: {}", self.tests.len())?;
        for (index, FailedTest { name, output }) in self.tests.iter().enumerate() {
            write!(f, "\n  {name}")?;
            if index < COUNT {
                for line in output {
                    write!(f, "\n    {line}")?;
                }
            }
        }
        Ok(())
    }
}

/// The lines around the first panic, or the last ones if there is none.
fn around_panic(output: &str) -> Vec<String> {
    let panic = output.lines().position(|line| line.contains("panicked at "));
    let Some(panic) = panic else { return last(output) };
    let lines = output.trim_end().lines().skip(panic.saturating_sub(LINES_BEFORE_PANIC));
    lines.take(LINES).map(str::to_owned).collect()
}

fn last(output: &str) -> Vec<String> {
    let lines: Vec<&str> = output.trim_end().lines().collect();
    lines[lines.len().saturating_sub(LINES)..].iter().map(|line| (*line).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "
running 2 tests
test good ... ok <0.010s>
test bad ... FAILED <0.020s>

failures:

---- bad stdout ----

thread 'bad' panicked at a.rs:1:1:
no answer within 60 s


failures:
    bad

test result: FAILED. 1 passed; 1 failed
";

    #[test]
    fn a_failed_test_is_reported_with_what_it_printed_and_nothing_else_of_the_run() {
        let mut failures = Failures::default();
        failures.add("a x", OUTPUT);
        assert_eq!(
            failures.to_string(),
            "== failed: 1\n  a x: bad\n    \n    thread 'bad' panicked at a.rs:1:1:\n    \
             no answer within 60 s"
        );
    }

    #[test]
    fn a_program_without_a_summary_is_reported_with_its_last_lines() {
        let mut failures = Failures::default();
        let output: String = (0..100).map(|line| format!("line {line}\n")).collect();
        failures.add("a x", &output);
        let report = failures.to_string();
        assert!(report.starts_with("== failed: 1\n  a x\n    line 60\n"), "{report}");
        assert!(report.ends_with("line 99"), "{report}");
    }

    #[test]
    fn the_lines_before_a_panic_and_its_first_ones_are_kept() {
        let before: String = (0..50).map(|line| format!("before {line}\n")).collect();
        let after: String = (0..50).map(|line| format!("frame {line}\n")).collect();
        let lines = around_panic(&format!("{before}thread panicked at a.rs\n{after}"));
        assert_eq!(lines.first().map(String::as_str), Some("before 35"));
        assert_eq!(lines.last().map(String::as_str), Some("frame 23"));
    }

    #[test]
    fn the_output_of_further_failures_is_left_out() {
        let mut failures = Failures::default();
        for _ in 0..=COUNT {
            failures.add("a x", OUTPUT);
        }
        let report = failures.to_string();
        assert_eq!(report.matches("a x: bad").count(), COUNT + 1);
        assert_eq!(report.matches("no answer").count(), COUNT);
    }
}
