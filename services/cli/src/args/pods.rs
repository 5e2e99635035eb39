//! The arguments of the commands that reach into pods of this machine, or through a hub.

use std::net::IpAddr;
use std::str::FromStr;

use clap::Args;
use clap_complete::engine::ArgValueCompleter;

use super::Target;
use super::hub::HubArgs;
use crate::candidates;

/// The container that a command reaches.
#[derive(Debug, Args)]
pub struct ContainerArgs {
    /// The pod, which runs on this machine or on a node of --hub; pod/NAME too
    #[arg(add = ArgValueCompleter::new(candidates::pods))]
    pub pod: String,
    /// The container [default: the pod's first]
    #[arg(short, long, add = ArgValueCompleter::new(candidates::containers))]
    pub container: Option<String>,
    /// Namespace
    #[arg(short, long, default_value = "default")]
    pub namespace: String,
    /// Send the standard input to the container
    #[arg(short = 'i', long)]
    pub stdin: bool,
    /// The process has a terminal: keys reach it one by one
    #[arg(short = 't', long)]
    pub tty: bool,
    #[command(flatten)]
    pub hub: HubArgs,
    #[command(flatten)]
    pub target: Target,
}

#[derive(Debug, Args)]
pub struct Exec {
    #[command(flatten)]
    pub container: ContainerArgs,
    /// The command and its arguments, after `--`
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

#[derive(Debug, Args)]
pub struct Attach {
    #[command(flatten)]
    pub container: ContainerArgs,
}

#[derive(Debug, Args)]
pub struct PortForward {
    /// The pod, which runs on this machine or on a node of --hub; pod/NAME too
    #[arg(add = ArgValueCompleter::new(candidates::pods))]
    pub pod: String,
    /// Ports: LOCAL:REMOTE, :REMOTE for any free local one, or one number for both
    #[arg(required = true, value_name = "LOCAL:REMOTE")]
    pub ports: Vec<Ports>,
    /// The local address; one beyond loopback opens the pod to other machines
    #[arg(long, value_name = "IP", default_value = "127.0.0.1")]
    pub address: IpAddr,
    /// Namespace
    #[arg(short, long, default_value = "default")]
    pub namespace: String,
    #[command(flatten)]
    pub hub: HubArgs,
    #[command(flatten)]
    pub target: Target,
}

/// A local port, and the port of a pod that it leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    /// The local port; 0 is any free one.
    pub local: u16,
    /// The port of the pod.
    pub remote: u16,
}

impl FromStr for Ports {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (local, remote) = text.split_once(':').unwrap_or((text, text));
        let port = |text: &str| text.parse().map_err(|_| format!("{text:?} is no port"));
        let remote = port(remote)?;
        if remote == 0 {
            return Err("a pod has no port 0".to_owned());
        }
        Ok(Self { local: if local.is_empty() { 0 } else { port(local)? }, remote })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_two_numbers_or_one() {
        let ports = |text: &str| text.parse::<Ports>();
        assert_eq!(ports("8080:80"), Ok(Ports { local: 8080, remote: 80 }));
        assert_eq!(ports(":80"), Ok(Ports { local: 0, remote: 80 }));
        assert_eq!(ports("80"), Ok(Ports { local: 80, remote: 80 }));
        for wrong in ["", ":", "80:", "a:80", "80:0", "65536", "1:2:3"] {
            assert!(ports(wrong).is_err(), "{wrong}");
        }
    }
}
