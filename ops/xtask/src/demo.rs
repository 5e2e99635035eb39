//! `cargo xtask up` and `cargo xtask kafka`: build a program and become it.

use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::machine::Work;
use crate::place::{Place, Profile};
use crate::step::{self, Failure};
use crate::suite;

/// Builds, then replaces this program by `headwater up`, so that Ctrl-C reaches it directly.
///
/// # Errors
/// When the build fails; it does not return otherwise.
pub(crate) fn up(place: &Place, args: &[String]) -> Result<(), Failure> {
    suite::prepare(place, Work::Build, Profile::Dev)?;
    step::run(&mut place.cargo(&["build", "--workspace", "--bins", "--locked"]))?;
    let program = place.binaries(Profile::Dev).join("headwater");
    let mut command = Command::new(&program);
    command.arg("up");
    if names_no_manifests(args) {
        let demo = place.root.join("ops/demo");
        // Shorter to read where it can be: at the top of the clone.
        let here = std::env::current_dir().unwrap_or_default();
        command.arg(demo.strip_prefix(here).unwrap_or(&demo));
    }
    let error = command.args(args).exec();
    Err(Failure::new(format!("{} could not be started: {error}", program.display())))
}

/// Builds the broker for development, then replaces this program by it.
///
/// # Errors
/// When the build fails; it does not return otherwise.
pub(crate) fn kafka(place: &Place, args: &[String]) -> Result<(), Failure> {
    suite::prepare(place, Work::Test, Profile::Dev)?;
    step::run(&mut place.cargo(&["build", "--workspace", "--bins", "--locked"]))?;
    let program = place.binaries(Profile::Dev).join("headwater-broker");
    let error = Command::new(&program).args(args).exec();
    Err(Failure::new(format!("{} could not be started: {error}", program.display())))
}

/// Whether the demo is meant: the manifests come first, and options begin with a dash.
fn names_no_manifests(args: &[String]) -> bool {
    args.first().is_none_or(|first| first.starts_with('-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_demo_is_what_is_run_unless_manifests_come_first() {
        let args = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert!(names_no_manifests(&args(&[])));
        assert!(names_no_manifests(&args(&["--nodes", "3"])));
        assert!(!names_no_manifests(&args(&["my/manifests", "--nodes", "3"])));
    }
}
