//! The annotations by which an object names the manifest that it comes from, and its mount.
//!
//! A person finds the file by it. After a restart the source finds the objects of a file that does
//! not parse any more, and the objects socket finds that an object is not its own.

use serde_json::Value;

use super::workload::{JOB_FAILED_ANNOTATION, TEMPLATE_ANNOTATION};

pub(crate) use super::workload::WORKLOAD_ANNOTATION;

/// The annotation: the path of the file, relative to the folder.
pub const MANIFEST_ANNOTATION: &str = "headwater/manifest";

/// The annotation of an object whose manifest lies in a mount: the path of the mount, relative to the
/// folder, which is empty where the folder itself is one. After a restart the source knows by it that a
/// mount is missing.
pub(crate) const MOUNT_ANNOTATION: &str = "headwater/manifest-mount";

/// Whether a manifest describes `object`.
pub(crate) fn is_from_manifest(object: &Value) -> bool {
    !object["metadata"]["annotations"][MANIFEST_ANNOTATION].is_null()
}

/// The path of the manifest that describes `object`, relative to the folder.
pub(super) fn manifest_of(object: &Value) -> Option<&str> {
    object["metadata"]["annotations"][MANIFEST_ANNOTATION].as_str()
}

/// Whether `pod` is of a workload whose rollout may wait until a pod that left has ended.
pub(crate) fn delays_rollout(pod: &Value) -> bool {
    let workload = pod["metadata"]["annotations"][WORKLOAD_ANNOTATION].as_str();
    let kind = workload.and_then(|workload| Some(workload.split_once('/')?.0));
    kind.is_some_and(|kind| ["StatefulSet", "Deployment"].contains(&kind))
}

/// Removes the annotations, as of an object that was copied out of Headwater.
pub(crate) fn remove_origin(object: &mut Value) {
    let annotations = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut);
    if let Some(annotations) = annotations {
        annotations.remove(MANIFEST_ANNOTATION);
        annotations.remove(MOUNT_ANNOTATION);
    }
}

/// Removes the annotations by which a pod belongs to a workload, as of a pod that was copied out of
/// Headwater.
pub(crate) fn remove_workload(object: &mut Value) {
    let annotations = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut);
    if let Some(annotations) = annotations {
        for annotation in [WORKLOAD_ANNOTATION, TEMPLATE_ANNOTATION, JOB_FAILED_ANNOTATION] {
            annotations.remove(annotation);
        }
    }
}
