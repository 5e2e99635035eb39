//! The dials that a session has not sent yet.

use std::collections::VecDeque;
use std::future::pending;
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
    /// Notified at each message of the edge.
    heard: Notify,
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
            ended: CancellationToken::new(),
        })
    }

    /// A message of the edge has arrived.
    pub(crate) fn hear(&self) {
        self.heard.notify_waiters();
    }

    /// Waits until the edge has sent nothing for as long as it may take to confirm a dial; for ever, if it sends
    /// anything, or does not confirm dials. It counts from the call.
    pub(crate) fn silent(&self, within: Duration) -> impl Future<Output = ()> {
        // It is notified from here on, whenever it is polled.
        let heard = self.heard.notified();
        async move {
            if !self.is_confirmed || timeout(within, heard).await.is_ok() {
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
