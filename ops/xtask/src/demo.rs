//! `cargo xtask up`, `kafka`, `cluster` and `cri`: build a program, then exec it.

use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::machine::Work;
use crate::place::{Place, Profile};
use crate::step::Failure;
use crate::suite;

/// Builds, then execs `headwater up`, so that Ctrl-C reaches it directly.
///
/// # Errors
/// The build or the exec fails; otherwise the function does not return.
pub(crate) fn up(place: &Place, args: &[String]) -> Result<(), Failure> {
    suite::build_programs(place, Work::Build, &["headwater", "headwater-shim"])?;
    let program = place.binaries(Profile::Dev).join("headwater");
    let mut command = Command::new(&program);
    command.arg("up");
    if names_no_manifests(args) {
        let demo = place.root.join("ops/demo");
        // A relative path reads better; the top of the clone allows one.
        let here = std::env::current_dir().unwrap_or_default();
        command.arg(demo.strip_prefix(here).unwrap_or(&demo));
    }
    let error = command.args(args).exec();
    Err(Failure::new(format!("{} could not be started: {error}", program.display())))
}

/// Builds the broker for development, then execs it.
///
/// # Errors
/// The build or the exec fails; otherwise the function does not return.
pub(crate) fn kafka(place: &Place, args: &[String]) -> Result<(), Failure> {
    beside_headwater(place, "headwater-broker", args)
}

/// Builds the control plane for development, then execs it.
///
/// # Errors
/// The build or the exec fails; otherwise the function does not return.
pub(crate) fn cluster(place: &Place, args: &[String]) -> Result<(), Failure> {
    beside_headwater(place, "headwater-cluster", args)
}

/// Builds the containerd for development, then execs it.
///
/// # Errors
/// The build or the exec fails; otherwise the function does not return.
pub(crate) fn cri(place: &Place, args: &[String]) -> Result<(), Failure> {
    beside_headwater(place, "headwater-cri-lab", args)
}

/// Builds Headwater and a server to develop against, then execs the server.
fn beside_headwater(place: &Place, server: &str, args: &[String]) -> Result<(), Failure> {
    suite::build_programs(place, Work::Test, &[server, "headwater", "headwater-shim"])?;
    let program = place.binaries(Profile::Dev).join(server);
    let error = Command::new(&program).args(args).exec();
    Err(Failure::new(format!("{} could not be started: {error}", program.display())))
}

/// Whether the arguments name no manifests: manifests come first, and options begin with a dash.
fn names_no_manifests(args: &[String]) -> bool {
    args.first().is_none_or(|first| first.starts_with('-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_demo_runs_unless_manifests_come_first() {
        let args = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert!(names_no_manifests(&args(&[])));
        assert!(names_no_manifests(&args(&["--nodes", "3"])));
        assert!(!names_no_manifests(&args(&["my/manifests", "--nodes", "3"])));
    }
}
