//! What is asked of the brokers and not answered yet, so that a silent cluster is seen before a request
//! fails.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A request that failed is repeated within this time, or nothing is asked any more.
const REPEATED_WITHIN: Duration = Duration::from_secs(5);

/// Measures for how long the brokers have not answered.
#[derive(Debug, Default)]
pub(crate) struct AnswerClock(Mutex<PendingRequests>);

#[derive(Debug, Default)]
struct PendingRequests {
    /// The first request after the last answer to one.
    request: Option<Instant>,
    /// The requests that are not over.
    open_requests: usize,
    /// When the last one failed.
    failed: Option<Instant>,
    /// The appends whose outcome is not known, by their number.
    appends: BTreeMap<u64, Instant>,
    last_append: u64,
    /// The time of the last answer to anything, or of the last record.
    heard: Option<Instant>,
}

/// A request that is not over. A caller that drops it waits for the answer no more.
#[derive(Debug)]
pub(crate) struct PendingRequest<'c> {
    clock: &'c AnswerClock,
    is_over: bool,
}

/// An append whose outcome is not known; it is, once this is dropped.
#[derive(Debug)]
pub(crate) struct PendingAppend<'c> {
    clock: &'c AnswerClock,
    number: u64,
}

impl AnswerClock {
    /// A request begins.
    pub(crate) fn begin_request(&self, now: Instant) -> PendingRequest<'_> {
        self.asked(now);
        PendingRequest { clock: self, is_over: false }
    }

    fn asked(&self, now: Instant) {
        let mut pending = self.lock();
        if !pending.asks(now) {
            pending.request = None;
        }
        pending.request.get_or_insert(now);
        pending.open_requests += 1;
    }

    /// A broker has answered a request.
    fn answered(&self, now: Instant) {
        let mut pending = self.lock();
        pending.heard = Some(now);
        pending.open_requests = pending.open_requests.saturating_sub(1);
        (pending.request, pending.failed) = (None, None);
    }

    /// A request failed without an answer.
    fn failed(&self, now: Instant) {
        let mut pending = self.lock();
        pending.open_requests = pending.open_requests.saturating_sub(1);
        pending.failed = Some(now);
    }

    /// Records are given to the client.
    pub(crate) fn begin_append(&self, now: Instant) -> PendingAppend<'_> {
        let mut pending = self.lock();
        pending.last_append += 1;
        let number = pending.last_append;
        pending.appends.insert(number, now);
        PendingAppend { clock: self, number }
    }

    /// A broker has written records, or sent some.
    pub(crate) fn heard(&self, now: Instant) {
        self.lock().heard = Some(now);
    }

    /// The time since the last answer to anything.
    pub(crate) fn answered_ago(&self, now: Instant) -> Option<Duration> {
        Some(now.saturating_duration_since(self.lock().heard?))
    }

    /// For how long the oldest request or append has had no answer.
    pub(crate) fn waits(&self, now: Instant) -> Option<Duration> {
        let pending = self.lock();
        let append = pending.appends.values().next().copied();
        let request = pending.request.filter(|_| pending.asks(now));
        let oldest = request.into_iter().chain(append).min()?;
        Some(now.saturating_duration_since(oldest))
    }

    fn lock(&self) -> MutexGuard<'_, PendingRequests> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PendingRequests {
    /// Whether something is asked at `now`, or will be again in a moment.
    fn asks(&self, now: Instant) -> bool {
        let is_recent = |failed| now.saturating_duration_since(failed) < REPEATED_WITHIN;
        self.open_requests > 0 || self.failed.is_some_and(is_recent)
    }
}

impl PendingRequest<'_> {
    /// A broker has answered.
    pub(crate) fn answered(mut self, now: Instant) {
        self.is_over = true;
        self.clock.answered(now);
    }

    /// The request failed without an answer.
    pub(crate) fn failed(mut self, now: Instant) {
        self.is_over = true;
        self.clock.failed(now);
    }
}

impl Drop for PendingRequest<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            let mut pending = self.clock.lock();
            pending.open_requests = pending.open_requests.saturating_sub(1);
        }
    }
}

impl Drop for PendingAppend<'_> {
    fn drop(&mut self) {
        self.clock.lock().appends.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_request_or_append_without_an_answer_counts() {
        let clock = AnswerClock::default();
        let start = Instant::now();
        let at = |second: u64| start + Duration::from_secs(second);
        let seconds = |now| clock.waits(at(now)).map(|waits| waits.as_secs());
        assert_eq!(seconds(9), None, "nothing is asked");
        clock.asked(at(1));
        clock.failed(at(2));
        clock.asked(at(3));
        assert_eq!(seconds(4), Some(3), "the same request once more");
        clock.answered(at(4));
        assert_eq!(seconds(4), None);
        let first = clock.begin_append(at(5));
        let second = clock.begin_append(at(6));
        clock.asked(at(7));
        assert_eq!(seconds(9), Some(4));
        drop(first);
        assert_eq!(seconds(9), Some(3));
        drop(second);
        assert_eq!(seconds(9), Some(2));
        clock.heard(at(8));
        assert_eq!(clock.answered_ago(at(9)), Some(Duration::from_secs(1)));
        clock.answered(at(9));
        assert_eq!(seconds(9), None);
    }

    #[test]
    fn a_request_that_failed_and_is_not_repeated_is_no_silence() {
        let clock = AnswerClock::default();
        let start = Instant::now();
        let at = |second: u64| start + Duration::from_secs(second);
        let seconds = |now| clock.waits(at(now)).map(|waits| waits.as_secs());
        clock.asked(at(0));
        assert_eq!(seconds(9), Some(9));
        clock.failed(at(10));
        assert_eq!(seconds(14), Some(14), "it will be repeated");
        assert_eq!(seconds(15), None);
        clock.asked(at(20));
        assert_eq!(seconds(23), Some(3));
    }

    #[test]
    fn a_request_that_its_caller_gave_up_is_no_silence() {
        let clock = AnswerClock::default();
        let start = Instant::now();
        let request = clock.begin_request(start);
        let later = start + Duration::from_secs(9);
        assert_eq!(clock.waits(later), Some(Duration::from_secs(9)));
        drop(request);
        assert_eq!(clock.waits(later), None);
    }
}
