//! `cargo xtask bench`: builds the release program and measures the benchmark table.

use std::process::Command;

use crate::place::Place;
use crate::step::{self, Failure};
use crate::{long_form, suite};

/// Builds, then measures the named rows, or all of them.
///
/// # Errors
/// A build or a measurement fails.
pub(crate) fn bench(place: &Place, args: &[String]) -> Result<(), Failure> {
    let program = suite::build_to_measure(place, "headwater-bench")?;
    step::run(Command::new(program).arg("--root").arg(&place.root).args(args))?;
    if args.is_empty() {
        long_form::passed(place, "bench");
    }
    Ok(())
}
