//! A step: a piece of work with a name, which is announced, timed and reported.

use std::fmt;
use std::process::Command;
use std::time::{Duration, Instant};

/// Why a command failed, and the exit status that says so.
#[derive(Debug)]
pub(crate) struct Failure {
    text: String,
    exit_status: u8,
}

impl Failure {
    /// A failure of the work: exit status 1.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), exit_status: 1 }
    }

    /// A failure of the arguments: exit status 2.
    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self { text: text.into(), exit_status: 2 }
    }

    /// This program's exit status.
    pub(crate) fn exit_status(&self) -> u8 {
        self.exit_status
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text.trim_end())
    }
}

/// Runs `command`, which writes to this program's standard output and error.
///
/// # Errors
/// The command does not start, or exits with another status than zero.
pub(crate) fn run(command: &mut Command) -> Result<(), Failure> {
    let shown = show(command);
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Failure::new(format!("`{shown}` failed: {status}"))),
        Err(error) => Err(Failure::new(format!("`{shown}` could not be started: {error}"))),
    }
}

/// Runs `command` and returns its standard output.
///
/// # Errors
/// The command does not start, or exits with another status than zero; the failure has its
/// standard error.
pub(crate) fn output(command: &mut Command) -> Result<String, Failure> {
    let shown = show(command);
    let output = command
        .output()
        .map_err(|error| Failure::new(format!("`{shown}` could not be started: {error}")))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(Failure::new(format!("`{shown}` failed: {}\n{stderr}", output.status)))
}

/// The command as a person types it.
fn show(command: &Command) -> String {
    let program = std::path::Path::new(command.get_program())
        .file_name()
        .unwrap_or_else(|| command.get_program());
    let mut words = vec![program.to_string_lossy()];
    words.extend(command.get_args().map(|arg| arg.to_string_lossy()));
    words.join(" ")
}

/// The steps taken so far, with their durations.
#[derive(Default)]
pub(crate) struct Steps {
    taken: Vec<(&'static str, Duration)>,
}

impl Steps {
    /// Takes one step. A failing step is timed too, and its failure names it.
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

    /// Prints the duration of each step.
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

/// `m:ss`, rounded up, so that no step shows `0:00`.
pub(crate) fn minutes(duration: Duration) -> String {
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
