//! What a node may request of the cloud, as far as the body of its request and the objects of its stream
//! decide that. Hub and controller check both by the same rules; the API server has rules of its own.
//!
//! A check returns the request as it understood it, and only that is sent on: no field that it did not
//! look at reaches the API server.

mod signing;
mod token;

use headwater_event::{GetRule, NodeName, RequestError, ResourceKey};
use serde::Deserialize;
use serde_json::Value;

pub use signing::SigningRequest;
pub use token::TokenClaim;

use crate::references::references;

/// Checks that `node` may get an object whose own spec decides that.
///
/// # Errors
/// [`RequestError::Forbidden`] when the object is of another node.
pub fn check_spec(node: &NodeName, key: &ResourceKey, object: &[u8]) -> Result<(), RequestError> {
    #[derive(Deserialize, Default)]
    #[serde(default, rename_all = "camelCase")]
    struct Spec {
        node_name: String,
    }
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Attachment {
        spec: Spec,
    }
    if GetRule::of(node, key) != GetRule::OfSpec {
        return Ok(());
    }
    let Attachment { spec } = serde_json::from_slice(object).unwrap_or_default();
    if spec.node_name == node.as_str() {
        return Ok(());
    }
    Err(RequestError::Forbidden("the attachment is not of this node".to_owned()))
}

/// Whether the object at `holder` names `key`.
pub fn names(holder: &ResourceKey, object: &[u8], key: &ResourceKey) -> bool {
    let object: Value = serde_json::from_slice(object).unwrap_or_default();
    references(holder, &object).iter().any(|reference| reference.key == *key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attachment_is_of_the_node_in_its_spec() {
        let node: NodeName = "gw".parse().expect("a name");
        let check = |key: &str, object: &str| {
            check_spec(&node, &key.parse().expect("a key"), object.as_bytes()).is_ok()
        };
        assert!(check("null/volumeattachment/a", r#"{"spec":{"nodeName":"gw"}}"#));
        assert!(!check("null/volumeattachment/a", r#"{"spec":{"nodeName":"gw-2"}}"#));
        assert!(!check("null/volumeattachment/a", "{}"));
        assert!(check("d/configmap/c", "{}"));
    }
}
