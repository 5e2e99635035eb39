//! The arguments of `headwater ca`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use headwater_event::NodeName;

/// The default folder of a CA.
const CA_DEFAULT: &str = "headwater-ca";

/// The validity of a CA: after that, every process that trusts it needs another one.
const CA_DAYS: &str = "3650";

/// The validity of a certificate: only an operator renews it, and a gateway may be away for months.
const ISSUED_DAYS: &str = "365";

#[derive(Debug, Args)]
pub struct Ca {
    #[command(subcommand)]
    pub command: CaCommand,
}

#[derive(Debug, Subcommand)]
pub enum CaCommand {
    /// Create a CA: ca.crt, which every process needs, and ca.key, which stays here
    Init(Init),
    /// Issue a certificate with a new key: to a node, a hub, a controller or an operator
    Issue(Issue),
}

#[derive(Debug, Args)]
pub struct Init {
    /// Folder of the CA; created if it is missing
    #[arg(value_name = "DIR", default_value = CA_DEFAULT)]
    pub dir: PathBuf,
    /// Name of the CA, for people who read a certificate
    #[arg(long, default_value = "Headwater CA")]
    pub name: String,
    /// Validity in days
    #[arg(long, value_name = "N", default_value = CA_DAYS, value_parser = days())]
    pub days: u64,
}

#[derive(Debug, Args)]
pub struct Issue {
    #[command(subcommand)]
    pub to: To,
}

#[derive(Debug, Subcommand)]
pub enum To {
    /// To a node: its edge presents it to hubs
    Node(Wish),
    /// To a hub: it presents it to edges
    Hub(ServerWish),
    /// To a controller: it presents it to hubs
    Controller(ServerWish),
    /// To an operator: a person or a program
    Operator(Wish),
}

/// The arguments for every certificate.
#[derive(Debug, Args)]
pub struct Wish {
    /// Name of the owner
    #[arg(value_name = "NAME", value_parser = name)]
    pub name: NodeName,
    /// Folder of the CA
    #[arg(long, value_name = "DIR", default_value = CA_DEFAULT)]
    pub ca: PathBuf,
    /// Folder for the files: ca.crt, tls.crt and tls.key [default: CA/ROLE-NAME]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Validity in days
    #[arg(long, value_name = "N", default_value = ISSUED_DAYS, value_parser = days())]
    pub days: u64,
    /// Replace an existing key and certificate; running processes reload them
    #[arg(long)]
    pub replace: bool,
}

/// The arguments for the certificate of a hub or of a controller.
#[derive(Debug, Args)]
pub struct ServerWish {
    #[command(flatten)]
    pub wish: Wish,
    /// A DNS name at which it is reached; once or more
    #[arg(long, value_name = "NAME", required_unless_present = "ip")]
    pub dns: Vec<String>,
    /// An IP address at which it is reached; once or more
    #[arg(long, value_name = "ADDR")]
    pub ip: Vec<std::net::IpAddr>,
}

impl ServerWish {
    /// The names and addresses at which it is reached.
    pub fn addresses(&self) -> Vec<String> {
        self.dns.iter().cloned().chain(self.ip.iter().map(ToString::to_string)).collect()
    }
}

fn name(text: &str) -> Result<NodeName, String> {
    text.parse().map_err(|error: headwater_event::NameError| error.to_string())
}

/// Certificates end within what their calendar has.
fn days() -> clap::builder::RangedU64ValueParser<u64> {
    clap::value_parser!(u64).range(1..=36_500)
}
