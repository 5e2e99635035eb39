//! As whom the controller writes about a node.

use headwater_event::NodeName;
use http::HeaderValue;
use http::header::HeaderName;
use serde::{Deserialize, Serialize};

/// The header that names the user of a request.
const IMPERSONATE_USER: HeaderName = HeaderName::from_static("impersonate-user");

/// As whom the controller writes about a node: its status, its Lease, the statuses of its pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ActAs {
    /// As that node, by constrained impersonation: the API server then checks what a node may do, and
    /// audit names the node. Needs Kubernetes 1.36.
    #[default]
    Node,
    /// As the controller itself.
    #[serde(rename = "self")]
    Controller,
}

impl ActAs {
    /// Returns `request` as one about `node`.
    pub fn about(
        self,
        node: &NodeName,
        mut request: http::Request<Vec<u8>>,
    ) -> http::Request<Vec<u8>> {
        if self == Self::Node
            && let Ok(user) = HeaderValue::from_str(&format!("system:node:{node}"))
        {
            // Only the name: the server adds the group of nodes. With a group it would ask for the
            // right to impersonate anybody.
            request.headers_mut().insert(IMPERSONATE_USER, user);
        }
        request
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(act_as: ActAs) -> Option<String> {
        let request = http::Request::new(Vec::new());
        let node = "gw-1".parse().expect("a name");
        let request = act_as.about(&node, request);
        request.headers().get(IMPERSONATE_USER).map(|user| user.to_str().expect("text").to_owned())
    }

    #[test]
    fn a_request_about_a_node_is_sent_as_that_node() {
        assert_eq!(user(ActAs::Node).as_deref(), Some("system:node:gw-1"));
        assert_eq!(user(ActAs::Controller), None);
    }
}
