//! `headwater diff`: what changed in a stream between two of its events.

use std::collections::BTreeMap;
use std::io::Write;

use headwater_proto::operator::{StateRequest, StateResponse};
use similar::TextDiff;

use super::render;
use crate::cli::Diff;
use crate::client;
use crate::exit::{CommandResult, Outcome};

/// Unchanged lines shown around a change.
const CONTEXT_LINES: usize = 3;

pub(super) async fn run(args: Diff) -> CommandResult {
    let mut operator = client::connect(&args.target.data).await?;
    let mut state = async |seq| {
        let request =
            StateRequest { stream: args.stream.clone(), seq, show_secrets: args.show_secrets };
        operator.state(request).await.map(tonic::Response::into_inner)
    };
    // Before its first event a stream is empty; for the server, 0 is the newest.
    let from = state(args.from).await?;
    let from = if args.from == 0 { StateResponse::default() } else { from };
    let to = state(args.to.unwrap_or_default()).await?;
    let to = if args.to == Some(0) { StateResponse::default() } else { to };
    let mut stdout = std::io::stdout().lock();
    let mut found = false;
    for (key, before, after) in changes(&texts(&from)?, &texts(&to)?) {
        found = true;
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

/// The keys whose text differs, in key order; an absent one has the empty text.
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
}
