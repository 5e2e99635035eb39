//! A command with a time limit, whose output goes to a file.
//!
//! A pipe would stay open as long as any process that the command started holds it, and a reader of
//! the pipe would wait for that process.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use super::process_tree;

/// The time between two looks at a command that runs: small beside the commands, which take seconds.
const INTERVAL: Duration = Duration::from_millis(20);

/// What a command did.
#[derive(Debug)]
pub(super) struct Run {
    /// Both streams, in the order of their writes.
    pub(super) output: String,
    /// The reason why it did not succeed.
    pub(super) end: Result<(), String>,
}

/// Runs `command` with its output in `file`. When this returns, the command has ended and the file is
/// removed. A command that runs for `limit` is killed; the reason lists its threads, which libtest
/// names by their tests, and the processes below it.
///
/// # Errors
/// The command cannot be started, or its file cannot be written.
pub(super) fn run(command: &mut Command, file: &Path, limit: Duration) -> io::Result<Run> {
    fs::create_dir_all(file.parent().unwrap_or(Path::new(".")))?;
    let output = File::create(file)?;
    let mut child = command.stdout(output.try_clone()?).stderr(output).spawn()?;
    let start = Instant::now();
    let end = loop {
        if let Some(status) = child.try_wait()? {
            break result(status);
        }
        if start.elapsed() >= limit {
            let tree = process_tree::describe(child.id());
            child.kill()?;
            child.wait()?;
            break Err(format!("killed after {} s; it ran:\n{tree}", limit.as_secs()));
        }
        thread::sleep(INTERVAL);
    };
    let output = String::from_utf8_lossy(&fs::read(file)?).into_owned();
    fs::remove_file(file)?;
    Ok(Run { output, end })
}

fn result(status: ExitStatus) -> Result<(), String> {
    if status.success() { Ok(()) } else { Err(status.to_string()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, name: &str, limit: Duration) -> Run {
        let file = std::env::temp_dir().join(format!("xtask-{name}-{}", std::process::id()));
        let run = run(Command::new("sh").args(["-c", script]), &file, limit).expect("sh starts");
        assert!(!file.exists(), "the file of the output is removed");
        run
    }

    #[test]
    fn both_streams_are_kept_and_the_status_is_the_reason() {
        let run = shell("echo one; echo two >&2; exit 3", "streams", Duration::from_secs(60));
        assert_eq!(run.output, "one\ntwo\n");
        assert_eq!(run.end, Err("exit status: 3".to_owned()));
    }

    #[test]
    fn a_process_that_stays_does_not_delay_the_end_of_its_starter() {
        let run = shell("sleep 600 & echo $!", "stays", Duration::from_secs(60));
        let kill = Command::new("kill").arg(run.output.trim()).status().expect("kill starts");
        assert!(kill.success(), "the process still ran");
        assert_eq!(run.end, Ok(()));
    }

    #[test]
    fn a_command_at_its_limit_is_killed_and_what_it_ran_is_listed() {
        let run = shell("echo begun; sleep 600; echo over", "limit", Duration::from_millis(500));
        assert_eq!(run.output, "begun\n");
        let reason = run.end.expect_err("it was killed");
        let mut words = reason.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let sleep = words.find(|words| words[1..] == ["sleep", "600"]).expect(&reason);
        let kill = Command::new("kill").arg(sleep[0]).status().expect("kill starts");
        assert!(kill.success(), "the process below it still ran");
    }
}
