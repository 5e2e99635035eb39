//! Tokens of ServiceAccounts: which ones the volumes of a pod name, and what is in the file of one. Pure.

use std::collections::BTreeSet;
use std::fmt;

use headwater_event::ResourceKey;
use headwater_object::TokenClaim;
use k8s_openapi::api::core::v1::Pod;

use super::credentials;
use super::driver_volume::tokens;
use crate::desired::objects::Objects;
use crate::pod::{account, all_containers, namespace};

/// The mode of a token's file where the pod names a user or a group for its volumes, as under a kubelet.
/// The runtime lets the group read it, too.
const MODE_OF_OWNER: u32 = 0o600;

/// A token. Its text is in no debug output.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Token {
    text: Box<str>,
    /// When it ends, as the cloud states it: RFC 3339.
    expires: Box<str>,
}

/// What the file of a token has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TokenFile {
    /// This token.
    Token(Token),
    /// The token that is in the file already, if there is one: the cloud has no other one at present.
    Kept,
    /// There is no file: no container could read it.
    Absent,
}

/// Finds the content of a token's file, or why the pod has to wait for it.
pub(crate) type FindToken<'f> = dyn Fn(&TokenClaim) -> Result<TokenFile, String> + 'f;

impl Token {
    /// A token that ends at this time.
    pub(crate) fn new(text: &str, expires: &str) -> Self {
        Self { text: text.into(), expires: expires.into() }
    }

    /// The token as it is in its file.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// When it ends.
    pub(crate) fn expires(&self) -> &str {
        &self.expires
    }
}

/// Its length only.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({} bytes)", self.text.len())
    }
}

/// The claims of all tokens that the pod's volumes and their drivers name. A claim that is malformed is not among them:
/// its volume names the error.
pub(crate) fn claims(pod: &Pod, objects: &Objects) -> BTreeSet<TokenClaim> {
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
    let projected = volumes.iter().filter_map(|volume| volume.projected.as_ref());
    let sources = projected.flat_map(|projected| projected.sources.iter().flatten());
    let tokens = sources.filter_map(|source| source.service_account_token.as_ref());
    let wishes = tokens.map(|token| (token.audience.as_deref(), token.expiration_seconds));
    let all = wishes.chain(tokens::wishes(pod, objects));
    all.filter_map(|(audience, life)| claim(pod, audience, life).ok()).collect()
}

/// The claim of one token, for this audience and this life in seconds.
pub(crate) fn claim(
    pod: &Pod,
    audience: Option<&str>,
    life: Option<i64>,
) -> Result<TokenClaim, String> {
    let metadata = &pod.metadata;
    let name = metadata.name.as_deref().unwrap_or_default();
    let key = ResourceKey::new(Some(namespace(pod)), "pod", name);
    let key = key.map_err(|error| error.to_string())?;
    let uid = metadata.uid.as_deref().unwrap_or_default();
    TokenClaim::of_volume(&key, uid, account(pod), audience, life)
        .map_err(|error| error.to_string())
}

/// The mode and the owner of the pod's tokens. A pod with one user for all containers has them alone, and
/// one with a group for its volumes shares them with that group; in every other pod the mode is that
/// of the volume.
pub(crate) fn mode_and_owner(pod: &Pod, mode_of_volume: u32) -> (u32, Option<u32>) {
    let mut users = BTreeSet::new();
    let mut has_group = false;
    for container in all_containers(pod) {
        // Credentials that cannot be resolved refuse their container.
        let wanted = credentials::resolve(pod, container).unwrap_or_default();
        has_group |= wanted.fs_group.is_some();
        users.insert(wanted.user);
    }
    let owner = users.first().copied().flatten().filter(|_| users.len() == 1);
    let mode = if owner.is_some() || has_group { MODE_OF_OWNER } else { mode_of_volume };
    (mode, owner)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(spec: Value) -> Pod {
        let metadata = json!({"name": "web", "namespace": "shop", "uid": "u1"});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec})).expect("a pod")
    }

    fn volumes() -> Value {
        json!([
            {"name": "a", "projected": {"sources": [
                {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
                {"serviceAccountToken": {"path": "vault", "audience": "vault"}},
            ]}},
            {"name": "b", "projected": {"sources": [
                {"serviceAccountToken": {"path": "again", "expirationSeconds": 3607}}]}},
        ])
    }

    #[test]
    fn a_pod_claims_each_token_once_for_its_account_and_its_uid() {
        for (spec, account) in [
            (json!({"containers": [], "volumes": volumes()}), "default"),
            (json!({"containers": [], "serviceAccount": "old", "volumes": volumes()}), "old"),
            (
                json!({"containers": [], "serviceAccountName": "robot", "serviceAccount": "old",
                    "volumes": volumes()}),
                "robot",
            ),
        ] {
            let claims = claims(&pod(spec), &Objects::default());
            let wishes: Vec<_> =
                claims.iter().map(|it| (it.audience.as_deref(), it.life_seconds)).collect();
            assert_eq!(wishes, [(None, 3_607), (Some("vault"), 3_600)]);
            for claim in claims {
                assert_eq!(claim.account.as_str(), format!("shop/serviceaccount/{account}"));
                assert_eq!((claim.pod.as_str(), claim.uid.as_str()), ("shop/pod/web", "u1"));
            }
        }
    }

    #[test]
    fn a_pod_of_one_user_or_with_a_group_has_its_tokens_for_itself() {
        let container =
            |name: &str, user: Value| json!({"name": name, "securityContext": {"runAsUser": user}});
        let none = Value::Null;
        for (context, containers, found) in [
            (json!({}), [none.clone(), none.clone()], (0o644, None)),
            (json!({"runAsUser": 7}), [none.clone(), none.clone()], (0o600, Some(7))),
            (json!({"runAsUser": 7}), [none.clone(), json!(7)], (0o600, Some(7))),
            (json!({"runAsUser": 7}), [none.clone(), json!(8)], (0o644, None)),
            (json!({}), [json!(7), none.clone()], (0o644, None)),
            (json!({"fsGroup": 9}), [json!(7), none.clone()], (0o600, None)),
            (json!({"fsGroup": 9, "runAsUser": 7}), [none.clone(), none], (0o600, Some(7))),
        ] {
            let [first, second] = containers;
            let pod = pod(json!({
                "securityContext": context,
                "initContainers": [container("init", first)],
                "containers": [container("main", second)],
            }));
            assert_eq!(mode_and_owner(&pod, 0o644), found, "{:?}", pod.spec);
        }
    }
}
