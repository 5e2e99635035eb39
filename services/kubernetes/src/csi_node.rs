//! The CSINode of an edge: the storage drivers of its node, which the cluster provisions, attaches and places volumes by.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::digest::{Digest, digest};
use crate::node_object::{UnfitNode, may_label};

/// The annotation of a reported Node that has the drivers, in the form of a CSINode.
pub(crate) const ANNOTATION: &str = "headwater/csi-drivers";

/// The most drivers of a node.
const DRIVERS_MAX: usize = 64;

/// The storage drivers of a node, as it reports them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OwnedDrivers(Vec<Driver>);

/// A driver, in the form of a CSINode.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Driver {
    name: String,
    #[serde(rename = "nodeID")]
    node_id: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    topology_keys: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    allocatable: Option<Room>,
}

/// The number of volumes of a driver that the node has room for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Room {
    count: Option<i32>,
}

impl OwnedDrivers {
    /// The drivers in an annotation. A topology key is left out unless the node may set a label of that key: others
    /// would let an edge attract workloads.
    pub(crate) fn parse(text: &str) -> Result<Self, UnfitNode> {
        let mut drivers: Vec<Driver> =
            serde_json::from_str(text).map_err(|_| UnfitNode::NoDrivers)?;
        if drivers.len() > DRIVERS_MAX {
            return Err(UnfitNode::NoDrivers);
        }
        for driver in &mut drivers {
            driver.topology_keys.retain(|key| may_label(key));
        }
        drivers.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(Self(drivers))
    }

    /// The digest of what the CSINode shows.
    pub(crate) fn digest(&self) -> Digest {
        digest(&json!(self.0))
    }

    /// The CSINode, which goes with the Node of this UID.
    pub(crate) fn object(&self, node: &str, node_uid: &str) -> Value {
        let mut object = self.patch(node, node_uid);
        object["apiVersion"] = "storage.k8s.io/v1".into();
        object["kind"] = "CSINode".into();
        object["metadata"]["name"] = node.into();
        object
    }

    /// The merge patch that makes the CSINode show these drivers alone.
    pub(crate) fn patch(&self, node: &str, node_uid: &str) -> Value {
        patch(node, node_uid, json!(self.0))
    }

    /// The merge patch that takes every driver from it. What a driver says of itself never changes in a CSINode: it has
    /// to go before it comes otherwise.
    pub(crate) fn cleared(node: &str, node_uid: &str) -> Value {
        patch(node, node_uid, json!([]))
    }
}

fn patch(node: &str, node_uid: &str, drivers: Value) -> Value {
    let owner = json!({"apiVersion": "v1", "kind": "Node", "name": node, "uid": node_uid});
    json!({"metadata": {"ownerReferences": [owner]}, "spec": {"drivers": drivers}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drivers_come_in_an_order_and_with_the_labels_that_a_node_may_set() {
        let driver = |name: &str| {
            let keys = ["topology.kubernetes.io/zone", "team", "example.com/rack"];
            json!({"name": name, "nodeID": "n", "topologyKeys": keys, "more": 7})
        };
        let parse = |names: [&str; 2]| {
            let text = json!(names.map(driver)).to_string();
            OwnedDrivers::parse(&text).expect("drivers")
        };
        let drivers = parse(["b", "a"]);
        assert_eq!(drivers.digest(), parse(["a", "b"]).digest());
        let object = drivers.object("gw", "u");
        assert_eq!(object["metadata"]["ownerReferences"][0]["uid"], "u");
        assert_eq!(
            object["spec"]["drivers"][0],
            json!({"name": "a", "nodeID": "n", "topologyKeys": ["topology.kubernetes.io/zone"]})
        );
    }

    #[test]
    fn what_is_no_list_of_drivers_is_refused() {
        let many = vec![json!({"name": "d", "nodeID": "n"}); DRIVERS_MAX + 1];
        for text in ["", "{}", "[7]", "null", &json!(many).to_string()] {
            assert_eq!(OwnedDrivers::parse(text), Err(UnfitNode::NoDrivers), "{text}");
        }
    }
}
