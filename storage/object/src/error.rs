//! Why something is no object: each error names the object as far as it is known.

use headwater_event::{KeyError, NameError, ResourceKey};

use crate::payload::OBJECT_BYTES_MAX;

/// Why a JSON value is not accepted as an object. Nothing was kept of it.
#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    /// The bytes are no JSON.
    #[error("not JSON")]
    Json(#[source] serde_json::Error),
    /// The value is a list, a text or a number.
    #[error(
        "not a Kubernetes object: want a map with apiVersion, kind and metadata, found {found}"
    )]
    NotAMap {
        /// What it is instead.
        found: &'static str,
    },
    /// `apiVersion` or `kind` is missing, or no text.
    #[error("not a Kubernetes object: it has no {field}")]
    Untyped {
        /// The missing field.
        field: &'static str,
    },
    /// The type is none that the log carries.
    #[error("{kind} of {api_version} is not a replicated type")]
    NotReplicated {
        /// Its `apiVersion`.
        api_version: String,
        /// Its `kind`.
        kind: String,
    },
    /// `metadata.name` is missing, or no text.
    #[error("{kind} without metadata.name")]
    Nameless {
        /// The kind of the object.
        kind: String,
    },
    /// `metadata.name` is none that Kubernetes allows.
    #[error("{kind} with an invalid name")]
    Name {
        /// The kind of the object.
        kind: String,
        /// What is wrong.
        source: NameError,
    },
    /// `metadata.namespace` is none that Kubernetes allows.
    #[error("{kind} {name:?} with an invalid namespace")]
    Namespace {
        /// The kind of the object.
        kind: String,
        /// Its name.
        name: String,
        /// What is wrong.
        source: NameError,
    },
    /// Type, namespace and name make no key.
    #[error("{kind} that has no key")]
    Key {
        /// The kind of the object.
        kind: String,
        /// What is wrong.
        source: KeyError,
    },
    /// A field has another type than the Kubernetes API gives it.
    #[error("{key}: {path}: {reason}")]
    Shape {
        /// The object.
        key: ResourceKey,
        /// The field, as `spec.containers[0].env[1].value`.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The object is larger than Kubernetes itself would store.
    #[error("{key}: {bytes} bytes, at most {OBJECT_BYTES_MAX} are replicated")]
    TooLarge {
        /// The object.
        key: ResourceKey,
        /// Its size in bytes.
        bytes: usize,
    },
}
