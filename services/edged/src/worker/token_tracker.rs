//! The tokens that a pod's volumes name: which one is requested when, and what its file has meanwhile. Pure.
//!
//! The edge keeps tokens, and renews one from 80 % of its life: it alone knows by its clock when that is.
//! So the tracker requests each token again and again, as a kubelet does at every sync of a pod, and
//! mostly gets the same one.
//!
//! A pod waits for its tokens before its first start. A pod that has run starts again without one that the
//! cloud does not issue: a node that is cut off starts its pods after a power cut, too.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use headwater_object::TokenClaim;
use tokio::time::Instant;

use crate::api::client::EdgeError;
use crate::backoff::Backoff;
use crate::config::Settings;
use crate::container::token::{Token, TokenFile};
use crate::pod::PodUid;
use headwater_telemetry::error_chain;

/// Pods that start together, after a start of the node, do not renew together: each requests earlier by
/// its own share of this part of the time between two requests. A kubelet's jitter is 10 s in a minute.
const JITTER: f64 = 1.0 / 6.0;

/// A pod that has run waits for so many answers of the edge before it starts without a token: seven
/// seconds, in which an edge that has just started finds its hub.
const ANSWERS_MAX: u32 = 4;

/// See the module.
#[derive(Debug)]
pub(super) struct TokenTracker {
    tokens: BTreeMap<TokenClaim, PodToken>,
    /// Between two requests for a token.
    interval: Duration,
    /// After the first failure.
    retry_base: Duration,
}

#[derive(Debug)]
struct PodToken {
    held: Option<Token>,
    /// Why the last request failed.
    failure: Option<String>,
    /// Answers without a token since the last one.
    answers: u32,
    backoff: Backoff,
    request: NextRequest,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NextRequest {
    At(Instant),
    /// It is on its way.
    Sent,
}

impl TokenTracker {
    pub(super) fn new(pod: &PodUid, settings: &Settings) -> Self {
        let mut hasher = DefaultHasher::new();
        pod.hash(&mut hasher);
        let share = f64::from(u16::try_from(hasher.finish() >> 48).unwrap_or(0)) / 65_536.0;
        let interval = settings.token_check.mul_f64(1.0 - JITTER * share);
        Self { tokens: BTreeMap::new(), interval, retry_base: settings.token_retry }
    }

    /// Sets the tokens that the pod names.
    pub(super) fn want(&mut self, claims: BTreeSet<TokenClaim>, now: Instant) {
        self.tokens.retain(|claim, _| claims.contains(claim));
        for claim in claims {
            let backoff = || Backoff::new(self.retry_base, self.interval);
            self.tokens.entry(claim).or_insert_with(|| PodToken {
                held: None,
                failure: None,
                answers: 0,
                backoff: backoff(),
                request: NextRequest::At(now),
            });
        }
    }

    /// The tokens to request now. Each counts as requested.
    pub(super) fn due(&mut self, now: Instant) -> Vec<TokenClaim> {
        let is_due = |token: &PodToken| matches!(token.request, NextRequest::At(at) if at <= now);
        let due = self.tokens.iter_mut().filter(|(_, token)| is_due(token));
        due.map(|(claim, token)| {
            token.request = NextRequest::Sent;
            claim.clone()
        })
        .collect()
    }

    /// The time of the next request.
    pub(super) fn next_at(&self) -> Option<Instant> {
        let at = |token: &PodToken| match token.request {
            NextRequest::At(at) => Some(at),
            NextRequest::Sent => None,
        };
        self.tokens.values().filter_map(at).min()
    }

    /// Records the answer to a request. Returns why there is no new token.
    pub(super) fn answer(
        &mut self,
        claim: &TokenClaim,
        result: Result<Token, EdgeError>,
        now: Instant,
    ) -> Option<String> {
        // The pod does not name it any more.
        let token = self.tokens.get_mut(claim)?;
        let error = match result {
            Ok(new) => {
                token.backoff.reset();
                token.request = NextRequest::At(now + self.interval);
                (token.held, token.failure, token.answers) = (Some(new), None, 0);
                return None;
            }
            Err(error) => error,
        };
        token.request = NextRequest::At(now + token.backoff.next_wait());
        let failure = match error {
            EdgeError::Refused { message, .. } => {
                token.answers = token.answers.saturating_add(1);
                message
            }
            // The edge may have one.
            error => error_chain(&error),
        };
        token.failure = Some(failure.clone());
        Some(failure)
    }

    /// Whether a token is missing of which nothing is known yet.
    pub(super) fn is_awaited(&self) -> bool {
        self.tokens.values().any(|token| token.held.is_none() && token.failure.is_none())
    }

    /// What is in the file of a token, for a pod that has run before or has not.
    ///
    /// # Errors
    /// Why the pod has to wait for it.
    pub(super) fn file(&self, claim: &TokenClaim, has_run: bool) -> Result<TokenFile, String> {
        let Some(token) = self.tokens.get(claim) else { return Ok(TokenFile::Kept) };
        match (&token.held, &token.failure) {
            (Some(held), _) => Ok(TokenFile::Token(held.clone())),
            (None, Some(failure)) if !has_run || token.answers < ANSWERS_MAX => {
                Err(failure.clone())
            }
            (None, _) => Ok(TokenFile::Kept),
        }
    }
}

#[cfg(test)]
mod tests {
    use headwater_proto::local::failure::Code;

    use super::*;

    fn claim(audience: &str) -> TokenClaim {
        let pod = "shop/pod/web".parse().expect("a key");
        TokenClaim::of_volume(&pod, "u1", "default", Some(audience), None).expect("a claim")
    }

    fn tracker(pod: &str, now: Instant) -> TokenTracker {
        let uid = PodUid::try_from(pod.to_owned()).expect("plain");
        let mut tracker = TokenTracker::new(&uid, &Settings::default());
        tracker.want(BTreeSet::from([claim("a")]), now);
        tracker
    }

    fn token(text: &str) -> Token {
        Token::new(text, "")
    }

    fn refused() -> EdgeError {
        EdgeError::Refused { code: Code::Unavailable, message: "no cloud".to_owned() }
    }

    #[test]
    fn a_token_is_requested_at_once_and_then_about_every_minute() {
        let now = Instant::now();
        let mut intervals = BTreeSet::new();
        for pod in ["u1", "u2", "u3", "u4"] {
            let mut tracker = tracker(pod, now);
            assert!(tracker.is_awaited());
            assert_eq!(tracker.file(&claim("a"), false), Ok(TokenFile::Kept));
            assert_eq!(tracker.due(now), [claim("a")]);
            assert_eq!((tracker.due(now), tracker.next_at()), (Vec::new(), None), "one at a time");
            assert_eq!(tracker.answer(&claim("a"), Ok(token("one")), now), None);
            assert!(!tracker.is_awaited());
            assert_eq!(tracker.file(&claim("a"), false), Ok(TokenFile::Token(token("one"))));
            let next = tracker.next_at().expect("a next request");
            assert_eq!(tracker.due(next - Duration::from_millis(1)), []);
            assert_eq!(tracker.due(next), [claim("a")]);
            assert_eq!(tracker.answer(&claim("a"), Ok(token("two")), next), None);
            assert_eq!(tracker.file(&claim("a"), false), Ok(TokenFile::Token(token("two"))));
            intervals.insert(next.duration_since(now).as_millis());
        }
        assert_eq!(intervals.len(), 4, "pods do not renew together");
        assert!(intervals.iter().all(|ms| (50_000..=60_000).contains(ms)), "{intervals:?}");
    }

    #[test]
    fn a_failure_is_tried_again_with_growing_waits_and_takes_no_token_away() {
        let now = Instant::now();
        let mut tracker = tracker("u1", now);
        let mut waits = Vec::new();
        for _ in 0..7 {
            let why = tracker.answer(&claim("a"), Err(refused()), now);
            assert_eq!(why.as_deref(), Some("no cloud"));
            assert_eq!(tracker.file(&claim("a"), false), Err("no cloud".to_owned()));
            waits.push(tracker.next_at().expect("a next request").duration_since(now).as_secs());
        }
        assert_eq!(waits[..6], [1, 2, 4, 8, 16, 32]);
        assert!((50..=60).contains(&waits[6]), "{waits:?}");
        assert_eq!(tracker.answer(&claim("a"), Ok(token("one")), now), None);
        assert!(tracker.answer(&claim("a"), Err(refused()), now).is_some());
        let next = tracker.next_at().expect("a next request");
        assert_eq!(next, now + Duration::from_secs(1), "the waits start over");
        assert_eq!(tracker.file(&claim("a"), false), Ok(TokenFile::Token(token("one"))));
    }

    #[test]
    fn a_pod_that_has_run_starts_without_a_token_after_some_answers_and_a_new_one_does_not() {
        let now = Instant::now();
        let mut tracker = tracker("u1", now);
        for answer in 1..=6 {
            tracker.answer(&claim("a"), Err(refused()), now);
            assert!(tracker.file(&claim("a"), false).is_err());
            let kept = tracker.file(&claim("a"), true) == Ok(TokenFile::Kept);
            assert_eq!(kept, answer >= ANSWERS_MAX, "{answer}");
        }
        // Silence is no answer: the edge may have a token.
        let mut silent = self::tracker("u1", now);
        for _ in 0..6 {
            silent.answer(&claim("a"), Err(EdgeError::NoOutcome), now);
            assert!(silent.file(&claim("a"), true).is_err());
        }
    }

    #[test]
    fn tokens_follow_the_pod_and_a_late_answer_is_none() {
        let now = Instant::now();
        let mut tracker = tracker("u1", now);
        tracker.answer(&claim("a"), Ok(token("SECRET")), now);
        tracker.want(BTreeSet::from([claim("a"), claim("b")]), now);
        assert_eq!(tracker.due(now), [claim("b")], "the other one is held");
        tracker.want(BTreeSet::from([claim("a")]), now);
        assert_eq!(tracker.answer(&claim("b"), Err(refused()), now), None);
        assert_eq!(tracker.file(&claim("a"), false), Ok(TokenFile::Token(token("SECRET"))));
        let shown = format!("{tracker:?}");
        assert!(!shown.contains("SECRET"), "{shown}");
    }
}
