//! Who a certificate is of.

use std::fmt;
use std::str::FromStr;

use headwater_event::{NameError, NodeName};

/// What the URI of every principal begins with.
const SCHEME: &str = "headwater://";

/// Who a certificate is of: a URI among its subject alternative names says so, and nothing else
/// of it does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Principal {
    /// A node, `headwater://node/NAME`: reads its own streams, writes its own reports.
    Node(NodeName),
    /// A hub, `headwater://hub/NAME`. Edges go by its addresses, which the certificate names too.
    Hub(NodeName),
    /// A person or a program that asks, `headwater://operator/NAME`.
    Operator(NodeName),
}

/// Why a text is not the URI of a principal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PrincipalError {
    /// It begins otherwise, or the word after the scheme is not known.
    #[error(
        "{uri:?} is not headwater://node/NAME, headwater://hub/NAME or \
             headwater://operator/NAME"
    )]
    Form {
        /// The text.
        uri: String,
    },
    /// The name cannot be one.
    #[error("{uri:?} holds no name")]
    Name {
        /// The text.
        uri: String,
        /// Why not.
        source: NameError,
    },
}

impl Principal {
    /// Whether `uri` is meant to name a principal.
    pub(crate) fn claims(uri: &str) -> bool {
        uri.starts_with(SCHEME)
    }

    fn parts(&self) -> (&'static str, &NodeName) {
        match self {
            Self::Node(name) => ("node", name),
            Self::Hub(name) => ("hub", name),
            Self::Operator(name) => ("operator", name),
        }
    }

    /// The URI that a certificate names it by.
    pub fn uri(&self) -> String {
        let (role, name) = self.parts();
        format!("{SCHEME}{role}/{}", name.as_str())
    }
}

/// As people read it: `node a`.
impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (role, name) = self.parts();
        write!(f, "{role} {}", name.as_str())
    }
}

impl FromStr for Principal {
    type Err = PrincipalError;

    fn from_str(uri: &str) -> Result<Self, PrincipalError> {
        let form = || PrincipalError::Form { uri: uri.to_owned() };
        let rest = uri.strip_prefix(SCHEME).ok_or_else(form)?;
        let (role, name) = rest.split_once('/').ok_or_else(form)?;
        let principal = match role {
            "node" => Self::Node,
            "hub" => Self::Hub,
            "operator" => Self::Operator,
            _ => return Err(form()),
        };
        let name = NodeName::from_str(name);
        Ok(principal(name.map_err(|source| PrincipalError::Name { uri: uri.to_owned(), source })?))
    }
}
