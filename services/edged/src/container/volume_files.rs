//! The files of a volume, from the objects and fields that its source names.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    ConfigMap, DownwardAPIVolumeFile, KeyToPath, Pod, ProjectedVolumeSource, Secret,
    ServiceAccountTokenProjection, VolumeProjection,
};

use super::downward_api::{self, FieldSource};
use super::token::{self, FindToken, TokenFile};
use super::volume::VolumeFile;
use crate::desired::objects::Objects;

/// Kubernetes' `defaultMode`.
pub(super) const MODE_DEFAULT: u32 = 0o644;
/// Only permission bits count.
const MODE_MASK: u32 = 0o777;

/// The files of all volumes of a pod together: twenty objects of the largest size. A worker keeps
/// them in memory, and a small pod can name one large object in many volumes.
pub(super) const POD_BYTES_MAX: usize = 32 << 20;

/// The files of one volume, by their path in it.
#[derive(Debug)]
pub(super) struct Files<'a> {
    files: BTreeMap<String, VolumeFile>,
    /// Bytes that the pod's volumes may still have.
    left: &'a mut usize,
}

impl<'a> Files<'a> {
    /// No files.
    pub(super) fn new(left: &'a mut usize) -> Self {
        Self { files: BTreeMap::new(), left }
    }

    /// The files.
    pub(super) fn into_files(self) -> BTreeMap<String, VolumeFile> {
        self.files
    }

    fn insert(&mut self, path: &str, bytes: &[u8], mode: u32) -> Result<(), String> {
        self.insert_file(path, VolumeFile { bytes: Some(bytes.to_vec()), mode, owner: None })
    }

    fn insert_file(&mut self, path: &str, file: VolumeFile) -> Result<(), String> {
        let bytes = file.bytes.as_ref().map_or(0, Vec::len);
        let left = self.left.checked_sub(path.len() + bytes);
        *self.left = left.ok_or_else(|| {
            format!("the files of the pod's volumes have more than {POD_BYTES_MAX} bytes")
        })?;
        self.files.insert(path.to_owned(), file);
        Ok(())
    }
}

/// Adds the files of a ConfigMap.
pub(super) fn add_config_map(
    files: &mut Files<'_>,
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
    let object = format!("configmap \"{name}\"");
    add_keys(files, &object, &text.chain(binary).collect(), items, mode, optional)
}

/// Adds the files of a Secret.
pub(super) fn add_secret(
    files: &mut Files<'_>,
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
    // `stringData` is write-only in the API, but a manifest folder passes objects on unchanged.
    let text = secret.string_data.iter().flatten().map(|(key, t)| (key.as_str(), t.as_bytes()));
    let object = format!("secret \"{name}\"");
    add_keys(files, &object, &data.chain(text).collect(), items, mode, optional)
}

/// Adds a file for every key of the object, or for each item.
fn add_keys(
    files: &mut Files<'_>,
    object: &str,
    data: &BTreeMap<&str, &[u8]>,
    items: Option<&[KeyToPath]>,
    mode_default: u32,
    optional: bool,
) -> Result<(), String> {
    let Some(items) = items.filter(|items| !items.is_empty()) else {
        for (key, bytes) in data {
            if is_safe_path(key) {
                files.insert(key, bytes, mode_default)?;
            }
        }
        return Ok(());
    };
    for item in items {
        let Some(bytes) = data.get(item.key.as_str()).filter(|_| is_safe_path(&item.path)) else {
            if optional {
                continue;
            }
            return Err(format!("{object} has no key \"{}\"", item.key));
        };
        let mode = mode(item.mode, mode_default);
        files.insert(&item.path, bytes, mode)?;
    }
    Ok(())
}

/// Adds the files of the downward API.
pub(super) fn add_fields(
    files: &mut Files<'_>,
    items: Option<&[DownwardAPIVolumeFile]>,
    fields: &FieldSource<'_>,
    mode_default: u32,
) -> Result<(), String> {
    for item in items.unwrap_or_default() {
        check_path(&item.path)?;
        let text = if let Some(field) = &item.field_ref {
            fields.field(&field.field_path)?
        } else if let Some(resource) = &item.resource_field_ref {
            downward_api::resource(fields, resource, None)?
        } else {
            continue;
        };
        let mode = mode(item.mode, mode_default);
        files.insert(&item.path, text.as_bytes(), mode)?;
    }
    Ok(())
}

/// Adds the files of all sources of a projected volume.
pub(super) fn add_projected(
    files: &mut Files<'_>,
    source: &ProjectedVolumeSource,
    namespace: &str,
    fields: &FieldSource<'_>,
    objects: &Objects,
    tokens: &FindToken<'_>,
) -> Result<(), String> {
    let mode = mode(source.default_mode, MODE_DEFAULT);
    for part in source.sources.iter().flatten() {
        let VolumeProjection { config_map, secret, downward_api, service_account_token, .. } = part;
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
        if let Some(source) = service_account_token {
            add_token(files, source, fields.pod, mode, tokens)?;
        }
    }
    Ok(())
}

/// Adds the file of a token.
fn add_token(
    files: &mut Files<'_>,
    source: &ServiceAccountTokenProjection,
    pod: &Pod,
    mode_of_volume: u32,
    tokens: &FindToken<'_>,
) -> Result<(), String> {
    check_path(&source.path)?;
    let claim = token::claim(pod, source.audience.as_deref(), source.expiration_seconds)?;
    let failed = |why: String| format!("failed to fetch token: {why}");
    let bytes = match tokens(&claim).map_err(failed)? {
        TokenFile::Token(token) => Some(token.text().as_bytes().to_vec()),
        TokenFile::Kept => None,
        TokenFile::Absent => return Ok(()),
    };
    let (mode, owner) = token::mode_and_owner(pod, mode_of_volume);
    files.insert_file(&source.path, VolumeFile { bytes, mode, owner })
}

/// The permission bits of a file.
pub(super) fn mode(mode: Option<i32>, default: u32) -> u32 {
    mode.and_then(|mode| u32::try_from(mode).ok()).unwrap_or(default) & MODE_MASK
}

fn check_path(path: &str) -> Result<(), String> {
    if is_safe_path(path) { Ok(()) } else { Err(format!("path {path:?} leaves the volume")) }
}

/// True for a relative path that stays inside the volume and does not clash with `..data`.
pub(super) fn is_safe_path(path: &str) -> bool {
    !path.is_empty()
        && !path.starts_with('/')
        && !path.contains('\0')
        && path.split('/').all(|part| !part.is_empty() && part != "." && !part.starts_with(".."))
}
