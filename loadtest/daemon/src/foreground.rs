//! A program that runs in the foreground until it is stopped.

use std::error::Error;
use std::process::ExitCode;

use nix::sys::signal::{SigSet, Signal};

/// The signals that stop a program.
#[derive(Debug)]
pub struct StopSignals {
    /// `None`: they cannot be blocked, and end the program at once.
    blocked: Option<SigSet>,
}

impl StopSignals {
    /// Blocks the signals, before the program starts a thread, so that only [`wait`](Self::wait)
    /// receives them.
    pub fn block() -> Self {
        let signals = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]);
        Self { blocked: signals.thread_block().is_ok().then_some(signals) }
    }

    /// Returns at the first signal; at once if the signals are not blocked.
    pub fn wait(&self) {
        if let Some(signals) = &self.blocked {
            let _ = signals.wait();
        }
    }
}

/// The exit status of `result`. It prints a failure, in the name of `program`, and its causes.
pub fn exit_code(program: &str, result: Result<(), impl Error>) -> ExitCode {
    let Err(error) = result else { return ExitCode::SUCCESS };
    eprintln!("{program}: {error}");
    let mut source = error.source();
    while let Some(cause) = source {
        eprintln!("  {cause}");
        source = cause.source();
    }
    ExitCode::FAILURE
}
