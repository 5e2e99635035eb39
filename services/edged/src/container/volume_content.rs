//! Resolves the content of a pod's volumes from its spec and the objects at hand.
//!
//! Pure: it decides which files have which content. The runtime writes them to a disk.

use k8s_openapi::api::core::v1::{EmptyDirVolumeSource, Pod, Volume as VolumeSpec};

use super::WaitReason;
use super::block_device::{check_use, is_block};
use super::claim::{Claim, ClaimName};
use super::downward_api::FieldSource;
use super::driver_volume::{VolumeGroup, of_view};
use super::quantity::value;
use super::requests::pod_limits;
use super::token::FindToken;
use super::volume::{Volume, VolumeContent};
use super::volume_files::{
    Files, MODE_DEFAULT, POD_BYTES_MAX, add_config_map, add_fields, add_projected, add_secret, mode,
};
use crate::desired::objects::Objects;
use crate::pod::{claim_name, is_plain_name, namespace};

/// Resolves the content of all volumes of the pod.
///
/// # Errors
/// Names the object, key or token that is missing, or the volume that is one too many.
pub(crate) fn resolve(
    fields: &FieldSource<'_>,
    objects: &Objects,
    tokens: &FindToken<'_>,
) -> Result<Vec<Volume>, WaitReason> {
    let volumes = fields.pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref());
    let mut left = POD_BYTES_MAX;
    let volumes = volumes.unwrap_or_default().iter();
    volumes.map(|spec| resolve_one(spec, fields, objects, tokens, &mut left)).collect()
}

fn resolve_one(
    spec: &VolumeSpec,
    fields: &FieldSource<'_>,
    objects: &Objects,
    tokens: &FindToken<'_>,
    left: &mut usize,
) -> Result<Volume, WaitReason> {
    if !is_plain_name(&spec.name) {
        return Err(setup_failure(&spec.name, "the name is not a DNS label"));
    }
    let content = content(spec, fields, objects, tokens, left)
        .map_err(|why| setup_failure(&spec.name, &why))?;
    let is_secret = spec.secret.is_some()
        || spec.projected.as_ref().is_some_and(|projected| {
            let mut sources = projected.sources.iter().flatten();
            sources.any(|it| it.secret.is_some() || it.service_account_token.is_some())
        });
    Ok(Volume { name: spec.name.clone(), content, is_secret })
}

fn content(
    spec: &VolumeSpec,
    fields: &FieldSource<'_>,
    objects: &Objects,
    tokens: &FindToken<'_>,
    left: &mut usize,
) -> Result<VolumeContent, String> {
    let namespace = namespace(fields.pod);
    let mut files = Files::new(left);
    if let Some(source) = &spec.config_map {
        let map = objects.config_map(namespace, &source.name);
        let optional = source.optional.unwrap_or(false);
        let mode = mode(source.default_mode, MODE_DEFAULT);
        add_config_map(&mut files, map, &source.name, source.items.as_deref(), mode, optional)?;
    } else if let Some(source) = &spec.secret {
        let name = source.secret_name.as_deref().unwrap_or_default();
        let secret = objects.secret(namespace, name);
        let optional = source.optional.unwrap_or(false);
        let mode = mode(source.default_mode, MODE_DEFAULT);
        add_secret(&mut files, secret, name, source.items.as_deref(), mode, optional)?;
    } else if let Some(source) = &spec.downward_api {
        let mode = mode(source.default_mode, MODE_DEFAULT);
        add_fields(&mut files, source.items.as_deref(), fields, mode)?;
    } else if let Some(source) = &spec.projected {
        add_projected(&mut files, source, namespace, fields, objects, tokens)?;
    } else if let Some(source) = &spec.empty_dir {
        return Ok(VolumeContent::Empty { memory_bytes_max: memory_bytes_max(source, fields) });
    } else if let Some(source) = &spec.host_path {
        let kind = source.type_.clone().unwrap_or_default();
        return Ok(VolumeContent::Host { path: source.path.clone(), kind });
    } else if let Some(source) = &spec.persistent_volume_claim {
        let is_read_only = source.read_only.unwrap_or(false);
        return claim(&spec.name, (&source.claim_name, is_read_only), fields, (objects, tokens));
    } else if spec.ephemeral.is_some() {
        let name = claim_name(fields.pod, spec).unwrap_or_default();
        check_owner(&name, fields.pod, objects)?;
        return claim(&spec.name, (&name, false), fields, (objects, tokens));
    } else if let Some(source) = &spec.csi {
        let volume = of_view::inline(&spec.name, source, fields, (objects, tokens))?;
        return Ok(VolumeContent::Driver(Box::new(volume)));
    } else {
        return Ok(VolumeContent::Unsupported { kind: kind_of(spec) });
    }
    Ok(VolumeContent::Files(files.into_files()))
}

/// The size of an emptyDir that lies in memory: its limit, but not more than the pod may use, nor the pods of the node
/// (`pkg/volume/emptydir/empty_dir.go`, `calculateEmptyDirMemorySize`).
fn memory_bytes_max(source: &EmptyDirVolumeSource, fields: &FieldSource<'_>) -> Option<u64> {
    if source.medium.as_deref() != Some("Memory") {
        return None;
    }
    let limit = source.size_limit.as_ref().and_then(|limit| u64::try_from(value(limit)?).ok());
    let bounds = [
        fields.allocatable.memory_bytes,
        pod_limits(fields.pod).memory_bytes,
        limit.unwrap_or_default(),
    ];
    // A file system of size zero has no limit, and so is a bound that is not known.
    Some(bounds.into_iter().filter(|bytes| *bytes > 0).min().unwrap_or_default())
}

/// Checks that the cluster made the claim of an ephemeral volume for this very pod.
fn check_owner(name: &str, pod: &Pod, objects: &Objects) -> Result<(), String> {
    let namespace = namespace(pod);
    let Some(claim) = objects.claim(namespace, name) else { return Ok(()) };
    let owners = claim.metadata.owner_references.iter().flatten();
    let uid = pod.metadata.uid.as_deref();
    let mut controllers = owners.filter(|owner| owner.controller == Some(true));
    if controllers.any(|owner| Some(owner.uid.as_str()) == uid) {
        return Ok(());
    }
    Err(format!(
        "PVC {namespace}/{name} was not created for pod {namespace}/{} (pod is not owner)",
        pod.metadata.name.as_deref().unwrap_or_default()
    ))
}

/// The content of a claim: the host path of its volume if the volume has one, a volume of a storage driver, else
/// a directory of the node.
fn claim(
    volume_name: &str,
    (name, is_read_only): (&str, bool),
    fields: &FieldSource<'_>,
    (objects, tokens): (&Objects, &FindToken<'_>),
) -> Result<VolumeContent, String> {
    let namespace = namespace(fields.pod);
    let group = VolumeGroup::of(fields.pod).filter(|_| !is_read_only);
    let claim = objects
        .claim(namespace, name)
        .ok_or_else(|| format!("persistentvolumeclaim \"{name}\" not found"))?;
    let claimed = claim.spec.as_ref();
    let bound = claimed.and_then(|spec| spec.volume_name.as_deref());
    let Some(bound) = bound.filter(|bound| !bound.is_empty()) else {
        if is_block(claimed.and_then(|spec| spec.volume_mode.as_deref())) {
            return Err(format!(
                "persistentvolumeclaim \"{name}\" is to be a block device, and without a \
                 PersistentVolume it is a directory of the node"
            ));
        }
        check_use(fields.pod, volume_name, false)?;
        let name = ClaimName { namespace: namespace.to_owned(), name: name.to_owned() };
        let claim = Claim::of(name, claim, objects)?;
        return Ok(VolumeContent::Claim { claim, group });
    };
    let volume = objects
        .volume(bound)
        .ok_or_else(|| format!("persistentvolume \"{bound}\" of claim \"{name}\" not found"))?;
    let spec = volume.spec.as_ref();
    let is_block = is_block(spec.and_then(|spec| spec.volume_mode.as_deref()));
    check_use(fields.pod, volume_name, is_block)?;
    if let Some(source) = spec.and_then(|spec| spec.host_path.as_ref()) {
        if is_block {
            return Err(format!(
                "persistentvolume \"{bound}\": a hostPath is no block device: use local"
            ));
        }
        let kind = source.type_.clone().unwrap_or_default();
        Ok(VolumeContent::Host { path: source.path.clone(), kind })
    } else if let Some(source) = spec.and_then(|spec| spec.local.as_ref()) {
        let group = group.filter(|_| !is_block);
        Ok(VolumeContent::Local { path: source.path.clone(), is_block, group })
    } else if let Some(source) = spec.and_then(|spec| spec.csi.as_ref()) {
        let of_driver = (volume, source, is_read_only);
        let volume = of_view::persistent(volume_name, of_driver, fields, (objects, tokens))?;
        Ok(VolumeContent::Driver(Box::new(volume)))
    } else {
        Ok(VolumeContent::Unsupported { kind: "persistentVolume without csi, hostPath or local" })
    }
}

fn kind_of(spec: &VolumeSpec) -> &'static str {
    if spec.nfs.is_some() {
        "nfs"
    } else if spec.image.is_some() {
        "image"
    } else {
        "a storage driver"
    }
}

fn setup_failure(volume: &str, why: &str) -> WaitReason {
    WaitReason {
        reason: "ContainerCreating",
        message: format!("MountVolume.SetUp failed for volume \"{volume}\" : {why}"),
    }
}

#[cfg(test)]
mod tests;
