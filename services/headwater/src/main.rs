//! The one binary: composition, configuration, command line.
//!
//! Only this crate picks RocksDB and the embedded log; every part takes its seams as arguments.

mod cli;
mod client;
mod command;
mod exit;
mod table;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    exit::of(command::run(cli::Cli::parse()))
}
