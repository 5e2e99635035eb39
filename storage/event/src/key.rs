//! The keys of resources and of entries in a stream's state.
//!
//! A resource key has KubeEdge's form `<namespace>/<type>/<name>`, with `null` as the namespace of
//! a cluster-scoped object. An entry key is a resource key or one of the few reserved keys, which
//! begin with `!`.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The namespace of an object without one, as KubeEdge writes it (`models.NullNamespace`).
pub const NULL_NAMESPACE: &str = "null";

/// The key of the reserved entry with the streams of a node, in the node's private stream.
pub const STREAMS_KEY: &str = "!streams";

/// The key of the reserved entry that requests a full pod status snapshot from a node.
pub const SNAPSHOT_REQUEST_KEY: &str = "!snapshot-request";

/// The largest length of a key, in bytes: three DNS names of 253 bytes and their separators fit.
pub const KEY_BYTES_MAX: usize = 1024;

/// The identity of an object: `<namespace>/<type>/<name>`, the type in lower-case singular.
///
/// Keys are ordered as their text, so the keys of one namespace, and in it those of one type, are
/// adjacent. Clones share the text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ResourceKey {
    text: Arc<str>,
    type_at: usize,
    name_at: usize,
}

/// Why a text is not a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The text does not have the form `<namespace>/<type>/<name>`.
    #[error("{text:?} is not a resource key; write <namespace>/<type>/<name>")]
    Malformed {
        /// The text.
        text: String,
    },
    /// The text is longer than [`KEY_BYTES_MAX`].
    #[error("the key has {bytes} bytes; at most {KEY_BYTES_MAX} are allowed")]
    TooLong {
        /// The length in bytes.
        bytes: usize,
    },
}

impl ResourceKey {
    /// Makes a key from its parts. `None` or an empty namespace means cluster-scoped.
    ///
    /// # Errors
    /// A part is empty, or contains `/`, white space or a control character.
    pub fn new(namespace: Option<&str>, kind: &str, name: &str) -> Result<Self, KeyError> {
        let namespace = match namespace {
            None | Some("") => NULL_NAMESPACE,
            Some(namespace) => namespace,
        };
        format!("{namespace}/{kind}/{name}").parse()
    }

    /// The namespace; `None` for a cluster-scoped object.
    pub fn namespace(&self) -> Option<&str> {
        match &self.text[..self.type_at - 1] {
            NULL_NAMESPACE => None,
            namespace => Some(namespace),
        }
    }

    /// The type, lower-case singular: `pod`, `configmap`.
    pub fn kind(&self) -> &str {
        &self.text[self.type_at..self.name_at - 1]
    }

    /// The object's name.
    pub fn name(&self) -> &str {
        &self.text[self.name_at..]
    }

    /// The key with another type, for example the `podstatus` of a pod.
    #[must_use]
    pub fn with_kind(&self, kind: &str) -> Self {
        let namespace = &self.text[..self.type_at - 1];
        Self {
            text: format!("{namespace}/{kind}/{}", self.name()).into(),
            type_at: self.type_at,
            name_at: self.type_at + kind.len() + 1,
        }
    }

    /// The whole key as text.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl FromStr for ResourceKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let malformed = || KeyError::Malformed { text: text.to_owned() };
        if text.len() > KEY_BYTES_MAX {
            return Err(KeyError::TooLong { bytes: text.len() });
        }
        let mut parts = text.split('/');
        let (Some(namespace), Some(kind), Some(name), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(malformed());
        };
        let part_is_valid = |part: &str| {
            !part.is_empty() && !part.chars().any(|c| c.is_whitespace() || c.is_control())
        };
        if ![namespace, kind, name].into_iter().all(part_is_valid) || namespace.starts_with('!') {
            return Err(malformed());
        }
        let type_at = namespace.len() + 1;
        Ok(Self { text: text.into(), type_at, name_at: type_at + kind.len() + 1 })
    }
}

impl TryFrom<String> for ResourceKey {
    type Error = KeyError;

    fn try_from(text: String) -> Result<Self, KeyError> {
        text.parse()
    }
}

impl From<ResourceKey> for String {
    fn from(key: ResourceKey) -> Self {
        key.as_str().to_owned()
    }
}

impl fmt::Display for ResourceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for ResourceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}

/// The key of one entry in a stream's state.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum EntryKey {
    /// `!streams`: the streams of the node whose private stream this is.
    Streams,
    /// `!snapshot-request`: the number of the last requested full pod status snapshot, as a JSON
    /// number.
    SnapshotRequest,
    /// An object.
    Resource(ResourceKey),
}

impl EntryKey {
    /// The key as text: its form in the log and on disk.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Streams => STREAMS_KEY,
            Self::SnapshotRequest => SNAPSHOT_REQUEST_KEY,
            Self::Resource(key) => key.as_str(),
        }
    }

    /// The resource key; `None` for a reserved entry.
    pub fn resource(&self) -> Option<&ResourceKey> {
        match self {
            Self::Streams | Self::SnapshotRequest => None,
            Self::Resource(key) => Some(key),
        }
    }
}

impl From<ResourceKey> for EntryKey {
    fn from(key: ResourceKey) -> Self {
        Self::Resource(key)
    }
}

impl FromStr for EntryKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        match text {
            STREAMS_KEY => Ok(Self::Streams),
            SNAPSHOT_REQUEST_KEY => Ok(Self::SnapshotRequest),
            _ => text.parse().map(Self::Resource),
        }
    }
}

impl TryFrom<String> for EntryKey {
    type Error = KeyError;

    fn try_from(text: String) -> Result<Self, KeyError> {
        text.parse()
    }
}

impl From<EntryKey> for String {
    fn from(key: EntryKey) -> Self {
        key.as_str().to_owned()
    }
}

impl fmt::Display for EntryKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_key_returns_its_parts() {
        let key: ResourceKey = "shop/pod/web-0".parse().expect("well-formed");
        assert_eq!((key.namespace(), key.kind(), key.name()), (Some("shop"), "pod", "web-0"));
        assert_eq!(key.with_kind("podstatus").as_str(), "shop/podstatus/web-0");
        assert_eq!(key.with_kind("podstatus").name(), "web-0");
        let node = ResourceKey::new(None, "node", "gw-1").expect("well-formed");
        assert_eq!((node.as_str(), node.namespace()), ("null/node/gw-1", None));
    }

    #[test]
    fn malformed_keys_are_refused() {
        for bad in ["", "a", "a/b", "a/b/c/d", "/b/c", "a//c", "a/b/", "a/b/c d", "!a/b/c"] {
            assert!(bad.parse::<ResourceKey>().is_err(), "{bad:?}");
        }
        assert!(matches!(
            format!("a/b/{}", "c".repeat(KEY_BYTES_MAX)).parse::<EntryKey>(),
            Err(KeyError::TooLong { .. })
        ));
    }

    proptest! {
        #[test]
        fn keys_survive_text(ns in "[a-z0-9-]{1,20}", kind in "[a-z]{1,12}", name in "[a-z0-9.-]{1,40}") {
            let key = ResourceKey::new(Some(&ns), &kind, &name).expect("well-formed");
            prop_assert_eq!(key.as_str().parse::<ResourceKey>(), Ok(key.clone()));
            let entry = EntryKey::from(key);
            prop_assert_eq!(entry.as_str().parse::<EntryKey>(), Ok(entry.clone()));
        }
    }
}
