//! Resolves a volume of a storage driver from the objects of the node's view: the volume, its driver, its attachment, its
//! secrets (`pkg/volume/csi` of Kubernetes). Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    CSIPersistentVolumeSource, CSIVolumeSource, PersistentVolume, Pod, SecretReference,
};
use k8s_openapi::api::storage::v1::CSIDriverSpec;

use super::tokens::tokens;
use super::{AccessMode, DriverSecrets, DriverVolume, VolumeGroup, VolumeSource};
use crate::container::block_device::is_block;
use crate::container::downward_api::FieldSource;
use crate::container::token::FindToken;
use crate::desired::objects::Objects;
use crate::pod::{account, namespace};

/// The lifecycle of volumes of a driver that states none.
const PERSISTENT: &str = "Persistent";

/// The lifecycle of volumes that come and go with their pod.
const EPHEMERAL: &str = "Ephemeral";

/// A volume that the pod states itself.
pub(crate) fn inline(
    volume: &str,
    source: &CSIVolumeSource,
    fields: &FieldSource<'_>,
    (objects, tokens): (&Objects, &FindToken<'_>),
) -> Result<DriverVolume, String> {
    let driver = objects.csi_driver(&source.driver);
    check_driver(&source.driver, driver, EPHEMERAL)?;
    let own = namespace(fields.pod);
    let secret = source.node_publish_secret_ref.as_ref().map(|secret| secret.name.as_str());
    let publish_secrets =
        secret.map_or_else(|| Ok(DriverSecrets::default()), |name| secrets(objects, own, name))?;
    let (tokens, publish_secrets) =
        tokens_and_secrets(fields.pod, driver, tokens, publish_secrets)?;
    Ok(DriverVolume {
        volume: volume.to_owned(),
        spec_name: volume.to_owned(),
        driver: source.driver.clone(),
        source: VolumeSource::Inline,
        is_block: false,
        fs_type: source.fs_type.clone().unwrap_or_default(),
        access_mode: AccessMode::ReadWriteOnce,
        mount_options: Vec::new(),
        read_only: source.read_only.unwrap_or(false),
        attributes: source.volume_attributes.clone().unwrap_or_default(),
        pod_info: pod_info(fields.pod, driver, true),
        attachment: BTreeMap::new(),
        stage_secrets: DriverSecrets::default(),
        publish_secrets,
        tokens,
        republishes: republishes(driver),
        group: group(fields.pod, driver, source.fs_type.as_deref(), false),
    })
}

/// The volume behind a claim.
pub(crate) fn persistent(
    volume: &str,
    (object, source, is_read_only): (&PersistentVolume, &CSIPersistentVolumeSource, bool),
    fields: &FieldSource<'_>,
    (objects, tokens): (&Objects, &FindToken<'_>),
) -> Result<DriverVolume, String> {
    let name = object.metadata.name.clone().unwrap_or_default();
    let spec = object.spec.as_ref();
    let is_block = is_block(spec.and_then(|spec| spec.volume_mode.as_deref()));
    let driver = objects.csi_driver(&source.driver);
    check_driver(&source.driver, driver, PERSISTENT)?;
    let modes = spec.and_then(|spec| spec.access_modes.as_deref()).unwrap_or_default();
    let access_mode = match modes.first().map(String::as_str) {
        Some("ReadOnlyMany") => AccessMode::ReadOnlyMany,
        Some("ReadWriteMany") => AccessMode::ReadWriteMany,
        Some("ReadWriteOncePod") => AccessMode::ReadWriteOncePod,
        _ => AccessMode::ReadWriteOnce,
    };
    let writes_once =
        modes.iter().any(|mode| matches!(mode.as_str(), "ReadWriteOnce" | "ReadWriteOncePod"));
    let read_only = is_read_only || source.read_only == Some(true);
    let claim = spec.and_then(|spec| spec.claim_ref.as_ref()?.namespace.as_deref());
    let of = |reference: Option<&SecretReference>| match reference {
        None => Ok(DriverSecrets::default()),
        Some(SecretReference { name, namespace }) => {
            let namespace = namespace.as_deref().or(claim).unwrap_or("default");
            secrets(objects, namespace, name.as_deref().unwrap_or_default())
        }
    };
    let group = group(fields.pod, driver, source.fs_type.as_deref(), writes_once && !read_only);
    let publish_secrets = of(source.node_publish_secret_ref.as_ref())?;
    let (tokens, publish_secrets) =
        tokens_and_secrets(fields.pod, driver, tokens, publish_secrets)?;
    Ok(DriverVolume {
        volume: volume.to_owned(),
        driver: source.driver.clone(),
        source: VolumeSource::Persistent { handle: source.volume_handle.clone() },
        is_block,
        fs_type: source.fs_type.clone().unwrap_or_default(),
        access_mode,
        mount_options: spec.and_then(|spec| spec.mount_options.clone()).unwrap_or_default(),
        read_only,
        attributes: source.volume_attributes.clone().unwrap_or_default(),
        pod_info: pod_info(fields.pod, driver, false),
        attachment: attachment(&name, &source.driver, driver, fields.node, objects)?,
        stage_secrets: of(source.node_stage_secret_ref.as_ref())?,
        publish_secrets,
        tokens,
        republishes: republishes(driver),
        group: group.filter(|_| !is_block),
        spec_name: name,
    })
}

/// Checks whether the driver makes such volumes.
fn check_driver(name: &str, driver: Option<&CSIDriverSpec>, lifecycle: &str) -> Result<(), String> {
    let stated = driver.and_then(|driver| driver.volume_lifecycle_modes.as_deref());
    let makes = match stated {
        Some(modes) if !modes.is_empty() => modes.iter().any(|mode| mode == lifecycle),
        _ => lifecycle == PERSISTENT,
    };
    match driver {
        _ if makes => Ok(()),
        None => Err(format!(
            "volume mode \"{lifecycle}\" not supported by driver {name} (no CSIDriver object)"
        )),
        Some(_) => {
            let only = stated.unwrap_or_default().join(", ");
            let only = if only.is_empty() { PERSISTENT.to_owned() } else { only };
            Err(format!(
                "volume mode \"{lifecycle}\" not supported by driver {name} (only supports [{only}])"
            ))
        }
    }
}

/// What the attachment of the volume says, if its driver attaches volumes.
fn attachment(
    volume: &str,
    name: &str,
    driver: Option<&CSIDriverSpec>,
    node: &str,
    objects: &Objects,
) -> Result<BTreeMap<String, String>, String> {
    // Without a CSIDriver object a kubelet takes it that volumes are attached, too.
    if driver.and_then(|driver| driver.attach_required) == Some(false) {
        return Ok(BTreeMap::new());
    }
    let mut all = objects.attachments();
    let found = all.find(|it| {
        it.spec.attacher == name
            && it.spec.node_name == node
            && it.spec.source.persistent_volume_name.as_deref() == Some(volume)
    });
    let status = found.and_then(|found| found.status.as_ref());
    match status.filter(|status| status.attached) {
        Some(status) => Ok(status.attachment_metadata.clone().unwrap_or_default()),
        None => {
            let why = match (found, status.and_then(|it| it.attach_error.as_ref()?.message.clone()))
            {
                (_, Some(error)) => error,
                (Some(_), None) => "its VolumeAttachment says so".to_owned(),
                (None, None) => "it has no VolumeAttachment".to_owned(),
            };
            Err(format!(
                "volume {volume} is not attached to node {node}: {why}; the cluster and the driver's own \
                 controller attach it. A driver that attaches nothing says attachRequired: false in its CSIDriver"
            ))
        }
    }
}

/// The tokens that the driver gets beside the volume's attributes, and the secrets, with which it may get them instead.
fn tokens_and_secrets(
    pod: &Pod,
    driver: Option<&CSIDriverSpec>,
    find: &FindToken<'_>,
    mut secrets: DriverSecrets,
) -> Result<(DriverSecrets, DriverSecrets), String> {
    let tokens = tokens(pod, driver, find)?;
    if driver.and_then(|driver| driver.service_account_token_in_secrets) == Some(true) {
        secrets.0.extend(tokens.0);
        return Ok((DriverSecrets::default(), secrets));
    }
    Ok((tokens, secrets))
}

fn republishes(driver: Option<&CSIDriverSpec>) -> bool {
    driver.and_then(|driver| driver.requires_republish) == Some(true)
}

/// What the driver gets to know of the pod.
fn pod_info(
    pod: &Pod,
    driver: Option<&CSIDriverSpec>,
    is_ephemeral: bool,
) -> BTreeMap<String, String> {
    if driver.and_then(|driver| driver.pod_info_on_mount) != Some(true) {
        return BTreeMap::new();
    }
    let all = [
        ("pod.name", pod.metadata.name.clone().unwrap_or_default()),
        ("pod.namespace", namespace(pod).to_owned()),
        ("pod.uid", pod.metadata.uid.clone().unwrap_or_default()),
        ("serviceAccount.name", account(pod).to_owned()),
        ("ephemeral", is_ephemeral.to_string()),
    ];
    all.map(|(key, value)| (format!("csi.storage.k8s.io/{key}"), value)).into()
}

/// The pod's group, and whether the node gives it the files.
fn group(
    pod: &Pod,
    driver: Option<&CSIDriverSpec>,
    fs_type: Option<&str>,
    writes_once: bool,
) -> Option<VolumeGroup> {
    let group = VolumeGroup::of(pod)?;
    let gives_files = match driver.and_then(|driver| driver.fs_group_policy.as_deref()) {
        Some("None") => false,
        Some("File") => true,
        // ReadWriteOnceWithFSType
        _ => writes_once && fs_type.is_some_and(|fs_type| !fs_type.is_empty()),
    };
    Some(VolumeGroup { gives_files, ..group })
}

fn secrets(objects: &Objects, namespace: &str, name: &str) -> Result<DriverSecrets, String> {
    let secret = objects
        .secret(namespace, name)
        .ok_or_else(|| format!("secret \"{namespace}/{name}\" of the driver not found"))?;
    let data = secret.data.iter().flatten();
    let data =
        data.map(|(key, value)| (key.clone(), String::from_utf8_lossy(&value.0).into_owned()));
    let text = secret.string_data.clone().unwrap_or_default();
    Ok(DriverSecrets(data.chain(text).collect()))
}

#[cfg(test)]
mod tests;
