//! Which requests of a node are answered: the second check, after the hub's. Pure.

use bytes::Bytes;
use headwater_event::{GetRule, NodeRequest, RequestError, RequestVerb, ResourceKey};
use headwater_object::{SigningRequest, TokenClaim};

/// The objects of a node, as the log has them.
pub(super) trait NodeObjects {
    /// Why they cannot be read.
    type Error;

    /// The object at `key` in the streams of the node.
    fn object(&self, key: &ResourceKey) -> Result<Option<Bytes>, Self::Error>;

    /// Whether a pod of the node names `key`, or an object that a pod names.
    fn is_named(&self, key: &ResourceKey) -> Result<bool, Self::Error>;

    /// Whether the node has the shared stream.
    fn has_shared(&self) -> Result<bool, Self::Error>;
}

/// Checks a request. Returns it with what was checked, and nothing else.
pub(super) fn check<O: NodeObjects>(
    request: NodeRequest,
    objects: &O,
) -> Result<Result<NodeRequest, RequestError>, O::Error> {
    let body = match request.verb {
        RequestVerb::Get => match get(&request, objects)? {
            Ok(()) => Bytes::new(),
            Err(error) => return Ok(Err(error)),
        },
        RequestVerb::Token => {
            let claim = match TokenClaim::parse(&request.key, &request.body) {
                Ok(claim) => claim,
                Err(error) => return Ok(Err(error)),
            };
            if let Err(error) = claim.check(|key| objects.object(key))? {
                return Ok(Err(error));
            }
            claim.body()
        }
        RequestVerb::Csr => {
            match SigningRequest::parse(&request.node, &request.key, &request.body) {
                Ok(signing) => signing.body(),
                Err(error) => return Ok(Err(error)),
            }
        }
    };
    Ok(Ok(NodeRequest { body, ..request }))
}

fn get<O: NodeObjects>(
    request: &NodeRequest,
    objects: &O,
) -> Result<Result<(), RequestError>, O::Error> {
    let key = &request.key;
    let may = match GetRule::of(&request.node, key) {
        // The answer decides: the object's own spec.
        GetRule::Allowed | GetRule::OfSpec => true,
        GetRule::Named => objects.object(key)?.is_some() || objects.is_named(key)?,
        GetRule::Shared => objects.has_shared()? || objects.is_named(key)?,
        GetRule::Forbidden(why) => return Ok(Err(RequestError::Forbidden(why.to_owned()))),
    };
    Ok(if may { Ok(()) } else { Err(RequestError::Forbidden(RequestError::NOT_NAMED.to_owned())) })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::convert::Infallible;
    use std::time::Duration;

    use headwater_object::node_request::names;

    use super::*;

    /// The objects of node `a`.
    struct Objects {
        entries: BTreeMap<ResourceKey, &'static str>,
        shared: bool,
    }

    impl NodeObjects for Objects {
        type Error = Infallible;

        fn object(&self, key: &ResourceKey) -> Result<Option<Bytes>, Infallible> {
            Ok(self.entries.get(key).map(|text| Bytes::from_static(text.as_bytes())))
        }

        fn is_named(&self, key: &ResourceKey) -> Result<bool, Infallible> {
            Ok(self
                .entries
                .iter()
                .any(|(pod, text)| pod.kind() == "pod" && names(pod, text.as_bytes(), key)))
        }

        fn has_shared(&self) -> Result<bool, Infallible> {
            Ok(self.shared)
        }
    }

    const POD: &str = r#"{"metadata":{"uid":"u1"},"spec":{"serviceAccountName":"robot","volumes":[
        {"name":"c","configMap":{"name":"named"}},
        {"name":"t","projected":{"sources":[
            {"serviceAccountToken":{"path":"token","audience":"vault"}}]}}]}}"#;

    fn objects(shared: bool) -> Objects {
        let entries = [("d/pod/web", POD), ("d/secret/held", "{}")]
            .map(|(key, text)| (key.parse().expect("a key"), text));
        Objects { entries: entries.into(), shared }
    }

    fn outcome(verb: RequestVerb, key: &str, body: &str, shared: bool) -> &'static str {
        let request = NodeRequest {
            node: "a".parse().expect("a name"),
            timeout: Duration::from_secs(1),
            verb,
            key: key.parse().expect("a key"),
            body: Bytes::copy_from_slice(body.as_bytes()),
        };
        let Ok(checked) = check(request, &objects(shared));
        match checked {
            Ok(_) => "ok",
            Err(RequestError::Forbidden(_)) => "forbidden",
            Err(RequestError::Invalid(_)) => "invalid",
            Err(_) => "another error",
        }
    }

    #[test]
    fn a_node_gets_what_its_pods_name_and_nothing_else() {
        for (key, shared, expected) in [
            ("d/configmap/named", false, "ok"),
            ("d/secret/held", false, "ok"),
            ("d/serviceaccount/robot", false, "ok"),
            ("null/node/a", false, "ok"),
            ("null/volumeattachment/csi-1", false, "ok"),
            ("d/endpoints/e", true, "ok"),
            ("d/endpoints/e", false, "forbidden"),
            ("d/configmap/other", true, "forbidden"),
            ("other/configmap/named", false, "forbidden"),
            ("d/secret/named", false, "forbidden"),
            ("null/node/b", true, "forbidden"),
            ("null/persistentvolume/p", false, "forbidden"),
        ] {
            assert_eq!(outcome(RequestVerb::Get, key, "", shared), expected, "{key} {shared}");
        }
    }

    #[test]
    fn a_node_gets_tokens_of_its_own_pods_and_certificates_of_its_own_name() {
        let token = |pod: &str, uid: &str, audience: &str| {
            format!(
                r#"{{"spec":{{"audiences":["{audience}"],"boundObjectRef":
                {{"kind":"Pod","apiVersion":"v1","name":"{pod}","uid":"{uid}"}}}}}}"#
            )
        };
        for (key, body, expected) in [
            ("d/serviceaccount/robot", token("web", "u1", "vault"), "ok"),
            ("d/serviceaccount/robot", token("of-b", "u1", "vault"), "forbidden"),
            ("d/serviceaccount/robot", token("web", "u2", "vault"), "forbidden"),
            ("d/serviceaccount/robot", token("web", "u1", "else"), "forbidden"),
            ("d/serviceaccount/robot", token("web", "u1", ""), "forbidden"),
            ("d/serviceaccount/admin", token("web", "u1", "vault"), "forbidden"),
            ("other/serviceaccount/robot", token("web", "u1", "vault"), "forbidden"),
            ("d/secret/held", token("web", "u1", "vault"), "invalid"),
            ("d/serviceaccount/robot", "{}".to_owned(), "invalid"),
        ] {
            assert_eq!(outcome(RequestVerb::Token, key, &body, true), expected, "{key} {body}");
        }
        let key = "null/certificatesigningrequest/c";
        let csr = r#"{"spec":{"request":"","signerName":"kubernetes.io/legacy-unknown"}}"#;
        assert_eq!(outcome(RequestVerb::Csr, key, csr, true), "forbidden");
        assert_eq!(outcome(RequestVerb::Csr, key, "{}", true), "invalid");
        assert_eq!(outcome(RequestVerb::Csr, "null/node/a", csr, true), "invalid");
    }
}
