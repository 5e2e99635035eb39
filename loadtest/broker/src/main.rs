//! A Kafka on loopback to develop against: runs until it is stopped.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use headwater_broker::{Cluster, ClusterSettings, Daemon, DaemonError};
use headwater_daemon::{StopSignals, exit_code};

/// A Kafka on loopback, for development: no users, no TLS, one disk.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// How many brokers, each with a port for clients, one for brokers, one for controllers
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=5))]
    brokers: u32,
    /// The first port, of three for each broker
    #[arg(long, default_value_t = 9092, value_parser = clap::value_parser!(u16).range(1024..=65_000))]
    port: u16,
    /// Where its data lies; kept when it stops. Without it, in a folder that goes with it
    #[arg(long)]
    data: Option<PathBuf>,
}

fn main() -> ExitCode {
    exit_code("headwater-broker", run(Args::parse()))
}

fn run(args: Args) -> Result<(), DaemonError> {
    // Before any thread starts, so that only the wait below receives a signal.
    let stops = StopSignals::block();
    let mut cluster = Cluster::start(ClusterSettings {
        brokers: args.brokers,
        data: args.data,
        first_port: Some(args.port),
        ..ClusterSettings::default()
    })?;
    let bootstrap = cluster.bootstrap();
    println!("{bootstrap}");
    eprintln!("Kafka runs. In another terminal:");
    eprintln!("  kcat -b {bootstrap} -L");
    eprintln!("Ctrl-C stops it");
    stops.wait();
    cluster.brokers().try_for_each(Daemon::stop)
}
