//! A request for a certificate of a node.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use headwater_event::{NodeName, RequestError, ResourceKey};
use serde::Deserialize;
use serde_json::json;
use x509_cert::der::Decode as _;
use x509_cert::der::oid::ObjectIdentifier;
use x509_cert::request::CertReq;

/// The attributes of a subject.
const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");
const ORGANIZATION: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.10");

/// The group of nodes, the organization of a node's certificate.
const NODES: &str = "system:nodes";

/// The usages besides the one of the signer.
const KEY_USAGES: [&str; 2] = ["digital signature", "key encipherment"];

/// A request for a certificate of a node, by the rules of the two signers of kubelets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SigningRequest {
    /// The `CertificateSigningRequest`.
    pub key: ResourceKey,
    /// The request as PEM, in base64.
    pub request: String,
    /// The signer.
    pub signer: String,
    usages: Vec<String>,
    life_seconds: Option<u64>,
}

#[derive(Deserialize)]
struct Body {
    spec: Spec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    request: String,
    signer_name: String,
    #[serde(default)]
    usages: Vec<String>,
    expiration_seconds: Option<u64>,
}

impl SigningRequest {
    /// Reads the `CertificateSigningRequest` at `key`, and checks that it is for `node`.
    ///
    /// # Errors
    /// [`RequestError::Invalid`] when it is malformed, [`RequestError::Forbidden`] when it is for another
    /// name, signer or usage.
    pub fn parse(node: &NodeName, key: &ResourceKey, body: &[u8]) -> Result<Self, RequestError> {
        let invalid = |why: &str| RequestError::Invalid(why.to_owned());
        let forbidden = |why: String| Err(RequestError::Forbidden(why));
        if key.kind() != "certificatesigningrequest" {
            return Err(invalid("a certificate is requested with a certificatesigningrequest"));
        }
        let Body { spec } = serde_json::from_slice(body)
            .map_err(|_| invalid("the body is no CertificateSigningRequest"))?;
        let usage = match spec.signer_name.as_str() {
            "kubernetes.io/kube-apiserver-client-kubelet" => "client auth",
            "kubernetes.io/kubelet-serving" => "server auth",
            signer => return forbidden(format!("a node may not use the signer {signer:.64}")),
        };
        let is_fit = |one: &String| one == usage || KEY_USAGES.contains(&one.as_str());
        if !spec.usages.iter().all(is_fit) || !spec.usages.iter().any(|one| one == usage) {
            return forbidden(format!("the usages must be {usage:?} and of the key"));
        }
        let subject = decode(&spec.request).ok_or_else(|| {
            invalid("spec.request is no certificate request: want PEM, in base64")
        })?;
        let name = format!("system:node:{node}");
        let expected = [(COMMON_NAME, name.as_str()), (ORGANIZATION, NODES)];
        let is_expected = |(oid, value): &(ObjectIdentifier, String)| {
            expected.iter().any(|(wanted, text)| wanted == oid && text == value)
        };
        if subject.len() != expected.len()
            || !subject.iter().all(is_expected)
            || subject[0].0 == subject[1].0
        {
            return forbidden(format!("the subject must be CN={name}, O={NODES}"));
        }
        Ok(Self {
            key: key.clone(),
            request: spec.request,
            signer: spec.signer_name,
            usages: spec.usages,
            life_seconds: spec.expiration_seconds,
        })
    }

    /// The `CertificateSigningRequest`, with nothing else.
    pub fn body(&self) -> Bytes {
        let mut body = json!({
            "apiVersion": "certificates.k8s.io/v1",
            "kind": "CertificateSigningRequest",
            "metadata": {"name": self.key.name()},
            "spec": {
                "request": self.request,
                "signerName": self.signer,
                "usages": self.usages,
            },
        });
        if let Some(seconds) = self.life_seconds {
            body["spec"]["expirationSeconds"] = seconds.into();
        }
        body.to_string().into()
    }
}

/// The attributes of the subject of a request: PEM, in base64.
fn decode(request: &str) -> Option<Vec<(ObjectIdentifier, String)>> {
    let pem = String::from_utf8(BASE64_STANDARD.decode(request).ok()?).ok()?;
    let text = pem.trim().strip_prefix("-----BEGIN CERTIFICATE REQUEST-----")?;
    let text = text.strip_suffix("-----END CERTIFICATE REQUEST-----")?;
    let text: String = text.split_whitespace().collect();
    let request = CertReq::from_der(&BASE64_STANDARD.decode(text).ok()?).ok()?;
    let attributes = request.info.subject.iter().map(|attribute| {
        let value = std::str::from_utf8(attribute.value.value()).ok()?;
        Some((attribute.oid, value.to_owned()))
    });
    attributes.collect()
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};

    use super::*;

    const CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
    const SERVING: &str = "kubernetes.io/kubelet-serving";

    fn csr(subject: &[(DnType, &str)]) -> String {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        for (kind, value) in subject {
            params.distinguished_name.push(kind.clone(), *value);
        }
        let key = KeyPair::generate().expect("a key");
        let request = params.serialize_request(&key).expect("a request");
        BASE64_STANDARD.encode(request.pem().expect("PEM"))
    }

    fn of_node(node: &str) -> String {
        let name = format!("system:node:{node}");
        csr(&[(DnType::OrganizationName, NODES), (DnType::CommonName, &name)])
    }

    fn parse(request: &str, signer: &str, usages: &[&str]) -> Result<SigningRequest, RequestError> {
        let body = json!({"spec": {"request": request, "signerName": signer, "usages": usages}});
        let key = "null/certificatesigningrequest/csr-1".parse().expect("a key");
        let node = "gw".parse().expect("a name");
        SigningRequest::parse(&node, &key, body.to_string().as_bytes())
    }

    #[test]
    fn a_node_may_request_a_certificate_of_its_own_name() {
        let own = of_node("gw");
        let request = parse(&own, CLIENT, &["client auth", "digital signature"]).expect("allowed");
        parse(&own, SERVING, &["server auth", "key encipherment"]).expect("allowed");
        let body: serde_json::Value = serde_json::from_slice(&request.body()).expect("JSON");
        assert_eq!(body["metadata"]["name"], "csr-1");
        assert_eq!(body["spec"]["request"], own.as_str());
    }

    #[test]
    fn a_node_may_request_none_of_another_name_signer_or_usage() {
        let own = of_node("gw");
        let admin = csr(&[
            (DnType::OrganizationName, "system:masters"),
            (DnType::CommonName, "system:node:gw"),
        ]);
        let more = csr(&[
            (DnType::OrganizationName, NODES),
            (DnType::CommonName, "system:node:gw"),
            (DnType::OrganizationalUnitName, "x"),
        ]);
        let bare = csr(&[(DnType::CommonName, "system:node:gw")]);
        let client: &[&str] = &["client auth"];
        for (request, signer, usages) in [
            (&*of_node("gw-2"), CLIENT, client),
            (&*admin, CLIENT, client),
            (&*more, CLIENT, client),
            (&*bare, CLIENT, client),
            (&*own, "kubernetes.io/kube-apiserver-client", client),
            (&*own, CLIENT, &["server auth"]),
            (&*own, CLIENT, &["client auth", "cert sign"]),
            (&*own, CLIENT, &[]),
        ] {
            let outcome = parse(request, signer, usages);
            assert!(matches!(outcome, Err(RequestError::Forbidden(_))), "{signer}: {outcome:?}");
        }
        for request in ["", "no base64", "bm8gUEVN"] {
            let outcome = parse(request, CLIENT, client);
            assert!(matches!(outcome, Err(RequestError::Invalid(_))), "{request}: {outcome:?}");
        }
    }
}
