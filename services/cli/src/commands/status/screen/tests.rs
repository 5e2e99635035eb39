//! Screens, compared as text.

use clap::Parser;

use super::*;
use crate::args::{Cli, Command};

fn args(flags: &[&str]) -> Status {
    let all = ["headwater", "status"].iter().chain(flags);
    match Cli::try_parse_from(all).expect("usage").command {
        Command::Status(args) => args,
        other => unreachable!("`status` was expected, not {other:?}"),
    }
}

fn stream(name: &str, tail: u64, lag_events: u64) -> StreamStatus {
    let applied = tail - lag_events;
    StreamStatus {
        stream: name.to_owned(),
        tail: Some(tail),
        sent: Some(applied),
        applied,
        durable: applied,
        acked: Some(applied),
        lag_events: Some(lag_events),
        lag_seconds: Some(1.25),
        ..StreamStatus::default()
    }
}

fn node(name: &str, state: &str, lag_events: u64) -> NodeStatus {
    NodeStatus {
        name: name.to_owned(),
        state: state.to_owned(),
        connected: state != "away",
        streams: vec![stream(&format!("node/{name}"), 9, lag_events), stream("cluster", 1, 0)],
        ..NodeStatus::default()
    }
}

fn fleet(lagging: usize, all: usize) -> StatusResponse {
    let state = |n| if n < lagging { ("lagging", 2) } else { (IN_STEP, 0) };
    let nodes = (0..all).map(|n| node(&format!("n{n}"), state(n).0, state(n).1));
    StatusResponse { nodes: nodes.collect(), ..StatusResponse::default() }
}

fn rows(text: &str) -> usize {
    text.lines().filter(|line| line.starts_with('n') && line.contains("node/")).count()
}

#[test]
fn a_node_takes_one_line_unless_it_lacks_something_of_another_stream() {
    let mut nodes = vec![node("a", IN_STEP, 0), node("b", "lagging", 3)];
    nodes[1].streams[1] = stream("cluster", 4, 1);
    let text = table(&nodes, false, Timestamp::UNIX_EPOCH).to_string();
    assert_eq!(
        text,
        "NODE   STATE     STREAM    TAIL   SENT   APPLIED   DURABLE   ACKED   LAG        OUTBOX   METASYNC   DISK\n\
         a      in step   node/a    9      9      9         9         9       0          0        never      -\n\
         b      lagging   node/b    9      6      6         6         6       3 (1.2s)   0        never      -\n\
         \u{20}                cluster   4      3      3         3         3       1 (1.2s)\n"
    );
    let wide = table(&nodes, true, Timestamp::UNIX_EPOCH).to_string();
    assert_eq!(wide.matches("cluster").count(), 2, "{wide}");
}

#[test]
fn what_is_in_step_gives_way_on_a_terminal() {
    let room = Some(Room { lines: 24, columns: None, strict: false });
    let text = screen(&fleet(2, 200), &args(&[]), room, Timestamp::UNIX_EPOCH);
    let shown = rows(&text);
    assert!(text.lines().count() < 24 && shown > 10, "{text}");
    assert!(text.ends_with(&format!("... and {} more nodes in step\n", 200 - shown)), "{text}");
    let all = screen(&fleet(2, 200), &args(&[]), None, Timestamp::UNIX_EPOCH);
    assert_eq!(rows(&all), 200, "a pipe has no limit");
    let sorted = screen(&fleet(2, 200), &args(&["--sort", "name"]), room, Timestamp::UNIX_EPOCH);
    assert_eq!(rows(&sorted), 200);
}

#[test]
fn what_needs_a_look_is_shown_but_for_a_watch() {
    let room = Room { lines: 24, columns: None, strict: false };
    let text = screen(&fleet(50, 200), &args(&[]), Some(room), Timestamp::UNIX_EPOCH);
    assert_eq!(rows(&text), 50, "{text}");
    let strict = Some(Room { strict: true, columns: Some(40), ..room });
    let text = screen(&fleet(50, 200), &args(&["-w"]), strict, Timestamp::UNIX_EPOCH);
    assert!(text.lines().count() < 24, "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 40), "{text}");
    assert!(text.contains("more nodes: "), "{text}");
}

#[test]
fn a_disconnected_node_shows_for_how_long() {
    let mut away = node("a", "away", 0);
    away.last_contact_ms = 1_000;
    let now = Timestamp::UNIX_EPOCH + jiff::SignedDuration::from_secs(61);
    let text = table(&[away], false, now).to_string();
    assert!(text.contains("away 60s"), "{text}");
}
