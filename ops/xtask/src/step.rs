//! A step: a piece of work with a name that is announced, timed and reported.

use std::fmt;
use std::process::Command;
use std::time::{Duration, Instant};

/// Why a command did not do what it should.
#[derive(Debug)]
pub(crate) struct Failure {
    text: String,
    exit_status: u8,
}

impl Failure {
    /// The work was tried and failed.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), exit_status: 1 }
    }

    /// The command makes no sense as it was given.
    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self { text: text.into(), exit_status: 2 }
    }

    /// What this program exits with.
    pub(crate) fn exit_status(&self) -> u8 {
        self.exit_status
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text.trim_end())
    }
}

/// Runs `command` with this program's own output.
///
/// # Errors
/// When it cannot be started or does not exit with zero.
pub(crate) fn run(command: &mut Command) -> Result<(), Failure> {
    let shown = show(command);
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Failure::new(format!("`{shown}` failed: {status}"))),
        Err(error) => Err(Failure::new(format!("`{shown}` could not be started: {error}"))),
    }
}

/// Runs `command` and returns what it wrote to its standard output.
///
/// # Errors
/// When it cannot be started or does not exit with zero; what it wrote to its standard error is
/// part of the failure.
pub(crate) fn output(command: &mut Command) -> Result<String, Failure> {
    let shown = show(command);
    let output = command
        .output()
        .map_err(|error| Failure::new(format!("`{shown}` could not be started: {error}")))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(Failure::new(format!("`{shown}` failed: {}\n{said}", output.status)))
}

/// The command as a person would type it.
fn show(command: &Command) -> String {
    let program = std::path::Path::new(command.get_program())
        .file_name()
        .unwrap_or_else(|| command.get_program());
    let mut words = vec![program.to_string_lossy()];
    words.extend(command.get_args().map(|arg| arg.to_string_lossy()));
    words.join(" ")
}

/// The steps taken so far and how long each took.
#[derive(Default)]
pub(crate) struct Steps {
    taken: Vec<(&'static str, Duration)>,
}

impl Steps {
    /// Takes one step; a failing one is counted too, and named in its failure.
    ///
    /// # Errors
    /// The failure of the work.
    pub(crate) fn take(
        &mut self,
        name: &'static str,
        work: impl FnOnce() -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        eprintln!("== {name}");
        let start = Instant::now();
        let result = work();
        self.taken.push((name, start.elapsed()));
        result.map_err(|failure| Failure {
            text: format!("{name}: {}\n{self}", failure.text.trim_end()),
            exit_status: failure.exit_status,
        })
    }

    /// Prints how long each step took.
    pub(crate) fn report(&self) {
        eprintln!("{self}");
    }
}

impl fmt::Display for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "== durations")?;
        let mut total = Duration::ZERO;
        for (name, took) in &self.taken {
            total += *took;
            write!(f, "\n{:>8}  {name}", minutes(*took))?;
        }
        write!(f, "\n{:>8}  in all", minutes(total))
    }
}

/// `m:ss`, rounded up, so that no step seems to take no time.
fn minutes(duration: Duration) -> String {
    let seconds = duration.as_secs() + u64::from(duration.subsec_nanos() > 0);
    format!("{}:{:02}", seconds / 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_minutes_and_seconds() {
        assert_eq!(minutes(Duration::from_millis(1)), "0:01");
        assert_eq!(minutes(Duration::from_secs(60)), "1:00");
        assert_eq!(minutes(Duration::from_millis(692_100)), "11:33");
    }

    #[test]
    fn a_failing_step_is_named_and_still_timed() {
        let mut steps = Steps::default();
        steps.take("first", || Ok(())).expect("nothing fails");
        let failure = steps.take("second", || Err(Failure::new("broken"))).expect_err("it fails");
        let text = failure.to_string();
        assert!(text.starts_with("second: broken\n"), "{text}");
        assert!(text.contains("0:01  second"), "{text}");
    }

    #[test]
    fn a_command_is_shown_as_it_is_typed() {
        let mut command = Command::new("/some/where/cargo");
        command.args(["fmt", "--check"]);
        assert_eq!(show(&command), "cargo fmt --check");
    }

    #[test]
    fn the_output_of_a_failing_command_is_kept() {
        let failure = output(Command::new("sh").args(["-c", "echo why >&2; exit 3"]))
            .expect_err("it exits with 3");
        assert!(failure.to_string().contains("why"), "{failure}");
    }
}
