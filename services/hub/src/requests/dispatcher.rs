//! The bounds on requests in flight, and their deadline.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use headwater_event::{AnswerBody, NodeName, NodeRequest, RequestError};
use tokio::time::timeout;

use super::{RequestHandler, TooManyOf};
use crate::limits::HubLimits;

/// Hands requests to a handler, a bounded number at a time.
pub(crate) struct RequestDispatcher {
    handler: Arc<dyn RequestHandler>,
    requests_max: usize,
    node_requests_max: usize,
    in_flight: Mutex<InFlight>,
}

#[derive(Debug, Default)]
struct InFlight {
    all: usize,
    /// Nodes with a request in flight.
    by_node: HashMap<NodeName, usize>,
}

/// A request in flight; it counts until it is dropped.
struct InFlightRequest<'d> {
    dispatcher: &'d RequestDispatcher,
    node: &'d NodeName,
}

impl RequestDispatcher {
    /// A dispatcher with no request in flight.
    pub(crate) fn new(handler: Arc<dyn RequestHandler>, limits: &HubLimits) -> Self {
        Self {
            handler,
            requests_max: limits.requests_max,
            node_requests_max: limits.node_requests_max,
            in_flight: Mutex::default(),
        }
    }

    /// The answer of the handler, if it comes in time for the edge.
    ///
    /// # Errors
    /// [`RequestError::TooMany`] beyond a bound, [`RequestError::Unavailable`] when the time is over,
    /// else as the handler.
    pub(crate) async fn dispatch(&self, request: NodeRequest) -> Result<AnswerBody, RequestError> {
        let node = request.node.clone();
        let _in_flight = self.begin(&node)?;
        let within = request.answer_within();
        // What follows has the time that is left here, so that it can tell the reason first.
        let request = NodeRequest { timeout: within, ..request };
        timeout(within, self.handler.handle(request)).await.unwrap_or_else(|_| {
            let what = format!("the controller did not answer within {} ms", within.as_millis());
            Err(RequestError::Unavailable(what))
        })
    }

    fn begin<'d>(&'d self, node: &'d NodeName) -> Result<InFlightRequest<'d>, RequestError> {
        let mut in_flight = self.lock();
        if in_flight.all >= self.requests_max {
            return Err(TooManyOf::Hub.into());
        }
        if in_flight.by_node.get(node).is_some_and(|count| *count >= self.node_requests_max) {
            return Err(TooManyOf::Node.into());
        }
        in_flight.all += 1;
        *in_flight.by_node.entry(node.clone()).or_default() += 1;
        Ok(InFlightRequest { dispatcher: self, node })
    }

    fn lock(&self) -> MutexGuard<'_, InFlight> {
        // No code here panics while it holds the lock; a poisoned one is still whole.
        self.in_flight.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for InFlightRequest<'_> {
    fn drop(&mut self) {
        let mut in_flight = self.dispatcher.lock();
        in_flight.all -= 1;
        if let Some(count) = in_flight.by_node.get_mut(self.node) {
            *count -= 1;
            if *count == 0 {
                in_flight.by_node.remove(self.node);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use futures::FutureExt;
    use headwater_event::RequestVerb;
    use tokio::sync::Semaphore;
    use tokio::time::Instant;

    use super::*;

    /// Responds with the name of the node, once a permit is there.
    struct Gate(Semaphore);

    #[tonic::async_trait]
    impl RequestHandler for Gate {
        async fn handle(&self, request: NodeRequest) -> Result<AnswerBody, RequestError> {
            self.0.acquire().await.expect("never closed").forget();
            Ok(Bytes::from(request.node.as_str().to_owned()).into())
        }
    }

    fn request(node: &str) -> NodeRequest {
        NodeRequest {
            node: node.parse().expect("a name"),
            timeout: Duration::from_secs(10),
            verb: RequestVerb::Get,
            key: "d/configmap/app".parse().expect("a key"),
            body: Bytes::new(),
        }
    }

    fn dispatcher(requests_max: usize, node_requests_max: usize) -> (RequestDispatcher, Arc<Gate>) {
        let gate = Arc::new(Gate(Semaphore::new(0)));
        let limits = HubLimits { requests_max, node_requests_max, ..HubLimits::default() };
        (RequestDispatcher::new(gate.clone(), &limits), gate)
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_has_a_bounded_number_of_requests_in_flight() {
        let (dispatcher, gate) = dispatcher(100, 2);
        let (a, b) = (request("a"), request("b"));
        let (mut first, mut second) =
            (dispatcher.dispatch(a.clone()).boxed(), dispatcher.dispatch(a.clone()).boxed());
        assert!((&mut first).now_or_never().is_none() && (&mut second).now_or_never().is_none());
        let third = dispatcher.dispatch(a.clone()).await;
        assert_eq!(third, Err(TooManyOf::Node.into()));
        let mut of_b = dispatcher.dispatch(b).boxed();
        assert!((&mut of_b).now_or_never().is_none(), "another node is not affected");
        gate.0.add_permits(1);
        assert_eq!(first.await.as_deref(), Ok(&b"a"[..]));
        let mut third = dispatcher.dispatch(a.clone()).boxed();
        assert!((&mut third).now_or_never().is_none(), "a response makes room for the next");
        drop((second, third, of_b));
        assert_eq!(dispatcher.lock().all, 0);
        assert!(dispatcher.lock().by_node.is_empty(), "dropped requests are not counted");
    }

    #[tokio::test(start_paused = true)]
    async fn all_nodes_together_have_a_bounded_number_of_requests_in_flight() {
        let (dispatcher, _gate) = dispatcher(2, 2);
        let requests = ["a", "b"].map(request);
        let mut held: Vec<_> =
            requests.into_iter().map(|one| dispatcher.dispatch(one).boxed()).collect();
        assert!(held.iter_mut().all(|one| one.now_or_never().is_none()));
        let beyond = dispatcher.dispatch(request("c")).await;
        assert_eq!(beyond, Err(TooManyOf::Hub.into()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_has_an_answer_in_words_before_its_time_is_over() {
        let (dispatcher, _gate) = dispatcher(2, 2);
        let begun = Instant::now();
        let outcome = dispatcher.dispatch(request("a")).await;
        let Err(RequestError::Unavailable(reason)) = outcome else { panic!("{outcome:?}") };
        assert_eq!(reason, "the controller did not answer within 9500 ms");
        assert_eq!(begun.elapsed(), Duration::from_millis(9_500));
        assert_eq!(dispatcher.lock().all, 0);
    }

    #[tokio::test]
    async fn the_default_bounds_are_those_of_the_design() {
        let limits = HubLimits::default();
        assert_eq!((limits.requests_max, limits.node_requests_max), (256, 16));
    }
}
