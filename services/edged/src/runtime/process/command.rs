//! Runs a command in a container, for hooks and probes: its shim starts it.

use std::io;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;

use super::run_directory::RunDirectory;
use super::shim::commands::{CommandReply, CommandRequest};
use crate::runtime::{CommandBounds, CommandOutput, RuntimeError};

/// A shim answers this much after the command's own time: it has to end the command.
const ANSWER_SLACK: Duration = Duration::from_secs(5);

/// What an answer has beside the output of a bound, of which a shim of an earlier version keeps 10 KiB of each stream, and
/// writes a byte with up to six.
const ANSWER_BYTES: usize = 256 << 10;

/// Runs the command with the container's environment and rights, in its working directory. If the
/// caller drops the future, the command ends.
pub(super) async fn run(
    container: &str,
    dir: &RunDirectory,
    command: &[String],
    bounds: CommandBounds,
) -> Result<CommandOutput, RuntimeError> {
    let failed = |source| RuntimeError::Command {
        container: container.to_owned(),
        program: command.first().cloned().unwrap_or_default(),
        source,
    };
    let not_running = || RuntimeError::NotRunning { container: container.to_owned() };
    let stream = dir.connect_for_command().map_err(failed)?.ok_or_else(not_running)?;
    let asked = ask(stream, command, bounds);
    let answer = match tokio::time::timeout(bounds.within + ANSWER_SLACK, asked).await {
        Ok(answer) => answer.map_err(failed)?,
        Err(_) => return Ok(CommandOutput { code: None, output: Vec::new() }),
    };
    // A shim that ends closes the connection without an answer.
    let CommandReply { code, output, encoded, error } = answer.ok_or_else(not_running)?;
    if let Some(error) = error {
        return Err(failed(io::Error::other(error)));
    }
    let output = match encoded {
        Some(encoded) => {
            STANDARD.decode(encoded).map_err(|error| failed(io::Error::other(error)))?
        }
        // A shim of an earlier version.
        None => output.into_bytes(),
    };
    Ok(CommandOutput { code, output })
}

async fn ask(
    stream: std::os::unix::net::UnixStream,
    command: &[String],
    bounds: CommandBounds,
) -> io::Result<Option<CommandReply>> {
    stream.set_nonblocking(true)?;
    let mut stream = UnixStream::from_std(stream)?;
    let timeout_ms = u64::try_from(bounds.within.as_millis()).unwrap_or(u64::MAX);
    let output_bytes_max = Some(bounds.output_bytes_max);
    let request = CommandRequest { argv: command.to_vec(), timeout_ms, output_bytes_max };
    let mut line = serde_json::to_vec(&request)?;
    line.push(b'\n');
    stream.write_all(&line).await?;
    let mut answer = String::new();
    // Two streams, of which base64 writes three bytes with four.
    let encoded_max = bounds.output_bytes_max.saturating_mul(2).saturating_mul(4).div_ceil(3);
    let answer_max = u64::try_from(encoded_max.saturating_add(ANSWER_BYTES)).unwrap_or(u64::MAX);
    BufReader::new(stream.take(answer_max)).read_line(&mut answer).await?;
    if answer.is_empty() { Ok(None) } else { Ok(Some(serde_json::from_str(&answer)?)) }
}
