//! The keys of resources and of entries in a stream's state.
//!
//! A resource key has KubeEdge's form `<namespace>/<type>/<name>`. The type decides the scope: an
//! object of one of the [`CLUSTER_SCOPED_TYPES`] is in no namespace, and its key has `null` in that
//! place. For every other type, known or not, `null` is a namespace like any other. An entry key is
//! a resource key or one of the few reserved keys, which begin with `!`.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// What a key has in place of a namespace if its type has none, as KubeEdge writes it
/// (`models.NullNamespace`). It is also the legal name of a namespace.
pub const NULL_NAMESPACE: &str = "null";

/// The types whose objects are in no namespace, of all types that keys name. A type that is not in
/// the table is namespaced. A type must be in the table before the first key of it is written,
/// because its row changes what such keys mean.
pub const CLUSTER_SCOPED_TYPES: [&str; 7] = [
    "certificatesigningrequest",
    "csidriver",
    "namespace",
    "node",
    "persistentvolume",
    "runtimeclass",
    "volumeattachment",
];

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
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
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
    /// The type is namespaced, and there is no namespace.
    #[error("{kind} {name} has no namespace; name it, because a {kind} is in one")]
    NoNamespace {
        /// The type.
        kind: String,
        /// The object's name.
        name: String,
    },
    /// The text is longer than [`KEY_BYTES_MAX`].
    #[error("the key has {bytes} bytes; at most {KEY_BYTES_MAX} are allowed")]
    TooLong {
        /// The length in bytes.
        bytes: usize,
    },
}

impl ResourceKey {
    /// Makes a key from its parts. `None` and an empty namespace mean the same.
    ///
    /// # Errors
    /// A namespaced type has no namespace; a part is empty, or contains `/`, white space or a
    /// control character.
    pub fn new(namespace: Option<&str>, kind: &str, name: &str) -> Result<Self, KeyError> {
        let namespace = match namespace.filter(|namespace| !namespace.is_empty()) {
            Some(namespace) => namespace,
            None if is_cluster_scoped(kind) => NULL_NAMESPACE,
            None => {
                return Err(KeyError::NoNamespace { kind: kind.to_owned(), name: name.to_owned() });
            }
        };
        format!("{namespace}/{kind}/{name}").parse()
    }

    /// The namespace; `None` for an object of a cluster-scoped type.
    pub fn namespace(&self) -> Option<&str> {
        let namespace = &self.text[..self.type_at - 1];
        (namespace != NULL_NAMESPACE || !is_cluster_scoped(self.kind())).then_some(namespace)
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

/// As its text: a map finds a key by it.
impl Hash for ResourceKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl Borrow<str> for ResourceKey {
    fn borrow(&self) -> &str {
        self.as_str()
    }
}

/// Whether objects of the type are in no namespace.
fn is_cluster_scoped(kind: &str) -> bool {
    CLUSTER_SCOPED_TYPES.contains(&kind)
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
    fn the_type_decides_the_scope_and_null_is_a_namespace() {
        for kind in ["pod", "podstatus", "secret", "unheard-of"] {
            let key: ResourceKey = format!("null/{kind}/x").parse().expect("well-formed");
            assert_eq!(key.namespace(), Some("null"), "{key}");
            assert_eq!(ResourceKey::new(Some("null"), kind, "x"), Ok(key));
            for none in [None, Some("")] {
                let refused = ResourceKey::new(none, kind, "x").expect_err("no namespace");
                assert!(matches!(refused, KeyError::NoNamespace { .. }), "{refused}");
            }
        }
        for kind in CLUSTER_SCOPED_TYPES {
            let key: ResourceKey = format!("null/{kind}/x").parse().expect("well-formed");
            assert_eq!(key.namespace(), None, "{key}");
            assert_eq!(ResourceKey::new(None, kind, "x"), Ok(key));
        }
        // Such an object does not exist, but its key remains distinct from that of the node.
        let foreign: ResourceKey = "shop/node/x".parse().expect("well-formed");
        assert_eq!(foreign.namespace(), Some("shop"));
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
        fn keys_survive_text(
            ns in "(null|default|[a-z0-9-]{1,20})",
            kind in "(pod|secret|node|persistentvolume|[a-z]{1,12})",
            name in "[a-z0-9.-]{1,40}",
        ) {
            let key = ResourceKey::new(Some(&ns), &kind, &name).expect("well-formed");
            prop_assert_eq!(key.as_str(), format!("{ns}/{kind}/{name}"), "today's form");
            prop_assert_eq!(key.as_str().parse::<ResourceKey>(), Ok(key.clone()));
            prop_assert_eq!(ResourceKey::new(key.namespace(), key.kind(), key.name()), Ok(key.clone()));
            let scope = if is_cluster_scoped(&kind) && ns == "null" { None } else { Some(&*ns) };
            prop_assert_eq!(key.namespace(), scope);
            let entry = EntryKey::from(key);
            prop_assert_eq!(entry.as_str().parse::<EntryKey>(), Ok(entry.clone()));
        }
    }
}
