//! The reasons to refuse an object. Each error names the object as far as it is known.

use headwater_event::{KeyError, NameError, ResourceKey};

use crate::payload::OBJECT_BYTES_MAX;

/// The reason why a JSON value is not accepted as an object.
#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    /// The bytes are not JSON.
    #[error("not JSON")]
    Json(#[source] serde_json::Error),
    /// The value is a list, a text or a number.
    #[error(
        "not a Kubernetes object: want a map with apiVersion, kind and metadata, found {found}"
    )]
    NotAMap {
        /// The type of the value.
        found: &'static str,
    },
    /// `apiVersion` or `kind` is missing or not a text.
    #[error("not a Kubernetes object: it has no {field}")]
    Untyped {
        /// The missing field.
        field: &'static str,
    },
    /// The log does not carry objects of this type.
    #[error("{kind} of {api_version} is not a replicated type")]
    NotReplicated {
        /// Its `apiVersion`.
        api_version: String,
        /// Its `kind`.
        kind: String,
    },
    /// `metadata.name` is missing or not a text.
    #[error("{kind} without metadata.name")]
    Nameless {
        /// The kind of the object.
        kind: String,
    },
    /// Kubernetes does not allow this `metadata.name`.
    #[error("{kind} with an invalid name")]
    Name {
        /// The kind of the object.
        kind: String,
        /// The cause.
        source: NameError,
    },
    /// Kubernetes does not allow this `metadata.namespace`.
    #[error("{kind} {name:?} with an invalid namespace")]
    Namespace {
        /// The kind of the object.
        kind: String,
        /// Its name.
        name: String,
        /// The cause.
        source: NameError,
    },
    /// Type, namespace and name do not form a key.
    #[error("{kind} without a valid key")]
    Key {
        /// The kind of the object.
        kind: String,
        /// The cause.
        source: KeyError,
    },
    /// The type of a field differs from that in the Kubernetes API.
    #[error("{key}: {path}: {reason}")]
    Shape {
        /// The object.
        key: ResourceKey,
        /// The field, as `spec.containers[0].env[1].value`.
        path: String,
        /// The cause.
        reason: String,
    },
    /// The object is larger than the limit of Kubernetes.
    #[error("{key}: the object has {bytes} bytes; the maximum is {OBJECT_BYTES_MAX}")]
    TooLarge {
        /// The object.
        key: ResourceKey,
        /// Its size in bytes.
        bytes: usize,
    },
}
