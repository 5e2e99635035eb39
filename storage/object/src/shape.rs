//! The shape of an object: each field must have the type of the Kubernetes API.
//!
//! A cluster checks this on every write. For objects from files and sockets this module checks it,
//! so that the author of a wrong field learns of it before any edge receives it.

use headwater_event::ResourceKey;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::discovery::v1 as discovery;
use k8s_openapi::api::node::v1 as node;
use k8s_openapi::api::storage::v1 as storage;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::ObjectError;
use crate::object_type::ObjectType;
use crate::pod_rules;

/// Checks the fields of `object`, and ignores unknown fields.
pub(crate) fn check(
    object_type: &ObjectType,
    key: &ResourceKey,
    object: &Value,
) -> Result<(), ObjectError> {
    if object["apiVersion"].as_str() != Some(object_type.api_version) {
        // This is an older version of the type, whose fields are unknown here.
        return Ok(());
    }
    let outcome = match object_type.name {
        "pod" => fits::<core::Pod>(object),
        "node" => fits::<core::Node>(object),
        "configmap" => fits::<core::ConfigMap>(object),
        "secret" => fits::<core::Secret>(object),
        "service" => fits::<core::Service>(object),
        "endpoints" => fits::<core::Endpoints>(object),
        "endpointslice" => fits::<discovery::EndpointSlice>(object),
        "persistentvolume" => fits::<core::PersistentVolume>(object),
        "persistentvolumeclaim" => fits::<core::PersistentVolumeClaim>(object),
        "serviceaccount" => fits::<core::ServiceAccount>(object),
        "runtimeclass" => fits::<node::RuntimeClass>(object),
        "volumeattachment" => fits::<storage::VolumeAttachment>(object),
        "csidriver" => fits::<storage::CSIDriver>(object),
        _ => Ok(()),
    };
    let Err((path, reason)) = outcome.and_then(|()| contents(object_type, object)) else {
        return Ok(());
    };
    let reason = match object_type.name {
        // The usual reason quotes the value.
        "secret" => "not the type of the Kubernetes API (data is base64)".to_owned(),
        _ => reason,
    };
    Err(ObjectError::Shape { key: key.clone(), path, reason })
}

type Misfit = (String, String);

fn fits<T: DeserializeOwned>(object: &Value) -> Result<(), Misfit> {
    match serde_path_to_error::deserialize::<_, T>(object) {
        Ok(_) => Ok(()),
        Err(error) => Err((error.path().to_string(), error.into_inner().to_string())),
    }
}

/// Checks what the types leave open.
fn contents(object_type: &ObjectType, object: &Value) -> Result<(), Misfit> {
    match object_type.name {
        "pod" => pod_rules::check(object).map_err(|misfit| (misfit.path, misfit.reason)),
        _ => Ok(()),
    }
}
