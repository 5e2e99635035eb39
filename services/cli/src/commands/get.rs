//! `headwater get`: lists objects, now or in the past, and watches them.

mod watch;

use std::io::Write;

use headwater_object::ObjectType;
use headwater_operator::client;
use headwater_proto::operator::GetRequest;
use headwater_proto::operator::operator_client::OperatorClient;
use jiff::Timestamp;
use serde_json::{Value, json};
use tonic::transport::Channel;

use crate::args::{Get, Output, Scope};
use crate::exit::{CommandResult, Failure, Outcome};
use crate::object_selection::{ObjectSelection, parse_selections};
use crate::path::{Path, compare};
use crate::render;
use crate::selector::Selector;
use crate::table::{Table, columns};

/// The most positions that are printed for a past state; each node has one.
const POSITIONS_SHOWN_MAX: usize = 4;

/// The objects that were found, by type.
type ObjectsByType = Vec<(&'static ObjectType, Vec<Value>)>;

pub(super) async fn run(args: Get) -> CommandResult {
    let selections = parse_selections(&args.objects)?;
    let selector = Selector::parse(args.scope.selector.as_deref(), args.field_selector.as_deref())?;
    let named = selections.iter().any(|selection| !selection.names.is_empty());
    if named && !selector.is_empty() {
        return Err(Failure::Usage(
            "names and a selector exclude each other: use one of them".to_owned(),
        ));
    }
    let order = args.sort_by.as_deref().map(Path::parse).transpose()?;
    if args.watch {
        return watch::run(args, &selections, &selector).await;
    }
    let mut operator = client::connect(&args.target.data).await?;
    let mut missing = Vec::new();
    let mut found: ObjectsByType = Vec::new();
    for selection in &selections {
        let mut objects = fetch(&mut operator, selection, &args.scope, &mut missing).await?;
        objects.retain(|object| selector.matches(object));
        if let Some(path) = &order {
            objects.sort_by(|a, b| compare(path.of(a), path.of(b)));
        }
        found.push((selection.object_type, objects));
    }
    // With several types, a name must exist for at least one of them.
    let is_there = found.iter().any(|(_, objects)| !objects.is_empty());
    let shared = !args.objects[0].contains('/') && found.len() > 1;
    if shared && is_there {
        missing.clear();
    }
    let one = matches!(selections.as_slice(), [only] if only.names.len() == 1);
    if is_there || missing.is_empty() {
        print(&args, one, &found)?;
    }
    if missing.is_empty() { Ok(Outcome::Done) } else { Err(Failure::NotFound(missing)) }
}

/// Requests objects of one type; adds missing names to `missing`.
pub(super) async fn fetch(
    operator: &mut OperatorClient<Channel>,
    selection: &ObjectSelection,
    scope: &Scope,
    missing: &mut Vec<String>,
) -> Result<Vec<Value>, Failure> {
    let object_type = selection.object_type;
    let names: Vec<Option<&str>> = match selection.names.as_slice() {
        [] => vec![None],
        names => names.iter().map(|name| Some(name.as_str())).collect(),
    };
    let mut found = Vec::new();
    for name in names {
        let answer = operator.get(request(object_type, name, scope)).await?.into_inner();
        if found.is_empty() && !answer.positions.is_empty() {
            eprintln!("{}", past(&answer.positions, object_type, scope));
        }
        match name {
            Some(name) if answer.objects.is_empty() => {
                missing.push(format!("{} {name:?} not found", object_type.plural));
            }
            _ => found.extend(parse(&answer.objects)?),
        }
    }
    Ok(found)
}

/// The line about the past state that is shown.
fn past(positions: &[String], object_type: &ObjectType, scope: &Scope) -> String {
    let shown = positions.iter().take(POSITIONS_SHOWN_MAX).cloned().collect::<Vec<_>>().join(", ");
    let more = match positions.len().saturating_sub(POSITIONS_SHOWN_MAX) {
        0 => String::new(),
        more => format!(" and so on ({more} more streams)"),
    };
    // A node's stream has no statuses, so a state at a seq has none.
    let at_seq = scope.at.as_ref().is_some_and(|at| at.parse::<u64>().is_ok());
    let without = match object_type.name {
        "pod" | "node" if at_seq => "; statuses are not shown at a seq, only at a time",
        _ => "",
    };
    format!("at {shown}{more}{without}")
}

/// Returns the request for one type.
pub(super) fn request(object_type: &ObjectType, name: Option<&str>, scope: &Scope) -> GetRequest {
    let namespace = if scope.all_namespaces || !object_type.namespaced {
        String::new()
    } else {
        scope.namespace.clone()
    };
    GetRequest {
        r#type: object_type.name.to_owned(),
        name: name.unwrap_or_default().to_owned(),
        namespace,
        node: scope.node.clone().unwrap_or_default(),
        at: scope.at.clone().unwrap_or_default(),
        show_secrets: scope.show_secrets,
    }
}

fn parse(objects: &[bytes::Bytes]) -> Result<Vec<Value>, serde_json::Error> {
    objects.iter().map(|object| serde_json::from_slice(object)).collect()
}

fn print(args: &Get, one: bool, found: &ObjectsByType) -> Result<(), Failure> {
    let mut stdout = std::io::BufWriter::new(std::io::stdout().lock());
    match args.output {
        Output::Json => writeln!(stdout, "{:#}", document(one, found))?,
        Output::Yaml => write!(stdout, "{}", render::yaml(&document(one, found)))?,
        Output::Name => {
            for (object_type, objects) in found {
                for object in objects {
                    writeln!(stdout, "{}/{}", object_type.name, name_of(object))?;
                }
            }
        }
        Output::Table | Output::Wide => {
            let now = Timestamp::now();
            let mut first = true;
            for (object_type, objects) in found.iter().filter(|(_, objects)| !objects.is_empty()) {
                if !first {
                    writeln!(stdout)?;
                }
                first = false;
                let prefixed = found.len() > 1;
                let mut table = new_table(args, object_type);
                for object in objects {
                    table.row(row(args, object_type, object, prefixed, now));
                }
                write!(stdout, "{table}")?;
            }
            if first {
                eprintln!("{}", nothing_found(args, found));
            }
        }
    }
    stdout.flush()?;
    Ok(())
}

/// Returns the object itself if the command names one, else a Kubernetes `List`.
fn document(one: bool, found: &ObjectsByType) -> Value {
    let mut items: Vec<Value> = found.iter().flat_map(|(_, objects)| objects).cloned().collect();
    if one && items.len() == 1 {
        return items.remove(0);
    }
    json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": items})
}

fn new_table(args: &Get, object_type: &ObjectType) -> Table {
    let mut header = columns::header(object_type.name, args.output == Output::Wide);
    if args.scope.all_namespaces && object_type.namespaced {
        header.insert(0, "NAMESPACE");
    }
    if args.show_labels {
        header.push("LABELS");
    }
    Table::new(header).without_headers(args.no_headers)
}

fn row(
    args: &Get,
    object_type: &ObjectType,
    object: &Value,
    prefixed: bool,
    now: Timestamp,
) -> Vec<String> {
    let wide = args.output == Output::Wide;
    let mut cells = columns::cells(object_type.name, object, wide, now);
    if prefixed {
        cells[0] = format!("{}/{}", object_type.name, cells[0]);
    }
    if args.scope.all_namespaces && object_type.namespaced {
        let namespace = object.pointer("/metadata/namespace").and_then(Value::as_str);
        cells.insert(0, namespace.unwrap_or("default").to_owned());
    }
    if args.show_labels {
        cells.push(columns::pairs(object, "/metadata/labels"));
    }
    cells
}

fn nothing_found(args: &Get, found: &ObjectsByType) -> String {
    let namespaced = found.iter().any(|(object_type, _)| object_type.namespaced);
    if namespaced && !args.scope.all_namespaces {
        format!("No resources found in {} namespace.", args.scope.namespace)
    } else {
        "No resources found.".to_owned()
    }
}

fn name_of(object: &Value) -> &str {
    object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};

    fn args(words: &[&str]) -> Get {
        let all = ["headwater", "get"].iter().chain(words);
        match Cli::try_parse_from(all).expect("usage").command {
            Command::Get(args) => args,
            other => unreachable!("`get` was expected, not {other:?}"),
        }
    }

    fn config(name: &str) -> Value {
        json!({"metadata": {"name": name, "namespace": "shop", "labels": {"app": "a"}}, "data": {}})
    }

    #[test]
    fn one_named_object_stands_alone_and_several_are_a_list() {
        let config_map = ObjectType::named("cm").expect("a type");
        let one = vec![(config_map, vec![config("a")])];
        assert_eq!(document(true, &one)["metadata"]["name"], "a");
        assert_eq!(document(false, &one)["kind"], "List");
        let none: ObjectsByType = vec![(config_map, Vec::new())];
        assert_eq!(document(true, &none)["items"], json!([]));
    }

    #[test]
    fn columns_are_added_by_flags() {
        let config_map = ObjectType::named("cm").expect("a type");
        let args = args(&["cm", "-A", "--show-labels"]);
        let mut table = new_table(&args, config_map);
        table.row(row(&args, config_map, &config("a"), true, Timestamp::UNIX_EPOCH));
        assert_eq!(
            table.to_string(),
            "NAMESPACE   NAME          DATA   AGE         LABELS\n\
             shop        configmap/a   0      <unknown>   app=a\n"
        );
    }

    #[test]
    fn a_past_of_many_streams_is_shortened() {
        let positions: Vec<String> = (1..=6).map(|n| format!("node/n{n} seq 2")).collect();
        let pod = ObjectType::named("po").expect("a type");
        let text = past(&positions, pod, &args(&["po", "--at", "3"]).scope);
        assert!(text.contains("(2 more streams)") && text.contains("statuses are not"), "{text}");
    }
}
