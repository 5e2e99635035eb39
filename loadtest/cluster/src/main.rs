//! A Kubernetes control plane on loopback to develop against: runs until it is stopped.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use headwater_cluster::{ClusterError, ControlPlane, ControlPlaneSettings, Program};
use headwater_daemon::{StopSignals, exit_code};

/// A Kubernetes control plane on loopback, for development: the API, its controllers and its
/// scheduler, without a node.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// The port of the API
    #[arg(long, default_value_t = 6443, value_parser = clap::value_parser!(u16).range(1024..))]
    port: u16,
    /// Where its data lies; kept when it stops. Without it, in a folder that goes with it
    #[arg(long)]
    data: Option<PathBuf>,
    /// Only build the program into the user's cache, if it is not there
    #[arg(long, exclusive = true)]
    build: bool,
}

fn main() -> ExitCode {
    exit_code("headwater-cluster", run(Args::parse()))
}

fn run(args: Args) -> Result<(), ClusterError> {
    // It may take minutes, and Ctrl-C ends it.
    Program::prepare()?;
    if args.build {
        return Ok(());
    }
    // Before the cluster's threads start, so that only the wait below receives a signal.
    let stops = StopSignals::block();
    let mut cluster = ControlPlane::start(ControlPlaneSettings {
        data: args.data,
        port: Some(args.port),
        ..ControlPlaneSettings::default()
    })?;
    let kubeconfig = cluster.kubeconfig().display();
    let program = cluster.program();
    println!("{kubeconfig}");
    eprintln!(
        "Kubernetes {} runs at {}. In another terminal:",
        program.version(),
        cluster.server()
    );
    eprintln!("  export KUBECONFIG={kubeconfig}");
    eprintln!("  export PATH={}:$PATH", program.links().display());
    eprintln!("  kubectl get namespaces");
    eprintln!("Ctrl-C stops it");
    stops.wait();
    cluster.stop()
}
