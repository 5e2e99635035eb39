//! The shape of an object: whether each field has the type that the Kubernetes API gives it.
//!
//! A cluster checks this on every write. Files and sockets are not a cluster, and a wrong field is
//! better named to the one who wrote it than found by every edge.

use headwater_event::ResourceKey;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::discovery::v1 as discovery;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::ObjectError;
use crate::object_type::ObjectType;

/// Checks the fields of `object`; those that this release does not know are passed over.
pub(crate) fn check(
    object_type: &ObjectType,
    key: &ResourceKey,
    object: &Value,
) -> Result<(), ObjectError> {
    if object["apiVersion"].as_str() != Some(object_type.api_version) {
        // An older version of the type; its fields are not known here.
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
        _ => Ok(()),
    };
    let Err((path, reason)) = outcome.and_then(|()| contents(object_type, object)) else {
        return Ok(());
    };
    let reason = match object_type.name {
        // The usual reason quotes what it found.
        "secret" => "not what the Kubernetes API wants here (data is base64)".to_owned(),
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

/// What the types leave open and nothing can do without.
fn contents(object_type: &ObjectType, object: &Value) -> Result<(), Misfit> {
    if object_type.name != "pod" {
        return Ok(());
    }
    let containers = object["spec"]["containers"].as_array().map_or(&[][..], Vec::as_slice);
    if containers.is_empty() {
        return Err(("spec.containers".to_owned(), "a pod has at least one container".to_owned()));
    }
    for (at, container) in containers.iter().enumerate() {
        if container["name"].as_str().is_none_or(str::is_empty) {
            let path = format!("spec.containers[{at}].name");
            return Err((path, "a container has a name".to_owned()));
        }
    }
    Ok(())
}
