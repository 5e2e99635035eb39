//! Commands with a time limit: a test of one that hangs ends all the same.

use std::io::{self, BufRead as _, BufReader, Read};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// How often a command is asked whether it has ended.
const POLL: Duration = Duration::from_millis(10);

/// Lines that wait for a reader. The process waits when there are more.
const LINES_MAX: usize = 64;

/// Runs a command to its end, and returns what it printed. A command that has not ended in time is killed.
///
/// # Errors
/// It cannot be started, its output cannot be read, or it has not ended in time.
pub fn output_within(command: &mut Command, within: Duration) -> io::Result<Output> {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    end_within(child, within)
}

/// Waits for the end of a process, and returns what it printed into its pipes. One that has not ended in time is
/// killed.
///
/// # Errors
/// Its output cannot be read, or it has not ended in time.
pub fn end_within(mut child: Child, within: Duration) -> io::Result<Output> {
    let deadline = Instant::now() + within;
    let printed = (child.stdout.take().map(whole), child.stderr.take().map(whole));
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if Instant::now() >= deadline {
            // It may have ended just now.
            let _ = child.kill();
            let _ = child.wait();
            return Err(late(within));
        }
        thread::sleep(POLL);
    };
    // A process that it left behind may keep its output open.
    let end = |printed| end_of(printed, deadline, within);
    Ok(Output { status, stdout: end(printed.0)?, stderr: end(printed.1)? })
}

/// The lines that a process prints. Each has a time limit.
#[derive(Debug)]
pub struct OutputLines(Receiver<io::Result<String>>);

impl OutputLines {
    /// The lines of this output. A thread reads them until its end.
    pub fn of(output: impl Read + Send + 'static) -> Self {
        let (sender, lines) = sync_channel(LINES_MAX);
        thread::spawn(move || {
            for line in BufReader::new(output).lines() {
                let is_last = line.is_err();
                if sender.send(line).is_err() || is_last {
                    return;
                }
            }
        });
        Self(lines)
    }

    /// The next line.
    ///
    /// # Errors
    /// There is no line in time, no line any more, or it is no text.
    pub fn next_within(&self, within: Duration) -> io::Result<String> {
        match self.0.recv_timeout(within) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => Err(late(within)),
            Err(RecvTimeoutError::Disconnected) => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

/// All bytes of an output, which a thread reads.
fn whole(mut output: impl Read + Send + 'static) -> Receiver<io::Result<Vec<u8>>> {
    let (sender, bytes) = sync_channel(1);
    thread::spawn(move || {
        let mut all = Vec::new();
        let read = output.read_to_end(&mut all).map(|_| all);
        // The reader may have given up.
        let _ = sender.send(read);
    });
    bytes
}

fn end_of(
    printed: Option<Receiver<io::Result<Vec<u8>>>>,
    deadline: Instant,
    within: Duration,
) -> io::Result<Vec<u8>> {
    let Some(printed) = printed else { return Ok(Vec::new()) };
    let left = deadline.saturating_duration_since(Instant::now()).max(POLL);
    printed.recv_timeout(left).unwrap_or_else(|_| Err(late(within)))
}

fn late(within: Duration) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("not done within {within:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The time limit of what ends by itself.
    const WAIT: Duration = Duration::from_secs(30);

    /// The time limit of what does not.
    const SHORT: Duration = Duration::from_millis(100);

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::null());
        command
    }

    #[test]
    fn the_output_of_a_command_is_whole_and_one_that_hangs_is_killed() {
        let script = "head -c 300000 /dev/zero; echo b >&2; exit 3";
        let output = output_within(&mut shell(script), WAIT).expect("it ends");
        assert_eq!((output.stdout.len(), &*output.stderr), (300_000, &b"b\n"[..]));
        assert_eq!(output.status.code(), Some(3));
        for script in ["exec sleep 1000", "sleep 5 & exit 0"] {
            let late = output_within(&mut shell(script), SHORT).expect_err(script);
            assert_eq!(late.kind(), io::ErrorKind::TimedOut, "{script}");
        }
    }

    #[test]
    fn a_process_that_was_started_before_has_a_time_limit_too() {
        let mut command = shell("echo a; echo b >&2; exit 3");
        let child =
            command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().expect("it starts");
        let output = end_within(child, WAIT).expect("it ends");
        assert_eq!((&*output.stdout, &*output.stderr), (&b""[..], &b"b\n"[..]));
        assert_eq!(output.status.code(), Some(3));
        let child = shell("exec sleep 1000").spawn().expect("it starts");
        let late = end_within(child, SHORT).expect_err("it goes on");
        assert_eq!(late.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn a_line_that_does_not_come_is_not_waited_for() {
        let mut command = shell("echo one; echo two; exec sleep 1000");
        let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
        let lines = OutputLines::of(child.stdout.take().expect("piped"));
        for line in ["one", "two"] {
            assert_eq!(lines.next_within(WAIT).expect("a line"), line);
        }
        let late = lines.next_within(SHORT).expect_err("no line");
        assert_eq!(late.kind(), io::ErrorKind::TimedOut);
        child.kill().expect("it runs");
        child.wait().expect("it ends");
        let end = lines.next_within(WAIT).expect_err("no line any more");
        assert_eq!(end.kind(), io::ErrorKind::UnexpectedEof);
    }
}
