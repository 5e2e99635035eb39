//! Who is woken when a stream moves: only the sessions that have it, whatever their number.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use headwater_event::StreamId;
use headwater_session::SessionId;
use tokio::sync::Notify;

/// The sessions that wait for streams.
#[derive(Debug, Default)]
pub(crate) struct Wakers {
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    sessions: BTreeMap<SessionId, Arc<Notify>>,
    by_stream: HashMap<StreamId, BTreeSet<SessionId>>,
}

impl Wakers {
    /// Adds a session; it is woken by [`Wakers::wake_all`] and by the streams it subscribes to.
    pub(crate) fn add(&self, session: SessionId) -> Arc<Notify> {
        let bell = Arc::new(Notify::new());
        self.lock().sessions.insert(session, bell.clone());
        bell
    }

    /// Changes what a session waits for from `before` to `now`.
    pub(crate) fn subscribe(
        &self,
        session: SessionId,
        before: &BTreeSet<StreamId>,
        now: &BTreeSet<StreamId>,
    ) {
        let mut waiting = self.lock();
        for stream in before.difference(now) {
            waiting.leave(session, stream);
        }
        for stream in now.difference(before) {
            waiting.by_stream.entry(stream.clone()).or_default().insert(session);
        }
    }

    /// Forgets a session and what it waited for.
    pub(crate) fn remove(&self, session: SessionId, streams: &BTreeSet<StreamId>) {
        let mut waiting = self.lock();
        waiting.sessions.remove(&session);
        for stream in streams {
            waiting.leave(session, stream);
        }
    }

    /// Wakes the sessions of these streams.
    pub(crate) fn wake<'a>(&self, streams: impl IntoIterator<Item = &'a StreamId>) {
        let waiting = self.lock();
        for stream in streams {
            for session in waiting.by_stream.get(stream).into_iter().flatten() {
                if let Some(bell) = waiting.sessions.get(session) {
                    bell.notify_one();
                }
            }
        }
    }

    /// Wakes every session: what may be served changed as a whole.
    pub(crate) fn wake_all(&self) {
        for bell in self.lock().sessions.values() {
            bell.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // No code here panics while it holds the lock; a poisoned one is still whole.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    fn leave(&mut self, session: SessionId, stream: &StreamId) {
        if let Some(sessions) = self.by_stream.get_mut(stream) {
            sessions.remove(&session);
            if sessions.is_empty() {
                self.by_stream.remove(stream);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn streams(names: &[&str]) -> BTreeSet<StreamId> {
        names.iter().map(|name| name.parse().expect("a stream")).collect()
    }

    /// Whether the bell was rung since it was last asked.
    fn rung(bell: &Notify) -> bool {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        std::pin::pin!(bell.notified()).as_mut().poll(&mut context).is_ready()
    }

    #[test]
    fn only_the_sessions_of_a_stream_are_woken() {
        let wakers = Wakers::default();
        let (a, b) = (wakers.add(SessionId(1)), wakers.add(SessionId(2)));
        let (none, of_a) = (BTreeSet::new(), streams(&["node/a", "cluster"]));
        wakers.subscribe(SessionId(1), &none, &of_a);
        wakers.subscribe(SessionId(2), &none, &streams(&["node/b"]));
        wakers.wake(&streams(&["cluster"]));
        assert!(rung(&a) && !rung(&b));
        wakers.subscribe(SessionId(1), &of_a, &streams(&["node/a"]));
        wakers.wake(&streams(&["cluster"]));
        assert!(!rung(&a), "it no longer has the stream");
        wakers.wake_all();
        assert!(rung(&a) && rung(&b));
        wakers.remove(SessionId(1), &streams(&["node/a"]));
        wakers.wake(&streams(&["node/a"]));
        assert!(!rung(&a));
        assert_eq!(wakers.lock().by_stream.len(), 1, "nothing is left behind");
    }
}
