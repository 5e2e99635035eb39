//! Requests the tokens of a pod from the edge, and takes the answers.

use headwater_object::TokenClaim;
use k8s_openapi::api::core::v1::Pod;
use tokio::time::Instant;

use super::Worker;
use super::signal::Signal;
use crate::api::client::EdgeError;
use crate::container::token::Token;
use crate::event::Severity;

impl Worker {
    /// Requests the tokens that are due.
    pub(super) fn request_tokens(&mut self, now: Instant) {
        // A pod that is refused needs none, unless it runs already.
        let is_refused = self.assignment.findings.refuses_pod() && self.containers.is_empty();
        let Some(tokens) = self.tokens.as_mut().filter(|_| !is_refused && self.ended.is_none())
        else {
            return;
        };
        for claim in tokens.due(now) {
            let (shared, signals) = (self.shared.clone(), self.signals.clone());
            tokio::spawn(async move {
                let Ok(_permit) = shared.requesting_tokens.acquire().await else { return };
                if signals.is_closed() {
                    return;
                }
                let result = shared.edge.token(&claim).await;
                let _ = signals.send(Box::new(Signal::Token { claim, result })).await;
            });
        }
    }

    /// Takes the answer to a request, and resolves the volumes with it.
    pub(super) fn end_token_request(
        &mut self,
        pod: &Pod,
        claim: &TokenClaim,
        result: Result<Token, EdgeError>,
    ) {
        let Some(tokens) = &mut self.tokens else { return };
        let failure = tokens.answer(claim, result, Instant::now());
        self.resolve_volumes(pod);
        let Some(failure) = failure else { return };
        self.warn(None, "a token of a ServiceAccount is not renewed", &failure);
        if let Some(missing) = self.missing.as_ref().filter(|it| !it.message.is_empty()) {
            self.event(None, Severity::Warning, "FailedMount", missing.message.clone());
        }
    }
}
