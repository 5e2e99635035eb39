//! `cargo xtask bench`: builds what is deployed, and measures the benchmark table.

use std::process::Command;

use crate::machine::Work;
use crate::place::{Place, Profile};
use crate::step::{self, Failure};
use crate::suite;

/// Builds, then measures the rows that are named, or all.
///
/// # Errors
/// When something does not build, or could not be measured.
pub(crate) fn bench(place: &Place, args: &[String]) -> Result<(), Failure> {
    suite::prepare(place, Work::Test, Profile::Release)?;
    suite::build_to_measure(place)?;
    let mut command = Command::new(place.binaries(Profile::Release).join("headwater-bench"));
    step::run(command.arg("--root").arg(&place.root).args(args))
}
