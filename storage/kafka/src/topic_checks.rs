//! The checks of several topics, in one request.
//!
//! A part reads three topics and checks the id of each as often. A request costs its process some ten switches
//! of threads, whatever it asks for, and an idle part does little else.

use std::collections::BTreeSet;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use headwater_event::TopicId;
use rdkafka::error::RDKafkaErrorCode;
use tokio::task::{JoinError, JoinHandle};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use crate::native::{Failure, TopicIds, no_answer};

/// The topics that are checked with one client, and the last request.
#[derive(Default)]
pub(crate) struct TopicChecks {
    /// The time of the first check. All checks run at multiples of their interval after it, so they share one request.
    start: OnceLock<Instant>,
    topics: Mutex<BTreeSet<String>>,
    /// Locked by a check that waits for the answer: the other checks of that time wait for it.
    last: tokio::sync::Mutex<Option<Check>>,
}

/// A request on its way. It has a task of its own, so that a reader that is dropped while it waits delays no other reader.
type Request = JoinHandle<Result<TopicIds, Failure>>;

/// One request.
struct Check {
    sent: Instant,
    /// `None` once it has ended.
    request: Option<Request>,
    /// The answer, once the request has ended.
    ids: Result<TopicIds, Failure>,
}

impl TopicChecks {
    /// The checks of `topic` alone.
    pub(crate) fn new(topic: &str) -> Self {
        let checks = Self::default();
        checks.add(topic);
        checks
    }

    /// Adds a topic.
    pub(crate) fn add(&self, topic: &str) {
        self.topics.lock().unwrap_or_else(PoisonError::into_inner).insert(topic.to_owned());
    }

    /// The times of a check: multiples of `interval` since the first check of any topic. The interval skips a missed
    /// time.
    pub(crate) fn times(&self, interval: Duration) -> Interval {
        let now = Instant::now();
        let first = next_time(*self.start.get_or_init(|| now), now, interval);
        let mut times = interval_at(first, interval);
        times.set_missed_tick_behavior(MissedTickBehavior::Skip);
        times
    }

    /// The id of `topic`, which was added, by a request that was sent at `time` or later. `send` gets the names of all
    /// topics.
    pub(crate) async fn id(
        &self,
        topic: &str,
        time: Instant,
        send: impl FnOnce(Vec<String>) -> Request,
    ) -> Result<TopicId, Failure> {
        let mut last = self.last.lock().await;
        let last = &mut *last;
        let check = match last.take() {
            Some(check) if check.sent >= time => last.insert(check),
            _ => {
                let sent = Instant::now();
                let request = Some(send(self.topics()));
                last.insert(Check { sent, request, ids: Err(no_answer()) })
            }
        };
        let ids = check.ids().await.as_ref().map_err(Failure::clone)?;
        ids.get(topic).cloned().unwrap_or_else(|| Err(no_answer()))
    }

    fn topics(&self) -> Vec<String> {
        let topics = self.topics.lock().unwrap_or_else(PoisonError::into_inner);
        topics.iter().cloned().collect()
    }
}

impl Check {
    /// Waits for the answer. Cancel safe.
    async fn ids(&mut self) -> &Result<TopicIds, Failure> {
        if let Some(request) = &mut self.request {
            let ended = |error: JoinError| Err((RDKafkaErrorCode::Fail, error.to_string()));
            self.ids = request.await.unwrap_or_else(ended);
            self.request = None;
        }
        &self.ids
    }
}

/// The first multiple of `interval` since `start` that is not before `now`.
fn next_time(start: Instant, now: Instant, interval: Duration) -> Instant {
    let passed = now.saturating_duration_since(start).as_nanos();
    let intervals = passed.div_ceil(interval.as_nanos().max(1));
    start + interval.saturating_mul(u32::try_from(intervals).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::time::{advance, sleep, timeout};
    use uuid::Uuid;

    use super::*;

    /// How long an answer takes.
    const ANSWER: Duration = Duration::from_millis(10);

    #[test]
    fn the_times_of_all_checks_fall_together() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let interval = Duration::from_secs(1);
        assert_eq!(next_time(start, at(0), interval), at(0));
        assert_eq!(next_time(start, at(1), interval), at(1_000));
        assert_eq!(next_time(start, at(999), interval), at(1_000));
        assert_eq!(next_time(start, at(2_000), interval), at(2_000));
        assert_eq!(next_time(start, at(2_001), interval), at(3_000));
    }

    #[tokio::test(start_paused = true)]
    async fn the_checks_of_one_time_are_one_request() {
        let checks = TopicChecks::new("a");
        checks.add("b");
        let id = TopicId(Uuid::from_u128(1));
        let requests = AtomicUsize::new(0);
        let check = |topic: &'static str, time: Instant| {
            checks.id(topic, time, |topics| {
                requests.fetch_add(1, Ordering::Relaxed);
                assert_eq!(topics, ["a", "b"]);
                let unknown = Err((RDKafkaErrorCode::UnknownTopicOrPartition, String::new()));
                let ids = [("a".to_owned(), Ok(id)), ("b".to_owned(), unknown)];
                tokio::spawn(async move {
                    sleep(ANSWER).await;
                    Ok(ids.into())
                })
            })
        };
        let first = Instant::now();
        let (a, b) = tokio::join!(check("a", first), check("b", first));
        assert!(a == Ok(id) && b.is_err());
        assert_eq!(requests.load(Ordering::Relaxed), 1);
        // The last request was sent before this time.
        assert_eq!(check("a", Instant::now()).await, Ok(id));
        assert_eq!(requests.load(Ordering::Relaxed), 2);
        // A reader that is dropped while it waits takes the answer from no other.
        let time = Instant::now();
        timeout(ANSWER / 2, check("a", time)).await.expect_err("no answer yet");
        assert_eq!(check("a", time).await, Ok(id));
        assert_eq!((requests.load(Ordering::Relaxed), time.elapsed()), (3, ANSWER));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_failed_is_no_answer_of_another_time() {
        let checks = TopicChecks::new("a");
        let time = Instant::now();
        let failure = (RDKafkaErrorCode::OperationTimedOut, String::new());
        let failed = |_| tokio::spawn(ready(Err(failure.clone())));
        assert_eq!(checks.id("a", time, failed).await, Err(failure.clone()));
        let another = checks.id("a", time, |_| tokio::spawn(pending())).await;
        assert_eq!(another, Err(failure.clone()), "the same time");
        advance(Duration::from_secs(1)).await;
        let id = TopicId(Uuid::from_u128(1));
        let found = |_| tokio::spawn(ready(Ok([("a".to_owned(), Ok(id))].into())));
        assert_eq!(checks.id("a", Instant::now(), found).await, Ok(id));
    }
}
