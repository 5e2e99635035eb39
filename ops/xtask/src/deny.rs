//! cargo-deny: licences, bans and sources of every dependency; advisories where their database can
//! be fetched.

use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::place::Place;
use crate::step::{self, Failure};
use crate::tool::Tool;

/// `deny.toml` is written for this version.
const DENY: Tool = Tool { name: "cargo-deny", version: "0.20.2" };

/// The longest wait for the advisory database: it is a few megabytes, and a network that drops
/// packets never answers.
const FETCH_WAIT: Duration = Duration::from_secs(60);

/// The interval between two looks at a running fetch.
const FETCH_POLL: Duration = Duration::from_millis(200);

fn deny(place: &Place, args: &[&str]) -> Command {
    let mut command = DENY.command(place);
    command.args(["--workspace", "--all-features", "--locked"]).args(args);
    command
}

/// Builds cargo-deny into the cache unless it is there.
///
/// # Errors
/// cargo-deny does not build.
pub(crate) fn install(place: &Place) -> Result<(), Failure> {
    DENY.install(place)
}

/// Checks licences, bans and sources, which needs no network.
///
/// # Errors
/// A dependency breaks a rule of `deny.toml`.
pub(crate) fn check(place: &Place) -> Result<(), Failure> {
    step::run(&mut deny(place, &["check", "--hide-inclusion-graph", "licenses", "bans", "sources"]))
}

/// Checks for known vulnerabilities. Without the database it prints a warning and succeeds.
///
/// # Errors
/// The database names one of the dependencies.
pub(crate) fn advisories(place: &Place) -> Result<(), Failure> {
    let mut fetch = deny(place, &["fetch", "db"]);
    if !finishes_within(&mut fetch, FETCH_WAIT) {
        eprintln!("xtask: NOT CHECKED: advisories; their database could not be fetched from here");
        return Ok(());
    }
    step::run(&mut deny(place, &["check", "--disable-fetch", "advisories"]))
}

/// Whether `command` succeeds within `wait`; at the end of `wait` it is killed.
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
    // The child may have ended just now; the kill then fails, and its result does not matter.
    let _ = child.kill();
    let _ = child.wait();
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fetch_that_hangs_is_killed() {
        let quick = Duration::from_millis(50);
        assert!(!finishes_within(Command::new("sleep").arg("60"), quick));
        assert!(!finishes_within(&mut Command::new("false"), FETCH_WAIT));
        assert!(!finishes_within(&mut Command::new("/no/such/program"), quick));
        assert!(finishes_within(&mut Command::new("true"), FETCH_WAIT));
    }
}
