//! When the sessions of a shared stream are notified: each push costs every one of them.
//!
//! A change of a stream that few sessions have goes out at once. Where many have it, changes that
//! follow each other closely go out together: the more sessions, the longer they wait for each other.

use std::collections::HashMap;
use std::time::Duration;

use headwater_event::StreamId;
use tokio::time::Instant;

/// With fewer sessions the changes of a stream are not paced: they cost less than a hub spends on the
/// private streams of as many nodes.
const PACED_SESSIONS_MIN: usize = 50;

/// The time between two notifications of a stream, for each of its sessions. A push costs a session
/// some 35 us of a processor, so a shared stream takes a fifth of one at most, and 10,000 sessions
/// have a change after 2 s at most.
const INTERVAL_PER_SESSION: Duration = Duration::from_micros(200);

/// The streams whose sessions were notified a short time ago.
#[derive(Debug, Default)]
pub(super) struct NotificationPacer {
    paced: HashMap<StreamId, PacedStream>,
}

#[derive(Debug)]
struct PacedStream {
    /// No notification before this time.
    next: Instant,
    /// Whether the stream has changed since the last notification.
    is_changed: bool,
}

impl NotificationPacer {
    /// Notes a change of a stream that `sessions` sessions have. Returns whether they are notified now;
    /// otherwise [`NotificationPacer::take_due`] returns the stream later.
    pub(super) fn change(&mut self, stream: &StreamId, sessions: usize, now: Instant) -> bool {
        if let Some(paced) = self.paced.get_mut(stream)
            && now < paced.next
        {
            paced.is_changed = true;
            return false;
        }
        self.notified(stream.clone(), sessions, now);
        true
    }

    /// When the next streams are due; `None`: none waits.
    pub(super) fn due(&self) -> Option<Instant> {
        self.paced.values().filter(|paced| paced.is_changed).map(|paced| paced.next).min()
    }

    /// The streams whose sessions are to be notified now; `sessions` counts those of a stream.
    pub(super) fn take_due(
        &mut self,
        now: Instant,
        sessions: impl Fn(&StreamId) -> usize,
    ) -> Vec<StreamId> {
        let is_over = |_: &StreamId, paced: &mut PacedStream| paced.next <= now;
        let over = self.paced.extract_if(is_over);
        let due: Vec<StreamId> =
            over.filter(|(_, paced)| paced.is_changed).map(|(stream, _)| stream).collect();
        for stream in &due {
            self.notified(stream.clone(), sessions(stream), now);
        }
        due
    }

    fn notified(&mut self, stream: StreamId, sessions: usize, now: Instant) {
        if sessions < PACED_SESSIONS_MIN {
            self.paced.remove(&stream);
            return;
        }
        let sessions = u32::try_from(sessions).unwrap_or(u32::MAX);
        let next = now + INTERVAL_PER_SESSION.saturating_mul(sessions);
        self.paced.insert(stream, PacedStream { next, is_changed: false });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 5,000 sessions: a second between two notifications.
    const MANY: usize = 5_000;

    #[test]
    fn changes_that_follow_each_other_closely_go_out_together() {
        let mut pacer = NotificationPacer::default();
        let (stream, start) = (StreamId::Cluster, Instant::now());
        let due = std::slice::from_ref(&stream);
        let after = |ms| start + Duration::from_millis(ms);
        assert!(pacer.change(&stream, MANY, start), "the first one waits for none");
        assert_eq!(pacer.due(), None);
        for ms in [1, 500, 999] {
            assert!(!pacer.change(&stream, MANY, after(ms)));
        }
        assert_eq!(pacer.due(), Some(after(1000)));
        assert_eq!(pacer.take_due(after(999), |_| MANY), []);
        assert_eq!(pacer.take_due(after(1000), |_| MANY), *due);
        assert!(!pacer.change(&stream, MANY, after(1001)), "the interval begins again");
        assert_eq!(pacer.take_due(after(2000), |_| MANY), *due);
        assert_eq!(pacer.take_due(after(3000), |_| MANY), []);
        assert!(pacer.paced.is_empty(), "a quiet stream is forgotten");
        assert!(pacer.change(&stream, MANY, after(3001)));
    }

    #[test]
    fn a_stream_of_few_sessions_is_not_paced() {
        let mut pacer = NotificationPacer::default();
        let now = Instant::now();
        for _ in 0..3 {
            assert!(pacer.change(&StreamId::Cluster, PACED_SESSIONS_MIN - 1, now));
        }
        assert_eq!(pacer.due(), None);
    }
}
