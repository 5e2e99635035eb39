//! `cargo xtask check`, which CI runs and which writes nothing, and `fix`, which writes.

use crate::machine::Work;
use crate::place::{Place, Profile};
use crate::step::{self, Failure, Steps};
use crate::{deny, long_form, machine, shear, suite, tidy};

/// Runs every check, the cheapest first.
///
/// # Errors
/// The first check that fails.
pub(crate) fn check(place: &Place) -> Result<(), Failure> {
    let mut steps = Steps::default();
    steps.take("format", || step::run(&mut place.cargo(&["fmt", "--all", "--check"])))?;
    steps.take("tidy", || tidy::tidy(place))?;
    steps.take("cargo-deny, installed", || deny::install(place))?;
    steps.take("licences, bans, sources", || deny::check(place))?;
    steps.take("advisories", || deny::advisories(place))?;
    steps.take("cargo-shear, installed", || shear::install(place))?;
    steps.take("unused dependencies", || shear::check(place))?;
    steps.take("prepare", || suite::prepare(place, Work::Test, Profile::Dev))?;
    steps.take("lints", || step::run(&mut place.cargo(&LINTS)))?;
    steps.take("docs", || {
        let docs = ["doc", "--workspace", "--no-deps", "--locked"];
        step::run(place.cargo(&docs).env("RUSTDOCFLAGS", "-D warnings"))
    })?;
    suite::take_tests(place, &mut steps, &[])?;
    steps.report();
    long_form::report(place);
    Ok(())
}

const LINTS: [&str; 7] =
    ["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"];

/// Formats the tree and applies the fixes that the lints offer.
///
/// # Errors
/// One of the two commands fails.
pub(crate) fn fix(place: &Place) -> Result<(), Failure> {
    machine::prepare(Work::Build)?;
    let mend =
        ["clippy", "--fix", "--allow-dirty", "--allow-staged", "--workspace", "--all-targets"];
    step::run(&mut place.cargo(&mend))?;
    step::run(&mut place.cargo(&["fmt", "--all"]))
}
