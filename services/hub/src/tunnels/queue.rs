//! The dials that a session has not sent yet.

use std::collections::VecDeque;
use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use headwater_session::message::{Dial, DialSupport};
use headwater_tunnel::STREAMS_MAX;
use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// The most dials that wait. A session sends them at once, unless its socket takes nothing.
const DIALS_MAX: usize = 2 * STREAMS_MAX;

/// The dials of one session.
#[derive(Debug)]
pub(crate) struct DialQueue {
    dials: Mutex<VecDeque<Dial>>,
    added: Notify,
    /// The edge confirms each dial at once.
    is_confirmed: bool,
    /// Notified at each message of the edge, and when the session reads its messages again.
    heard: Notify,
    /// Whether the session reads the messages of the edge at present.
    is_read: AtomicBool,
    ended: CancellationToken,
}

impl DialQueue {
    /// The dials to an edge; `None`: it takes none.
    pub(crate) fn new(support: DialSupport) -> Option<Self> {
        support.is_taken().then(|| Self {
            dials: Mutex::default(),
            added: Notify::new(),
            is_confirmed: support == DialSupport::Confirmed,
            heard: Notify::new(),
            is_read: AtomicBool::new(true),
            ended: CancellationToken::new(),
        })
    }

    /// A message of the edge has arrived.
    pub(crate) fn hear(&self) {
        self.heard.notify_waiters();
    }

    /// Notes whether the session reads the messages of the edge. While reports wait for the log it reads none, and
    /// a receipt waits behind them.
    pub(crate) fn set_read(&self, is_read: bool) {
        let was_read = self.is_read.swap(is_read, Ordering::Relaxed);
        if is_read && !was_read {
            self.hear();
        }
    }

    /// Whether the session reads the messages of the edge at present.
    pub(crate) fn is_read(&self) -> bool {
        self.is_read.load(Ordering::Relaxed)
    }

    /// Waits until the edge has sent nothing for as long as it may take to confirm a dial; for ever, if it sends
    /// anything, does not confirm dials, or its messages are not read. It counts from the call.
    pub(crate) fn silent(&self, within: Duration) -> impl Future<Output = ()> {
        // It is notified from here on, whenever it is polled.
        let heard = self.heard.notified();
        async move {
            if !self.is_confirmed || timeout(within, heard).await.is_ok() || !self.is_read() {
                pending().await
            }
        }
    }

    /// Adds a dial. A full queue drops it, and its client waits until its time is over.
    pub(crate) fn add(&self, dial: Dial) {
        let mut dials = self.dials.lock().unwrap_or_else(PoisonError::into_inner);
        if dials.len() < DIALS_MAX {
            dials.push_back(dial);
            self.added.notify_one();
        }
    }

    /// The session has ended.
    pub(crate) fn end(&self) {
        self.ended.cancel();
    }

    /// Waits until the session has ended.
    pub(crate) async fn ended(&self) {
        self.ended.cancelled().await;
    }

    /// Waits for a dial. Cancel safe.
    pub(crate) async fn next(&self) -> Dial {
        loop {
            let next = self.dials.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            if let Some(dial) = next {
                return dial;
            }
            self.added.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WITHIN: Duration = Duration::from_millis(900);

    #[tokio::test(start_paused = true)]
    async fn an_edge_whose_messages_are_not_read_is_not_silent() {
        let dials = DialQueue::new(DialSupport::Confirmed).expect("the edge takes dials");
        timeout(2 * WITHIN, dials.silent(WITHIN)).await.expect("it sends nothing");
        dials.set_read(false);
        timeout(10 * WITHIN, dials.silent(WITHIN)).await.expect_err("a receipt may wait");
        // The receipt is behind the reports that are read first.
        let silent = dials.silent(WITHIN);
        dials.set_read(true);
        timeout(10 * WITHIN, silent).await.expect_err("a receipt may wait");
        timeout(2 * WITHIN, dials.silent(WITHIN)).await.expect("it sends nothing");
    }
}
