//! `cargo xtask bench`: builds what is deployed, and measures the benchmark table.

use std::process::Command;

use crate::place::Place;
use crate::step::{self, Failure};
use crate::suite;

/// Builds, then measures the rows that are named, or all.
///
/// # Errors
/// When something does not build, or could not be measured.
pub(crate) fn bench(place: &Place, args: &[String]) -> Result<(), Failure> {
    let program = suite::build_to_measure(place, "headwater-bench")?;
    step::run(Command::new(program).arg("--root").arg(&place.root).args(args))
}
