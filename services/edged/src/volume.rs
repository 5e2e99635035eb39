//! What a pod's volumes hold, decided from its spec and the objects at hand.
//!
//! Pure: which files with which content; laying them on a disk is the runtime's.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    ConfigMap, DownwardAPIVolumeFile, KeyToPath, Pod, ProjectedVolumeSource, Secret,
    Volume as VolumeSpec, VolumeProjection,
};

use crate::field::{self, FieldSource};
use crate::objects::Objects;
use crate::pod::is_plain_name;
use crate::runtime::Waiting;

/// A volume and what it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// Its name in the pod.
    pub name: String,
    /// What it holds.
    pub content: Content,
}

/// What a volume holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// These files, replaced together when one changes.
    Files(BTreeMap<String, File>),
    /// Whatever the containers write; gone with the pod.
    Empty,
    /// A path of the host.
    Host {
        /// The path.
        path: String,
        /// Kubernetes' hostPath type; empty for no check.
        kind: String,
    },
    /// A directory of the node that belongs to a claim and outlives the pod.
    Claim {
        /// The claim's namespace.
        namespace: String,
        /// The claim's name.
        name: String,
    },
    /// Something that only a storage driver could provide.
    Unsupported {
        /// What the pod asks for.
        kind: &'static str,
    },
}

/// A file of a volume.
#[derive(Clone, PartialEq, Eq)]
pub struct File {
    /// Its content.
    pub bytes: Vec<u8>,
    /// Its permission bits.
    pub mode: u32,
}

// The content may be secret.
impl std::fmt::Debug for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "File({} bytes, {:o})", self.bytes.len(), self.mode)
    }
}

/// Kubernetes' `defaultMode`.
const MODE_DEFAULT: u32 = 0o644;
/// Only permission bits count.
const MODE_MASK: u32 = 0o777;

/// What the pod's volumes hold.
///
/// # Errors
/// What has to be there first, named.
pub(crate) fn resolve(fields: &FieldSource<'_>, objects: &Objects) -> Result<Vec<Volume>, Waiting> {
    let volumes = fields.pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref());
    volumes.unwrap_or_default().iter().map(|spec| resolve_one(spec, fields, objects)).collect()
}

fn resolve_one(
    spec: &VolumeSpec,
    fields: &FieldSource<'_>,
    objects: &Objects,
) -> Result<Volume, Waiting> {
    if !is_plain_name(&spec.name) {
        return Err(not_set_up(&spec.name, "the name is no DNS label"));
    }
    let namespace = namespace(fields.pod);
    let content =
        content(spec, namespace, fields, objects).map_err(|why| not_set_up(&spec.name, &why))?;
    Ok(Volume { name: spec.name.clone(), content })
}

fn content(
    spec: &VolumeSpec,
    namespace: &str,
    fields: &FieldSource<'_>,
    objects: &Objects,
) -> Result<Content, String> {
    let mut files = BTreeMap::new();
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
        add_projected(&mut files, source, namespace, fields, objects)?;
    } else if spec.empty_dir.is_some() {
        return Ok(Content::Empty);
    } else if let Some(source) = &spec.host_path {
        let kind = source.type_.clone().unwrap_or_default();
        return Ok(Content::Host { path: source.path.clone(), kind });
    } else if let Some(source) = &spec.persistent_volume_claim {
        return claim(namespace, &source.claim_name, objects);
    } else {
        return Ok(Content::Unsupported { kind: kind_of(spec) });
    }
    Ok(Content::Files(files))
}

/// A claim is its volume's host path where it has one, else a directory of the node's own.
fn claim(namespace: &str, name: &str, objects: &Objects) -> Result<Content, String> {
    let claim = objects
        .claim(namespace, name)
        .ok_or_else(|| format!("persistentvolumeclaim \"{name}\" not found"))?;
    let bound = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref());
    let Some(bound) = bound.filter(|bound| !bound.is_empty()) else {
        return Ok(Content::Claim { namespace: namespace.to_owned(), name: name.to_owned() });
    };
    let volume = objects
        .volume(bound)
        .ok_or_else(|| format!("persistentvolume \"{bound}\" of claim \"{name}\" not found"))?;
    let spec = volume.spec.as_ref();
    if let Some(source) = spec.and_then(|spec| spec.host_path.as_ref()) {
        let kind = source.type_.clone().unwrap_or_default();
        Ok(Content::Host { path: source.path.clone(), kind })
    } else if let Some(source) = spec.and_then(|spec| spec.local.as_ref()) {
        Ok(Content::Host { path: source.path.clone(), kind: String::new() })
    } else {
        Ok(Content::Unsupported { kind: "persistentVolume without hostPath or local" })
    }
}

type Files = BTreeMap<String, File>;

fn add_config_map(
    files: &mut Files,
    map: Option<&ConfigMap>,
    name: &str,
    items: Option<&[KeyToPath]>,
    mode: u32,
    optional: bool,
) -> Result<(), String> {
    let Some(map) = map else {
        return if optional { Ok(()) } else { Err(format!("configmap \"{name}\" not found")) };
    };
    let text = map.data.iter().flatten().map(|(key, text)| (key.as_str(), text.as_bytes()));
    let binary = map.binary_data.iter().flatten().map(|(key, b)| (key.as_str(), b.0.as_slice()));
    add_keys(files, &text.chain(binary).collect(), items, mode, optional)
        .map_err(|key| format!("configmap \"{name}\" has no key \"{key}\""))
}

fn add_secret(
    files: &mut Files,
    secret: Option<&Secret>,
    name: &str,
    items: Option<&[KeyToPath]>,
    mode: u32,
    optional: bool,
) -> Result<(), String> {
    let Some(secret) = secret else {
        return if optional { Ok(()) } else { Err(format!("secret \"{name}\" not found")) };
    };
    let data = secret.data.iter().flatten().map(|(key, bytes)| (key.as_str(), bytes.0.as_slice()));
    // `stringData` is write-only in the API, but a manifest folder hands objects over as they are.
    let text = secret.string_data.iter().flatten().map(|(key, t)| (key.as_str(), t.as_bytes()));
    add_keys(files, &data.chain(text).collect(), items, mode, optional)
        .map_err(|key| format!("secret \"{name}\" has no key \"{key}\""))
}

/// Every key, or the items; an item's key that is missing is the error.
fn add_keys(
    files: &mut Files,
    data: &BTreeMap<&str, &[u8]>,
    items: Option<&[KeyToPath]>,
    mode_default: u32,
    optional: bool,
) -> Result<(), String> {
    let Some(items) = items.filter(|items| !items.is_empty()) else {
        for (key, bytes) in data {
            if is_safe_path(key) {
                let file = File { bytes: bytes.to_vec(), mode: mode_default };
                files.insert((*key).to_owned(), file);
            }
        }
        return Ok(());
    };
    for item in items {
        let Some(bytes) = data.get(item.key.as_str()).filter(|_| is_safe_path(&item.path)) else {
            if optional {
                continue;
            }
            return Err(item.key.clone());
        };
        let mode = mode(item.mode, mode_default);
        files.insert(item.path.clone(), File { bytes: bytes.to_vec(), mode });
    }
    Ok(())
}

fn add_fields(
    files: &mut Files,
    items: Option<&[DownwardAPIVolumeFile]>,
    fields: &FieldSource<'_>,
    mode_default: u32,
) -> Result<(), String> {
    for item in items.unwrap_or_default() {
        if !is_safe_path(&item.path) {
            return Err(format!("path {:?} leaves the volume", item.path));
        }
        let text = if let Some(field) = &item.field_ref {
            fields.field(&field.field_path)?
        } else if let Some(resource) = &item.resource_field_ref {
            field::resource(fields.pod, resource, None)?
        } else {
            continue;
        };
        let mode = mode(item.mode, mode_default);
        files.insert(item.path.clone(), File { bytes: text.into_bytes(), mode });
    }
    Ok(())
}

fn add_projected(
    files: &mut Files,
    source: &ProjectedVolumeSource,
    namespace: &str,
    fields: &FieldSource<'_>,
    objects: &Objects,
) -> Result<(), String> {
    let mode = mode(source.default_mode, MODE_DEFAULT);
    for part in source.sources.iter().flatten() {
        let VolumeProjection { config_map, secret, downward_api, .. } = part;
        if let Some(source) = config_map {
            let map = objects.config_map(namespace, &source.name);
            let optional = source.optional.unwrap_or(false);
            add_config_map(files, map, &source.name, source.items.as_deref(), mode, optional)?;
        }
        if let Some(source) = secret {
            let secret = objects.secret(namespace, &source.name);
            let optional = source.optional.unwrap_or(false);
            add_secret(files, secret, &source.name, source.items.as_deref(), mode, optional)?;
        }
        if let Some(source) = downward_api {
            add_fields(files, source.items.as_deref(), fields, mode)?;
        }
        // Service account tokens and trust bundles live in the cloud: such a file is absent
        // here, and every other part of the volume is there.
    }
    Ok(())
}

/// The pod's namespace.
pub(crate) fn namespace(pod: &Pod) -> &str {
    pod.metadata.namespace.as_deref().unwrap_or("default")
}

fn mode(mode: Option<i32>, default: u32) -> u32 {
    mode.and_then(|mode| u32::try_from(mode).ok()).unwrap_or(default) & MODE_MASK
}

/// A relative path whose parts all lie inside the volume and do not clash with `..data`.
pub(crate) fn is_safe_path(path: &str) -> bool {
    !path.is_empty()
        && !path.starts_with('/')
        && !path.contains('\0')
        && path.split('/').all(|part| !part.is_empty() && part != "." && !part.starts_with(".."))
}

fn kind_of(spec: &VolumeSpec) -> &'static str {
    if spec.csi.is_some() {
        "csi"
    } else if spec.nfs.is_some() {
        "nfs"
    } else if spec.ephemeral.is_some() {
        "ephemeral"
    } else if spec.image.is_some() {
        "image"
    } else {
        "a storage driver"
    }
}

fn not_set_up(volume: &str, why: &str) -> Waiting {
    Waiting {
        reason: "ContainerCreating",
        message: format!("MountVolume.SetUp failed for volume \"{volume}\" : {why}"),
    }
}

#[cfg(test)]
mod tests;
