//! `headwater status`: a summary of the fleet, and the positions of every node.

mod document;
mod lag;
mod screen;
mod summary;

use std::io::{IsTerminal, Write};
use std::time::Duration;

use alphanumeric_sort::compare_str;
use headwater_proto::operator::{NodeStatus, StatusRequest, StatusResponse};
use jiff::Timestamp;

use self::lag::lag_events;
use self::screen::{Room, screen};

pub(super) use self::screen::{since, table};
use crate::args::{Sort, Status, StatusOutput};
use crate::exit::{CommandResult, Failure, Outcome};
use headwater_object::nearest::did_you_mean;
use headwater_operator::client;

/// Clears the terminal and goes to its first line: before the first print.
const CLEAR: &str = "\u{1b}[2J\u{1b}[H";

/// Goes to the first line: each further print overwrites the one before, so nothing flickers.
const HOME: &str = "\u{1b}[H";

/// Clears the rest of the last print, to the end of a line and to the end of the terminal.
const CLEAR_LINE: &str = "\u{1b}[K";
const CLEAR_REST: &str = "\u{1b}[J";

/// The interval of `--watch`.
const WATCH_INTERVAL: Duration = Duration::from_secs(2);

pub(super) async fn run(args: Status) -> CommandResult {
    let mut operator = client::connect(&args.target.data).await?;
    let mut stdout = std::io::stdout().lock();
    let is_terminal = stdout.is_terminal();
    let mut first = true;
    loop {
        let mut status = operator.status(StatusRequest {}).await?.into_inner();
        choose(&mut status, &args.node)?;
        sort(&mut status.nodes, args.sort);
        let now = Timestamp::now();
        let room = is_terminal.then(|| Room::of_terminal(args.watch)).flatten();
        let text = match args.output {
            StatusOutput::Json if args.watch => {
                format!("{}\n", serde_json::to_string(&document::document(status))?)
            }
            StatusOutput::Json => {
                format!("{}\n", serde_json::to_string_pretty(&document::document(status))?)
            }
            StatusOutput::Name => {
                status.nodes.iter().map(|node| format!("node/{}\n", node.name)).collect()
            }
            StatusOutput::Table | StatusOutput::Wide => screen(&status, &args, room, now),
        };
        let is_drawn = matches!(args.output, StatusOutput::Table | StatusOutput::Wide);
        let text = match (args.watch && is_drawn, is_terminal) {
            (true, true) => redrawn(&text, first),
            // On a pipe an empty line separates two prints.
            (true, false) if !first => format!("\n{text}"),
            _ => text,
        };
        // One write, so that the screen does not flicker.
        stdout.write_all(text.as_bytes())?;
        stdout.flush()?;
        if !args.watch {
            return Ok(Outcome::Done);
        }
        first = false;
        tokio::time::sleep(WATCH_INTERVAL).await;
    }
}

/// Keeps only the requested nodes, if there are any.
fn choose(status: &mut StatusResponse, names: &[String]) -> Result<(), Failure> {
    if names.is_empty() {
        return Ok(());
    }
    let is_there = |name: &&String| status.nodes.iter().any(|node| node.name == **name);
    if let Some(name) = names.iter().find(|name| !is_there(name)) {
        let known = status.nodes.iter().map(|node| node.name.as_str());
        let meant = did_you_mean(name, known);
        return Err(Failure::NotFound(vec![format!("nodes {name:?} not found{meant}")]));
    }
    status.nodes.retain(|node| names.contains(&node.name));
    Ok(())
}

/// Sorts the nodes, which arrive with the worst first.
fn sort(nodes: &mut [NodeStatus], by: Sort) {
    use std::cmp::Reverse;
    match by {
        Sort::Worst => {}
        // node-2 before node-10.
        Sort::Name => nodes.sort_by(|a, b| compare_str(&a.name, &b.name)),
        Sort::Lag => nodes.sort_by_key(|node| Reverse(lag_events(node))),
        Sort::Outbox => nodes.sort_by_key(|node| Reverse(node.outbox_depth)),
        Sort::Contact => nodes.sort_by_key(|node| node.last_contact_ms),
        Sort::Free => {
            nodes.sort_by_key(|node| node.disk.as_ref().map_or(0, |disk| disk.free_bytes));
        }
    }
}

/// Returns the text that replaces the last print on the terminal.
fn redrawn(text: &str, first: bool) -> String {
    let lines: String = text.lines().map(|line| format!("{line}{CLEAR_LINE}\r\n")).collect();
    format!("{}{lines}{CLEAR_REST}", if first { CLEAR } else { HOME })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, outbox_depth: u64) -> NodeStatus {
        NodeStatus { name: name.to_owned(), outbox_depth, ..NodeStatus::default() }
    }

    #[test]
    fn nodes_are_chosen_by_name_and_sorted_by_flag() {
        let mut status = StatusResponse {
            nodes: vec![node("node-10", 1), node("node-2", 0), node("node-3", 9)],
            ..StatusResponse::default()
        };
        sort(&mut status.nodes, Sort::Name);
        let names = |status: &StatusResponse| {
            status.nodes.iter().map(|node| node.name.clone()).collect::<Vec<_>>()
        };
        assert_eq!(names(&status), ["node-2", "node-3", "node-10"]);
        sort(&mut status.nodes, Sort::Outbox);
        assert_eq!(names(&status), ["node-3", "node-10", "node-2"]);
        choose(&mut status, &["node-2".to_owned()]).expect("the node exists");
        assert_eq!(names(&status), ["node-2"]);
        assert!(choose(&mut status, &["node-9".to_owned()]).is_err());
    }

    #[test]
    fn a_redraw_clears_only_what_it_does_not_overwrite() {
        assert_eq!(redrawn("a\nb\n", false), "\u{1b}[Ha\u{1b}[K\r\nb\u{1b}[K\r\n\u{1b}[J");
        assert!(redrawn("a\n", true).starts_with("\u{1b}[2J"));
    }
}
