//! Starts commands of the container through the [`stage`], as children of the shim.

use std::io::{self, Read as _, Write as _};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use super::stage::{self, LaunchOrder};

/// A launch stage that awaits its order.
#[derive(Debug)]
pub(super) struct LaunchStage {
    child: Child,
    channel: UnixStream,
}

impl LaunchStage {
    /// Starts the stage, with its output in pipes.
    pub(super) fn start() -> io::Result<Self> {
        let (channel, theirs) = UnixStream::pair()?;
        let mut args: Vec<_> = std::env::args_os().collect();
        // The directory of the run.
        args.pop();
        let mut args = args.into_iter();
        // The file of this program may have been replaced since its start.
        let mut command = Command::new("/proc/self/exe");
        if let Some(name) = args.next() {
            command.arg0(name);
        }
        command.args(args).arg(stage::ARGUMENT).stdin(Stdio::from(OwnedFd::from(theirs)));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Ok(Self { child: command.spawn()?, channel })
    }

    /// The id of the process, which it keeps as the command.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends the order, and waits until the stage has become the command.
    ///
    /// # Errors
    /// Why it has not. The process has ended, or ends.
    pub(super) fn become_command(mut self, order: &LaunchOrder<'_>) -> Result<Child, LaunchError> {
        let mut report = String::new();
        let talked = self.talk(order, &mut report);
        match (talked, report.strip_prefix(stage::READY)) {
            (Ok(()), Some("")) => Ok(self.child),
            (Ok(()), why) => {
                let why = why.unwrap_or(&report);
                let why = if why.is_empty() { "the launch stage ended" } else { why };
                Err(LaunchError { child: self.child, source: io::Error::other(why.to_owned()) })
            }
            (Err(source), _) => Err(LaunchError { child: self.child, source }),
        }
    }

    fn talk(&mut self, order: &LaunchOrder<'_>, report: &mut String) -> io::Result<()> {
        // A stage that has ended leaves its reason.
        let _ = self.channel.write_all(&serde_json::to_vec(order)?);
        self.channel.shutdown(Shutdown::Write)?;
        self.channel.read_to_string(report).map(drop)
    }
}

/// A stage that did not become the command.
#[derive(Debug)]
pub(super) struct LaunchError {
    /// The stage's process.
    pub(super) child: Child,
    pub(super) source: io::Error,
}
