//! The binary: it composes the parts.
//!
//! Only this crate chooses RocksDB and the embedded log; every part receives its dependencies as
//! arguments.

mod clock;
mod command;
mod controller_doors;
mod data_dir;
mod database;
mod doctor;
mod hub_fleet;
mod kafka;
mod metrics;
mod node;
mod open_files;
mod part;
mod pod_runtime;
mod processor;
mod protection;
mod requests;
mod runtime;
mod settings;
mod stop_pods;
mod stores;
mod tls;
mod topics;
mod up;

use std::process::ExitCode;

use clap::Parser;
use headwater_cli::args::Cli;
use headwater_cli::exit;
use tikv_jemallocator::Jemalloc;

/// The allocator, for RocksDB and librdkafka too. `MALLOC_CONF` overrides `.cargo/config.toml`.
#[global_allocator]
static HEAP: Jemalloc = Jemalloc;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    // First, before anything is allocated: a node has a shim for each container, so it must be
    // small.
    if args.next().is_some_and(|command| command == pod_runtime::SHIM) {
        return headwater_edged::shim::run(args.map(|arg| arg.to_string_lossy().into_owned()));
    }
    if let Some(missing) = processor::lacks() {
        eprintln!(
            "headwater: this processor has no {missing}, which this build needs: build without the \
             CXXFLAGS of .cargo/config.toml"
        );
        return ExitCode::FAILURE;
    }
    headwater_cli::completion::answer();
    exit::report(command::run(Cli::parse().command))
}
