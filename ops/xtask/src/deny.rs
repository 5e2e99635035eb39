//! cargo-deny: licences, bans and sources of every dependency; advisories where they can be had.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::place::Place;
use crate::step::{self, Failure};

/// The version whose configuration `deny.toml` is written for.
const VERSION: &str = "0.20.2";

/// How long the advisory database may take to arrive: it is a few megabytes, and a network that
/// swallows packets answers never.
const FETCH_WAIT: Duration = Duration::from_secs(60);

/// How often a running fetch is looked at.
const FETCH_POLL: Duration = Duration::from_millis(200);

fn home(place: &Place) -> PathBuf {
    place.cache.join("tools").join(format!("cargo-deny-{VERSION}"))
}

fn deny(place: &Place, args: &[&str]) -> Command {
    // Asked through its own program: `cargo deny` would take whichever one is on the path.
    let mut command = Command::new(home(place).join("bin/cargo-deny"));
    command.args(["--workspace", "--all-features", "--locked"]).args(args).current_dir(&place.root);
    command
}

/// Builds cargo-deny into the cache unless it is there.
///
/// # Errors
/// When it cannot be built.
pub(crate) fn install(place: &Place) -> Result<(), Failure> {
    let home = home(place);
    if home.join("bin/cargo-deny").is_file() {
        return Ok(());
    }
    eprintln!("xtask: building cargo-deny {VERSION} into {}: about a minute", home.display());
    let built = home.join("build");
    // Unoptimised: it runs for a second and would be optimised for minutes.
    let package = format!("cargo-deny@{VERSION}");
    let mut command = place.cargo(&["install", "--locked", "--debug", "--quiet", &package]);
    command.arg("--root").arg(&home).arg("--target-dir").arg(&built);
    step::run(&mut command)?;
    // Half a gigabyte that nothing will ask for again; what stays behind does no harm.
    let _ = std::fs::remove_dir_all(&built);
    Ok(())
}

/// Checks what needs no network.
///
/// # Errors
/// When a dependency breaks a rule of `deny.toml`.
pub(crate) fn check(place: &Place) -> Result<(), Failure> {
    step::run(&mut deny(place, &["check", "--hide-inclusion-graph", "licenses", "bans", "sources"]))
}

/// Checks for known vulnerabilities; where the database cannot be had, says so and goes on.
///
/// # Errors
/// When the database could be had and names one of the dependencies.
pub(crate) fn advisories(place: &Place) -> Result<(), Failure> {
    let mut fetch = deny(place, &["fetch", "db"]);
    if !finishes_within(&mut fetch, FETCH_WAIT) {
        eprintln!("xtask: NOT CHECKED: advisories; their database could not be fetched from here");
        return Ok(());
    }
    step::run(&mut deny(place, &["check", "--disable-fetch", "advisories"]))
}

/// Whether `command` succeeds in time; it is killed when the time is over.
fn finishes_within(command: &mut Command, wait: Duration) -> bool {
    let Ok(mut child) =
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
    else {
        return false;
    };
    let end = Instant::now() + wait;
    while Instant::now() < end {
        match child.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) => thread::sleep(FETCH_POLL),
            Err(_) => break,
        }
    }
    // It may have ended by itself just now; either way nobody waits for it.
    let _ = child.kill();
    let _ = child.wait();
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fetch_that_hangs_is_given_up() {
        let quick = Duration::from_millis(50);
        assert!(!finishes_within(Command::new("sleep").arg("60"), quick));
        assert!(!finishes_within(&mut Command::new("false"), FETCH_WAIT));
        assert!(!finishes_within(&mut Command::new("/no/such/program"), quick));
        assert!(finishes_within(&mut Command::new("true"), FETCH_WAIT));
    }
}
