//! The node's pods, which change one after the other.

use bytes::Bytes;
use headwater_event::{Applied, NodeName, ResourceKey, StreamId};

/// The pods of the node. They come first, and are then changed again and again.
pub(crate) const PODS: u64 = 64;

/// Bytes of a pod.
const POD_BYTES: usize = 2 << 10;

/// The node.
pub(crate) fn node() -> NodeName {
    "gw-1".parse().expect("a name")
}

/// Its stream.
pub(crate) fn stream() -> StreamId {
    StreamId::node(&node())
}

/// The pod that turn `turn` is about, as it is then.
pub(crate) fn pod(turn: u64) -> Applied {
    let name = format!("web-{:02}", turn % PODS);
    let uid = format!("00000000-0000-4000-8000-{:012}", turn % PODS);
    let mut object = format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"{name}","namespace":"shop","uid":"{uid}","annotations":{{"turn":"{turn:08}"}}}},"spec":{{"nodeName":"gw-1","containers":[{{"name":"web","image":"shop/web:1.27","args":["#
    );
    for n in 0.. {
        let argument = format!(r#""--listen-{n:03}","#);
        if object.len() + argument.len() + 16 > POD_BYTES {
            break;
        }
        object.push_str(&argument);
    }
    object.push_str(r#""--last"]}]}}"#);
    let key: ResourceKey = format!("shop/pod/{name}").parse().expect("a key");
    let resource_version = turn.to_string();
    Applied { key: key.into(), uid, resource_version, object: Bytes::from(object) }
}
