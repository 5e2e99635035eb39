//! A pod, as the API shows it.

use headwater_event::NodeName;

use crate::digest::Digest;
use crate::mirror_pod::mirrored;
use crate::offline::{OfflinePolicy, TolerationChange, toleration_changes};
use crate::pod_status::{OwnedStatus, Phase};
use crate::raw_object::RawObject;

/// A pod of an edge node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PodView {
    pub(crate) uid: Box<str>,
    pub(crate) node: NodeName,
    /// The opaque version, and its order.
    pub(crate) version: Box<str>,
    pub(crate) order: Option<u64>,
    /// The generation of its specification; `None`: the server counts none.
    pub(crate) generation: Option<i64>,
    /// Of what the node owns of the status.
    pub(crate) status: Digest,
    pub(crate) phase: Phase,
    pub(crate) deletion: Deletion,
    /// The changes of its tolerations by which it stays while its node is away.
    pub(crate) toleration_changes: Box<[TolerationChange]>,
    /// The policy of its annotation.
    pub(crate) offline: Option<OfflinePolicy>,
    /// The hash of the file that it mirrors, if it is the mirror of a static pod.
    pub(crate) mirrored: Option<Box<str>>,
    /// The newest list that has it.
    pub(super) list: u32,
}

/// How far the deletion of a pod is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Deletion {
    /// It is not under deletion.
    #[default]
    None,
    /// Its node is to stop it, and then to confirm that.
    Requested,
    /// That was confirmed; finalizers keep the pod.
    Confirmed,
}

impl PodView {
    /// The pod in `raw`.
    pub(super) fn of(raw: &RawObject, node: NodeName, list: u32) -> Self {
        let object = raw.value();
        let status = OwnedStatus::of(&object["status"]);
        let metadata = &object["metadata"];
        let deletion =
            match (&metadata["deletionTimestamp"], &metadata["deletionGracePeriodSeconds"]) {
                (time, _) if time.is_null() => Deletion::None,
                (_, seconds) if seconds.as_u64() == Some(0) => Deletion::Confirmed,
                _ => Deletion::Requested,
            };
        Self {
            uid: raw.uid().into(),
            node,
            version: raw.resource_version().into(),
            order: raw.order(),
            generation: metadata["generation"].as_i64(),
            status: status.digest,
            phase: status.phase,
            deletion,
            toleration_changes: toleration_changes(object),
            offline: OfflinePolicy::of_object(object),
            mirrored: mirrored(object).map(Into::into),
            list,
        }
    }
}
