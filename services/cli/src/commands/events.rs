//! `headwater events`: the Events that nodes reported, as `kubectl events` lists them.

use std::io::Write;

use headwater_object::ObjectType;
use headwater_operator::client;
use headwater_proto::operator::GetRequest;
use headwater_proto::operator::operator_client::OperatorClient;
use jiff::Timestamp;
use serde_json::{Value, json};
use tonic::transport::Channel;

use crate::args::{Events, Output};
use crate::exit::{CommandResult, Failure, Outcome};
use crate::render;
use crate::table::{Table, columns};

/// The type of an Event in requests.
const EVENT: &str = "event";

/// The object that Events are about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Subject {
    /// `Pod` or `Node`.
    pub(super) kind: String,
    pub(super) name: String,
}

pub(super) async fn run(args: Events) -> CommandResult {
    let about = args.about.as_deref().map(Subject::parse).transpose()?;
    let types = types(&args.types)?;
    let mut operator = client::connect(&args.target.data).await?;
    let namespace = if args.all_namespaces { "" } else { &args.namespace };
    let mut events = fetch(&mut operator, namespace, about.as_ref()).await?;
    events.retain(|event| {
        types.is_empty() || types.iter().any(|kind| event["type"].as_str() == Some(kind))
    });
    let mut stdout = std::io::stdout().lock();
    match args.output {
        Output::Json | Output::Yaml => {
            let list = json!({"apiVersion": "v1", "kind": "List", "items": events});
            let text = match args.output {
                Output::Json => format!("{list:#}\n"),
                _ => render::yaml(&list),
            };
            stdout.write_all(text.as_bytes())?;
        }
        Output::Table => {
            if events.is_empty() {
                eprintln!("No Events found.");
                return Ok(Outcome::Done);
            }
            let table = table(&events, args.all_namespaces, Timestamp::now());
            writeln!(stdout, "{}", table.without_headers(args.no_headers))?;
        }
        _ => {
            return Err(Failure::Usage("events are shown as table, json or yaml".to_owned()));
        }
    }
    Ok(Outcome::Done)
}

/// The Events of a namespace (empty: of all), oldest first by their last time.
pub(super) async fn fetch(
    operator: &mut OperatorClient<Channel>,
    namespace: &str,
    about: Option<&Subject>,
) -> Result<Vec<Value>, Failure> {
    let request = GetRequest {
        r#type: EVENT.to_owned(),
        namespace: namespace.to_owned(),
        ..GetRequest::default()
    };
    let mut parts = operator.get(request).await?.into_inner();
    let mut events = Vec::new();
    while let Some(part) = parts.message().await? {
        for event in &part.objects {
            let event: Value = serde_json::from_slice(event)?;
            if about.is_none_or(|about| about.is_of(&event)) {
                events.push(event);
            }
        }
    }
    events.sort_by_key(last);
    Ok(events)
}

/// When the Event happened last.
fn last(event: &Value) -> Option<Timestamp> {
    event["lastTimestamp"].as_str()?.parse().ok()
}

/// The table of Events, as kubectl prints it.
fn table(events: &[Value], with_namespace: bool, now: Timestamp) -> Table {
    let mut header = vec!["LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"];
    if with_namespace {
        header.insert(0, "NAMESPACE");
    }
    let mut table = Table::new(header);
    for event in events {
        let text = |pointer| columns::text_or(event, pointer, "");
        let kind = text("/involvedObject/kind").to_lowercase();
        let mut row = vec![
            seen(event, now),
            text("/type"),
            text("/reason"),
            format!("{kind}/{}", text("/involvedObject/name")),
            text("/message"),
        ];
        if with_namespace {
            row.insert(0, text("/metadata/namespace"));
        }
        table.row(row);
    }
    table
}

/// How long ago the Event happened last, and how often since when: `5s (x3 over 2m)`.
pub(super) fn seen(event: &Value, now: Timestamp) -> String {
    let age = |field: &str| {
        let at = event[field].as_str().and_then(|text| text.parse().ok());
        at.map_or_else(|| columns::UNKNOWN.to_owned(), |at| render::age(at, now))
    };
    match event["count"].as_u64() {
        Some(count) if count > 1 => {
            format!("{} (x{count} over {})", age("lastTimestamp"), age("firstTimestamp"))
        }
        _ => age("lastTimestamp"),
    }
}

/// The types of Events to show, with kubectl's names.
fn types(given: &[String]) -> Result<Vec<&'static str>, Failure> {
    let known = |kind: &String| match kind.to_lowercase().as_str() {
        "warning" => Ok("Warning"),
        "normal" => Ok("Normal"),
        _ => Err(Failure::Usage(format!("there is no type {kind:?} of Events: Warning, Normal"))),
    };
    given.iter().map(known).collect()
}

impl Subject {
    fn parse(text: &str) -> Result<Self, Failure> {
        let wrong = || Failure::Usage(format!("--for {text}: want pod/NAME or node/NAME"));
        let (kind, name) = text.split_once('/').ok_or_else(wrong)?;
        let kind = match ObjectType::named(kind).map(|object_type| object_type.name) {
            Some("pod") => "Pod",
            Some("node") => "Node",
            _ => return Err(wrong()),
        };
        if name.is_empty() || name.contains('/') {
            return Err(wrong());
        }
        Ok(Self { kind: kind.to_owned(), name: name.to_owned() })
    }

    fn is_of(&self, event: &Value) -> bool {
        let about = &event["involvedObject"];
        about["kind"] == *self.kind && about["name"] == *self.name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: &str, name: &str, count: u64) -> Value {
        json!({
            "metadata": {"name": "x", "namespace": "shop"},
            "involvedObject": {"kind": kind, "name": name},
            "reason": "BackOff", "type": "Warning", "message": "it fails", "count": count,
            "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:02:00Z",
        })
    }

    #[test]
    fn the_table_is_that_of_kubectl() {
        let now: Timestamp = "2026-01-01T00:02:05Z".parse().expect("a time");
        let events = [event("Pod", "web", 3), event("Node", "gw-1", 1)];
        let lines = |table: Table| -> Vec<String> {
            let text = table.to_string();
            let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
            text.lines().map(words).collect()
        };
        assert_eq!(
            lines(table(&events, false, now)),
            [
                "LAST SEEN TYPE REASON OBJECT MESSAGE",
                "5s (x3 over 2m5s) Warning BackOff pod/web it fails",
                "5s Warning BackOff node/gw-1 it fails",
            ]
        );
        let with_namespace = lines(table(&events, true, now).without_headers(true));
        assert_eq!(with_namespace[0], "shop 5s (x3 over 2m5s) Warning BackOff pod/web it fails");
    }

    #[test]
    fn the_object_and_the_types_are_named_as_for_kubectl() {
        let about = Subject::parse("po/web").expect("a pod");
        assert!(about.is_of(&event("Pod", "web", 1)) && !about.is_of(&event("Node", "web", 1)));
        for wrong in ["web", "pod/", "pod/a/b", "secret/s", "/web"] {
            assert!(Subject::parse(wrong).is_err(), "{wrong}");
        }
        assert_eq!(types(&["warning".to_owned()]).expect("known"), ["Warning"]);
        assert!(types(&["loud".to_owned()]).is_err());
    }
}
