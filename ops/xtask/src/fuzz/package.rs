//! Writes the package that joins libFuzzer to the targets into the cache, and builds it there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::place::Place;
use crate::step::{self, Failure};

/// LLVM's passes that record taken edges and comparisons: those of `cargo fuzz` without the
/// sanitizers, which only nightly Rust has and safe Rust hardly needs.
const INSTRUMENTED: [&str; 6] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "--cfg=fuzzing",
];

/// A named target keeps build scripts and macros free of instrumentation.
const MACHINE: &str = "x86_64-unknown-linux-gnu";

/// The variable that names the target to run.
const CHOICE: &str = "HEADWATER_FUZZ_TARGET";

/// `ROOT` is the clone. Overflows panic, as in every build of ours.
const MANIFEST: &str = r#"
[package]
name = "headwater-fuzz-guided"
version = "0.0.0"
edition = "2024"
publish = false

[dependencies]
headwater-fuzz = { path = "ROOT/loadtest/fuzz" }
libfuzzer-sys = "=0.4.13"

[workspace]

[profile.dev]
opt-level = 2
debug = "line-tables-only"

[profile.dev.package."*"]
opt-level = 2
debug = false

[profile.dev.package.k8s-openapi]
opt-level = 1
"#;

/// `CHOICE` is the variable.
const MAIN: &str = r#"
#![no_main]

use std::sync::OnceLock;

use headwater_fuzz::{Target, target};

static TARGET: OnceLock<&'static Target> = OnceLock::new();

libfuzzer_sys::fuzz_target!(
    init: {
        let name = std::env::var("CHOICE").expect("CHOICE names a target");
        let _ = TARGET.set(target(&name).expect("CHOICE names a target"));
    },
    |bytes: &[u8]| {
        if let Some(target) = TARGET.get() {
            (target.run)(bytes);
        }
    }
);
"#;

/// Writes and builds the package; returns the path of the program.
///
/// # Errors
/// A file cannot be written, or the build fails.
pub(super) fn build(place: &Place, cache: &Path) -> Result<PathBuf, Failure> {
    let package = cache.join("package");
    let root = place.root.display().to_string();
    write(&package.join("Cargo.toml"), &MANIFEST.replace("ROOT", &root))?;
    write(&package.join("src/main.rs"), &MAIN.replace("CHOICE", CHOICE))?;
    let lock = fs::read_to_string(place.root.join("Cargo.lock"))
        .map_err(|error| Failure::new(format!("cannot read Cargo.lock: {error}")))?;
    write(&package.join("Cargo.lock"), &lock)?;
    let target = cache.join("target");
    let mut command = place.cargo(&["build", "--target", MACHINE]);
    command
        .current_dir(&package)
        .env("CARGO_TARGET_DIR", &target)
        .env("RUSTFLAGS", INSTRUMENTED.join(" "));
    step::run(&mut command)?;
    Ok(target.join(MACHINE).join("debug/headwater-fuzz-guided"))
}

/// A command that runs the target of that name.
pub(super) fn command(program: &Path, name: &str) -> Command {
    let mut command = Command::new(program);
    command.env(CHOICE, name);
    command
}

/// Writes a file unless it has this text already: cargo compares modification times.
fn write(path: &Path, text: &str) -> Result<(), Failure> {
    if fs::read_to_string(path).is_ok_and(|present| present == text) {
        return Ok(());
    }
    let parent = path.parent().unwrap_or(path);
    fs::create_dir_all(parent)
        .and_then(|()| fs::write(path, text))
        .map_err(|error| Failure::new(format!("cannot write {}: {error}", path.display())))
}
