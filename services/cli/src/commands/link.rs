//! `headwater link`: cuts or restores a node's link.

use std::io::Write;

use headwater_operator::client;
use headwater_proto::operator::SetLinkRequest;

use crate::args::{Link, LinkAction};
use crate::exit::{CommandResult, Outcome};

pub(super) async fn run(args: Link) -> CommandResult {
    let cut = args.action == LinkAction::Cut;
    let mut operator = client::connect(&args.target.data).await?;
    operator.set_link(SetLinkRequest { node: args.node.clone(), cut }).await?;
    let done = if cut { "cut" } else { "restored" };
    writeln!(std::io::stdout(), "node/{} link {done}", args.node)?;
    Ok(Outcome::Done)
}
