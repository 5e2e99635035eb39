//! `headwater get`: lists objects, now or in the past, and watches them.

use std::io::Write;

use headwater_object::{OBJECT_TYPES, ObjectType};
use headwater_proto::operator::operator_client::OperatorClient;
use headwater_proto::operator::{GetRequest, get_event};
use jiff::Timestamp;
use serde_json::{Value, json};
use tonic::transport::Channel;

use super::render;
use crate::cli::{Get, Output, Scope};
use crate::client;
use crate::exit::{CommandResult, Failure, Outcome};
use crate::table::{Growing, Table, columns};

pub(super) async fn run(args: Get) -> CommandResult {
    let (types, name) = asked(&args.types, args.name.as_deref())?;
    let mut operator = client::connect(&args.target.data).await?;
    if args.watch {
        let [only] = types.as_slice() else {
            return Err(Failure::Usage("--watch takes one TYPE".to_owned()));
        };
        let request = request(only, name, &args.scope);
        return watch(&mut operator, &args, request, only).await;
    }
    let mut found = Vec::new();
    for object_type in &types {
        let request = request(object_type, name, &args.scope);
        let answer = operator.get(request).await?.into_inner();
        if !answer.positions.is_empty() {
            // A status is no part of a node's stream, so a seq has none.
            let at_seq = args.scope.at.as_ref().is_some_and(|at| at.parse::<u64>().is_ok());
            let without = match object_type.name {
                "pod" | "node" if at_seq => "; statuses are not shown at a seq, only at a time",
                _ => "",
            };
            eprintln!("at {}{without}", answer.positions.join(", "));
        }
        found.push((*object_type, parse(&answer.objects)?));
    }
    if let Some(name) = name
        && found.iter().all(|(_, objects)| objects.is_empty())
    {
        return Err(not_found(types[0], name));
    }
    print(&args, name.is_some(), &found)
}

/// The types and the one name that a person means by `TYPE NAME` or `TYPE/NAME`.
pub(super) fn asked<'a>(
    types: &'a str,
    name: Option<&'a str>,
) -> Result<(Vec<&'static ObjectType>, Option<&'a str>), Failure> {
    let (types, name) = match (types.split_once('/'), name) {
        (None, name) => (types, name),
        (Some((types, name)), None) => (types, Some(name)),
        (Some(_), Some(name)) => {
            return Err(Failure::Usage(format!(
                "{types} names an object already; {name} is one too many"
            )));
        }
    };
    Ok((self::types(types)?, name))
}

/// The object types that a person means by `pods`, `po,cm` or `all`.
pub(super) fn types(text: &str) -> Result<Vec<&'static ObjectType>, Failure> {
    if text == "all" {
        return Ok(OBJECT_TYPES.iter().filter(|object_type| object_type.replicated).collect());
    }
    text.split(',').map(object_type).collect()
}

/// The object type that a person means by one word.
pub(super) fn object_type(word: &str) -> Result<&'static ObjectType, Failure> {
    ObjectType::named(word).filter(|object_type| object_type.replicated).ok_or_else(|| {
        let known: Vec<&str> = OBJECT_TYPES
            .iter()
            .filter(|object_type| object_type.replicated)
            .map(|object_type| object_type.plural)
            .collect();
        Failure::Usage(format!("there is no type {word:?}; there are {}", known.join(", ")))
    })
}

/// The question for one type.
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

/// What kubectl says of an object that is not there.
pub(super) fn not_found(object_type: &ObjectType, name: &str) -> Failure {
    Failure::message(format!("{} {name:?} not found", object_type.plural))
}

fn parse(objects: &[bytes::Bytes]) -> Result<Vec<Value>, serde_json::Error> {
    objects.iter().map(|object| serde_json::from_slice(object)).collect()
}

fn print(args: &Get, named: bool, found: &[(&'static ObjectType, Vec<Value>)]) -> CommandResult {
    let mut stdout = std::io::stdout().lock();
    match args.output {
        Output::Json => writeln!(stdout, "{:#}", document(named, found))?,
        Output::Yaml => write!(stdout, "{}", render::yaml(&document(named, found)))?,
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
    Ok(Outcome::Done)
}

/// One object by name as it stands, else a Kubernetes `List`.
fn document(named: bool, found: &[(&'static ObjectType, Vec<Value>)]) -> Value {
    let mut items: Vec<Value> = found.iter().flat_map(|(_, objects)| objects).cloned().collect();
    if named && items.len() == 1 {
        return items.remove(0);
    }
    json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": items})
}

fn new_table(args: &Get, object_type: &ObjectType) -> Table {
    let mut header = columns::header(object_type.name, args.output == Output::Wide);
    if args.scope.all_namespaces && object_type.namespaced {
        header.insert(0, "NAMESPACE");
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
    cells
}

fn nothing_found(args: &Get, found: &[(&'static ObjectType, Vec<Value>)]) -> String {
    let namespaced = found.iter().any(|(object_type, _)| object_type.namespaced);
    if namespaced && !args.scope.all_namespaces {
        format!("No resources found in {} namespace.", args.scope.namespace)
    } else {
        "No resources found.".to_owned()
    }
}

async fn watch(
    operator: &mut OperatorClient<Channel>,
    args: &Get,
    request: GetRequest,
    object_type: &'static ObjectType,
) -> CommandResult {
    let mut events = operator.watch(request).await?.into_inner();
    let mut stdout = std::io::stdout().lock();
    let mut growing = Growing::default();
    // What there is at first is laid out together, as a list; what comes later, row by row.
    let mut rows = new_table(args, object_type);
    let mut listed = false;
    while let Some(event) = events.message().await? {
        let tabular = matches!(args.output, Output::Table | Output::Wide);
        if event.kind() == get_event::Kind::InitDone {
            listed = true;
        } else {
            let object: Value = serde_json::from_slice(&event.object)?;
            match args.output {
                Output::Json => writeln!(stdout, "{object}")?,
                Output::Yaml => write!(stdout, "---\n{}", render::yaml(&object))?,
                Output::Name => writeln!(stdout, "{}/{}", object_type.name, name_of(&object))?,
                Output::Table | Output::Wide => {
                    rows.row(row(args, object_type, &object, false, Timestamp::now()));
                }
            }
        }
        if tabular && listed && !rows.is_empty() {
            let rows = std::mem::replace(&mut rows, new_table(args, object_type));
            write!(stdout, "{}", growing.grown_by(rows))?;
        }
        stdout.flush()?;
    }
    Ok(Outcome::Done)
}

fn name_of(object: &Value) -> &str {
    object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_named_as_kubectl_takes_them() {
        let names =
            |text| types(text).map(|types| types.iter().map(|t| t.name).collect::<Vec<_>>()).ok();
        assert_eq!(names("po,cm"), Some(vec!["pod", "configmap"]));
        assert_eq!(names("pods"), Some(vec!["pod"]));
        assert!(names("all").is_some_and(|all| all.contains(&"service")));
        let (types, name) = asked("pod/web", None).expect("a type and a name");
        assert_eq!((types[0].name, name), ("pod", Some("web")));
        assert!(matches!(asked("pod/web", Some("db")), Err(Failure::Usage(_))));
        assert!(
            matches!(super::types("deployments"), Err(Failure::Usage(text)) if text.contains("pods"))
        );
    }
}
