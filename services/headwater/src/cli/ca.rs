//! `headwater ca`, in words.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use headwater_event::NodeName;

/// Where a CA lies unless told otherwise.
const CA_DEFAULT: &str = "headwater-ca";

/// How long a CA is valid: those who trust it have to be given another one then.
const CA_DAYS: &str = "3650";

/// How long a certificate is valid: nothing renews it but a person, and a gateway may be away
/// for months.
const ISSUED_DAYS: &str = "365";

#[derive(Debug, Args)]
pub(crate) struct Ca {
    #[command(subcommand)]
    pub(crate) command: CaCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CaCommand {
    /// Make a CA: ca.crt, which everyone is given, and ca.key, which stays here
    Init(Init),
    /// Issue a certificate with a new key: to a node, a hub or an operator
    Issue(Issue),
}

#[derive(Debug, Args)]
pub(crate) struct Init {
    /// Folder of the CA; made if it is not there
    #[arg(value_name = "DIR", default_value = CA_DEFAULT)]
    pub(crate) dir: PathBuf,
    /// What the CA is called, for people who look at a certificate
    #[arg(long, default_value = "Headwater CA")]
    pub(crate) name: String,
    /// How many days it is valid
    #[arg(long, value_name = "N", default_value = CA_DAYS, value_parser = days())]
    pub(crate) days: u64,
}

#[derive(Debug, Args)]
pub(crate) struct Issue {
    #[command(subcommand)]
    pub(crate) to: To,
}

#[derive(Debug, Subcommand)]
pub(crate) enum To {
    /// To a node: what its edge shows to hubs
    Node(Wish),
    /// To a hub: what it shows to edges
    Hub(HubWish),
    /// To a person or a program that asks
    Operator(Wish),
}

/// What is wanted of a certificate.
#[derive(Debug, Args)]
pub(crate) struct Wish {
    /// Whom it names
    #[arg(value_name = "NAME", value_parser = name)]
    pub(crate) name: NodeName,
    /// Folder of the CA
    #[arg(long, value_name = "DIR", default_value = CA_DEFAULT)]
    pub(crate) ca: PathBuf,
    /// Folder that the files are written to: ca.crt, tls.crt and tls.key [default: CA/ROLE-NAME]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// How many days it is valid
    #[arg(long, value_name = "N", default_value = ISSUED_DAYS, value_parser = days())]
    pub(crate) days: u64,
    /// Put a new key and certificate in the place of those that are there; what runs with them
    /// takes them up by itself
    #[arg(long)]
    pub(crate) replace: bool,
}

/// What is wanted of the certificate of a hub.
#[derive(Debug, Args)]
pub(crate) struct HubWish {
    #[command(flatten)]
    pub(crate) wish: Wish,
    /// A DNS name by which edges call it; once or more
    #[arg(long, value_name = "NAME", required_unless_present = "ip")]
    pub(crate) dns: Vec<String>,
    /// An IP address by which edges call it; once or more
    #[arg(long, value_name = "ADDR")]
    pub(crate) ip: Vec<std::net::IpAddr>,
}

fn name(text: &str) -> Result<NodeName, String> {
    text.parse().map_err(|error: headwater_event::NameError| error.to_string())
}

/// Certificates end within what their calendar has.
fn days() -> clap::builder::RangedU64ValueParser<u64> {
    clap::value_parser!(u64).range(1..=36_500)
}
