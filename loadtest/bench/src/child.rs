//! Each row is a process of its own: what one leaves behind is no part of the next, and one that
//! hangs or dies takes no other with it.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use headwater_loadtest::failure::{Attempt, Failure};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, getpgrp};

use crate::figure::RowResult;
use crate::row::Row;

/// Between two looks.
const POLL: Duration = Duration::from_millis(50);

/// Measures `row` in this process and leaves what came out in the file `out`.
///
/// # Errors
/// When it cannot be measured.
pub(crate) fn measure(row: &Row, full: bool, seed: u64, out: &Path) -> Result<(), Failure> {
    thread::spawn(end_with_parent);
    let measured = row.measure(full, seed)?;
    let text = serde_json::to_vec(&measured).tried("writing what came out")?;
    fs::write(out, text).tried("writing what came out")
}

/// Ends this process and its children when its parent is gone: the parent holds the other end of the
/// input, and a signal typed at a terminal does not arrive here.
fn end_with_parent() {
    let mut input = std::io::stdin().lock();
    // The end and an error both mean that the parent is gone.
    let _ = std::io::copy(&mut input, &mut std::io::sink());
    // Started by hand it leads no group of its own, and has no parent to follow.
    if getpgrp() == Pid::this() {
        let _ = killpg(getpgrp(), Signal::SIGKILL);
    }
}

/// Measures `row` in a process of its own.
///
/// # Errors
/// When it cannot be measured, or takes too long.
pub(crate) fn start(row: &Row, full: bool, seed: u64) -> Result<RowResult, Failure> {
    let folder = tempfile::tempdir().tried("making a folder")?;
    let out = folder.path().join("measured.json");
    let program = std::env::current_exe().tried("finding this program")?;
    let mut command = Command::new(program);
    command.arg(row.number.to_string()).arg("--alone").arg(&out);
    command.args(["--seed", &seed.to_string()]).args(full.then_some("--full"));
    // What it starts belongs to its group, and ends with it.
    let command = command.process_group(0).stdin(Stdio::piped());
    let mut child = command.spawn().tried("starting a process")?;
    let ended = wait(&mut child, Row::within(full));
    end_group(&child);
    ended?;
    let text = fs::read(&out).tried("reading what came out")?;
    serde_json::from_slice(&text).tried("reading what came out")
}

fn wait(child: &mut Child, within: Duration) -> Result<(), Failure> {
    let deadline = Instant::now() + within;
    while Instant::now() < deadline {
        match child.try_wait().tried("waiting for a process")? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(Failure::of(format!("it ended with {status}"))),
            None => thread::sleep(POLL),
        }
    }
    end_group(child);
    child.wait().tried("waiting for a process")?;
    Err(Failure::of(format!("it is not measured within {} s", within.as_secs())))
}

/// Ends what is left of it; mostly nothing is.
fn end_group(child: &Child) {
    if let Ok(id) = i32::try_from(child.id()) {
        let _ = killpg(Pid::from_raw(id), Signal::SIGKILL);
    }
}
