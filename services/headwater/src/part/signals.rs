//! The signals that end a process. Their handlers are installed before anything starts, so that an
//! early signal does not kill a half-started process.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Ctrl-C, the stop of a service manager, and the close of a terminal.
pub(crate) struct Signals {
    interrupts: Signal,
    terminations: Signal,
    hangups: Signal,
}

impl Signals {
    /// Installs the handlers.
    ///
    /// # Errors
    /// When the system refuses.
    pub(crate) fn take() -> io::Result<Self> {
        Ok(Self {
            interrupts: signal(SignalKind::interrupt())?,
            terminations: signal(SignalKind::terminate())?,
            hangups: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for any of the signals.
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
