//! Runs a command in a container, for hooks and probes: its shim starts it.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;

use super::run_directory::RunDirectory;
use super::shim::commands::{CommandReply, CommandRequest};
use crate::runtime::{CommandOutput, RuntimeError};

/// A shim answers this much after the command's own time: it has to end the command.
const ANSWER_SLACK: Duration = Duration::from_secs(5);

/// The longest answer: two outputs of 10 KiB, of which JSON writes a byte with up to six.
const ANSWER_BYTES_MAX: u64 = 256 << 10;

/// Runs the command with the container's environment and rights, in its working directory. If the
/// caller drops the future, the command ends.
pub(super) async fn run(
    container: &str,
    dir: &RunDirectory,
    command: &[String],
    timeout: Duration,
) -> Result<CommandOutput, RuntimeError> {
    let failed = |source| RuntimeError::Command {
        container: container.to_owned(),
        program: command.first().cloned().unwrap_or_default(),
        source,
    };
    let not_running = || RuntimeError::NotRunning { container: container.to_owned() };
    let stream = dir.connect_for_command().map_err(failed)?.ok_or_else(not_running)?;
    let asked = ask(stream, command, timeout);
    let answer = match tokio::time::timeout(timeout + ANSWER_SLACK, asked).await {
        Ok(answer) => answer.map_err(failed)?,
        Err(_) => return Ok(CommandOutput { code: None, output: String::new() }),
    };
    // A shim that ends closes the connection without an answer.
    let CommandReply { code, output, error } = answer.ok_or_else(not_running)?;
    match error {
        Some(error) => Err(failed(io::Error::other(error))),
        None => Ok(CommandOutput { code, output }),
    }
}

async fn ask(
    stream: std::os::unix::net::UnixStream,
    command: &[String],
    timeout: Duration,
) -> io::Result<Option<CommandReply>> {
    stream.set_nonblocking(true)?;
    let mut stream = UnixStream::from_std(stream)?;
    let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
    let request = CommandRequest { argv: command.to_vec(), timeout_ms };
    let mut line = serde_json::to_vec(&request)?;
    line.push(b'\n');
    stream.write_all(&line).await?;
    let mut answer = String::new();
    BufReader::new(stream.take(ANSWER_BYTES_MAX)).read_line(&mut answer).await?;
    if answer.is_empty() { Ok(None) } else { Ok(Some(serde_json::from_str(&answer)?)) }
}
