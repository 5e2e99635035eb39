//! Runs the commands of probes and hooks in the container.
//!
//! They are children of the shim like the container's own process, and end with it. A request and
//! its reply are one line of JSON each. A caller that closes its connection ends the command.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::{Deserialize, Serialize};

use super::reaper::Reaper;
use super::stage::LaunchOrder;
use crate::runtime::CommandBounds;
use crate::runtime::process::run_spec::Place;

/// The longest request: the arguments of a process have 2 MiB, and JSON escapes some.
const REQUEST_BYTES_MAX: u64 = 8 << 20;

/// Commands at the same time: three probes and a hook, some of them cut short.
const COMMANDS_MAX: usize = 16;

/// Reads of what a command left in its pipes: a pipe has 64 KiB, and a process that the command left
/// behind may write for ever.
const LATE_READS_MAX: usize = 64;

/// A command for the container.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct CommandRequest {
    /// Command and arguments.
    pub(crate) argv: Vec<String>,
    /// The time that it has.
    pub(crate) timeout_ms: u64,
    /// The bytes that are kept of each stream of its output; `None`: a pod worker of an earlier version asks.
    #[serde(default)]
    pub(crate) output_bytes_max: Option<usize>,
}

/// The end of a command.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct CommandReply {
    /// Its exit code; `None` if it did not end in time.
    pub(crate) code: Option<i32>,
    /// The beginning of its output, for a pod worker of an earlier version.
    #[serde(default)]
    pub(crate) output: String,
    /// The same in base64, for the others.
    #[serde(default)]
    pub(crate) encoded: Option<String>,
    /// Why it did not start.
    pub(crate) error: Option<String>,
}

/// Serves the socket until the shim ends.
pub(super) fn serve(listener: UnixListener, place: Place, reaper: Reaper) {
    let (place, running) = (Arc::new(place), Arc::new(AtomicUsize::new(0)));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else {
                // No room for a file. Others wait for theirs, too.
                std::thread::sleep(Duration::from_millis(10));
                continue;
            };
            if running.fetch_add(1, Ordering::Relaxed) >= COMMANDS_MAX {
                running.fetch_sub(1, Ordering::Relaxed);
                let error = Some("too many commands run in the container".to_owned());
                reply(&stream, &CommandReply { error, ..CommandReply::default() });
                continue;
            }
            let (place, reaper, running) = (place.clone(), reaper.clone(), running.clone());
            std::thread::spawn(move || {
                if let Some(answer) = answer(&stream, &place, &reaper) {
                    reply(&stream, &answer);
                }
                running.fetch_sub(1, Ordering::Relaxed);
            });
        }
    });
}

fn reply(mut stream: &UnixStream, reply: &CommandReply) {
    let Ok(mut line) = serde_json::to_vec(reply) else { return };
    line.push(b'\n');
    // A caller that is gone needs no reply.
    let _ = stream.write_all(&line);
}

/// Carries out the request of a connection; `None` if the caller is gone.
fn answer(stream: &UnixStream, place: &Place, reaper: &Reaper) -> Option<CommandReply> {
    let mut line = String::new();
    BufReader::new(stream.take(REQUEST_BYTES_MAX)).read_line(&mut line).ok()?;
    let failed = |error: io::Error| CommandReply {
        error: Some(error.to_string()),
        ..CommandReply::default()
    };
    let request: CommandRequest = match serde_json::from_str(&line) {
        Ok(request) => request,
        Err(error) => return Some(failed(error.into())),
    };
    match run(&request, stream, place, reaper) {
        Ok(reply) => reply,
        Err(error) => Some(failed(error)),
    }
}

/// A stream of a command's output.
struct Output {
    file: Option<File>,
    kept: Vec<u8>,
    bytes_max: usize,
}

fn run(
    request: &CommandRequest,
    caller: &UnixStream,
    place: &Place,
    reaper: &Reaper,
) -> io::Result<Option<CommandReply>> {
    let deadline = Instant::now() + Duration::from_millis(request.timeout_ms);
    let order = LaunchOrder {
        parent: super::own_id()?,
        argv: Cow::Borrowed(&request.argv),
        place: Cow::Borrowed(place),
        layout: None,
    };
    let (mut child, mut ended) = reaper.start(&order)?;
    let pid = i32::try_from(child.id()).map_err(io::Error::other)?;
    let bytes_max = request.output_bytes_max.unwrap_or(CommandBounds::HANDLER_OUTPUT_BYTES_MAX);
    let mut outputs = [
        Output::of(child.stdout.take().map(OwnedFd::from), bytes_max),
        Output::of(child.stderr.take().map(OwnedFd::from), bytes_max),
    ];
    let (mut code, mut late_reads) = (None, 0);
    loop {
        let is_read = outputs.iter().all(|output| output.file.is_none());
        if code.is_some() && (is_read || late_reads == LATE_READS_MAX) {
            break;
        }
        let left = deadline.saturating_duration_since(Instant::now());
        let wait = if code.is_some() { Duration::ZERO } else { left };
        // What runs is read until the command ends, but its end counts only once.
        let end = code.is_none().then_some(ended.as_fd());
        let files = outputs.iter().map(|output| output.file.as_ref().map(AsFd::as_fd));
        let ready = ready([Some(caller.as_fd()), end].into_iter().chain(files), wait)?;
        let [is_caller_gone, has_ended, ref readable @ ..] = ready[..] else { break };
        if is_caller_gone {
            reaper.kill(pid);
            return Ok(None);
        }
        if !ready.contains(&true) {
            if code.is_none() {
                reaper.kill(pid);
            }
            break;
        }
        if has_ended {
            let mut bytes = [0; 4];
            ended.read_exact(&mut bytes)?;
            code = Some(i32::from_le_bytes(bytes));
        }
        late_reads += usize::from(code.is_some());
        for (output, is_readable) in outputs.iter_mut().zip(readable) {
            if *is_readable {
                output.read();
            }
        }
    }
    let [mut output, errors] = outputs.map(|output| output.kept);
    output.extend(errors);
    let reply = CommandReply { code, ..CommandReply::default() };
    Ok(Some(match request.output_bytes_max {
        Some(_) => CommandReply { encoded: Some(STANDARD.encode(output)), ..reply },
        None => CommandReply { output: String::from_utf8_lossy(&output).into_owned(), ..reply },
    }))
}

impl Output {
    fn of(file: Option<OwnedFd>, bytes_max: usize) -> Self {
        Self { file: file.map(File::from), kept: Vec::new(), bytes_max }
    }

    /// Reads what is there. What is not kept is read all the same: a command whose pipe is full or
    /// closed would not end as it should.
    fn read(&mut self) {
        let mut chunk = [0; 4 << 10];
        let Some(file) = &mut self.file else { return };
        match file.read(&mut chunk) {
            Ok(bytes @ 1..) => {
                let room = self.bytes_max - self.kept.len();
                self.kept.extend_from_slice(&chunk[..bytes.min(room)]);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(0) | Err(_) => self.file = None,
        }
    }
}

/// Waits until any of the files can be read or has ended. Returns for each whether it is so.
fn ready<'a>(
    files: impl Iterator<Item = Option<BorrowedFd<'a>>>,
    wait: Duration,
) -> io::Result<Vec<bool>> {
    let files: Vec<_> = files.collect();
    let present = files.iter().flatten();
    let mut fds: Vec<_> = present.map(|file| PollFd::new(*file, PollFlags::POLLIN)).collect();
    // Rounded up, so that a wait of less than a millisecond is no busy loop.
    let wait = wait.as_micros().div_ceil(1000);
    let wait = PollTimeout::try_from(wait).unwrap_or(PollTimeout::MAX);
    while let Err(error) = poll(&mut fds, wait) {
        if error != Errno::EINTR {
            return Err(error.into());
        }
    }
    let mut found = fds.iter().map(|fd| fd.any().unwrap_or(true));
    Ok(files.iter().map(|file| file.is_some() && found.next().unwrap_or(true)).collect())
}
