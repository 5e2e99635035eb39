//! Runs a command beside a container, for hooks and probes.

use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::AsyncReadExt as _;
use tokio::process::Command;

use super::run_directory::RunSpec;
use crate::runtime::{CommandOutput, RuntimeError};

/// The output that is kept of a probe, as under a kubelet.
const OUTPUT_BYTES_MAX: u64 = 10 << 10;

/// Runs the command with the container's environment, in its working directory.
pub(super) async fn run(
    container: &str,
    spec: &RunSpec,
    command: &[String],
    timeout: Duration,
) -> Result<CommandOutput, RuntimeError> {
    let failed = |program: &str, source| RuntimeError::Command {
        container: container.to_owned(),
        program: program.to_owned(),
        source,
    };
    let Some((program, args)) = command.split_first() else {
        return Err(failed("", std::io::Error::other("no command")));
    };
    let mut child = Command::from(spec.command(program, args))
        .kill_on_drop(true)
        .spawn()
        .map_err(|source| failed(program, source))?;
    let group = child.id().and_then(|id| i32::try_from(id).ok());
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let mut output = Vec::new();
    let work = async {
        let mut errors = Vec::new();
        let read = async {
            if let Some(stdout) = stdout {
                let _ = stdout.take(OUTPUT_BYTES_MAX).read_to_end(&mut output).await;
            }
        };
        let read_errors = async {
            if let Some(stderr) = stderr {
                let _ = stderr.take(OUTPUT_BYTES_MAX).read_to_end(&mut errors).await;
            }
        };
        let (status, ..) = tokio::join!(child.wait(), read, read_errors);
        output.append(&mut errors);
        status
    };
    let code = match tokio::time::timeout(timeout, work).await {
        Ok(status) => status.map_err(|source| failed(program, source))?.code().or(Some(137)),
        Err(_) => None,
    };
    // The rest of the command's process group ends with it. A child that was not reaped yet still
    // holds the group's number.
    if let (None, Some(group)) = (code, group) {
        let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
    }
    Ok(CommandOutput { code, output: String::from_utf8_lossy(&output).into_owned() })
}
