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
use crate::table::{Table, columns};

pub(super) async fn run(args: Get) -> CommandResult {
    let types = types(&args.types)?;
    let mut operator = client::connect(&args.target.data).await?;
    if args.watch {
        let [only] = types.as_slice() else {
            return Err(Failure::Usage("--watch takes one TYPE".to_owned()));
        };
        return watch(&mut operator, &args, only).await;
    }
    let mut found = Vec::new();
    for object_type in &types {
        let request = request(object_type, args.name.as_deref(), &args.scope);
        let answer = operator.get(request).await?.into_inner();
        if !answer.positions.is_empty() {
            eprintln!("at {}", answer.positions.join(", "));
        }
        found.push((*object_type, parse(&answer.objects)?));
    }
    if let Some(name) = &args.name
        && found.iter().all(|(_, objects)| objects.is_empty())
    {
        return Err(not_found(types[0], name));
    }
    print(&args, &found)
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

fn print(args: &Get, found: &[(&'static ObjectType, Vec<Value>)]) -> CommandResult {
    let mut stdout = std::io::stdout().lock();
    match args.output {
        Output::Json => writeln!(stdout, "{:#}", document(args, found))?,
        Output::Yaml => write!(stdout, "{}", render::yaml(&document(args, found)))?,
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
                write!(stdout, "{}", table(args, object_type, objects, prefixed, now))?;
            }
            if first {
                eprintln!("{}", nothing_found(args, found));
            }
        }
    }
    Ok(Outcome::Done)
}

/// One object by name as it stands, else a Kubernetes `List`.
fn document(args: &Get, found: &[(&'static ObjectType, Vec<Value>)]) -> Value {
    let mut items: Vec<Value> = found.iter().flat_map(|(_, objects)| objects).cloned().collect();
    if args.name.is_some() && items.len() == 1 {
        return items.remove(0);
    }
    json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": items})
}

fn table(
    args: &Get,
    object_type: &ObjectType,
    objects: &[Value],
    prefixed: bool,
    now: Timestamp,
) -> Table {
    let wide = args.output == Output::Wide;
    let with_namespace = args.scope.all_namespaces && object_type.namespaced;
    let mut header = columns::header(object_type.name, wide);
    if with_namespace {
        header.insert(0, "NAMESPACE");
    }
    let mut table = Table::new(header).without_headers(args.no_headers);
    for object in objects {
        let mut cells = columns::cells(object_type.name, object, wide, now);
        if prefixed {
            cells[0] = format!("{}/{}", object_type.name, cells[0]);
        }
        if with_namespace {
            let namespace = object.pointer("/metadata/namespace").and_then(Value::as_str);
            cells.insert(0, namespace.unwrap_or("default").to_owned());
        }
        table.row(cells);
    }
    table
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
    object_type: &'static ObjectType,
) -> CommandResult {
    let request = request(object_type, args.name.as_deref(), &args.scope);
    let mut events = operator.watch(request).await?.into_inner();
    let mut stdout = std::io::stdout().lock();
    let mut rows = Rows::default();
    while let Some(event) = events.message().await? {
        if event.kind() == get_event::Kind::InitDone {
            continue;
        }
        let object: Value = serde_json::from_slice(&event.object)?;
        match args.output {
            Output::Json => writeln!(stdout, "{object}")?,
            Output::Yaml => write!(stdout, "---\n{}", render::yaml(&object))?,
            Output::Name => writeln!(stdout, "{}/{}", object_type.name, name_of(&object))?,
            Output::Table | Output::Wide => {
                let table = table(args, object_type, &[object], false, Timestamp::now());
                write!(stdout, "{}", rows.aligned(&table.to_string()))?;
            }
        }
        stdout.flush()?;
    }
    Ok(Outcome::Done)
}

/// Keeps the header of a growing table to its first line.
#[derive(Default)]
struct Rows {
    header_printed: bool,
}

impl Rows {
    fn aligned<'a>(&mut self, table: &'a str) -> &'a str {
        if std::mem::replace(&mut self.header_printed, true) {
            table.split_once('\n').map_or("", |(_, rows)| rows)
        } else {
            table
        }
    }
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
        assert!(matches!(types("deployments"), Err(Failure::Usage(text)) if text.contains("pods")));
    }
}
