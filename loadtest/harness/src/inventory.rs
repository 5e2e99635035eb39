//! What a load is about: nodes and objects, and the lines for the controller's objects socket that say
//! them.

use headwater_event::NodeName;
use serde_json::{Value, json};

use crate::object::{Kind, NAMESPACE, ObjectSpec};

/// The pod of each node that names the ConfigMaps, and never changes.
const ANCHOR: &str = "anchor";

/// The nodes and the objects of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    /// The nodes, one edge each.
    pub nodes: Vec<NodeName>,
    /// The objects, by their numbers.
    pub objects: Vec<ObjectSpec>,
    /// From which their bytes are made.
    pub seed: u64,
}

impl Inventory {
    /// The line that makes `object` what it is at `turn`. `intended` is RFC 3339.
    pub fn apply_line(&self, object: &ObjectSpec, turn: u32, intended: &str) -> Vec<u8> {
        let object = object.value(&self.nodes, turn, self.seed);
        line(&json!({ "object": object, "intended_time": intended }))
    }

    /// The line that removes `object`.
    pub fn delete_line(object: &ObjectSpec, intended: &str) -> Vec<u8> {
        line(&json!({ "delete": object.key, "intended_time": intended }))
    }

    /// The lines of the pods through which the nodes get the ConfigMaps, where there are some.
    pub fn anchor_lines(&self) -> impl Iterator<Item = Vec<u8>> {
        let named = self.objects.iter().filter(|object| object.kind == Kind::ConfigMap);
        let from: Vec<Value> = named
            .map(|object| json!({ "configMapRef": { "name": object.name, "optional": true } }))
            .collect();
        let nodes = if from.is_empty() { &[][..] } else { &self.nodes };
        nodes.iter().map(move |node| {
            line(&json!({ "object": {
                "apiVersion": "v1", "kind": "Pod",
                "metadata": { "name": format!("{ANCHOR}-{node}"), "namespace": NAMESPACE },
                "spec": {
                    "nodeName": node,
                    "containers": [
                        { "name": "c", "image": "registry.example/c:1", "envFrom": from },
                    ],
                },
            }}))
        })
    }
}

/// The line that removes whatever is at `key`.
pub fn forget_line(key: &str) -> Vec<u8> {
    line(&json!({ "delete": key }))
}

fn line(value: &Value) -> Vec<u8> {
    let mut line = value.to_string().into_bytes();
    line.push(b'\n');
    line
}
