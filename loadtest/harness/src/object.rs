//! The objects of a load: what they are, and their bytes at each turn.
//!
//! An annotation of every object names the turn that made it, so that an observer knows which change it
//! sees.

use std::fmt;

use headwater_event::NodeName;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The text before the turn in an object's JSON, which has no blanks.
const TURN: &[u8] = b"\"headwater.loadtest/turn\":\"";

/// The namespace of the harness's objects: a run on a deployment touches no other.
pub const NAMESPACE: &str = "headwater-loadtest";

/// The letters of filler: six bits each, so that it compresses little.
const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// One object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectSpec {
    /// Its number.
    pub index: u32,
    /// `<namespace>/<type>/<name>`.
    pub key: String,
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// The edge that has it; `None`: every one.
    pub node: Option<usize>,
    /// Its own content.
    pub content: Content,
}

/// Bytes of an object's own content, besides what every object has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Content {
    /// All of them.
    pub bytes: usize,
    /// Those that are new with each change.
    pub fresh: usize,
    /// Those that compress to nothing.
    pub plain: usize,
}

/// What objects there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Of one node.
    Pod,
    /// Named by a pod of every node.
    ConfigMap,
    /// In the stream that all nodes share.
    Service,
}

impl ObjectSpec {
    /// The object `index` of this kind and name; `node` is the edge that has it, or all do.
    pub fn new(
        index: u32,
        kind: Kind,
        name: String,
        node: Option<usize>,
        content: Content,
    ) -> Self {
        Self { index, key: format!("{NAMESPACE}/{kind}/{name}"), name, kind, node, content }
    }

    /// The object as `turn` makes it; its edge is one of `nodes`.
    pub fn value(&self, nodes: &[NodeName], turn: u32, seed: u64) -> Value {
        // What stays from turn to turn, and what is new with each.
        let Content { bytes, fresh, plain } = self.content;
        let of_object = seed ^ u64::from(self.index);
        let mut kept = filler(bytes.saturating_sub(fresh + plain), of_object);
        kept.extend(std::iter::repeat_n('y', plain));
        let fresh = filler(fresh, of_object ^ (u64::from(turn) << 32));
        let metadata = json!({
            "name": self.name, "namespace": self.namespace(),
            "annotations": { "headwater.loadtest/turn": turn.to_string(), "fresh": fresh },
        });
        match self.kind {
            Kind::Pod => json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": metadata,
                "spec": {
                    "nodeName": self.node.and_then(|node| nodes.get(node)),
                    "containers": [{
                        "name": "web", "image": "registry.example/shop/web:1.27",
                        "ports": [{ "containerPort": 8080 }],
                        "env": [{ "name": "KEPT", "value": kept }],
                        "resources": { "limits": { "memory": "64Mi", "cpu": "100m" } },
                    }],
                },
            }),
            Kind::ConfigMap => json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata,
                "data": { "kept": kept },
            }),
            Kind::Service => json!({
                "apiVersion": "v1", "kind": "Service", "metadata": metadata,
                "spec": {
                    "selector": { "app": kept },
                    "ports": [{ "port": 80, "targetPort": 8080 }],
                },
            }),
        }
    }

    fn namespace(&self) -> &str {
        self.key.split('/').next().unwrap_or_default()
    }
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Pod, Self::ConfigMap, Self::Service];
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// The turn that an object says it is of.
pub fn turn_of(object: &[u8]) -> Option<u32> {
    let at = memchr::memmem::find(object, TURN)? + TURN.len();
    let digits = object[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    std::str::from_utf8(&object[at..at + digits]).ok()?.parse().ok()
}

fn filler(bytes: usize, seed: u64) -> String {
    let mut random = StdRng::seed_from_u64(seed);
    let mut text = String::with_capacity(bytes);
    while text.len() < bytes {
        let mut bits = random.next_u64();
        for _ in 0..10.min(bytes - text.len()) {
            text.push(char::from(LETTERS[usize::try_from(bits & 63).unwrap_or_default()]));
            bits >>= 6;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(kind: Kind) -> ObjectSpec {
        let content = Content { bytes: 600, fresh: 200, plain: 0 };
        ObjectSpec::new(3, kind, "web-3".to_owned(), Some(0), content)
    }

    fn bytes(kind: Kind, turn: u32, seed: u64) -> Vec<u8> {
        let nodes = ["node-1".parse().expect("a name")];
        spec(kind).value(&nodes, turn, seed).to_string().into_bytes()
    }

    #[test]
    fn an_object_has_its_turn_and_its_size() {
        for kind in Kind::ALL {
            let object = bytes(kind, 4_711, 1);
            assert_eq!(turn_of(&object), Some(4_711), "{kind:?}");
            assert!((700..1_100).contains(&object.len()), "{kind:?}: {}", object.len());
        }
    }

    #[test]
    fn the_same_seed_makes_the_same_bytes_and_a_turn_changes_some() {
        let pod = |turn, seed| bytes(Kind::Pod, turn, seed);
        assert_eq!(pod(1, 7), pod(1, 7));
        assert_ne!(pod(1, 7), pod(1, 8));
        let (one, two) = (pod(1, 7), pod(2, 7));
        let differing = one.iter().zip(&two).filter(|(one, two)| one != two).count();
        assert!((100..=201).contains(&differing), "{differing}");
    }

    #[test]
    fn an_object_without_a_turn_has_none() {
        for text in ["{}", "\"headwater.loadtest/turn\":\"\"", "\"headwater.loadtest/turn\":\"x\""]
        {
            assert_eq!(turn_of(text.as_bytes()), None, "{text}");
        }
        assert_eq!(turn_of(b"\"headwater.loadtest/turn\":\"99999999999\""), None);
    }
}
