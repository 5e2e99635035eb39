//! The one binary: composition, configuration, command line.
//!
//! Only this crate picks RocksDB and the embedded log; every part takes its seams as arguments.

mod cli;
mod client;
mod clock;
mod command;
mod completion;
mod data_dir;
mod database;
mod doctor;
mod exit;
mod kafka;
mod node;
mod open_files;
mod operator;
mod part;
mod processor;
mod settings;
mod table;
mod telemetry;
mod tls;
mod troubles;
mod up;

use std::process::ExitCode;

use clap::Parser;
use tikv_jemallocator::Jemalloc;

/// Of RocksDB and librdkafka too. `MALLOC_CONF` sets it up otherwise than `.cargo/config.toml`.
#[global_allocator]
static HEAP: Jemalloc = Jemalloc;

fn main() -> ExitCode {
    if let Some(missing) = processor::lacks() {
        eprintln!(
            "headwater: this processor has no {missing}, which this build needs: build without the \
             CXXFLAGS of .cargo/config.toml"
        );
        return ExitCode::FAILURE;
    }
    completion::answer();
    let cli = cli::Cli::parse();
    match cli.command {
        // Before any thread: the shim is the parent of a container's process.
        cli::Command::Shim { args } => headwater_edged::shim::run(args),
        command => exit::of(command::run(command)),
    }
}
