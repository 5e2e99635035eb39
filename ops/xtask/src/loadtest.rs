//! `cargo xtask loadtest`: build the load-test harness and become it.

use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::place::Place;
use crate::step::Failure;
use crate::suite;

/// What the harness is asked besides to run something.
const ASKS: [&str; 5] = ["list", "run", "compare", "report", "help"];

/// Builds, then replaces this program by the harness, so that Ctrl-C reaches it directly.
///
/// # Errors
/// When the build fails; it does not return otherwise.
pub(crate) fn loadtest(place: &Place, args: &[String]) -> Result<(), Failure> {
    let program = suite::build_to_measure(place, "headwater-loadtest")?;
    let error = Command::new(&program).args(asked(args)).exec();
    Err(Failure::new(format!("{} could not be started: {error}", program.display())))
}

/// What the harness is asked: a scenario by its name alone is run, and nothing lists them.
fn asked(args: &[String]) -> Vec<&str> {
    let args = args.iter().map(String::as_str);
    let first = args.clone().next();
    let verb = match first {
        None => Some("list"),
        Some(first) if ASKS.contains(&first) || first.starts_with('-') => None,
        Some(_) => Some("run"),
    };
    verb.into_iter().chain(args).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scenario_is_run_and_nothing_is_a_list() {
        for (words, meant) in [
            (&[][..], &["list"][..]),
            (&["storm", "--edges", "9"], &["run", "storm", "--edges", "9"]),
            (&["compare", "a", "b"], &["compare", "a", "b"]),
            (&["--help"], &["--help"]),
        ] {
            let words: Vec<String> = words.iter().map(ToString::to_string).collect();
            assert_eq!(asked(&words), meant);
        }
    }
}
