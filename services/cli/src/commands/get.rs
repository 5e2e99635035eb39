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

/// The objects of one type that were found. A list of any size is kept as the cells of its table,
/// unless the objects themselves are printed or sorted.
struct Listing {
    object_type: &'static ObjectType,
    objects: Vec<Value>,
    rows: Vec<Vec<String>>,
}

/// How the objects become rows.
struct RowFormat<'a> {
    args: &'a Get,
    /// Whether the type precedes each name.
    prefixed: bool,
    now: Timestamp,
}

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
    let mut found = Vec::new();
    let is_document = matches!(args.output, Output::Json | Output::Yaml);
    let format = RowFormat { args: &args, prefixed: selections.len() > 1, now: Timestamp::now() };
    for selection in &selections {
        let mut listing =
            Listing { object_type: selection.object_type, objects: Vec::new(), rows: Vec::new() };
        let mut add = |object: Value| match is_document || order.is_some() {
            _ if !selector.matches(&object) => {}
            true => listing.objects.push(object),
            false => listing.rows.push(format.row(listing.object_type, &object)),
        };
        fetch(&mut operator, selection, &args.scope, &mut missing, &mut add).await?;
        if let Some(path) = &order {
            listing.objects.sort_by(|a, b| compare(path.of(a), path.of(b)));
        }
        if !is_document {
            let rows =
                listing.objects.drain(..).map(|object| format.row(listing.object_type, &object));
            listing.rows.extend(rows);
        }
        found.push(listing);
    }
    // With several types, a name must exist for at least one of them.
    let is_there = found.iter().any(|listing| !listing.is_empty());
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

/// Requests objects of one type and passes each to `each`; adds missing names to `missing`.
pub(super) async fn fetch(
    operator: &mut OperatorClient<Channel>,
    selection: &ObjectSelection,
    scope: &Scope,
    missing: &mut Vec<String>,
    each: &mut (dyn FnMut(Value) + Send),
) -> Result<(), Failure> {
    let object_type = selection.object_type;
    let names: Vec<Option<&str>> = match selection.names.as_slice() {
        [] => vec![None],
        names => names.iter().map(|name| Some(name.as_str())).collect(),
    };
    let mut is_first = true;
    for name in names {
        let mut parts = operator.get(request(object_type, name, scope)).await?.into_inner();
        let mut is_missing = true;
        while let Some(part) = parts.message().await? {
            if is_first && !part.positions.is_empty() {
                eprintln!("{}", past(&part.positions, object_type, scope));
            }
            for object in &part.objects {
                each(serde_json::from_slice(object)?);
                (is_first, is_missing) = (false, false);
            }
        }
        if let Some(name) = name.filter(|_| is_missing) {
            missing.push(format!("{} {name:?} not found", object_type.plural));
        }
    }
    Ok(())
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

impl Listing {
    fn is_empty(&self) -> bool {
        self.objects.is_empty() && self.rows.is_empty()
    }
}

impl RowFormat<'_> {
    /// The cells of an object; with `-o name` its one line.
    fn row(&self, object_type: &ObjectType, object: &Value) -> Vec<String> {
        match self.args.output {
            Output::Name => vec![format!("{}/{}", object_type.name, name_of(object))],
            _ => row(self.args, object_type, object, self.prefixed, self.now),
        }
    }
}

fn print(args: &Get, one: bool, found: &[Listing]) -> Result<(), Failure> {
    let mut stdout = std::io::BufWriter::new(std::io::stdout().lock());
    match args.output {
        Output::Json => writeln!(stdout, "{:#}", document(one, found))?,
        Output::Yaml => write!(stdout, "{}", render::yaml(&document(one, found)))?,
        Output::Name => {
            for line in found.iter().flat_map(|listing| &listing.rows).flatten() {
                writeln!(stdout, "{line}")?;
            }
        }
        Output::Table | Output::Wide => {
            let mut first = true;
            for listing in found.iter().filter(|listing| !listing.is_empty()) {
                if !first {
                    writeln!(stdout)?;
                }
                first = false;
                let mut table = new_table(args, listing.object_type);
                listing.rows.iter().for_each(|row| table.row(row.clone()));
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
fn document(one: bool, found: &[Listing]) -> Value {
    let mut items: Vec<Value> =
        found.iter().flat_map(|listing| &listing.objects).cloned().collect();
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

fn nothing_found(args: &Get, found: &[Listing]) -> String {
    let namespaced = found.iter().any(|listing| listing.object_type.namespaced);
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
    fn one_named_object_is_printed_alone_and_several_are_a_list() {
        let config_map = ObjectType::named("cm").expect("a type");
        let listing = |objects| [Listing { object_type: config_map, objects, rows: Vec::new() }];
        let one = listing(vec![config("a")]);
        assert_eq!(document(true, &one)["metadata"]["name"], "a");
        assert_eq!(document(false, &one)["kind"], "List");
        assert_eq!(document(true, &listing(Vec::new()))["items"], json!([]));
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
