//! Tokens of ServiceAccounts, beside the outbox: an edge that restarts while it is cut off still has them.
//!
//! A token is served as it is for 80 % of its life. After that it is aging: the edge requests a new one,
//! and serves the old one while the cloud is away or refuses. The tokens of a pod go with the pod. A token is in no
//! report, and its text in no debug output.

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use headwater_event::{AnswerBody, ResourceKey};
use headwater_object::TokenClaim;
use headwater_store::{Batch, Engine, EngineError, Proto, Table, TableId};
use serde::Deserialize;
use serde_json::json;

use super::ViewChange;

/// Pod and claim to token.
const TOKENS: Table<(ResourceKey, String), Proto<TokenRow>> = Table::new(TableId::Tokens);

/// The tokens that a node keeps: several for each of some hundred pods. A further one takes the place of
/// the one that ends first.
const TOKENS_MAX: usize = 1_024;

/// A token is aging from this share of its life, in percent, as for a kubelet.
const AGING_PERCENT: i64 = 80;

/// A token of the store at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TokenStanding {
    /// It is served as it is.
    Fresh(AnswerBody),
    /// A new one is due; this one is valid.
    Aging(AnswerBody),
    /// There is none, or it has ended.
    Absent,
}

/// The tokens of the node, in memory and on disk.
#[derive(Debug, Default)]
pub(super) struct Tokens {
    tokens: BTreeMap<(ResourceKey, String), StoredToken>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct StoredToken {
    /// The UID of its pod.
    uid: String,
    /// The `TokenRequest` with its status.
    answer: AnswerBody,
    /// When the edge received it, and for how long it is valid, by the edge's wall clock.
    issued_ms: i64,
    life_ms: i64,
}

/// Field numbers are never reused.
#[derive(Clone, PartialEq, prost::Message)]
#[prost(skip_debug)]
struct TokenRow {
    #[prost(string, tag = "1")]
    uid: String,
    #[prost(bytes = "bytes", tag = "2")]
    answer: Bytes,
    #[prost(int64, tag = "3")]
    issued_ms: i64,
    #[prost(int64, tag = "4")]
    life_ms: i64,
}

/// Without the token.
impl fmt::Debug for TokenRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenRow").field("uid", &self.uid).finish_non_exhaustive()
    }
}

impl Tokens {
    /// Reads the tokens from `engine`.
    ///
    /// # Errors
    /// As the engine.
    pub(super) fn open(engine: &dyn Engine) -> Result<Self, EngineError> {
        let mut tokens = BTreeMap::new();
        for row in TOKENS.rows(engine) {
            let (key, Proto(TokenRow { uid, answer, issued_ms, life_ms })) = row?;
            let answer = answer.into();
            tokens.insert(key, StoredToken { uid, answer, issued_ms, life_ms });
        }
        Ok(Self { tokens })
    }

    /// The token of a claim at `now_ms`.
    pub(super) fn find(&self, claim: &TokenClaim, now_ms: i64) -> TokenStanding {
        match self.tokens.get(&row_key(claim)) {
            Some(token) => token.standing(now_ms),
            None => TokenStanding::Absent,
        }
    }

    /// Keeps the token that was issued for a claim. False: the answer has none.
    pub(super) fn keep(
        &mut self,
        batch: &mut Batch,
        claim: &TokenClaim,
        answer: AnswerBody,
        now_ms: i64,
    ) -> bool {
        let Some(life_ms) = life_ms(&answer) else { return false };
        let key = row_key(claim);
        if self.tokens.len() >= TOKENS_MAX && !self.tokens.contains_key(&key) {
            let ends = |token: &StoredToken| token.issued_ms.saturating_add(token.life_ms);
            let first = self.tokens.iter().min_by_key(|(_, token)| ends(token));
            if let Some(first) = first.map(|(key, _)| key.clone()) {
                self.remove(batch, &first);
            }
        }
        let uid = claim.uid.clone();
        let row = TokenRow {
            uid: uid.clone(),
            answer: answer.clone().into_bytes(),
            issued_ms: now_ms,
            life_ms,
        };
        batch.put(&TOKENS, &key, &Proto(row));
        self.tokens.insert(key, StoredToken { uid, answer, issued_ms: now_ms, life_ms });
        true
    }

    /// Removes the token of a claim: its pod or its account is gone.
    pub(super) fn revoke(&mut self, batch: &mut Batch, claim: &TokenClaim) {
        self.remove(batch, &row_key(claim));
    }

    /// Removes the tokens of pods that the node no longer has.
    pub(super) fn apply(&mut self, batch: &mut Batch, change: &ViewChange) {
        let is_gone = |(pod, _): &(ResourceKey, String), token: &StoredToken| match change {
            ViewChange::Listed { pods, complete } => *complete && pods.get(pod) != Some(&token.uid),
            ViewChange::Pod { pod: changed, uid } => pod == changed && *uid != token.uid,
            ViewChange::PodGone { pod: gone, uid } => pod == gone && *uid == token.uid,
            ViewChange::SnapshotRequested(_) => false,
        };
        let gone = self.tokens.iter().filter(|(key, token)| is_gone(key, token));
        for key in gone.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
            self.remove(batch, &key);
        }
    }

    fn remove(&mut self, batch: &mut Batch, key: &(ResourceKey, String)) {
        if self.tokens.remove(key).is_some() {
            batch.delete(&TOKENS, key);
        }
    }
}

impl StoredToken {
    fn standing(&self, now_ms: i64) -> TokenStanding {
        let age_ms = now_ms.saturating_sub(self.issued_ms);
        // A clock that went back does not show the age.
        let is_fresh = age_ms >= 0 && age_ms < self.life_ms / 100 * AGING_PERCENT;
        if is_fresh {
            TokenStanding::Fresh(self.answer.clone())
        } else if age_ms < self.life_ms {
            TokenStanding::Aging(self.answer.clone())
        } else {
            TokenStanding::Absent
        }
    }
}

/// The row of a claim: its pod, and everything else in it.
fn row_key(claim: &TokenClaim) -> (ResourceKey, String) {
    let TokenClaim { account, pod, uid, audience, life_seconds } = claim;
    let rest = json!([account.as_str(), uid, audience, life_seconds]);
    (pod.clone(), rest.to_string())
}

/// For how long the token in an answer is valid; `None`: there is no token in it.
fn life_ms(answer: &[u8]) -> Option<i64> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Spec {
        expiration_seconds: i64,
    }
    #[derive(Deserialize)]
    struct Status<'a> {
        #[serde(borrow)]
        token: std::borrow::Cow<'a, str>,
    }
    #[derive(Deserialize)]
    struct Answer<'a> {
        spec: Spec,
        #[serde(borrow)]
        status: Status<'a>,
    }
    let Answer { spec, status } = serde_json::from_slice(answer).ok()?;
    let is_one = !status.token.is_empty() && spec.expiration_seconds > 0;
    is_one.then(|| spec.expiration_seconds.saturating_mul(1_000))
}

#[cfg(test)]
mod tests {
    use headwater_store::{Durability, MemoryEngine, Survival};

    use super::*;

    fn claim(pod: &str, uid: &str) -> TokenClaim {
        TokenClaim {
            account: "d/serviceaccount/robot".parse().expect("a key"),
            pod: format!("d/pod/{pod}").parse().expect("a key"),
            uid: uid.to_owned(),
            audience: Some("vault\0\u{e9}".to_owned()),
            life_seconds: 3_600,
        }
    }

    fn answer(token: &str) -> AnswerBody {
        let answer = json!({"spec": {"expirationSeconds": 3_600}, "status": {"token": token}});
        Bytes::from(answer.to_string()).into()
    }

    const LIFE_MS: i64 = 3_600_000;

    #[test]
    fn a_token_ages_at_four_fifths_of_its_life_and_survives_a_crash() {
        let engine = MemoryEngine::new();
        let mut tokens = Tokens::open(&engine).expect("opens");
        let mut batch = Batch::new();
        let (one, secret) = (claim("a", "u1"), answer("secret"));
        assert_eq!(tokens.find(&one, 0), TokenStanding::Absent);
        assert!(tokens.keep(&mut batch, &one, secret.clone(), 1_000));
        assert!(!tokens.keep(&mut batch, &one, Bytes::from_static(b"{}").into(), 1_000));
        batch.write(&engine, Durability::Synced).expect("writes");
        let found = Tokens::open(&engine.crash(Survival::Synced)).expect("opens");
        for tokens in [&tokens, &found] {
            for (age_ms, standing) in [
                (0, TokenStanding::Fresh(secret.clone())),
                (LIFE_MS / 100 * 80 - 1, TokenStanding::Fresh(secret.clone())),
                (LIFE_MS / 100 * 80, TokenStanding::Aging(secret.clone())),
                (LIFE_MS - 1, TokenStanding::Aging(secret.clone())),
                (LIFE_MS, TokenStanding::Absent),
                (-1, TokenStanding::Aging(secret.clone())),
            ] {
                assert_eq!(tokens.find(&one, 1_000 + age_ms), standing, "{age_ms}");
            }
            let other = TokenClaim { audience: None, ..one.clone() };
            assert_eq!(tokens.find(&other, 1_000), TokenStanding::Absent);
        }
        let shown = format!("{tokens:?} {:?}", tokens.find(&one, 1_000));
        assert!(!shown.contains("secret"), "{shown}");
    }

    #[test]
    fn the_tokens_of_a_pod_go_with_it() {
        let pods = |uid: &str| [("d/pod/a".parse().expect("a key"), uid.to_owned())].into();
        let pod = || "d/pod/a".parse().expect("a key");
        for (change, stays) in [
            (ViewChange::Listed { pods: pods("u1"), complete: true }, true),
            (ViewChange::Listed { pods: pods("u2"), complete: true }, false),
            (ViewChange::Listed { pods: BTreeMap::new(), complete: true }, false),
            (ViewChange::Listed { pods: BTreeMap::new(), complete: false }, true),
            (ViewChange::Pod { pod: pod(), uid: "u1".to_owned() }, true),
            (ViewChange::Pod { pod: pod(), uid: "u2".to_owned() }, false),
            (ViewChange::PodGone { pod: pod(), uid: "u1".to_owned() }, false),
        ] {
            let engine = MemoryEngine::new();
            let mut tokens = Tokens::default();
            let mut batch = Batch::new();
            tokens.keep(&mut batch, &claim("a", "u1"), answer("t"), 0);
            tokens.apply(&mut batch, &change);
            batch.write(&engine, Durability::Synced).expect("writes");
            let found = Tokens::open(&engine).expect("opens");
            for tokens in [&tokens, &found] {
                let has = tokens.find(&claim("a", "u1"), 0) != TokenStanding::Absent;
                assert_eq!(has, stays, "{change:?}");
            }
        }
    }

    #[test]
    fn a_token_too_many_takes_the_place_of_the_one_that_ends_first() {
        let mut tokens = Tokens::default();
        let mut batch = Batch::new();
        for n in 0..=i64::try_from(TOKENS_MAX).expect("small") {
            tokens.keep(&mut batch, &claim(&format!("p{n}"), "u"), answer("t"), n);
        }
        assert_eq!(tokens.tokens.len(), TOKENS_MAX);
        assert_eq!(tokens.find(&claim("p0", "u"), 0), TokenStanding::Absent);
        assert_ne!(tokens.find(&claim("p1", "u"), 1), TokenStanding::Absent);
    }
}
