//! `headwater verify`: compares state hashes.

use std::io::Write;

use alphanumeric_sort::compare_str;
use headwater_operator::client;
use headwater_proto::operator::{Verdict, VerifyRequest};
use serde::Serialize;

use crate::args::{HistoryOutput, Verify};
use crate::exit::{CommandResult, Failure, Outcome};
use crate::table::Table;

/// The digits of a hash that are shown: enough to distinguish two by eye.
const HASH_DIGITS: usize = 12;

/// One line of `verify -o json`. Stable: fields are added, never renamed.
#[derive(Serialize)]
struct Line<'a> {
    /// Null: the fold of a hub or a controller.
    node: Option<&'a str>,
    stream: &'a str,
    seq: u64,
    kept: &'a str,
    recomputed: &'a str,
    /// Null at an edge, which has no log.
    log: Option<&'a str>,
    agrees: bool,
    finding: Option<&'a str>,
}

pub(super) async fn run(args: Verify) -> CommandResult {
    let mut operator = client::connect(&args.target.data).await?;
    let request = VerifyRequest { node: args.node.clone().unwrap_or_default() };
    let mut verdicts = operator.verify(request).await?.into_inner().verdicts;
    // node-2 before node-10; the streams of a node stay in order.
    verdicts.sort_by(|a, b| compare_str(&a.node, &b.node));
    if verdicts.is_empty() {
        return Err(match args.node {
            Some(node) => Failure::not_found("nodes", &node),
            None => Failure::message("there are no nodes yet"),
        });
    }
    let mut stdout = std::io::stdout().lock();
    match args.output {
        HistoryOutput::Json => {
            for verdict in &verdicts {
                writeln!(stdout, "{}", serde_json::to_string(&line(verdict))?)?;
            }
        }
        HistoryOutput::Table => write!(stdout, "{}", table(&verdicts))?,
    }
    Ok(if verdicts.iter().all(|verdict| verdict.agrees) { Outcome::Done } else { Outcome::Found })
}

fn table(verdicts: &[Verdict]) -> Table {
    let mut table = Table::new(["NODE", "STREAM", "SEQ", "KEPT", "RECOMPUTED", "LOG", "RESULT"]);
    for verdict in verdicts {
        let short = |hash: &str| hash.get(..HASH_DIGITS).unwrap_or(hash).to_owned();
        table.row([
            some(&verdict.node).unwrap_or("-").to_owned(),
            verdict.stream.clone(),
            verdict.seq.to_string(),
            short(&verdict.kept),
            short(&verdict.recomputed),
            some(&verdict.folded).map_or_else(|| "-".to_owned(), short),
            if verdict.agrees { "ok".to_owned() } else { verdict.finding.clone() },
        ]);
    }
    table
}

fn some(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}

fn line(verdict: &Verdict) -> Line<'_> {
    Line {
        node: some(&verdict.node),
        stream: &verdict.stream,
        seq: verdict.seq,
        kept: &verdict.kept,
        recomputed: &verdict.recomputed,
        log: some(&verdict.folded),
        agrees: verdict.agrees,
        finding: some(&verdict.finding),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_names_the_difference() {
        let verdict = Verdict {
            node: "a".to_owned(),
            stream: "node/a".to_owned(),
            seq: 3,
            kept: "0123456789abcdef".to_owned(),
            finding: "differs".to_owned(),
            ..Verdict::default()
        };
        assert_eq!(
            table(std::slice::from_ref(&verdict)).to_string(),
            "NODE   STREAM   SEQ   KEPT           RECOMPUTED   LOG   RESULT\n\
             a      node/a   3     0123456789ab                -     differs\n"
        );
        let line = serde_json::to_string(&line(&verdict)).expect("serializable");
        assert!(line.contains(r#""agrees":false,"finding":"differs""#), "{line}");
    }
}
