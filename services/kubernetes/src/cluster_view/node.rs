//! A Node, as the API shows it.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::digest::Digest;
use crate::node_object::{NodeStatus, OwnedNode, may_label};
use crate::offline::OfflinePolicy;
use crate::raw_object::RawObject;

/// A Node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NodeView {
    pub(crate) uid: Box<str>,
    /// The order of its version.
    pub(crate) order: Option<u64>,
    /// Of everything that the node owns of the status, without times and with them.
    pub(crate) status: Digest,
    pub(crate) timed_status: Digest,
    /// The status of the condition Ready.
    pub(crate) ready: Box<str>,
    /// The names of its resources.
    pub(crate) resources: Box<[Box<str>]>,
    /// The policy of its pods.
    pub(crate) offline: Option<OfflinePolicy>,
    /// The labels that a node may set.
    labels: BTreeMap<Box<str>, Box<str>>,
    /// Of each annotation.
    annotations: BTreeMap<Box<str>, Digest>,
    /// The newest list that has it.
    pub(super) list: u32,
}

impl NodeView {
    /// The Node in `raw`.
    pub(crate) fn of(raw: &RawObject, list: u32) -> Self {
        let object = raw.value();
        let status = NodeStatus::of(&object["status"]);
        let texts = |part: &str| {
            let texts = object["metadata"][part].as_object().into_iter().flatten();
            texts.filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)))
        };
        Self {
            uid: raw.uid().into(),
            order: raw.order(),
            status: status.digest,
            timed_status: status.timed,
            ready: status.ready,
            resources: status.resources,
            offline: OfflinePolicy::of_object(object),
            labels: texts("labels")
                .filter(|(key, _)| may_label(key))
                .map(|(key, value)| (key.into(), value.into()))
                .collect(),
            annotations: texts("annotations")
                .map(|(key, value)| (key.into(), annotation_digest(value)))
                .collect(),
            list,
        }
    }

    /// Whether it has the labels and annotations that its node reports.
    pub(crate) fn has_metadata_of(&self, owned: &OwnedNode) -> bool {
        let has_label = |(key, value): (&String, &String)| {
            self.labels.get(key.as_str()).is_some_and(|shown| **shown == **value)
        };
        let has_annotation = |(key, value): (&String, &String)| {
            self.annotations.get(key.as_str()) == Some(&annotation_digest(value))
        };
        owned.labels.iter().all(has_label) && owned.annotations.iter().all(has_annotation)
    }
}

fn annotation_digest(value: &str) -> Digest {
    crate::digest::digest(&Value::String(value.to_owned()))
}
