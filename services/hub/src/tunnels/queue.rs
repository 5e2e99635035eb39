//! The dials that a session has not sent yet.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use headwater_session::message::Dial;
use headwater_tunnel::STREAMS_MAX;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// The most dials that wait. A session sends them at once, unless its socket takes nothing.
const DIALS_MAX: usize = 2 * STREAMS_MAX;

/// The dials of one session.
#[derive(Debug, Default)]
pub(crate) struct DialQueue {
    dials: Mutex<VecDeque<Dial>>,
    added: Notify,
    ended: CancellationToken,
}

impl DialQueue {
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
