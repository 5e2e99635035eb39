//! The end of a command: its exit status, and the one place that prints an error.

use std::error::Error;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use headwater_telemetry::error_chain;

use crate::render::plain;

/// The result of a command without a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done: exit status 0.
    Done,
    /// A difference or a problem was found: exit status 3.
    Found,
    /// A command in a container ended with this exit status.
    Exit(u8),
}

/// The reason why a command failed.
#[derive(Debug)]
pub enum Failure {
    /// The command failed: exit status 1.
    Failed(Box<dyn Error + Send + Sync>),
    /// The arguments are wrong: exit status 2.
    Usage(String),
    /// Objects do not exist, each in a sentence: exit status 1.
    NotFound(Vec<String>),
}

/// The result of a command.
pub type CommandResult = Result<Outcome, Failure>;

/// Exit status of a command that failed.
const FAILED: u8 = 1;
/// Exit status of wrong arguments; clap's own.
const WRONG_USAGE: u8 = 2;
/// Exit status of a command that found a difference or a problem.
const FOUND: u8 = 3;

impl Failure {
    /// Creates a failure without a source.
    pub fn message(text: impl Into<String>) -> Self {
        Self::Failed(text.into().into())
    }

    /// Creates a failure for a missing object, in kubectl's words.
    pub fn not_found(plural: &str, name: &str) -> Self {
        Self::NotFound(vec![format!("{plural} {name:?} not found")])
    }

    /// A refused request is printed with the text of the server, without its code.
    fn of(error: Box<dyn Error + Send + Sync>) -> Self {
        match error.downcast_ref::<tonic::Status>() {
            Some(status) if status.code() == tonic::Code::InvalidArgument => {
                Self::Usage(status.message().to_owned())
            }
            Some(status) if status.code() == tonic::Code::NotFound => {
                Self::NotFound(vec![status.message().to_owned()])
            }
            Some(status) if lost_connection(status) => Self::message(
                "the headwater process has ended or does not respond: check whether it runs, and \
                 try again",
            ),
            Some(status) => Self::message(status.message()),
            None => Self::Failed(error),
        }
    }
}

impl<E: Error + Send + Sync + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::of(Box::new(error))
    }
}

/// Prints the error of `result`, if any, on stderr, and returns the exit status.
pub fn report(result: CommandResult) -> ExitCode {
    match result {
        Ok(Outcome::Done) => ExitCode::SUCCESS,
        Ok(Outcome::Found) => ExitCode::from(FOUND),
        Ok(Outcome::Exit(code)) => ExitCode::from(code),
        Err(Failure::Usage(text)) => {
            print(prefix(), &text);
            ExitCode::from(WRONG_USAGE)
        }
        Err(Failure::NotFound(sentences)) => {
            sentences.iter().for_each(|text| print("Error from server (NotFound): ", text));
            ExitCode::from(FAILED)
        }
        // A reader that closes our output (`| head`) is not a failure.
        Err(Failure::Failed(error)) if is_broken_pipe(error.as_ref()) => ExitCode::SUCCESS,
        Err(Failure::Failed(error)) => {
            print(prefix(), &error_chain(error.as_ref()));
            ExitCode::from(FAILED)
        }
    }
}

/// Prints an error on stderr. A failed write is ignored: the reader may be gone.
fn print(prefix: &str, text: &str) {
    let lines: Vec<_> = text.lines().map(plain).collect();
    let _ = writeln!(std::io::stderr(), "{prefix}{}", lines.join("\n"));
}

/// Whether the connection ended during a response.
fn lost_connection(status: &tonic::Status) -> bool {
    let transport = status.source().is_some_and(|source| source.is::<tonic::transport::Error>());
    transport || status.message().contains("h2 protocol error")
}

fn is_broken_pipe(error: &(dyn Error + 'static)) -> bool {
    error
        .downcast_ref::<std::io::Error>()
        .is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

fn prefix() -> &'static str {
    if std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none() {
        "\u{1b}[1;31merror:\u{1b}[0m "
    } else {
        "error: "
    }
}
