//! `headwater describe`: one object or several in full, and how each came to be as it is.

mod node;
mod pod;
mod sheet;
mod story;

use std::io::Write;

use headwater_object::ObjectType;
use headwater_proto::operator::operator_client::OperatorClient;
use headwater_proto::operator::{
    GetRequest, NodeStatus, StatusRequest, StoryRequest, StoryResponse,
};
use jiff::Timestamp;
use serde_json::Value;
use tonic::transport::Channel;

use self::sheet::Sheet;
use super::asked::asked;
use super::selector::Selector;
use super::{get, render};
use crate::cli::Describe;
use crate::client;
use crate::exit::{CommandResult, Failure, Outcome};
use crate::table::columns;

/// How many of an object's events, and of its reports, are shown, the newest.
const EVENTS_SHOWN_MAX: u32 = 10;

pub(super) async fn run(args: Describe) -> CommandResult {
    let asked = asked(&args.objects)?;
    let selector = Selector::parse(args.selector.as_deref(), None)?;
    let mut operator = client::connect(&args.target.data).await?;
    let mut stdout = std::io::stdout().lock();
    let (mut missing, mut first) = (Vec::new(), true);
    for asked in &asked {
        let mut objects = get::fetch(&mut operator, asked, &args.scope, &mut missing).await?;
        objects.retain(|object| selector.matches(object));
        for object in objects {
            if !std::mem::take(&mut first) {
                write!(stdout, "\n\n")?;
            }
            let told = Told::ask(&mut operator, &args, asked.object_type, object).await?;
            stdout.write_all(told.text(Timestamp::now()).as_bytes())?;
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

/// All that is told of one object.
struct Told {
    object_type: &'static ObjectType,
    object: Value,
    /// Empty for the past: it was another story then.
    story: StoryResponse,
    /// The object's node: itself, or where a pod is.
    node: Option<NodeStatus>,
    /// The pods of a node.
    pods: Vec<Value>,
}

impl Told {
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
            for pod in operator.get(request).await?.into_inner().objects {
                let pod: Value = serde_json::from_slice(&pod)?;
                if pod.pointer("/spec/nodeName").and_then(Value::as_str) == Some(&node_name) {
                    pods.push(pod);
                }
            }
        }
        Ok(Self { object_type, object, story, node, pods })
    }

    fn text(&self, now: Timestamp) -> String {
        let mut sheet = Sheet::default();
        head(&mut sheet, self.object_type, &self.object, now);
        match self.object_type.name {
            "pod" => pod::write(&mut sheet, self, now),
            "node" => node::write(&mut sheet, self, now),
            _ => other(&mut sheet, self),
        }
        story::write(&mut sheet, self, now);
        sheet.text()
    }
}

/// What every object has.
fn head(sheet: &mut Sheet, object_type: &ObjectType, object: &Value, now: Timestamp) {
    sheet.field("Name", columns::text_or(object, "/metadata/name", ""));
    if object_type.namespaced {
        sheet.field("Namespace", columns::text_or(object, "/metadata/namespace", "default"));
    }
    for (title, pointer) in
        [("Labels", "/metadata/labels"), ("Annotations", "/metadata/annotations")]
    {
        sheet.lines(title, columns::pairs(object, pointer).split(',').map(str::to_owned));
    }
    sheet.field("UID", columns::text_or(object, "/metadata/uid", "<none>"));
    sheet.field("Age", render::object_age(object, now));
    if let Some(owner) = columns::list(object, "/metadata/ownerReferences").first() {
        let of = |field: &str| owner[field].as_str().unwrap_or_default().to_owned();
        sheet.field("Controlled By", format!("{}/{}", of("kind"), of("name")));
    }
}

/// An object of a type that has no sheet of its own: as it stands, and who uses it.
fn other(sheet: &mut Sheet, told: &Told) {
    let mut rest = told.object.clone();
    if let Some(fields) = rest.as_object_mut() {
        for said in ["metadata", "kind", "apiVersion"] {
            fields.remove(said);
        }
    }
    sheet.block(&render::yaml(&rest));
    let users = &told.story.used_by;
    if !users.is_empty() {
        sheet.lines("Used By", users.iter().map(|pod| format!("pod/{pod}")));
    }
}

#[cfg(test)]
mod tests;
