//! The candidates of a completion. The types are known; the running process returns the names, if it
//! answers in time.

use std::ffi::{OsStr, OsString};
use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use clap_complete::engine::CompletionCandidate;
use headwater_object::ObjectType;
use headwater_operator::client;
use headwater_proto::operator::{GetRequest, StatusRequest};
use headwater_settings::DATA_DEFAULT;
use serde_json::Value;

use crate::object_selection::replicated;

/// The time limit of a completion after Tab.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// Flags, of the commands that query the running process, whose value is the next word.
const FLAGS_WITH_VALUE: [&str; 12] = [
    "-n",
    "--namespace",
    "--node",
    "--at",
    "-o",
    "--output",
    "-l",
    "--selector",
    "--field-selector",
    "--sort-by",
    "--data",
    "-c",
];

/// Completes a type; after a type, or `TYPE/`, the name of an object of it.
pub(crate) fn objects(current: &OsStr) -> Vec<CompletionCandidate> {
    let line = Line::typed();
    let current = current.to_string_lossy();
    if let Some((word, _)) = current.split_once('/') {
        let names = ObjectType::named(word).map(|of| names(&line, of.name)).unwrap_or_default();
        return matching(&current, names.iter().map(|name| format!("{word}/{name}")));
    }
    let positions = line.positions();
    match positions.first() {
        // The first position may be the word that is completed.
        Some(first) if positions.len() > 1 || *first != current => {
            let of = ObjectType::named(first);
            matching(&current, of.map(|of| names(&line, of.name)).unwrap_or_default())
        }
        _ => {
            let types = replicated().map(|of| of.plural.to_owned());
            matching(&current, types.chain(["all".to_owned()]))
        }
    }
}

/// Names of pods.
pub(crate) fn pods(current: &OsStr) -> Vec<CompletionCandidate> {
    matching(&current.to_string_lossy(), names(&Line::typed(), "pod"))
}

/// Names of nodes.
pub(crate) fn nodes(current: &OsStr) -> Vec<CompletionCandidate> {
    matching(&current.to_string_lossy(), node_names(&Line::typed()))
}

/// Names of streams.
pub(crate) fn streams(current: &OsStr) -> Vec<CompletionCandidate> {
    let nodes = node_names(&Line::typed()).into_iter().map(|node| format!("node/{node}"));
    matching(&current.to_string_lossy(), nodes.chain(["cluster".to_owned()]))
}

fn matching(
    current: &str,
    candidates: impl IntoIterator<Item = String>,
) -> Vec<CompletionCandidate> {
    let matches = candidates.into_iter().filter(|candidate| candidate.starts_with(current));
    matches.map(CompletionCandidate::new).collect()
}

/// What was typed so far.
struct Line(Vec<String>);

impl Line {
    /// The shell gives the words behind `--`.
    fn typed() -> Self {
        let words = std::env::args_os().skip_while(|word| *word != *"--").skip(1);
        Self(words.map(|word: OsString| word.to_string_lossy().into_owned()).collect())
    }

    /// The words that are neither a flag nor a flag's value, behind the command.
    fn positions(&self) -> Vec<&str> {
        let mut positions = Vec::new();
        let mut words = self.0.iter().skip(2).map(String::as_str);
        while let Some(word) = words.next() {
            if FLAGS_WITH_VALUE.contains(&word) {
                words.next();
            } else if !word.starts_with('-') {
                positions.push(word);
            }
        }
        positions
    }

    /// The value of a flag, if the line has it.
    fn value(&self, flags: &[&str]) -> Option<&str> {
        let mut words = self.0.iter().map(String::as_str);
        while let Some(word) = words.next() {
            if flags.contains(&word) {
                return words.next();
            }
            let joined = word.split_once('=').filter(|(flag, _)| flags.contains(flag));
            if let Some((_, value)) = joined {
                return Some(value);
            }
        }
        None
    }

    fn data(&self) -> PathBuf {
        let named = self.value(&["--data"]).map(PathBuf::from);
        let set = || std::env::var_os("HEADWATER_DATA").map(PathBuf::from);
        named.or_else(set).unwrap_or_else(|| DATA_DEFAULT.into())
    }

    fn namespace(&self) -> String {
        if self.0.iter().any(|word| word == "-A" || word == "--all-namespaces") {
            return String::new();
        }
        self.value(&["-n", "--namespace"]).unwrap_or("default").to_owned()
    }
}

/// The names of objects of a type; empty if the process does not respond.
fn names(line: &Line, kind: &str) -> Vec<String> {
    let is_namespaced = ObjectType::named(kind).is_some_and(|of| of.namespaced);
    let request = GetRequest {
        r#type: kind.to_owned(),
        namespace: if is_namespaced { line.namespace() } else { String::new() },
        node: line.value(&["--node"]).unwrap_or_default().to_owned(),
        ..GetRequest::default()
    };
    let objects = fetched(async {
        let mut operator = client::connect(&line.data()).await.ok()?;
        let mut parts = operator.get(request).await.ok()?.into_inner();
        let mut objects = Vec::new();
        while let Some(part) = parts.message().await.ok()? {
            objects.extend(part.objects);
        }
        Some(objects)
    });
    let name = |object: bytes::Bytes| {
        let object: Value = serde_json::from_slice(&object).ok()?;
        Some(object.pointer("/metadata/name")?.as_str()?.to_owned())
    };
    objects.into_iter().filter_map(name).collect()
}

fn node_names(line: &Line) -> Vec<String> {
    let nodes = fetched(async {
        let mut operator = client::connect(&line.data()).await.ok()?;
        Some(operator.status(StatusRequest {}).await.ok()?.into_inner().nodes)
    });
    nodes.into_iter().map(|node| node.name).collect()
}

/// The response; empty after an error or a timeout, because a shell waits.
fn fetched<T>(request: impl Future<Output = Option<Vec<T>>>) -> Vec<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let Ok(runtime) = runtime else { return Vec::new() };
    let answered = runtime.block_on(async { tokio::time::timeout(ANSWER_MAX, request).await });
    answered.ok().flatten().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(words: &[&str]) -> Line {
        Line(words.iter().map(|word| (*word).to_owned()).collect())
    }

    #[test]
    fn a_line_separates_positions_from_flags() {
        let line = line(&["headwater", "get", "-n", "shop", "po", "--data=d", "-w", "web"]);
        assert_eq!(line.positions(), ["po", "web"]);
        assert_eq!((line.namespace(), line.data()), ("shop".to_owned(), PathBuf::from("d")));
    }
}
