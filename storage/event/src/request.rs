//! Requests of a node to the cloud, and why one has no answer.
//!
//! An edge sends a request to its hub, and the hub to the active controller. Each of the three checks it.
//! Nothing is retried on the way: a node that still needs the answer requests it again. A time on the way
//! is a duration, so that no clock of one machine is compared with that of another.

use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use bytes::Bytes;

use crate::key::ResourceKey;
use crate::name::NodeName;

/// Bytes of the largest body of a request or an answer: more than the largest object of an API server.
pub const REQUEST_BODY_BYTES_MAX: usize = 2 << 20;

/// The share of a request's time that each part on the way keeps for the way back: one tenth, and no
/// more than this.
const WAY_BACK_MAX: Duration = Duration::from_millis(500);

/// A request of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRequest {
    /// The node, as its certificate names it.
    pub node: NodeName,
    /// How long the sender waits for the answer.
    pub timeout: Duration,
    /// What the node asks for.
    pub verb: RequestVerb,
    /// The object that the request is about.
    pub key: ResourceKey,
    /// The input of the verb; empty for a get.
    pub body: Bytes,
}

/// What a node asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RequestVerb {
    /// The object's JSON.
    Get,
    /// A token of a ServiceAccount, bound to a pod of the node. The key names the account, the body is a
    /// `TokenRequest`, and so is the answer.
    Token,
    /// A certificate of the node. The key and the body are a `CertificateSigningRequest`, and so is the
    /// answer. It has the certificate once the cluster has issued it: the node asks again until then.
    Csr,
}

/// The body of an answer. It may be a Secret or a token, so its text appears in no debug output.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct AnswerBody(Bytes);

/// Why a request has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// There is no such object.
    #[error("not found")]
    NotFound,
    /// The node may not do this.
    #[error("forbidden: {0}")]
    Forbidden(String),
    /// There is no answer at present. Whether the request had an effect is unknown.
    #[error("unavailable: {0}")]
    Unavailable(String),
    /// The present state does not permit the request; nothing was done.
    #[error("conflict: {0}")]
    Conflict(String),
    /// The request is malformed: it has no answer, whenever it is sent.
    #[error("invalid: {0}")]
    Invalid(String),
    /// Too many requests are in flight; nothing was done.
    #[error("too many requests: {0}")]
    TooMany(String),
}

/// Whether a node may get an object, as far as its key decides that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GetRule {
    /// It may.
    Allowed,
    /// It may if its stream has the object, or one of its pods names it.
    Named,
    /// It may if it has the shared stream.
    Shared,
    /// It may if the object's own spec names the node.
    OfSpec,
    /// It may not, for this reason.
    Forbidden(&'static str),
}

impl NodeRequest {
    /// When the receiver answers at the latest, so that the answer is back before the sender gives up.
    pub fn answer_within(&self) -> Duration {
        self.timeout.saturating_sub((self.timeout / 10).min(WAY_BACK_MAX))
    }
}

impl RequestVerb {
    /// Every verb.
    pub const ALL: [Self; 3] = [Self::Get, Self::Token, Self::Csr];

    /// Checks the length of the body of a request before it is sent on. A check that writes a body anew may
    /// make it longer.
    ///
    /// # Errors
    /// [`RequestError::Invalid`] with verb and length above [`REQUEST_BODY_BYTES_MAX`].
    pub fn check_body(self, body: &[u8]) -> Result<(), RequestError> {
        let (found, max) = (body.len(), REQUEST_BODY_BYTES_MAX);
        if found > max {
            let what = format!("the body of the {self} has {found} bytes, want at most {max}");
            return Err(RequestError::Invalid(what));
        }
        Ok(())
    }
}

impl fmt::Display for RequestVerb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Get => "get",
            Self::Token => "token",
            Self::Csr => "csr",
        })
    }
}

impl RequestError {
    /// The reason why a get of an object that no pod names is forbidden.
    pub const NOT_NAMED: &str = "no pod of this node names the object";

    /// The reason why a hub cannot tell yet what a node may request.
    pub const LOG_NOT_READ: &str = "the hub still reads the log; ask again";

    /// The same for an edge of an earlier version, which knows three errors.
    #[must_use]
    pub fn for_earlier_edge(self) -> Self {
        match self {
            error @ (Self::Conflict(_) | Self::Invalid(_) | Self::TooMany(_)) => {
                Self::Unavailable(error.to_string())
            }
            error => error,
        }
    }
}

impl GetRule {
    /// The rule for a get of `key` by `node`.
    pub fn of(node: &NodeName, key: &ResourceKey) -> Self {
        match key.kind() {
            "node" if key.name() == node.as_str() => Self::Allowed,
            "node" => Self::Forbidden("a node may get its own Node only"),
            "volumeattachment" => Self::OfSpec,
            "endpoints" => Self::Shared,
            _ => Self::Named,
        }
    }
}

impl AnswerBody {
    /// The bytes.
    pub fn into_bytes(self) -> Bytes {
        self.0
    }
}

impl From<Bytes> for AnswerBody {
    fn from(bytes: Bytes) -> Self {
        Self(bytes)
    }
}

impl Deref for AnswerBody {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

/// Its length only.
impl fmt::Debug for AnswerBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AnswerBody({} bytes)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_an_answer_is_in_no_debug_output() {
        let answer: Result<AnswerBody, RequestError> =
            Ok(Bytes::from_static(b"{\"token\":\"secret\"}").into());
        let shown = format!("{answer:?} {answer:#?}");
        assert!(!shown.contains("secret") && shown.contains("18 bytes"), "{shown}");
    }

    #[test]
    fn each_part_on_the_way_answers_before_the_one_before_it_gives_up() {
        let request = |timeout_ms| NodeRequest {
            node: "gw".parse().expect("a name"),
            timeout: Duration::from_millis(timeout_ms),
            verb: RequestVerb::Get,
            key: "d/configmap/c".parse().expect("a key"),
            body: Bytes::new(),
        };
        for (timeout_ms, within_ms) in [(0, 0), (100, 90), (2_000, 1_800), (60_000, 59_500)] {
            let within = request(timeout_ms).answer_within();
            assert_eq!(within, Duration::from_millis(within_ms), "{timeout_ms}");
        }
    }

    #[test]
    fn the_body_of_a_request_has_a_largest_length() {
        let body = vec![b' '; REQUEST_BODY_BYTES_MAX + 1];
        assert_eq!(RequestVerb::Csr.check_body(&body[1..]), Ok(()));
        let why = "the body of the csr has 2097153 bytes, want at most 2097152".to_owned();
        assert_eq!(RequestVerb::Csr.check_body(&body), Err(RequestError::Invalid(why)));
    }

    #[test]
    fn a_key_decides_which_objects_a_node_may_get() {
        let node: NodeName = "gw".parse().expect("a name");
        for (key, rule) in [
            ("null/node/gw", GetRule::Allowed),
            ("d/configmap/c", GetRule::Named),
            ("d/secret/s", GetRule::Named),
            ("null/persistentvolume/p", GetRule::Named),
            ("null/volumeattachment/csi-1", GetRule::OfSpec),
            ("d/endpoints/e", GetRule::Shared),
        ] {
            assert_eq!(GetRule::of(&node, &key.parse().expect("a key")), rule, "{key}");
        }
        let other = GetRule::of(&node, &"null/node/gw-2".parse().expect("a key"));
        assert!(matches!(other, GetRule::Forbidden(_)), "{other:?}");
    }

    #[test]
    fn an_edge_of_an_earlier_version_gets_errors_that_it_knows() {
        let text = || "why".to_owned();
        for (error, expected) in [
            (RequestError::NotFound, RequestError::NotFound),
            (RequestError::Forbidden(text()), RequestError::Forbidden(text())),
            (RequestError::Unavailable(text()), RequestError::Unavailable(text())),
            (RequestError::Conflict(text()), RequestError::Unavailable("conflict: why".to_owned())),
            (RequestError::Invalid(text()), RequestError::Unavailable("invalid: why".to_owned())),
            (
                RequestError::TooMany(text()),
                RequestError::Unavailable("too many requests: why".to_owned()),
            ),
        ] {
            assert_eq!(error.for_earlier_edge(), expected);
        }
    }
}
