//! Building, and the tests.
//!
//! Every command that develops builds with the one profile and the one set of features, so that
//! what one has compiled serves the others; those that measure or deploy share the other profile.

use std::path::PathBuf;

use crate::claim;
use crate::machine::{self, Work};
use crate::place::{Place, Profile};
use crate::step::{self, Failure, Steps};

/// RocksDB alone takes 10 min 41 s on two cores, measured with an empty cache.
const FIRST_BUILD: &str = "about a quarter of an hour on two cores, most of it RocksDB's C++";

/// `cargo xtask test`: everything, built once.
///
/// # Errors
/// When the machine lacks something, or a test fails.
pub(crate) fn test(place: &Place, args: &[String]) -> Result<(), Failure> {
    let mut steps = Steps::default();
    steps.take("prepare", || prepare(place, Work::Test, Profile::Dev))?;
    take_tests(place, &mut steps, args)?;
    steps.report();
    Ok(())
}

/// The steps of the tests on a prepared machine, as part of something larger.
///
/// # Errors
/// When something does not build, or a test fails.
pub(crate) fn take_tests(place: &Place, steps: &mut Steps, args: &[String]) -> Result<(), Failure> {
    steps.take("build", || build(place))?;
    steps.take("test", || step::run(place.cargo(&TEST).args(args)))
}

/// Builds programs and tests.
///
/// # Errors
/// When something does not build.
pub(crate) fn build(place: &Place) -> Result<(), Failure> {
    step::run(&mut place.cargo(&BUILD))
}

/// Builds the program as it is deployed and `with`, which measures it, and says where that is.
///
/// # Errors
/// When the machine lacks something, or something does not build.
pub(crate) fn build_to_measure(place: &Place, with: &str) -> Result<PathBuf, Failure> {
    prepare(place, Work::Test, Profile::Release)?;
    step::run(place.cargo(&RELEASE).args(["-p", with]))?;
    Ok(place.binaries(Profile::Release).join(with))
}

/// The programs too: the tests from outside start them.
const BUILD: [&str; 5] = ["build", "--workspace", "--bins", "--tests", "--locked"];

/// The program as it is deployed.
pub(crate) const RELEASE: [&str; 6] =
    ["build", "--release", "--bins", "--locked", "-p", "headwater"];
const TEST: [&str; 4] = ["test", "--workspace", "--no-fail-fast", "--locked"];

/// Sees to what the build needs, and says what to expect of it.
///
/// # Errors
/// When the machine lacks something.
pub(crate) fn prepare(place: &Place, work: Work, profile: Profile) -> Result<(), Failure> {
    machine::prepare(work)?;
    claim::claim(place)?;
    let target = place.target.display();
    if place.is_warm(profile) {
        eprintln!("xtask: building in {target}");
    } else {
        eprintln!("xtask: first build: {FIRST_BUILD}; later ones take seconds");
        eprintln!("xtask: building in {target}, outside the clone");
    }
    Ok(())
}
