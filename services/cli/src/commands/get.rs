//! `headwater get`: lists objects, now or in the past, and watches them.

mod watch;

use std::borrow::Cow;
use std::cmp::Ordering;
use std::io::{IsTerminal, Write};

use alphanumeric_sort::compare_str;
use headwater_object::ObjectType;
use headwater_object::nearest::did_you_mean;
use headwater_operator::client;
use headwater_owner::lower_priority;
use headwater_proto::operator::GetRequest;
use headwater_proto::operator::operator_client::OperatorClient;
use serde_json::{Value, json};
use tonic::transport::Channel;

use crate::args::{Get, Output, Scope};
use crate::exit::{CommandResult, Failure, Outcome};
use crate::moment::Moment;
use crate::object_selection::{ObjectSelection, parse_selections_or_workloads};
use crate::path::{Path, compare};
use crate::render;
use crate::selector::Selector;
use crate::table::{Table, columns};

/// The most positions that are printed for a past state; each node has one.
const POSITIONS_SHOWN_MAX: usize = 4;

/// The most parts of a list that are read to find the name that a missing one most likely means.
const NAME_PARTS_MAX: usize = 4;

/// From how many objects on a list is long. The service runs on this machine and its work is urgent, so
/// the command reads the rest of a long list at the lowest priority.
const LONG_LIST_OBJECTS: usize = 256;

/// The final STATUS of an object that a watch shows as removed.
const DELETED: &str = "Deleted";

/// The STATUS of a pod that its node stops.
const TERMINATING: &str = "Terminating";

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
}

pub(super) async fn run(args: Get) -> CommandResult {
    let selections = parse_selections_or_workloads(&args.objects)?;
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
    let is_table = matches!(args.output, Output::Table | Output::Wide | Output::Name);
    let format = RowFormat { args: &args, prefixed: selections.len() > 1 };
    for selection in &selections {
        let object_type = selection.object_type;
        let mut listing = Listing { object_type, objects: Vec::new(), rows: Vec::new() };
        let mut moment = Moment::now();
        let mut add = |object: Value, as_of: Moment| {
            moment = as_of;
            match !is_table || order.is_some() {
                _ if !selector.matches(&object) => {}
                true => listing.objects.push(object),
                false => listing.rows.push(format.row(object_type, &object, moment)),
            }
        };
        fetch(&mut operator, selection, &args.scope, &mut missing, &mut add).await?;
        // Objects that the command names stay in its order.
        if selection.names.is_empty() {
            listing.objects.sort_by(by_name);
            listing.rows.sort_by(|a, b| by_cells(a, b));
        }
        if let Some(path) = &order {
            sort_by_path(&mut listing.objects, path);
        }
        found.push((listing, moment));
    }
    if let Some(path) = &order {
        refuse_unknown_path(args.sort_by.as_deref().unwrap_or_default(), path, &found)?;
    }
    let found: Vec<Listing> = found
        .into_iter()
        .map(|(mut listing, moment)| {
            if is_table {
                let objects = std::mem::take(&mut listing.objects).into_iter();
                let rows = objects.map(|object| format.row(listing.object_type, &object, moment));
                listing.rows.extend(rows);
            }
            listing
        })
        .collect();
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
    each: &mut (dyn FnMut(Value, Moment) + Send),
) -> Result<(), Failure> {
    let object_type = selection.object_type;
    let names: Vec<Option<&str>> = match selection.names.as_slice() {
        [] => vec![None],
        names => names.iter().map(|name| Some(name.as_str())).collect(),
    };
    let mut is_first = true;
    for name in names {
        let mut parts = operator.get(request(object_type, name, scope)).await?.into_inner();
        let (mut is_missing, mut moment) = (true, None);
        let mut objects_read = 0;
        while let Some(part) = parts.message().await? {
            objects_read += part.objects.len();
            if objects_read > LONG_LIST_OBJECTS {
                lower_priority();
            }
            let moment = *moment.get_or_insert_with(|| Moment::of(&part));
            if is_first && !part.positions.is_empty() {
                eprintln!("{}", past(&part.positions, object_type, moment));
            }
            for object in &part.objects {
                each(serde_json::from_slice(object)?, moment);
                (is_first, is_missing) = (false, false);
            }
        }
        if let Some(name) = name.filter(|_| is_missing) {
            missing.push(not_found(operator, object_type, name, scope).await);
        }
    }
    Ok(())
}

/// The sentence about a missing object, in kubectl's words, with the name that it most likely means.
async fn not_found(
    operator: &mut OperatorClient<Channel>,
    object_type: &ObjectType,
    name: &str,
    scope: &Scope,
) -> String {
    // Without the names, the sentence is complete.
    let names = first_names(operator, object_type, scope).await.unwrap_or_default();
    let meant = did_you_mean(name, names.iter().map(String::as_str));
    format!("{} {name:?} not found{meant}", object_type.plural)
}

/// The names of the objects in the first parts of a list.
async fn first_names(
    operator: &mut OperatorClient<Channel>,
    object_type: &ObjectType,
    scope: &Scope,
) -> Result<Vec<String>, Failure> {
    let mut parts = operator.get(request(object_type, None, scope)).await?.into_inner();
    let mut names = Vec::new();
    for _ in 0..NAME_PARTS_MAX {
        let Some(part) = parts.message().await? else { break };
        for object in &part.objects {
            let object: Value = serde_json::from_slice(object)?;
            names.push(name_of(&object).to_owned());
        }
    }
    Ok(names)
}

/// Compares two objects by namespace and name, node-2 before node-10.
pub(super) fn by_name(a: &Value, b: &Value) -> Ordering {
    compare_str(namespace_of(a), namespace_of(b)).then_with(|| compare_str(name_of(a), name_of(b)))
}

/// Compares two rows by their first cells: the name, or namespace and name.
fn by_cells(a: &[String], b: &[String]) -> Ordering {
    let compared = a.iter().zip(b).take(2).map(|(a, b)| compare_str(a, b));
    compared.fold(Ordering::Equal, Ordering::then)
}

fn sort_by_path(objects: &mut Vec<Value>, path: &Path) {
    let with_values = std::mem::take(objects).into_iter();
    let mut with_values: Vec<(Option<Value>, Value)> =
        with_values.map(|object| (path.of(&object).cloned(), object)).collect();
    with_values.sort_by(|(a, _), (b, _)| compare(a.as_ref(), b.as_ref()));
    objects.extend(with_values.into_iter().map(|(_, object)| object));
}

/// Refuses an order by a path that no object has: most likely it is mistyped.
fn refuse_unknown_path(
    text: &str,
    path: &Path,
    found: &[(Listing, Moment)],
) -> Result<(), Failure> {
    let mut objects = found.iter().flat_map(|(listing, _)| &listing.objects).peekable();
    if objects.peek().is_some() && !objects.any(|object| path.of(object).is_some()) {
        return Err(Failure::message(format!(
            "--sort-by {text}: no listed object has this path; `-o json` shows the paths that they \
             have"
        )));
    }
    Ok(())
}

/// The line about the past state that is shown.
fn past(positions: &[String], object_type: &ObjectType, moment: Moment) -> String {
    let shown = positions.iter().take(POSITIONS_SHOWN_MAX).cloned().collect::<Vec<_>>().join(", ");
    let more = match positions.len().saturating_sub(POSITIONS_SHOWN_MAX) {
        0 => String::new(),
        more => format!(" and so on ({more} more streams)"),
    };
    let without = match object_type.name {
        "pod" | "node" if !moment.has_statuses => {
            "; statuses are not shown at a seq, only at a time"
        }
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
    fn row(&self, object_type: &ObjectType, object: &Value, moment: Moment) -> Vec<String> {
        match self.args.output {
            Output::Name => vec![format!("{}/{}", object_type.name, name_of(object))],
            _ => row(self.args, object_type, object, self.prefixed, moment),
        }
    }
}

fn print(args: &Get, one: bool, found: &[Listing]) -> Result<(), Failure> {
    let mut stdout = std::io::BufWriter::new(std::io::stdout().lock());
    match &args.output {
        Output::Json => writeln!(stdout, "{:#}", document(one, found))?,
        Output::Yaml => write!(stdout, "{}", render::yaml(&document(one, found)))?,
        Output::JsonPath(template) => {
            let text = template.text(&document(one, found));
            write!(stdout, "{}", printable(&text))?;
        }
        Output::CustomColumns(columns) => {
            let mut table = Table::new(columns.header()).without_headers(args.no_headers);
            let objects = found.iter().flat_map(|listing| &listing.objects);
            objects.for_each(|object| table.row(columns.cells(object)));
            match table.is_empty() {
                true => eprintln!("{}", nothing_found(args, found)),
                false => write!(stdout, "{table}")?,
            }
        }
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

/// Text of a template: unchanged for a program, without what a terminal would obey for a person.
fn printable(text: &str) -> Cow<'_, str> {
    if std::io::stdout().is_terminal() { render::plain_lines(text) } else { Cow::Borrowed(text) }
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
    moment: Moment,
) -> Vec<String> {
    let wide = args.output == Output::Wide;
    let mut cells = columns::cells(object_type.name, object, wide, moment);
    if prefixed {
        cells[0] = format!("{}/{}", object_type.name, cells[0]);
    }
    if args.scope.all_namespaces && object_type.namespaced {
        cells.insert(0, namespace_of(object).to_owned());
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

fn namespace_of(object: &Value) -> &str {
    object.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or("default")
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use jiff::Timestamp;

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
        let moment = Moment::present(Timestamp::UNIX_EPOCH);
        table.row(row(&args, config_map, &config("a"), true, moment));
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
        let moment = Moment { time: Timestamp::UNIX_EPOCH, has_statuses: false };
        let text = past(&positions, pod, moment);
        assert!(text.contains("(2 more streams)") && text.contains("statuses are not"), "{text}");
        let known = past(&positions, pod, Moment::present(Timestamp::UNIX_EPOCH));
        assert!(!known.contains("statuses"), "{known}");
    }

    #[test]
    fn names_with_numbers_are_in_the_order_of_the_numbers() {
        let row = |cells: &[&str]| cells.iter().map(|cell| (*cell).to_owned()).collect::<Vec<_>>();
        let mut rows = [row(&["a", "n-10"]), row(&["b", "n-1"]), row(&["a", "n-2"])];
        rows.sort_by(|a, b| by_cells(a, b));
        assert_eq!(rows, [row(&["a", "n-2"]), row(&["a", "n-10"]), row(&["b", "n-1"])]);
        let mut objects = [config("n-10"), config("n-2")];
        objects.sort_by(by_name);
        assert_eq!(name_of(&objects[0]), "n-2");
    }

    #[test]
    fn an_order_by_a_path_that_no_object_has_is_refused() {
        let path = |text: &str| Path::parse(text).expect("a path");
        let object_type = ObjectType::named("cm").expect("a type");
        let found = |objects| {
            let listing = Listing { object_type, objects, rows: Vec::new() };
            [(listing, Moment::present(Timestamp::UNIX_EPOCH))]
        };
        let some = found(vec![config("a"), config("b")]);
        assert!(refuse_unknown_path(".data", &path(".data"), &some).is_ok());
        assert!(refuse_unknown_path(".x", &path(".x"), &found(Vec::new())).is_ok());
        let refused = refuse_unknown_path(".spec.none", &path(".spec.none"), &some);
        let Err(Failure::Failed(error)) = refused else { panic!("{refused:?}") };
        assert!(error.to_string().starts_with("--sort-by .spec.none: no listed object"), "{error}");
    }
}
