//! `headwater node`: releases a node that a hub holds.

use std::io::Write;

use headwater_operator::client;
use headwater_proto::operator::ReleaseNodeRequest;

use crate::args::{Node, NodeAction};
use crate::exit::{CommandResult, Outcome};

pub(super) async fn run(args: Node) -> CommandResult {
    let mut operator = client::connect(&args.target.data).await?;
    match args.action {
        NodeAction::Release => {
            operator.release_node(ReleaseNodeRequest { node: args.node.clone() }).await?;
            writeln!(std::io::stdout(), "node/{} released", args.node)?;
        }
    }
    Ok(Outcome::Done)
}
