//! A process that ends with the process that started it.

use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::error::DaemonError;
use crate::output::end_of;

/// A running process.
#[derive(Debug)]
pub struct Process {
    pid: Pid,
    ended: mpsc::Receiver<io::Result<ExitStatus>>,
}

impl Process {
    /// Starts `command` by its program, arguments, variables and folder, and appends its output to
    /// `log`.
    ///
    /// # Errors
    /// The log cannot be written, or the program cannot be started.
    pub fn start(command: &Command, log: &Path) -> Result<Self, DaemonError> {
        let out = File::options().create(true).append(true).open(log);
        let out = out.map_err(DaemonError::file(log))?;
        let err = out.try_clone().map_err(DaemonError::file(log))?;
        let mut command = ending_with_its_starter(command);
        command.stdin(Stdio::null()).stdout(out).stderr(err);
        let (started, start) = mpsc::sync_channel(1);
        let (ending, ended) = mpsc::sync_channel(1);
        let program =
            format!("setpriv {}", command.get_args().nth(2).unwrap_or_default().display());
        // The kernel sends the signal when the *thread* that started the process ends: so that
        // thread is one that only waits for it.
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
            .unwrap_or_else(|_| Err(thread_ended()))
            .map_err(|source| DaemonError::Program { program, source })?;
        Ok(Self { pid: Pid::from_raw(pid.cast_signed()), ended })
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw().cast_unsigned()
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// It has ended.
    pub fn signal(&self, signal: Signal) -> nix::Result<()> {
        kill(self.pid, signal)
    }

    /// How it ended, if it ends within `wait`.
    pub fn ended_within(&self, wait: Duration) -> Option<io::Result<ExitStatus>> {
        match self.ended.recv_timeout(wait) {
            Ok(end) => Some(end),
            Err(mpsc::RecvTimeoutError::Disconnected) => Some(Err(thread_ended())),
            Err(mpsc::RecvTimeoutError::Timeout) => None,
        }
    }
}

fn thread_ended() -> io::Error {
    io::Error::other("its thread ended")
}

/// `command` by way of `setpriv`, which asks the kernel for the signal. It has a process group of
/// its own: a terminal sends Ctrl-C to the starter alone, which stops several processes in order.
fn ending_with_its_starter(command: &Command) -> Command {
    let mut wrapped = Command::new("setpriv");
    wrapped.args(["--pdeathsig", "KILL"]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => wrapped.env(name, value),
            None => wrapped.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        wrapped.current_dir(folder);
    }
    wrapped.process_group(0);
    wrapped
}

/// Runs `command` to its end.
///
/// # Errors
/// The program cannot be started or fails; the failure names `what` it was to do, and has the end of its
/// output.
pub fn run(what: &str, command: &mut Command) -> Result<(), DaemonError> {
    let program = command.get_program().display().to_string();
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|source| DaemonError::Program { program, source })?;
    if output.status.success() {
        return Ok(());
    }
    let printed = [output.stdout, output.stderr].concat();
    Err(DaemonError::Failed {
        what: what.to_owned(),
        status: output.status.to_string(),
        output: end_of(&String::from_utf8_lossy(&printed)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The time limit of a process of these tests.
    const WAIT: Duration = Duration::from_secs(30);

    #[test]
    fn a_process_gets_the_folder_and_the_variables_of_its_command() {
        let scratch = tempfile::tempdir().expect("a folder");
        let log = scratch.path().join("log");
        let mut command = Command::new("sh");
        command.args(["-c", "pwd; echo $GREETING; exit 3"]);
        command.current_dir(scratch.path()).env("GREETING", "hello");
        let process = Process::start(&command, &log).expect("a shell");
        let status = process.ended_within(WAIT).expect("it ends").expect("a status");
        assert_eq!(status.code(), Some(3));
        let output = std::fs::read_to_string(&log).expect("a log");
        assert_eq!(output, format!("{}\nhello\n", scratch.path().display()));
    }

    #[test]
    fn a_failure_has_the_task_and_the_output() {
        let failing = run("asking", Command::new("sh").args(["-c", "echo why >&2; exit 3"]));
        let text = failing.expect_err("it exits with 3").to_string();
        assert_eq!(text, "asking failed (exit status: 3):\nwhy\n");
        let missing = run("asking", &mut Command::new("/no/such/program"));
        let text = missing.expect_err("no program").to_string();
        assert!(text.starts_with("/no/such/program cannot be started"), "{text}");
    }
}
