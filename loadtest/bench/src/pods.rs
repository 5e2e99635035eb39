//! The pods to measure with.

use bytes::Bytes;
use headwater_event::{Applied, EntryKey, NodeName, ResourceKey};
use headwater_loadtest::object::{Content, Kind, ObjectSpec};
use uuid::Uuid;

/// Kubernetes' default limit of pods per node.
pub(crate) const PODS_PER_NODE: u32 = 110;

/// The bytes of a pod besides its content.
const FRAME_BYTES: usize = 430;

/// The content of a pod of about `bytes` as JSON, of which an annotation changes. As much of it is
/// random as names, hashes and addresses are of a real one.
pub(crate) fn content(bytes: usize) -> Content {
    let bytes = bytes.saturating_sub(FRAME_BYTES);
    Content { bytes, fresh: 0, plain: bytes - bytes / 8 }
}

/// `each` pods of every one of `nodes` nodes, node by node.
pub(crate) fn pods(nodes: usize, each: u32, bytes: usize) -> Vec<ObjectSpec> {
    let all = (0..nodes).flat_map(|node| (0..each).map(move |pod| (node, pod)));
    let pod = |((node, pod), index)| {
        let name = format!("web-{}-{pod}", node + 1);
        ObjectSpec::new(index, Kind::Pod, name, Some(node), content(bytes))
    };
    all.zip(0..).map(pod).collect()
}

/// The pods of one node, each of about as many bytes.
pub(crate) struct NodePods {
    node: [NodeName; 1],
    bytes: usize,
}

impl NodePods {
    pub(crate) fn new(node: NodeName, bytes: usize) -> Self {
        Self { node: [node], bytes }
    }

    pub(crate) fn node(&self) -> &NodeName {
        &self.node[0]
    }

    /// The name of pod `number`.
    pub(crate) fn name(&self, number: u32) -> String {
        format!("web-{}-{number}", self.node())
    }

    /// The key of pod `number`: as short as most are, because its bytes are counted.
    pub(crate) fn key(&self, number: u32) -> String {
        format!("default/pod/{}", self.name(number))
    }

    /// Pod `number` as `turn` makes it.
    pub(crate) fn object(&self, number: u32, turn: u32) -> Bytes {
        let (name, content) = (self.name(number), content(self.bytes));
        let spec = ObjectSpec::new(number, Kind::Pod, name, Some(0), content);
        let spec = ObjectSpec { key: self.key(number), ..spec };
        spec.value(&self.node, turn, 0).to_string().into()
    }
}

/// The pod that event `turn` applies, one of `pods`; of about `bytes`, half of them new with each
/// event, half as in all others.
pub(crate) fn event(turn: u32, pods: u32, bytes: usize) -> Applied {
    let number = turn % pods;
    let fresh = bytes / 2;
    let content = bytes.saturating_sub(FRAME_BYTES);
    let content = Content { bytes: content, fresh, plain: content.saturating_sub(fresh) };
    let spec = ObjectSpec::new(number, Kind::Pod, format!("web-{number:05}"), None, content);
    Applied {
        key: EntryKey::from(spec.key.parse::<ResourceKey>().expect("a key")),
        uid: Uuid::from_u128(number.into()).to_string(),
        resource_version: turn.to_string(),
        object: spec.value(&[], turn, 0).to_string().into(),
    }
}

#[cfg(test)]
mod tests {
    use headwater_loadtest::object::turn_of;

    use super::*;

    #[test]
    fn a_pod_has_its_size_and_its_turn() {
        let pods = NodePods::new("gw-1".parse().expect("a name"), 2 << 10);
        let pod = pods.object(7, 1_234);
        assert!((1_900..2_200).contains(&pod.len()), "{}", pod.len());
        assert_eq!(turn_of(&pod), Some(1_234));
    }

    #[test]
    fn an_event_is_json_of_its_size_and_the_same_again() {
        for bytes in [1 << 10, 2 << 10] {
            let pod = event(7, 5, bytes);
            assert!(pod.object.len().abs_diff(bytes) < 100, "{}", pod.object.len());
            serde_json::from_slice::<serde_json::Value>(&pod.object).expect("JSON");
        }
        assert_eq!(event(7, 5, 1_024), event(7, 5, 1_024));
        assert_eq!(event(7, 5, 1_024).key, event(2, 5, 1_024).key);
        assert_ne!(event(7, 5, 1_024).object, event(2, 5, 1_024).object);
    }
}
