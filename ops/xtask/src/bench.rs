//! `cargo xtask bench`: builds for figures, and measures the benchmark table.

use std::process::Command;

use crate::machine::Work;
use crate::place::Place;
use crate::step::{self, Failure};
use crate::suite;

/// What cargo is told about our own crates for as long as this command runs: they are built as the
/// crates of others are, or better. The dependencies have levels of their own in the profile, so
/// that nothing of theirs, and no C++, is compiled again.
const OPTIMISED: (&str, &str) = ("CARGO_PROFILE_DEV_OPT_LEVEL", "3");

/// The program that is measured, the one that measures, and what both share features with.
const BUILD: [&str; 9] = [
    "build",
    "-p",
    "headwater",
    "-p",
    "headwater-e2e",
    "-p",
    "headwater-bench",
    "--bins",
    "--locked",
];

/// Builds, then measures the rows that are named, or all.
///
/// # Errors
/// When something does not build, or could not be measured.
pub(crate) fn bench(place: &Place, args: &[String]) -> Result<(), Failure> {
    suite::prepare(place, Work::Test)?;
    let (name, level) = OPTIMISED;
    step::run(place.cargo(&BUILD).env(name, level))?;
    let mut command = Command::new(place.binaries().join("headwater-bench"));
    step::run(command.arg("--root").arg(&place.root).args(args))
}
