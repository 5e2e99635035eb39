//! The owner of a certificate.

use std::fmt;
use std::str::FromStr;

use headwater_event::{NameError, NodeName};

/// The prefix of every principal's URI.
const SCHEME: &str = "headwater://";

/// The owner of a certificate. Only a URI among the subject alternative names states it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Principal {
    /// A node, `headwater://node/NAME`. It reads its own streams and writes its own reports.
    Node(NodeName),
    /// A hub, `headwater://hub/NAME`. Edges verify its addresses, which the certificate also
    /// names.
    Hub(NodeName),
    /// A controller, `headwater://controller/NAME`. Hubs verify its addresses, which the certificate
    /// also names.
    Controller(NodeName),
    /// A person or a program that uses the operator API, `headwater://operator/NAME`.
    Operator(NodeName),
}

/// Why a text is not the URI of a principal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PrincipalError {
    /// The scheme or the role is unknown.
    #[error(
        "{uri:?} is not headwater://node/NAME, headwater://hub/NAME, \
             headwater://controller/NAME or headwater://operator/NAME"
    )]
    Form {
        /// The text.
        uri: String,
    },
    /// The name is not valid.
    #[error("{uri:?} has no valid name")]
    Name {
        /// The text.
        uri: String,
        /// The rule that it breaks.
        source: NameError,
    },
}

impl Principal {
    /// Whether `uri` has the scheme of a principal.
    pub(crate) fn claims(uri: &str) -> bool {
        uri.starts_with(SCHEME)
    }

    fn parts(&self) -> (&'static str, &NodeName) {
        match self {
            Self::Node(name) => ("node", name),
            Self::Hub(name) => ("hub", name),
            Self::Controller(name) => ("controller", name),
            Self::Operator(name) => ("operator", name),
        }
    }

    /// The URI in the principal's certificate.
    pub fn uri(&self) -> String {
        let (role, name) = self.parts();
        format!("{SCHEME}{role}/{}", name.as_str())
    }
}

/// For people: `node a`.
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
            "controller" => Self::Controller,
            "operator" => Self::Operator,
            _ => return Err(form()),
        };
        let name = NodeName::from_str(name);
        Ok(principal(name.map_err(|source| PrincipalError::Name { uri: uri.to_owned(), source })?))
    }
}
