//! `cargo xtask loadtest`: builds the load-test harness, then execs it.

use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::place::Place;
use crate::step::Failure;
use crate::suite;

/// The harness's own commands, besides `run`.
const COMMANDS: [&str; 5] = ["list", "run", "compare", "report", "help"];

/// Builds, then execs the harness, so that Ctrl-C reaches it directly.
///
/// # Errors
/// The build or the exec fails; otherwise the function does not return.
pub(crate) fn loadtest(place: &Place, args: &[String]) -> Result<(), Failure> {
    let program = suite::build_to_measure(place, "headwater-loadtest")?;
    let error = Command::new(&program).args(arguments(args)).exec();
    Err(Failure::new(format!("{} could not be started: {error}", program.display())))
}

/// The harness's arguments: a scenario's name means `run`, and no argument means `list`.
fn arguments(args: &[String]) -> Vec<&str> {
    let args = args.iter().map(String::as_str);
    let first = args.clone().next();
    let verb = match first {
        None => Some("list"),
        Some(first) if COMMANDS.contains(&first) || first.starts_with('-') => None,
        Some(_) => Some("run"),
    };
    verb.into_iter().chain(args).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_runs_a_scenario_and_no_argument_lists_them() {
        for (words, meant) in [
            (&[][..], &["list"][..]),
            (&["storm", "--edges", "9"], &["run", "storm", "--edges", "9"]),
            (&["compare", "a", "b"], &["compare", "a", "b"]),
            (&["--help"], &["--help"]),
        ] {
            let words: Vec<String> = words.iter().map(ToString::to_string).collect();
            assert_eq!(arguments(&words), meant);
        }
    }
}
