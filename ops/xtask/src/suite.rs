//! The builds, and the test run.
//!
//! Every development command builds with one profile and one set of features, so that they share
//! their artifacts. Commands that measure or deploy share the release profile.

mod failures;
mod limited;
mod process_tree;
mod programs;
mod rocksdb;
mod slowest;

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::claim;
use crate::first_build::watched;
use crate::machine::{self, Work};
use crate::place::{Place, Profile};
use crate::step::{self, Failure, Steps};

/// Measured with an empty cache: 29 min on two cores with every test, of which RocksDB takes 17.
const FIRST_BUILD: &str = "20 to 30 min on two cores, most of it RocksDB's C++";

/// `cargo xtask test`: builds everything once and runs every test.
///
/// # Errors
/// The machine lacks a package, the build fails, or a test fails.
pub(crate) fn test(place: &Place, args: &[String]) -> Result<(), Failure> {
    let mut steps = Steps::default();
    steps.take("prepare", || prepare(place, Work::Test, Profile::Dev))?;
    take_tests(place, &mut steps, args)?;
    steps.report();
    Ok(())
}

/// The steps of the tests, on a prepared machine. With `args`, `cargo test` runs them.
///
/// # Errors
/// The build or a test fails.
pub(crate) fn take_tests(place: &Place, steps: &mut Steps, args: &[String]) -> Result<(), Failure> {
    steps.take("build", || build(place))?;
    steps.take("control plane", || build_control_plane(place))?;
    if args.is_empty() {
        steps.take("test", || programs::run(place))?;
        return steps.take("examples in docs", || step::run(&mut place.cargo(&DOC_TESTS)));
    }
    steps.take("test", || step::run(place.cargo(&TEST).args(args)))
}

/// Builds programs and tests.
///
/// # Errors
/// The build fails.
pub(crate) fn build(place: &Place) -> Result<(), Failure> {
    watched(place, Profile::Dev, || step::run(&mut place.cargo(&BUILD)))
}

/// Builds the Kubernetes control plane that tests start. It is built once on a machine, and prints
/// how far it is.
fn build_control_plane(place: &Place) -> Result<(), Failure> {
    let program = place.binaries(Profile::Dev).join("headwater-cluster");
    step::run(Command::new(program).arg("--build"))
}

/// Builds these programs and nothing that they do not need.
///
/// # Errors
/// The machine lacks a package, or the build fails.
pub(crate) fn build_programs(place: &Place, work: Work, programs: &[&str]) -> Result<(), Failure> {
    prepare(place, work, Profile::Dev)?;
    let mut command = place.cargo(&BUILD_PROGRAMS);
    for program in programs {
        command.args(["--bin", program]);
    }
    watched(place, Profile::Dev, || step::run(&mut command))
}

/// Builds the release program and `with`, which measures it; returns the path of `with`.
///
/// # Errors
/// The machine lacks a package, or the build fails.
pub(crate) fn build_to_measure(place: &Place, with: &str) -> Result<PathBuf, Failure> {
    prepare(place, Work::Test, Profile::Release)?;
    let mut command = release(place);
    watched(place, Profile::Release, || step::run(command.args(["-p", with])))?;
    Ok(place.binaries(Profile::Release).join(with))
}

/// The build of the release program.
pub(crate) fn release(place: &Place) -> Command {
    let mut command = place.cargo(&RELEASE);
    // Without a lock file the build says what is wrong.
    let lock = fs::read_to_string(place.root.join("Cargo.lock")).unwrap_or_default();
    rocksdb::reuse(&mut command, &place.binaries(Profile::Dev), &lock);
    command
}

/// Programs and tests: the end-to-end tests start the programs.
const BUILD: [&str; 5] = ["build", "--workspace", "--bins", "--tests", "--locked"];

/// Some programs, and one small test. With a test, cargo gives dependencies the features that tests
/// need, as [`BUILD`] does; without one it would compile tokio and all that uses it twice.
const BUILD_PROGRAMS: [&str; 5] = ["build", "--workspace", "--locked", "--test", "disk"];

/// The release program.
const RELEASE: [&str; 6] = ["build", "--release", "--bins", "--locked", "-p", "headwater"];
const DOC_TESTS: [&str; 5] = ["test", "--workspace", "--doc", "--locked", "--quiet"];
const TEST: [&str; 4] = ["test", "--workspace", "--no-fail-fast", "--locked"];

/// Installs what the build needs and prints how long it takes.
///
/// # Errors
/// The machine lacks a package that cannot be installed.
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
