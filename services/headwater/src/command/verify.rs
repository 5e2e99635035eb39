//! `headwater verify`: compares state hashes.

use std::io::Write;

use headwater_proto::operator::VerifyRequest;

use crate::cli::Verify;
use crate::client;
use crate::exit::{CommandResult, Failure, Outcome};
use crate::table::Table;

/// How much of a hash is shown: enough to tell two apart by eye.
const HASH_DIGITS: usize = 12;

pub(super) async fn run(args: Verify) -> CommandResult {
    let mut operator = client::connect(&args.target.data).await?;
    let request = VerifyRequest { node: args.node.clone().unwrap_or_default() };
    let verdicts = operator.verify(request).await?.into_inner().verdicts;
    if verdicts.is_empty() {
        return Err(match args.node {
            Some(node) => Failure::message(format!("there is no node {node}")),
            None => Failure::message("there is no node yet"),
        });
    }
    let mut table = Table::new(["NODE", "STREAM", "SEQ", "KEPT", "RECOMPUTED", "LOG", "RESULT"]);
    for verdict in &verdicts {
        let short = |hash: &str| hash.get(..HASH_DIGITS).unwrap_or(hash).to_owned();
        table.row([
            verdict.node.clone(),
            verdict.stream.clone(),
            verdict.seq.to_string(),
            short(&verdict.kept),
            short(&verdict.recomputed),
            short(&verdict.folded),
            if verdict.agrees { "ok".to_owned() } else { verdict.finding.clone() },
        ]);
    }
    write!(std::io::stdout(), "{table}")?;
    Ok(if verdicts.iter().all(|verdict| verdict.agrees) { Outcome::Done } else { Outcome::Found })
}
