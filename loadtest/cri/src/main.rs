//! A containerd to develop against: runs until it is stopped.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use headwater_cri_lab::{BUSYBOX_IMAGE, Containerd, ContainerdSettings, LabError};
use headwater_daemon::{StopSignals, exit_code};

/// A containerd, for development: its containers, mounts and network are its own, and end with it.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// Where its data lies; kept when it stops. Without it, in a folder that goes with it
    #[arg(long)]
    data: Option<PathBuf>,
    /// Also run a registry at this port of the containers' network, without a password
    #[arg(long, value_parser = clap::value_parser!(u16).range(1024..))]
    registry: Option<u16>,
}

fn main() -> ExitCode {
    exit_code("headwater-cri-lab", run(Args::parse()))
}

fn run(args: Args) -> Result<(), LabError> {
    // Before any thread starts, so that only the wait below receives a signal.
    let stops = StopSignals::block();
    let containerd = Containerd::start(ContainerdSettings { data: args.data, version: None })?;
    let registry = args.registry.map(|port| containerd.registry(port, None)).transpose()?;
    let (endpoint, socket) = (containerd.endpoint(), containerd.socket().display());
    let inside = containerd.machine().pid();
    println!("{endpoint}");
    eprintln!("containerd runs, with the image {BUSYBOX_IMAGE}. In another terminal:");
    eprintln!("  headwater up --runtime cri --cri-endpoint {endpoint}");
    eprintln!("  ctr --address {socket} --namespace k8s.io containers list");
    eprintln!("To reach the addresses of pods, run a program in their network:");
    eprintln!("  nsenter --target {inside} --mount --net PROGRAM");
    if let Some(registry) = &registry {
        eprintln!("A registry runs in that network at {}", registry.address());
    }
    eprintln!("Ctrl-C stops containerd and its containers");
    stops.wait();
    Ok(())
}
