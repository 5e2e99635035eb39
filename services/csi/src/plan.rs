//! What a driver is asked of one volume. Pure: decided from the volume, what the driver can do, and the paths.

use std::collections::HashMap;
use std::path::Path;

use headwater_edged::container::driver_volume::{
    AccessMode, DriverVolume, VolumeGroup, VolumeSource,
};

use crate::proto::node_service_capability::Type as CapabilityType;
use crate::proto::node_service_capability::rpc::Type;
use crate::proto::volume_capability::access_mode::Mode;
use crate::proto::volume_capability::{
    AccessMode as ProtoMode, AccessType, BlockVolume, MountVolume,
};
use crate::proto::{
    NodeGetCapabilitiesResponse, NodePublishVolumeRequest, NodeStageVolumeRequest, VolumeCapability,
};

/// What a driver can do on a node. What it names beside this is of no use here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Volumes are staged once a node, then published to pods.
    pub stages: bool,
    /// The driver measures its volumes.
    pub measures: bool,
    /// The driver gives the files of a volume to the pod's group.
    pub mount_group: bool,
    /// The driver distinguishes one writing pod from many of a node.
    pub multi_writer: bool,
}

impl Capabilities {
    pub(crate) fn of(response: &NodeGetCapabilitiesResponse) -> Self {
        let mut found = Self::default();
        for capability in &response.capabilities {
            let Some(CapabilityType::Rpc(rpc)) = &capability.r#type else { continue };
            match Type::try_from(rpc.r#type) {
                Ok(Type::StageUnstageVolume) => found.stages = true,
                Ok(Type::GetVolumeStats) => found.measures = true,
                Ok(Type::VolumeMountGroup) => found.mount_group = true,
                Ok(Type::SingleNodeMultiWriter) => found.multi_writer = true,
                _ => {}
            }
        }
        found
    }
}

/// The requests for one volume of one pod, in their order.
#[derive(Clone, PartialEq)]
pub struct Requests {
    /// Once a node.
    pub stage: Option<NodeStageVolumeRequest>,
    /// Once a pod.
    pub publish: NodePublishVolumeRequest,
    /// The group to which the node then gives the files.
    pub group: Option<VolumeGroup>,
}

/// The requests for a volume.
pub fn requests(
    volume: &DriverVolume,
    handle: &str,
    can: Capabilities,
    staging: &Path,
    target: &Path,
) -> Requests {
    let group = volume.group.filter(|_| can.mount_group).map(|group| group.id.to_string());
    let mount = MountVolume {
        fs_type: volume.fs_type.clone(),
        mount_flags: volume.mount_options.clone(),
        volume_mount_group: group.unwrap_or_default(),
    };
    let mode = match (volume.access_mode, can.multi_writer) {
        (AccessMode::ReadOnlyMany, _) => Mode::MultiNodeReaderOnly,
        (AccessMode::ReadWriteMany, _) => Mode::MultiNodeMultiWriter,
        (AccessMode::ReadWriteOnce, true) => Mode::SingleNodeMultiWriter,
        (AccessMode::ReadWriteOncePod, true) => Mode::SingleNodeSingleWriter,
        (AccessMode::ReadWriteOnce | AccessMode::ReadWriteOncePod, false) => Mode::SingleNodeWriter,
    };
    let access =
        if volume.is_block { AccessType::Block(BlockVolume {}) } else { AccessType::Mount(mount) };
    let capability = VolumeCapability {
        access_type: Some(access),
        access_mode: Some(ProtoMode { mode: mode.into() }),
    };
    // A volume that comes and goes with its pod is never staged.
    let stages = can.stages && volume.source != VolumeSource::Inline;
    let staging = if stages { staging.to_string_lossy().into_owned() } else { String::new() };
    let map = |all: &std::collections::BTreeMap<String, String>| -> HashMap<String, String> {
        all.clone().into_iter().collect()
    };
    let stage = stages.then(|| NodeStageVolumeRequest {
        volume_id: handle.to_owned(),
        publish_context: map(&volume.attachment),
        staging_target_path: staging.clone(),
        volume_capability: Some(capability.clone()),
        secrets: map(&volume.stage_secrets.0),
        volume_context: map(&volume.attributes),
    });
    let mut context = map(&volume.attributes);
    context.extend(volume.pod_info.clone());
    context.extend(volume.tokens.0.clone());
    let publish = NodePublishVolumeRequest {
        volume_id: handle.to_owned(),
        publish_context: map(&volume.attachment),
        staging_target_path: staging,
        target_path: target.to_string_lossy().into_owned(),
        volume_capability: Some(capability),
        readonly: volume.read_only,
        secrets: map(&volume.publish_secrets.0),
        volume_context: context,
    };
    let group = volume.group.filter(|group| group.gives_files && !can.mount_group);
    Requests { stage, publish, group }
}

#[cfg(test)]
mod tests;
