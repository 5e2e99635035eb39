//! Which sessions wait for which streams: a change notifies only the sessions that have its
//! stream.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use headwater_event::StreamId;
use headwater_session::SessionId;
use tokio::sync::Notify;

/// The sessions that wait for streams.
#[derive(Debug, Default)]
pub(crate) struct StreamSubscriptions {
    table: Mutex<SubscriptionTable>,
}

#[derive(Debug, Default)]
struct SubscriptionTable {
    sessions: BTreeMap<SessionId, Arc<Notify>>,
    /// Sorted. A list: most streams have one session, and a set has room for eleven.
    by_stream: HashMap<StreamId, Vec<SessionId>>,
}

impl StreamSubscriptions {
    /// Adds a session that has no stream yet; [`StreamSubscriptions::notify_all`] reaches it.
    pub(crate) fn add(&self, session: SessionId) -> Arc<Notify> {
        let changed = Arc::new(Notify::new());
        self.lock().sessions.insert(session, changed.clone());
        changed
    }

    /// Changes the streams of a session from `before` to `now`.
    pub(crate) fn subscribe(&self, session: SessionId, before: &[StreamId], now: &[StreamId]) {
        let mut table = self.lock();
        for stream in before.iter().filter(|stream| !now.contains(stream)) {
            table.unsubscribe(session, stream);
        }
        for stream in now.iter().filter(|stream| !before.contains(stream)) {
            let sessions = table.by_stream.entry(stream.clone()).or_default();
            if let Err(at) = sessions.binary_search(&session) {
                sessions.insert(at, session);
            }
        }
    }

    /// Removes a session that has these streams.
    pub(crate) fn remove(&self, session: SessionId, streams: &[StreamId]) {
        let mut table = self.lock();
        table.sessions.remove(&session);
        for stream in streams {
            table.unsubscribe(session, stream);
        }
    }

    /// How many sessions have a stream.
    pub(super) fn sessions(&self, stream: &StreamId) -> usize {
        self.lock().by_stream.get(stream).map_or(0, Vec::len)
    }

    /// Notifies the sessions of these streams.
    pub(super) fn notify<'a>(&self, streams: impl IntoIterator<Item = &'a StreamId>) {
        let table = self.lock();
        for stream in streams {
            for session in table.by_stream.get(stream).into_iter().flatten() {
                if let Some(changed) = table.sessions.get(session) {
                    changed.notify_one();
                }
            }
        }
    }

    /// Notifies every session: the status of the whole fold changed.
    pub(super) fn notify_all(&self) {
        for changed in self.lock().sessions.values() {
            changed.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, SubscriptionTable> {
        // No code here panics while it holds the lock; a poisoned one is still whole.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SubscriptionTable {
    fn unsubscribe(&mut self, session: SessionId, stream: &StreamId) {
        if let Some(sessions) = self.by_stream.get_mut(stream) {
            if let Ok(at) = sessions.binary_search(&session) {
                sessions.remove(at);
            }
            if sessions.is_empty() {
                self.by_stream.remove(stream);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn streams(names: &[&str]) -> Vec<StreamId> {
        names.iter().map(|name| name.parse().expect("a stream")).collect()
    }

    /// Whether the session was notified since the last call.
    fn is_notified(changed: &Notify) -> bool {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        std::pin::pin!(changed.notified()).as_mut().poll(&mut context).is_ready()
    }

    #[test]
    fn a_change_notifies_only_the_sessions_of_its_stream() {
        let subscriptions = StreamSubscriptions::default();
        let (a, b) = (subscriptions.add(SessionId(1)), subscriptions.add(SessionId(2)));
        let of_a = streams(&["node/a", "cluster"]);
        subscriptions.subscribe(SessionId(1), &[], &of_a);
        subscriptions.subscribe(SessionId(2), &[], &streams(&["node/b"]));
        subscriptions.notify(&streams(&["cluster"]));
        assert!(is_notified(&a) && !is_notified(&b));
        subscriptions.subscribe(SessionId(1), &of_a, &streams(&["node/a"]));
        subscriptions.notify(&streams(&["cluster"]));
        assert!(!is_notified(&a), "the session no longer has the stream");
        subscriptions.notify_all();
        assert!(is_notified(&a) && is_notified(&b));
        subscriptions.remove(SessionId(1), &streams(&["node/a"]));
        subscriptions.notify(&streams(&["node/a"]));
        assert!(!is_notified(&a));
        assert_eq!(subscriptions.lock().by_stream.len(), 1, "nothing is left behind");
    }
}
