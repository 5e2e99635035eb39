//! The signals that end a process, taken before anything starts: one that comes early must not
//! kill half a start.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Ctrl-C, a service manager's stop, and a terminal that is closed.
pub(crate) struct Signals {
    interrupts: Signal,
    terminations: Signal,
    hangups: Signal,
}

impl Signals {
    /// Takes them from here on.
    ///
    /// # Errors
    /// When the system does not let this process.
    pub(crate) fn take() -> io::Result<Self> {
        Ok(Self {
            interrupts: signal(SignalKind::interrupt())?,
            terminations: signal(SignalKind::terminate())?,
            hangups: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for one of them.
    pub(crate) async fn any(&mut self) {
        tokio::select! {
            _ = self.interrupts.recv() => {}
            _ = self.terminations.recv() => {}
            _ = self.hangups.recv() => {}
        }
    }

    /// Waits for Ctrl-C.
    pub(crate) async fn interrupt(&mut self) {
        self.interrupts.recv().await;
    }
}
