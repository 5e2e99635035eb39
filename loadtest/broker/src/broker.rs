//! One broker: a process on its data.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::distribution::{Archive, Distribution};
use crate::error::BrokerError;
use crate::process::{self, Process};
use crate::startup::wait_for_start;

/// The time limit of a broker's stop; then it is killed.
const STOP_WITHIN: Duration = Duration::from_secs(30);

/// One broker; it is killed when dropped.
#[derive(Debug)]
pub struct Broker {
    node: u32,
    distribution: Arc<Distribution>,
    properties: PathBuf,
    log: PathBuf,
    heap_mib: u32,
    running: Option<Process>,
}

impl Broker {
    pub(crate) fn new(
        node: u32,
        distribution: Arc<Distribution>,
        properties: PathBuf,
        log: PathBuf,
        heap_mib: u32,
    ) -> Self {
        Self { node, distribution, properties, log, heap_mib, running: None }
    }

    /// Starts it on the data that it has, and returns when it says that it runs. Its partitions
    /// can be used a moment later.
    ///
    /// # Errors
    /// When it ends again or does not come up in time; it is then not running.
    pub fn start(&mut self) -> Result<(), BrokerError> {
        self.begin()?;
        self.started()
    }

    /// Starts the process, and waits for nothing: the first of several waits for the others.
    pub(crate) fn begin(&mut self) -> Result<(), BrokerError> {
        if self.running.is_none() {
            // A line of an earlier start is not to be taken for one of this.
            let _ = std::fs::rename(&self.log, self.log.with_extension("before.log"));
            let args = self.distribution.kafka(&self.properties, self.heap_mib, Archive::Use);
            self.running = Some(Process::java(&args, &self.log)?);
        }
        Ok(())
    }

    pub(crate) fn started(&mut self) -> Result<(), BrokerError> {
        let Some(process) = &self.running else { return Ok(()) };
        let end = wait_for_start(self.node, process, &self.log);
        if end.is_err() {
            self.kill()?;
        }
        end
    }

    /// Kills it at once, as `kill -9` does. Its data stays.
    ///
    /// # Errors
    /// When the process cannot be signalled.
    pub fn kill(&mut self) -> Result<(), BrokerError> {
        self.end(Signal::SIGKILL)
    }

    /// Stops it in an orderly way. Its data stays.
    ///
    /// # Errors
    /// When the process cannot be signalled.
    pub fn stop(&mut self) -> Result<(), BrokerError> {
        self.end(Signal::SIGTERM)
    }

    /// Freezes it: it holds its connections and answers nothing.
    ///
    /// # Errors
    /// When the process cannot be signalled.
    pub fn freeze(&self) -> Result<(), BrokerError> {
        self.signal(Signal::SIGSTOP)
    }

    /// Lets a frozen one go on.
    ///
    /// # Errors
    /// When the process cannot be signalled.
    pub fn thaw(&self) -> Result<(), BrokerError> {
        self.signal(Signal::SIGCONT)
    }

    /// Its process, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.running.as_ref().map(Process::pid)
    }

    /// Its number, from 1.
    pub fn node(&self) -> u32 {
        self.node
    }

    /// The end of its output since its last start.
    pub fn words(&self) -> String {
        process::tail(&self.log)
    }

    fn signal(&self, signal: Signal) -> Result<(), BrokerError> {
        let Some(process) = &self.running else { return Ok(()) };
        let sent = process.signal(signal);
        sent.map_err(|source| BrokerError::Signal { node: self.node, source })
    }

    fn end(&mut self, signal: Signal) -> Result<(), BrokerError> {
        let sent = self.signal(signal);
        let Some(process) = self.running.take() else { return Ok(()) };
        if sent.is_err() || process.ended_within(STOP_WITHIN).is_none() {
            // It may have ended by itself, and then there is nothing to kill.
            let _ = process.signal(Signal::SIGKILL);
            process.ended_within(STOP_WITHIN);
        }
        Ok(())
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        // A frozen one takes no other signal; what cannot be killed has ended.
        let _ = self.kill();
    }
}
