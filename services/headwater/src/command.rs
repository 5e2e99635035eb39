//! Dispatch: which code runs a command.

use headwater_cli::args::Command;
use headwater_cli::exit::CommandResult;

use crate::{doctor, part, stop_pods, topics, up};

/// Runs a command. The crate `cli` runs the commands that need no part of this composition.
pub(crate) fn run(command: Command) -> CommandResult {
    match command {
        Command::Up(args) => up::run(args),
        Command::Controller(args) => part::controller::run(&args),
        Command::Hub(args) => part::hub::run(&args),
        Command::Edge(args) => part::edge::run(&args),
        Command::Edged(args) => part::edged::run(&args),
        Command::StopPods(args) => stop_pods::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Topics(args) => topics::run(args),
        client_command => headwater_cli::run(client_command),
    }
}
