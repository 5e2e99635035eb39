//! `headwater diff`: the changes of a stream between two of its events.

use std::collections::BTreeMap;
use std::io::Write;

use headwater_operator::client;
use headwater_proto::operator::{StateRequest, StateResponse};
use serde::Serialize;
use serde_json::value::RawValue;
use similar::TextDiff;
use tonic::{Code, Status};

use crate::args::{Diff, DiffOutput};
use crate::exit::{CommandResult, Outcome};
use crate::render;

/// Unchanged lines shown around a change.
const CONTEXT_LINES: usize = 3;

/// One line of `diff -o json`: an object that differs. Stable: fields are added, never renamed.
#[derive(Serialize)]
struct Line<'a> {
    stream: &'a str,
    from: u64,
    to: u64,
    key: &'a str,
    /// `added`, `removed` or `changed`.
    change: &'static str,
    before: Option<&'a RawValue>,
    after: Option<&'a RawValue>,
}

pub(super) async fn run(args: Diff) -> CommandResult {
    let mut operator = client::connect(&args.target.data).await?;
    let mut state = async |at: &str| {
        let request = StateRequest {
            stream: args.stream.clone(),
            show_secrets: args.show_secrets,
            at: at.to_owned(),
            ..StateRequest::default()
        };
        operator.state(request).await.map(tonic::Response::into_inner)
    };
    let from = state(&args.from).await.map_err(|status| named("--from", status))?;
    // Without a position, the newest state.
    let to = state(args.to.as_deref().unwrap_or_default()).await;
    let to = to.map_err(|status| named("--to", status))?;
    let mut stdout = std::io::stdout().lock();
    let mut found = false;
    for (key, before, after) in changes(&texts(&from)?, &texts(&to)?) {
        found = true;
        if args.output == DiffOutput::Json {
            writeln!(stdout, "{}", json_line(&args.stream, (&from, &to), key)?)?;
            continue;
        }
        let (a, b) = (format!("{key} seq {}", from.seq), format!("{key} seq {}", to.seq));
        let diff = TextDiff::from_lines(before, after);
        let mut unified = diff.unified_diff();
        let absent = "/dev/null";
        unified.context_radius(CONTEXT_LINES).header(
            if before.is_empty() { absent } else { &a },
            if after.is_empty() { absent } else { &b },
        );
        write!(stdout, "{unified}")?;
    }
    Ok(if found { Outcome::Found } else { Outcome::Done })
}

/// Names the flag whose value is malformed.
fn named(flag: &str, status: Status) -> Status {
    match status.code() {
        Code::InvalidArgument => Status::invalid_argument(format!("{flag} {}", status.message())),
        _ => status,
    }
}

fn json_line(
    stream: &str,
    (from, to): (&StateResponse, &StateResponse),
    key: &str,
) -> Result<String, serde_json::Error> {
    let object = |state: &StateResponse| {
        state.entries.iter().find(|entry| entry.key == key).map(|entry| entry.object.clone())
    };
    let (before, after) = (object(from), object(to));
    let change = match (&before, &after) {
        (None, _) => "added",
        (_, None) => "removed",
        _ => "changed",
    };
    serde_json::to_string(&Line {
        stream,
        from: from.seq,
        to: to.seq,
        key,
        change,
        before: before.as_deref().map(serde_json::from_slice).transpose()?,
        after: after.as_deref().map(serde_json::from_slice).transpose()?,
    })
}

/// Each entry's object as YAML, by key.
fn texts(state: &StateResponse) -> Result<BTreeMap<&str, String>, serde_json::Error> {
    state
        .entries
        .iter()
        .map(|entry| {
            let object = serde_json::from_slice(&entry.object)?;
            Ok((entry.key.as_str(), render::yaml(&object)))
        })
        .collect()
}

/// Returns the keys whose texts differ, in key order; a missing object has the empty text.
fn changes<'a>(
    from: &'a BTreeMap<&'a str, String>,
    to: &'a BTreeMap<&'a str, String>,
) -> Vec<(&'a str, &'a str, &'a str)> {
    let mut keys: Vec<&str> = from.keys().chain(to.keys()).copied().collect();
    keys.sort_unstable();
    keys.dedup();
    let text = |texts: &'a BTreeMap<&str, String>, key| texts.get(key).map_or("", String::as_str);
    keys.into_iter()
        .map(|key| (key, text(from, key), text(to, key)))
        .filter(|(_, before, after)| before != after)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_is_named() {
        let from = BTreeMap::from([("a", "1".to_owned()), ("b", "2".to_owned())]);
        let to = BTreeMap::from([("b", "3".to_owned()), ("c", "4".to_owned())]);
        assert_eq!(changes(&from, &to), [("a", "1", ""), ("b", "2", "3"), ("c", "", "4")]);
        assert!(changes(&from, &from).is_empty());
    }

    #[test]
    fn a_line_shows_the_change_of_an_object() {
        let state = |seq, objects: &[(&str, &'static [u8])]| StateResponse {
            seq,
            entries: objects
                .iter()
                .map(|(key, object)| headwater_proto::operator::Entry {
                    key: (*key).to_owned(),
                    object: bytes::Bytes::from_static(object),
                })
                .collect(),
            ..StateResponse::default()
        };
        let states = (&state(1, &[("a", b"{\"x\":1}")]), &state(2, &[("b", b"{}")]));
        assert_eq!(
            json_line("cluster", states, "a").expect("serializable"),
            r#"{"stream":"cluster","from":1,"to":2,"key":"a","change":"removed","before":{"x":1},"after":null}"#
        );
        let added = json_line("cluster", states, "b").expect("serializable");
        assert!(added.contains("\"added\""), "{added}");
    }
}
