//! The client commands, which send requests to a running process, and `ca`: one file each.

mod ca;
mod describe;
mod diff;
mod events;
mod exec;
mod get;
mod history;
mod link;
mod logs;
mod node;
mod pod_target;
mod port_forward;
mod status;
mod verify;

use std::io::Write;

use crate::args::Command;
use crate::completion;
use crate::exit::{CommandResult, Failure, Outcome};

/// Runs a command that needs no service in this process.
///
/// # Errors
/// The reason why the command failed.
pub fn run(command: Command) -> CommandResult {
    match command {
        Command::Completion { shell } => {
            std::io::stdout().write_all(&completion::script(shell)?)?;
            Ok(Outcome::Done)
        }
        Command::Ca(args) => ca::run(&args),
        asking => runtime()?.block_on(ask(asking)),
    }
}

async fn ask(command: Command) -> CommandResult {
    match command {
        Command::Get(args) => get::run(args).await,
        Command::Describe(args) => describe::run(args).await,
        Command::Events(args) => events::run(args).await,
        Command::Logs(args) => logs::run(args).await,
        Command::Exec(args) => exec::exec(args).await,
        Command::Attach(args) => exec::attach(args).await,
        Command::PortForward(args) => port_forward::run(args).await,
        Command::History(args) => history::run(args).await,
        Command::Diff(args) => diff::run(args).await,
        Command::Status(args) => status::run(args).await,
        Command::Link(args) => link::run(args).await,
        Command::Node(args) => node::run(args).await,
        Command::Verify(args) => verify::run(args).await,
        Command::Up(_)
        | Command::Controller(_)
        | Command::Hub(_)
        | Command::Edge(_)
        | Command::Edged(_)
        | Command::Topics(_)
        | Command::StopPods(_)
        | Command::Doctor(_)
        | Command::Ca(_)
        | Command::Completion { .. } => {
            Err(Failure::message("this command needs a service: the binary runs it"))
        }
    }
}

/// Creates a small runtime: a command waits for one response.
fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}
