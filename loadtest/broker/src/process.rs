//! A Java process that ends with the process that started it.

use std::fs::File;
use std::io;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::error::BrokerError;

/// How much of a log is quoted when something fails: enough for the cause of a stack trace.
const TAIL_BYTES: usize = 4 << 10;

/// A running process.
#[derive(Debug)]
pub(crate) struct Process {
    pid: Pid,
    ended: mpsc::Receiver<io::Result<ExitStatus>>,
}

impl Process {
    /// Starts `java` with `args`, its words going to `log`.
    pub(crate) fn java(args: &[String], log: &Path) -> Result<Self, BrokerError> {
        let out = File::options().create(true).append(true).open(log);
        let out = out.map_err(BrokerError::file(log))?;
        let err = out.try_clone().map_err(BrokerError::file(log))?;
        // `setpriv` asks the kernel for the signal, and the kernel sends it when the *thread* that
        // started the process ends: so that thread is one that does nothing but wait for it.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "java"]).args(args);
        command.stdin(Stdio::null()).stdout(out).stderr(err);
        let (started, start) = mpsc::sync_channel(1);
        let (ending, ended) = mpsc::sync_channel(1);
        thread::spawn(move || match command.spawn() {
            Ok(mut child) => {
                let _ = started.send(Ok(child.id()));
                let _ = ending.send(child.wait());
            }
            Err(error) => {
                let _ = started.send(Err(error));
            }
        });
        let pid = start
            .recv()
            .unwrap_or_else(|_| Err(io::Error::other("its thread ended")))
            .map_err(|source| BrokerError::Program { program: "setpriv java".into(), source })?;
        Ok(Self { pid: Pid::from_raw(pid.cast_signed()), ended })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid.as_raw().cast_unsigned()
    }

    pub(crate) fn signal(&self, signal: Signal) -> nix::Result<()> {
        kill(self.pid, signal)
    }

    /// How it ended, if it ends within `wait`.
    pub(crate) fn ended_within(&self, wait: Duration) -> Option<String> {
        match self.ended.recv_timeout(wait) {
            Ok(Ok(status)) => Some(status.to_string()),
            Ok(Err(error)) => Some(error.to_string()),
            Err(mpsc::RecvTimeoutError::Disconnected) => Some("its thread ended".to_owned()),
            Err(mpsc::RecvTimeoutError::Timeout) => None,
        }
    }
}

/// Runs `program` to its end.
pub(crate) fn run(what: &str, program: &str, args: &[String]) -> Result<(), BrokerError> {
    let output = Command::new(program).args(args).stdin(Stdio::null()).output();
    let output =
        output.map_err(|source| BrokerError::Program { program: program.to_owned(), source })?;
    if output.status.success() {
        return Ok(());
    }
    let printed = [output.stdout, output.stderr].concat();
    Err(BrokerError::Failed {
        what: what.to_owned(),
        status: output.status.to_string(),
        output: end_of(&String::from_utf8_lossy(&printed)),
    })
}

/// The end of what was written to `log`.
pub(crate) fn tail(log: &Path) -> String {
    end_of(&String::from_utf8_lossy(&std::fs::read(log).unwrap_or_default()))
}

fn end_of(text: &str) -> String {
    let from = text.ceil_char_boundary(text.len().saturating_sub(TAIL_BYTES));
    text[from..].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_at_a_character() {
        let text = "ä".repeat(TAIL_BYTES);
        assert_eq!(end_of(&text).len(), TAIL_BYTES);
        assert_eq!(end_of(&format!("{text}x")).len(), TAIL_BYTES - 1);
        assert_eq!(end_of("short"), "short");
    }
}
