//! The candidates of a completion. The types are known; the running process returns the names, if it
//! answers in time.

use std::ffi::{OsStr, OsString};
use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use alphanumeric_sort::compare_str;
use clap_complete::engine::CompletionCandidate;
use headwater_object::ObjectType;
use headwater_operator::client;
use headwater_proto::operator::{GetRequest, HistoryRequest, StatusRequest};
use headwater_settings::DATA_DEFAULT;
use serde_json::Value;

use crate::args::OUTPUTS;
use crate::object_selection::shown;
use crate::render;

/// The time limit of a completion after Tab.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// The newest events of a stream whose seqs are candidates.
const SEQS_MAX: u64 = 20;

/// Flags, of the commands that query the running process, whose value is the next word.
const FLAGS_WITH_VALUE: [&str; 17] = [
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
    "--container",
    "--from",
    "--to",
    "--tail",
    "--since",
];

/// The word that the shell completes; empty: a new one.
pub(crate) fn completed_word() -> String {
    let Line(words) = Line::typed();
    // Only fish gives the word as the last one.
    let index = std::env::var("_CLAP_COMPLETE_INDEX").ok().and_then(|index| index.parse().ok());
    let index: usize = index.unwrap_or(words.len().saturating_sub(1));
    words.get(index).cloned().unwrap_or_default()
}

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
            let types = shown().map(|of| of.plural.to_owned());
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

/// Output forms of `get`.
pub(crate) fn outputs(current: &OsStr) -> Vec<CompletionCandidate> {
    matching(&current.to_string_lossy(), OUTPUTS.map(str::to_owned))
}

/// Names of the containers of the pod that the line names.
pub(crate) fn containers(current: &OsStr) -> Vec<CompletionCandidate> {
    let line = Line::typed();
    let pod = line.positions().first().map(|word| word.rsplit('/').next().unwrap_or(word));
    let Some(pod) = pod.map(str::to_owned) else { return Vec::new() };
    let pods = fetched(objects_of(&line, "pod", &pod));
    let of_pod = |pod: &Value| {
        let containers = pod.pointer("/spec/containers").and_then(Value::as_array).cloned();
        containers
            .unwrap_or_default()
            .into_iter()
            .filter_map(|container| container["name"].as_str().map(str::to_owned))
    };
    matching(&current.to_string_lossy(), pods.iter().flat_map(of_pod))
}

/// The newest seqs of the stream that the line names, each with its event.
pub(crate) fn seqs(current: &OsStr) -> Vec<CompletionCandidate> {
    let line = Line::typed();
    match line.positions().first() {
        Some(stream) => newest_seqs(&line, stream, &current.to_string_lossy()),
        None => Vec::new(),
    }
}

/// Positions in the past: seqs of the stream, or of that of the node, that the line names.
pub(crate) fn positions(current: &OsStr) -> Vec<CompletionCandidate> {
    let line = Line::typed();
    let is_stream = |word: &&str| *word == "cluster" || word.starts_with("node/");
    let of_node = line.value(&["--node"]).map(|node| format!("node/{node}"));
    let named = || line.positions().first().copied().filter(is_stream).map(str::to_owned);
    let stream = of_node.or_else(named);
    stream.map_or_else(Vec::new, |of| newest_seqs(&line, &of, &current.to_string_lossy()))
}

fn newest_seqs(line: &Line, stream: &str, current: &str) -> Vec<CompletionCandidate> {
    let request =
        HistoryRequest { stream: stream.to_owned(), tail: SEQS_MAX, ..HistoryRequest::default() };
    let events = fetched(async {
        let mut operator = client::connect(&line.data()).await.ok()?;
        let mut parts = operator.history(request).await.ok()?.into_inner();
        let mut events = Vec::new();
        while let Some(event) = parts.message().await.ok()? {
            events.push(event);
        }
        Some(events)
    });
    let candidates = events.into_iter().rev().filter_map(|event| {
        let seq = event.seq.to_string();
        let help = format!("{} {} {}", render::time(event.time_ms), event.kind, event.key);
        let help = render::plain(&help).into_owned();
        seq.starts_with(current).then(|| CompletionCandidate::new(seq).help(Some(help.into())))
    });
    candidates.collect()
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

/// The names of objects of a type, node-2 before node-10; empty if the process does not respond.
fn names(line: &Line, kind: &str) -> Vec<String> {
    let name = |object: &Value| Some(object.pointer("/metadata/name")?.as_str()?.to_owned());
    let objects = fetched(objects_of(line, kind, ""));
    let mut names: Vec<String> = objects.iter().filter_map(name).collect();
    names.sort_by(|a, b| compare_str(a, b));
    names
}

/// The objects of a type, with this name if given.
async fn objects_of(line: &Line, kind: &str, name: &str) -> Option<Vec<Value>> {
    let is_namespaced = ObjectType::named(kind).is_some_and(|of| of.namespaced);
    let request = GetRequest {
        r#type: kind.to_owned(),
        name: name.to_owned(),
        namespace: if is_namespaced { line.namespace() } else { String::new() },
        node: line.value(&["--node"]).unwrap_or_default().to_owned(),
        ..GetRequest::default()
    };
    let mut operator = client::connect(&line.data()).await.ok()?;
    let mut parts = operator.get(request).await.ok()?.into_inner();
    let mut objects = Vec::new();
    while let Some(part) = parts.message().await.ok()? {
        objects
            .extend(part.objects.iter().filter_map(|object| serde_json::from_slice(object).ok()));
    }
    Some(objects)
}

fn node_names(line: &Line) -> Vec<String> {
    let nodes = fetched(async {
        let mut operator = client::connect(&line.data()).await.ok()?;
        Some(operator.status(StatusRequest {}).await.ok()?.into_inner().nodes)
    });
    let mut names: Vec<String> = nodes.into_iter().map(|node| node.name).collect();
    names.sort_by(|a, b| compare_str(a, b));
    names
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
        assert_eq!(self::line(&["headwater", "logs", "--tail", "3", "web"]).positions(), ["web"]);
        assert_eq!((line.namespace(), line.data()), ("shop".to_owned(), PathBuf::from("d")));
    }
}
