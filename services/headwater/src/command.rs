//! The commands, one file each.

pub(crate) mod asked;
mod ca;
mod describe;
mod diff;
mod get;
mod history;
mod link;
mod logs;
mod path;
pub(crate) mod render;
mod selector;
mod status;
mod topics;
mod verify;

use std::io::Write;

use crate::cli::Command;
use crate::completion;
use crate::exit::{CommandResult, Failure, Outcome};
use crate::{doctor, part, up};

/// Runs the command that was asked for.
pub(crate) fn run(command: Command) -> CommandResult {
    match command {
        Command::Completion { shell } => {
            std::io::stdout().write_all(&completion::script(shell)?)?;
            Ok(Outcome::Done)
        }
        Command::Up(args) => up::run(args),
        Command::Controller(args) => part::controller::run(&args),
        Command::Hub(args) => part::hub::run(&args),
        Command::Edge(args) => part::edge::run(&args),
        Command::Edged(args) => part::edged::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Ca(args) => ca::run(&args),
        asking => runtime()?.block_on(ask(asking)),
    }
}

async fn ask(command: Command) -> CommandResult {
    match command {
        Command::Get(args) => get::run(args).await,
        Command::Describe(args) => describe::run(args).await,
        Command::Logs(args) => logs::run(args).await,
        Command::History(args) => history::run(args).await,
        Command::Diff(args) => diff::run(args).await,
        Command::Status(args) => status::run(args).await,
        Command::Link(args) => link::run(args).await,
        Command::Verify(args) => verify::run(args).await,
        Command::Topics(args) => topics::run(args).await,
        Command::Up(_)
        | Command::Controller(_)
        | Command::Hub(_)
        | Command::Edge(_)
        | Command::Edged(_)
        | Command::Doctor(_)
        | Command::Ca(_)
        | Command::Completion { .. } => Ok(Outcome::Done),
    }
}

/// A small runtime: an asking command waits for one answer.
fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}
