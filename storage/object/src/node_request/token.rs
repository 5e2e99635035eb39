//! A request for a token of a ServiceAccount.

use bytes::Bytes;
use headwater_event::{KeyError, RequestError, ResourceKey};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The shortest and the longest life of a token, seconds: the shortest that an API server issues, and a
/// day, after which a kubelet renews each token.
const LIFE_SECONDS: std::ops::RangeInclusive<u64> = 600..=86_400;

/// The life of a token without another wish, as of a projected volume.
const LIFE_SECONDS_DEFAULT: u64 = 3_600;

/// What a request for a token claims: the account, the pod that it is for, and the audience.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenClaim {
    /// The ServiceAccount.
    pub account: ResourceKey,
    /// The pod to which the token is bound.
    pub pod: ResourceKey,
    /// Its UID.
    pub uid: String,
    /// The audience; `None`: the API server.
    pub audience: Option<String>,
    /// How long the token is to live.
    pub life_seconds: u64,
}

#[derive(Deserialize)]
struct TokenRequest {
    spec: TokenSpec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TokenSpec {
    audiences: Option<Vec<String>>,
    expiration_seconds: Option<u64>,
    bound_object_ref: Option<BoundObject>,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct BoundObject {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    uid: String,
}

impl TokenClaim {
    /// The claim for the token that a projected volume of `pod` or a driver of its volumes names. A life outside the bounds is the
    /// nearest one inside: a node renews the token before its end.
    ///
    /// # Errors
    /// `account` is no name of a ServiceAccount.
    pub fn of_volume(
        pod: &ResourceKey,
        uid: &str,
        account: &str,
        audience: Option<&str>,
        life_seconds: Option<i64>,
    ) -> Result<Self, KeyError> {
        let (shortest, longest) = LIFE_SECONDS.into_inner();
        let life_seconds = match life_seconds {
            Some(wanted) => u64::try_from(wanted).unwrap_or(shortest).clamp(shortest, longest),
            None => LIFE_SECONDS_DEFAULT,
        };
        Ok(Self {
            account: ResourceKey::new(pod.namespace(), "serviceaccount", account)?,
            pod: pod.clone(),
            uid: uid.to_owned(),
            audience: audience.filter(|audience| !audience.is_empty()).map(str::to_owned),
            life_seconds,
        })
    }

    /// Reads the claim of a `TokenRequest` for a token of `account`.
    ///
    /// # Errors
    /// [`RequestError::Invalid`] when it claims nothing that a node may claim.
    pub fn parse(account: &ResourceKey, body: &[u8]) -> Result<Self, RequestError> {
        let invalid = |why: &str| Err(RequestError::Invalid(why.to_owned()));
        if account.kind() != "serviceaccount" || account.namespace().is_none() {
            return invalid("a token is of a serviceaccount");
        }
        let TokenRequest { spec } = serde_json::from_slice(body).map_err(|error| {
            let (line, column) = (error.line(), error.column());
            RequestError::Invalid(format!("no TokenRequest: line {line}, column {column}"))
        })?;
        let Some(bound) = spec.bound_object_ref else {
            return invalid("the token is bound to no pod: set spec.boundObjectRef");
        };
        if bound.kind != "Pod" || bound.api_version != "v1" {
            return invalid("the token must be bound to a Pod of v1");
        }
        if bound.uid.is_empty() {
            return invalid("spec.boundObjectRef has no uid");
        }
        let Ok(pod) = ResourceKey::new(account.namespace(), "pod", &bound.name) else {
            return invalid("spec.boundObjectRef has no valid name");
        };
        let mut audiences = spec.audiences.unwrap_or_default();
        if audiences.len() > 1 {
            return invalid("a token of a node has one audience at most");
        }
        let audience = audiences.pop().filter(|audience| !audience.is_empty());
        let life_seconds = spec.expiration_seconds.unwrap_or(LIFE_SECONDS_DEFAULT);
        if !LIFE_SECONDS.contains(&life_seconds) {
            let (shortest, longest) = (LIFE_SECONDS.start(), LIFE_SECONDS.end());
            let what = format!("expirationSeconds is {life_seconds}, want {shortest} to {longest}");
            return Err(RequestError::Invalid(what));
        }
        Ok(Self { account: account.clone(), pod, uid: bound.uid, audience, life_seconds })
    }

    /// Checks the claim: pod, account and audience. `find` returns an object of the node's streams. An audience is one
    /// that a projected volume of the pod names, or the driver of a volume of it (`tokenRequests` of its CSIDriver), as
    /// for an API server (`ServiceAccountNodeAudienceRestriction`).
    ///
    /// # Errors
    /// The outer error is that of `find`. The inner one is [`RequestError::Forbidden`] with the rule that the claim
    /// breaks.
    pub fn check<E>(
        &self,
        mut find: impl FnMut(&ResourceKey) -> Result<Option<Bytes>, E>,
    ) -> Result<Result<(), RequestError>, E> {
        let pod = find(&self.pod)?;
        if let Err(error) = self.check_pod(pod.as_deref()) {
            return Ok(Err(error));
        }
        let pod: Value = serde_json::from_slice(&pod.unwrap_or_default()).unwrap_or_default();
        let is_named = self.is_in_a_projected_volume(&pod) || self.is_of_a_driver(&pod, find)?;
        Ok(if is_named {
            Ok(())
        } else {
            Err(RequestError::Forbidden(format!(
                "no projected volume of the pod {}, and no driver of its volumes, has a token for this \
                 audience",
                self.pod
            )))
        })
    }

    /// Checks the claim but for its audience against the pod as the node's stream has it; `None`: it has no such pod.
    ///
    /// # Errors
    /// [`RequestError::Forbidden`] with the rule that the claim breaks.
    pub fn check_pod(&self, pod: Option<&[u8]>) -> Result<(), RequestError> {
        let forbidden = |why: String| Err(RequestError::Forbidden(why));
        let Some(pod) = pod else {
            return forbidden(format!("this node has no pod {}", self.pod));
        };
        let pod: Value = serde_json::from_slice(pod).unwrap_or_default();
        if pod["metadata"]["uid"].as_str() != Some(&self.uid) {
            return forbidden(format!("the pod {} of this node has another UID", self.pod));
        }
        let spec = &pod["spec"];
        let account = [&spec["serviceAccountName"], &spec["serviceAccount"]]
            .into_iter()
            .find_map(|field| field.as_str().filter(|name| !name.is_empty()))
            .unwrap_or("default");
        if account != self.account.name() {
            return forbidden(format!("the pod {} has another ServiceAccount", self.pod));
        }
        Ok(())
    }

    fn is_in_a_projected_volume(&self, pod: &Value) -> bool {
        let sources = volumes(pod).flat_map(|volume| volume["projected"]["sources"].as_array());
        let tokens = sources.flatten().map(|source| &source["serviceAccountToken"]);
        tokens.filter(|token| token.is_object()).any(|token| self.is_for(token))
    }

    fn is_of_a_driver<E>(
        &self,
        pod: &Value,
        mut find: impl FnMut(&ResourceKey) -> Result<Option<Bytes>, E>,
    ) -> Result<bool, E> {
        let mut object = |namespace: Option<&str>, kind: &str, name: &str| -> Result<Value, E> {
            let Ok(key) = ResourceKey::new(namespace, kind, name) else { return Ok(Value::Null) };
            let found = find(&key)?.unwrap_or_default();
            Ok(serde_json::from_slice(&found).unwrap_or_default())
        };
        for volume in volumes(pod) {
            let mut driver = volume["csi"]["driver"].as_str().map(str::to_owned);
            if let Some(claim) = claim_name(self.pod.name(), volume) {
                let claim = object(self.pod.namespace(), "persistentvolumeclaim", &claim)?;
                let name = claim["spec"]["volumeName"].as_str().unwrap_or_default();
                let of_claim = object(None, "persistentvolume", name)?;
                driver = of_claim["spec"]["csi"]["driver"].as_str().map(str::to_owned);
            }
            let Some(driver) = driver else { continue };
            let driver = object(None, "csidriver", &driver)?;
            let mut requests = driver["spec"]["tokenRequests"].as_array().into_iter().flatten();
            if requests.any(|request| self.is_for(request)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether `token` asks for the audience of the claim.
    fn is_for(&self, token: &Value) -> bool {
        let audience = token["audience"].as_str().filter(|audience| !audience.is_empty());
        audience == self.audience.as_deref()
    }

    /// The `TokenRequest` of this claim, and of nothing else.
    pub fn body(&self) -> Bytes {
        let audiences: Vec<&String> = self.audience.iter().collect();
        let request = json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {
                "audiences": audiences,
                "expirationSeconds": self.life_seconds,
                "boundObjectRef": BoundObject {
                    kind: "Pod".to_owned(),
                    api_version: "v1".to_owned(),
                    name: self.pod.name().to_owned(),
                    uid: self.uid.clone(),
                },
            },
        });
        request.to_string().into()
    }
}

fn volumes(pod: &Value) -> impl Iterator<Item = &Value> {
    pod["spec"]["volumes"].as_array().into_iter().flatten()
}

/// The claim of a volume: that which it names, or that which the cluster makes for the pod.
fn claim_name(pod: &str, volume: &Value) -> Option<String> {
    let named = volume["persistentVolumeClaim"]["claimName"].as_str().map(str::to_owned);
    let own = || {
        let name = volume["name"].as_str().filter(|_| volume["ephemeral"].is_object())?;
        Some(format!("{pod}-{name}"))
    };
    named.or_else(own)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    const POD: &str = r#"{"metadata":{"uid":"u1"},"spec":{"serviceAccountName":"robot","volumes":[
        {"name":"own","emptyDir":{}},
        {"name":"t","projected":{"sources":[{"configMap":{"name":"c"}},
            {"serviceAccountToken":{"path":"token","audience":"vault"}},
            {"serviceAccountToken":{"path":"api"}}]}}]}}"#;

    fn account() -> ResourceKey {
        "shop/serviceaccount/robot".parse().expect("a key")
    }

    fn request(audiences: &Value, uid: &str) -> Value {
        let bound = json!({"kind": "Pod", "apiVersion": "v1", "name": "web", "uid": uid});
        json!({"spec": {"audiences": audiences, "boundObjectRef": bound}})
    }

    fn outcome(body: &Value, pod: Option<&str>) -> Result<(), RequestError> {
        let claim = TokenClaim::parse(&account(), body.to_string().as_bytes())?;
        check(&claim, &[("shop/pod/web", pod.map(str::to_owned))])
    }

    /// The outcome on a node with these objects.
    fn check(claim: &TokenClaim, all: &[(&str, Option<String>)]) -> Result<(), RequestError> {
        let checked = claim.check(|key| {
            let found = all.iter().find(|(of, _)| *of == key.as_str());
            Ok::<_, Infallible>(found.and_then(|(_, text)| text.clone()).map(Bytes::from))
        });
        checked.unwrap_or_else(|never| match never {})
    }

    #[test]
    fn a_driver_of_a_volume_gets_the_tokens_that_it_asks_for_and_no_other() {
        let pod = |volume: &Value| {
            json!({"metadata": {"uid": "u1"}, "spec": {
                "serviceAccountName": "robot", "volumes": [volume]}})
            .to_string()
        };
        let driver = json!({"spec": {"tokenRequests": [{"audience": "vault"}]}}).to_string();
        let claimed = json!({"spec": {"volumeName": "pv"}}).to_string();
        let volume = json!({"spec": {"csi": {"driver": "d.example"}}}).to_string();
        let claim = |audience: &str| {
            let body = request(&json!([audience]), "u1").to_string();
            TokenClaim::parse(&account(), body.as_bytes()).expect("a claim")
        };
        for (of_pod, claim_key) in [
            (json!({"name": "v", "csi": {"driver": "d.example"}}), "shop/persistentvolumeclaim/x"),
            (
                json!({"name": "v", "persistentVolumeClaim": {"claimName": "data"}}),
                "shop/persistentvolumeclaim/data",
            ),
            (json!({"name": "v", "ephemeral": {}}), "shop/persistentvolumeclaim/web-v"),
        ] {
            let all = [
                ("shop/pod/web", Some(pod(&of_pod))),
                (claim_key, Some(claimed.clone())),
                ("null/persistentvolume/pv", Some(volume.clone())),
                ("null/csidriver/d.example", Some(driver.clone())),
            ];
            assert_eq!(check(&claim("vault"), &all), Ok(()), "{of_pod}");
            check(&claim("else"), &all).expect_err("another audience");
            check(&claim("vault"), &all[..3]).expect_err("the node has no such driver");
            let of_other = json!({"name": "v", "csi": {"driver": "e.example"}});
            let all = [("shop/pod/web", Some(pod(&of_other))), all[3].clone()];
            check(&claim("vault"), &all).expect_err("no volume of the pod is the driver's");
        }
    }

    #[test]
    fn a_token_is_for_a_pod_of_the_node_and_an_audience_that_it_names() {
        for audiences in [json!(["vault"]), json!([]), json!([""]), Value::Null] {
            assert_eq!(outcome(&request(&audiences, "u1"), Some(POD)), Ok(()), "{audiences}");
        }
        let of_other_account = POD.replace("robot", "other");
        let default_account = POD.replace("serviceAccountName", "x");
        let without = POD.replace("serviceAccountToken", "x");
        for (audiences, uid, pod, why) in [
            (json!(["vault"]), "u1", None, "has no pod shop/pod/web"),
            (json!(["vault"]), "u2", Some(POD), "another UID"),
            (json!(["https://else"]), "u1", Some(POD), "for this audience"),
            (json!([]), "u1", Some(&*without), "for this audience"),
            (json!(["vault"]), "u1", Some(&*of_other_account), "another ServiceAccount"),
            (json!(["vault"]), "u1", Some(&*default_account), "another ServiceAccount"),
            (json!(["vault"]), "u1", Some("no JSON"), "another UID"),
        ] {
            match outcome(&request(&audiences, uid), pod) {
                Err(RequestError::Forbidden(text)) => assert!(text.contains(why), "{text}"),
                other => panic!("{why}: {other:?}"),
            }
        }
    }

    #[test]
    fn the_claim_of_a_volume_is_one_that_the_checks_pass() {
        let pod: ResourceKey = "shop/pod/web".parse().expect("a key");
        for (audience, wanted, life_seconds) in [
            (None, None, 3_600),
            (Some(""), Some(3_607), 3_607),
            (Some("vault"), Some(1), 600),
            (Some("vault"), Some(-5), 600),
            (Some("vault"), Some(1 << 32), 86_400),
        ] {
            let claim = TokenClaim::of_volume(&pod, "u1", "robot", audience, wanted);
            let claim = claim.expect("a claim");
            assert_eq!(claim.life_seconds, life_seconds, "{wanted:?}");
            let all = [("shop/pod/web", Some(POD.to_owned()))];
            assert_eq!(check(&claim, &all), Ok(()), "{audience:?}");
            assert_eq!(TokenClaim::parse(&account(), &claim.body()), Ok(claim));
        }
        assert!(TokenClaim::of_volume(&pod, "u1", "a/b", None, None).is_err());
    }

    #[test]
    fn a_request_that_claims_nothing_is_invalid() {
        let bound = |field: &str, value: Value| {
            let mut body = request(&json!([]), "u1");
            body["spec"]["boundObjectRef"][field] = value;
            body
        };
        let mut short = request(&json!([]), "u1");
        short["spec"]["expirationSeconds"] = json!(60);
        for (body, why) in [
            (json!({}), "no TokenRequest"),
            (json!({"spec": {}}), "bound to no pod"),
            (bound("kind", json!("Secret")), "bound to a Pod"),
            (bound("apiVersion", json!("v2")), "bound to a Pod"),
            (bound("uid", json!("")), "no uid"),
            (bound("name", json!("../x")), "no valid name"),
            (request(&json!(["a", "b"]), "u1"), "one audience"),
            (short, "want 600 to 86400"),
        ] {
            match outcome(&body, Some(POD)) {
                Err(RequestError::Invalid(text)) => assert!(text.contains(why), "{text}"),
                other => panic!("{why}: {other:?}"),
            }
        }
        let of_secret = "shop/secret/s".parse().expect("a key");
        assert!(TokenClaim::parse(&of_secret, b"{}").is_err());
    }

    #[test]
    fn only_what_was_checked_is_sent_on() {
        let mut body = request(&json!(["vault"]), "u1");
        body["spec"]["more"] = json!("x");
        body["metadata"] = json!({"name": "y"});
        let claim = TokenClaim::parse(&account(), body.to_string().as_bytes()).expect("a claim");
        let sent: Value = serde_json::from_slice(&claim.body()).expect("JSON");
        assert_eq!(sent["spec"]["boundObjectRef"]["uid"], "u1");
        assert_eq!(sent["spec"]["audiences"], json!(["vault"]));
        assert!(sent["spec"]["more"].is_null() && sent["metadata"].is_null(), "{sent}");
        assert_eq!(TokenClaim::parse(&account(), &claim.body()), Ok(claim));
        // A field twice could mean one thing here and another at the API server.
        let twice = r#"{"spec":{"boundObjectRef":{"kind":"Pod","apiVersion":"v1","name":"web",
            "uid":"u1","uid":"u2"}}}"#;
        assert!(TokenClaim::parse(&account(), twice.as_bytes()).is_err());
    }
}
