//! `headwater describe`: objects in full, each with its events and reports.

mod field_writer;
mod history;
mod node;
mod pod;

use std::io::Write;

use headwater_object::ObjectType;
use headwater_operator::client;
use headwater_proto::operator::operator_client::OperatorClient;
use headwater_proto::operator::{
    GetRequest, NodeStatus, StatusRequest, StoryRequest, StoryResponse,
};
use jiff::Timestamp;
use serde_json::Value;
use tonic::transport::Channel;

use self::field_writer::FieldWriter;
use super::events::{self, Subject};
use super::get;
use crate::args::Describe;
use crate::exit::{CommandResult, Failure, Outcome};
use crate::moment::Moment;
use crate::object_selection::parse_selections;
use crate::render;
use crate::selector::Selector;
use crate::table::{Table, columns};

/// The most events, and the most reports, that are shown: the newest.
const EVENTS_SHOWN_MAX: u32 = 10;

pub(super) async fn run(args: Describe) -> CommandResult {
    let selections = parse_selections(&args.objects)?;
    let selector = Selector::parse(args.scope.selector.as_deref(), None)?;
    let mut operator = client::connect(&args.target.data).await?;
    let mut stdout = std::io::stdout().lock();
    let (mut missing, mut first) = (Vec::new(), true);
    for selection in &selections {
        let mut objects = Vec::new();
        let mut add = |object, moment| {
            if selector.matches(&object) {
                objects.push((object, moment));
            }
        };
        get::fetch(&mut operator, selection, &args.scope, &mut missing, &mut add).await?;
        if selection.names.is_empty() {
            objects.sort_by(|(a, _), (b, _)| get::by_name(a, b));
        }
        for (object, moment) in objects {
            if !std::mem::take(&mut first) {
                write!(stdout, "\n\n")?;
            }
            let description =
                Description::ask(&mut operator, &args, selection.object_type, object).await?;
            stdout.write_all(description.text(moment).as_bytes())?;
        }
    }
    if !missing.is_empty() {
        return Err(Failure::NotFound(missing));
    }
    if first {
        eprintln!("No resources found.");
    }
    Ok(Outcome::Done)
}

/// An object with everything that the command prints about it.
struct Description {
    object_type: &'static ObjectType,
    object: Value,
    /// Empty for a past object.
    history: StoryResponse,
    /// The node of the object: itself, or the node of a pod.
    node: Option<NodeStatus>,
    /// Whether it is the object as of a past moment. The nodes of then are not known.
    is_past: bool,
    /// The pods of a node.
    pods: Vec<Value>,
    /// The Events about a pod or a node, as the cloud's picture has them.
    events: Vec<Value>,
}

impl Description {
    async fn ask(
        operator: &mut OperatorClient<Channel>,
        args: &Describe,
        object_type: &'static ObjectType,
        object: Value,
    ) -> Result<Self, Failure> {
        let text = |pointer| columns::text_or(&object, pointer, "");
        let name = text("/metadata/name");
        let namespace =
            if object_type.namespaced { text("/metadata/namespace") } else { String::new() };
        let story = if args.scope.at.is_some() {
            StoryResponse::default()
        } else {
            let request = StoryRequest {
                r#type: object_type.name.to_owned(),
                namespace,
                name: name.clone(),
                events_max: EVENTS_SHOWN_MAX,
                node: args.scope.node.clone().unwrap_or_default(),
            };
            operator.story(request).await?.into_inner()
        };
        let node_name = match object_type.name {
            "node" => name,
            "pod" => text("/spec/nodeName"),
            _ => String::new(),
        };
        let mut node = None;
        if !node_name.is_empty() && args.scope.at.is_none() {
            let nodes = operator.status(StatusRequest {}).await?.into_inner().nodes;
            node = nodes.into_iter().find(|node| node.name == node_name);
        }
        let mut pods = Vec::new();
        if object_type.name == "node" && args.scope.at.is_none() {
            let request = GetRequest { r#type: "pod".to_owned(), ..GetRequest::default() };
            let mut parts = operator.get(request).await?.into_inner();
            while let Some(part) = parts.message().await? {
                for pod in &part.objects {
                    let pod: Value = serde_json::from_slice(pod)?;
                    if pod.pointer("/spec/nodeName").and_then(Value::as_str) == Some(&node_name) {
                        pods.push(pod);
                    }
                }
            }
            pods.sort_by(get::by_name);
        }
        let is_past = args.scope.at.is_some();
        let events = match object_type.name {
            "pod" | "node" if !is_past && args.scope.node.is_none() => {
                let (kind, namespace) = match object_type.name {
                    "pod" => ("Pod", text("/metadata/namespace")),
                    _ => ("Node", "default".to_owned()),
                };
                let about = Subject { kind: kind.to_owned(), name: text("/metadata/name") };
                // An edge has no Events of the cloud.
                let found = events::fetch(operator, &namespace, Some(&about)).await;
                found.unwrap_or_default()
            }
            _ => Vec::new(),
        };
        Ok(Self { object_type, object, history: story, node, is_past, pods, events })
    }

    fn text(&self, moment: Moment) -> String {
        let mut writer = FieldWriter::default();
        head(&mut writer, self.object_type, &self.object, moment.time);
        match self.object_type.name {
            "pod" => pod::write(&mut writer, self, moment),
            "node" => node::write(&mut writer, self, moment),
            _ => other(&mut writer, self),
        }
        self.write_events(&mut writer, moment.time);
        history::write(&mut writer, self, moment.time);
        writer.text()
    }

    /// Writes the Events about the object, as kubectl does. Those of an earlier pod of the name are not
    /// among them.
    fn write_events(&self, writer: &mut FieldWriter, now: Timestamp) {
        let uid = self.object.pointer("/metadata/uid").and_then(Value::as_str);
        let is_of = |event: &&Value| {
            let about = event.pointer("/involvedObject/uid").and_then(Value::as_str);
            about.is_none() || about == uid
        };
        let mut table = Table::new(["TYPE", "REASON", "AGE", "FROM", "MESSAGE"]);
        for event in self.events.iter().filter(is_of) {
            let text = |pointer| columns::text_or(event, pointer, "");
            table.row([
                text("/type"),
                text("/reason"),
                events::seen(event, now),
                text("/source/component"),
                text("/message"),
            ]);
        }
        if !table.is_empty() {
            writer.table("Events", &table);
        }
    }
}

/// Writes the fields that every object has.
fn head(writer: &mut FieldWriter, object_type: &ObjectType, object: &Value, now: Timestamp) {
    writer.field("Name", columns::text_or(object, "/metadata/name", ""));
    if object_type.namespaced {
        writer.field("Namespace", columns::text_or(object, "/metadata/namespace", "default"));
    }
    for (title, pointer) in
        [("Labels", "/metadata/labels"), ("Annotations", "/metadata/annotations")]
    {
        writer.lines(title, columns::pairs(object, pointer).split(',').map(str::to_owned));
    }
    writer.field("UID", columns::text_or(object, "/metadata/uid", "<none>"));
    writer.field("Age", render::object_age(object, now));
    if let Some(owner) = columns::list(object, "/metadata/ownerReferences").first() {
        let of = |field: &str| owner[field].as_str().unwrap_or_default().to_owned();
        writer.field("Controlled By", format!("{}/{}", of("kind"), of("name")));
    }
}

/// Writes an object of another type: its YAML, and the pods that use it.
fn other(writer: &mut FieldWriter, description: &Description) {
    let mut rest = description.object.clone();
    if let Some(fields) = rest.as_object_mut() {
        for printed in ["metadata", "kind", "apiVersion"] {
            fields.remove(printed);
        }
    }
    writer.block(&render::yaml(&rest));
    let users = &description.history.used_by;
    if !users.is_empty() {
        writer.lines("Used By", users.iter().map(|pod| format!("pod/{pod}")));
    }
}

#[cfg(test)]
mod tests;
