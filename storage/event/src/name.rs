//! Node names: the constructor validates a name once, all other code trusts it.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The largest length of a node name, in bytes: that of a DNS-1123 subdomain (Kubernetes "Object
/// Names and IDs").
pub const NODE_NAME_BYTES_MAX: usize = 253;

/// The largest length of a DNS-1123 label, in bytes (RFC 1123 section 2.1).
pub const LABEL_BYTES_MAX: usize = 63;

/// The name of an edge node: a DNS-1123 subdomain. Clones share the text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NodeName(Arc<str>);

/// Why a text is not a DNS-1123 subdomain.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The name is empty.
    #[error("a name must not be empty")]
    Empty,
    /// The name is longer than [`NODE_NAME_BYTES_MAX`].
    #[error("the name has {bytes} characters; at most {NODE_NAME_BYTES_MAX} are allowed")]
    TooLong {
        /// The length in bytes.
        bytes: usize,
    },
    /// The name has a character or a label that DNS-1123 does not allow.
    #[error(
        "{name:?} is not a DNS-1123 subdomain; use lower-case letters, digits, '-' and '.', and \
         start and end each label with a letter or digit"
    )]
    Malformed {
        /// The name.
        name: String,
    },
    /// The name is not a single DNS-1123 label, which is required here.
    #[error(
        "{name:?} is not a DNS-1123 label; use at most {LABEL_BYTES_MAX} characters and no '.'"
    )]
    NotALabel {
        /// The name.
        name: String,
    },
}

impl NodeName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Checks that `name` is a DNS-1123 subdomain, the form of most Kubernetes object names.
///
/// # Errors
/// The rule that `name` breaks; see [`NameError`].
pub fn check_dns1123_subdomain(name: &str) -> Result<(), NameError> {
    if name.is_empty() {
        return Err(NameError::Empty);
    }
    if name.len() > NODE_NAME_BYTES_MAX {
        return Err(NameError::TooLong { bytes: name.len() });
    }
    let label_is_valid = |label: &str| {
        let bytes = label.as_bytes();
        !bytes.is_empty()
            && bytes.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-')
            && bytes[0] != b'-'
            && bytes[bytes.len() - 1] != b'-'
    };
    if name.split('.').all(label_is_valid) {
        Ok(())
    } else {
        Err(NameError::Malformed { name: name.to_owned() })
    }
}

/// Checks that `name` is a DNS-1123 label, the form of the names of namespaces and Services.
///
/// # Errors
/// The rule that `name` breaks; see [`NameError`].
pub fn check_dns1123_label(name: &str) -> Result<(), NameError> {
    check_dns1123_subdomain(name)?;
    if name.len() > LABEL_BYTES_MAX || name.contains('.') {
        return Err(NameError::NotALabel { name: name.to_owned() });
    }
    Ok(())
}

impl TryFrom<String> for NodeName {
    type Error = NameError;

    fn try_from(name: String) -> Result<Self, NameError> {
        check_dns1123_subdomain(&name)?;
        Ok(Self(name.into()))
    }
}

impl FromStr for NodeName {
    type Err = NameError;

    fn from_str(name: &str) -> Result<Self, NameError> {
        Self::try_from(name.to_owned())
    }
}

impl From<NodeName> for String {
    fn from(name: NodeName) -> Self {
        name.as_str().to_owned()
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_dns1123_subdomains() {
        for good in ["a", "node-1", "gw.tunnel-7.example", "0"] {
            assert!(good.parse::<NodeName>().is_ok(), "{good}");
        }
        for bad in ["", "Node", "-a", "a-", "a..b", "a/b", "a b", "ä"] {
            assert!(bad.parse::<NodeName>().is_err(), "{bad}");
        }
        let long = "a".repeat(NODE_NAME_BYTES_MAX + 1);
        assert_eq!(long.parse::<NodeName>(), Err(NameError::TooLong { bytes: long.len() }));
        assert!(long[1..].parse::<NodeName>().is_ok());
        assert!(check_dns1123_label("a-b").is_ok());
        assert!(matches!(check_dns1123_label("a.b"), Err(NameError::NotALabel { .. })));
        assert!(check_dns1123_label(&"a".repeat(LABEL_BYTES_MAX + 1)).is_err());
    }
}
