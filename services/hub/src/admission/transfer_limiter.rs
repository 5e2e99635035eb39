//! How many sessions hold a delta or a snapshot in memory at once: a storm of reconnects must not
//! hold the state of every node. Sessions get slots in the order of their requests.
//!
//! ```text
//!         request             granted             its time is over
//!  Idle ───────────► Waiting ─────────► Held ────────────────────► Over
//!   ▲                   ▲                │ release                  │ │ release
//!   │                   └────────────────┼────── request ───────────┘ │
//!   └────────────────────────────────────┴────────────────────────────┘
//! ```

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until};

/// The transfer slots of a hub.
#[derive(Clone)]
pub(crate) struct TransferLimiter {
    slots: Arc<Semaphore>,
    count: usize,
    held_max: Duration,
}

/// The slot of one session.
pub(crate) struct TransferSlot {
    limiter: TransferLimiter,
    state: SlotState,
}

enum SlotState {
    /// The session needs no transfer.
    Idle,
    Waiting(BoxFuture<'static, Option<OwnedSemaphorePermit>>),
    Held {
        _permit: Option<OwnedSemaphorePermit>,
        until: Instant,
    },
    /// The transfer took too long; another session holds the slot.
    Over,
}

impl TransferLimiter {
    /// `count` slots, at least one; a session holds one no longer than `held_max`.
    pub(crate) fn new(count: usize, held_max: Duration) -> Self {
        let count = count.clamp(1, Semaphore::MAX_PERMITS);
        Self { slots: Arc::new(Semaphore::new(count)), count, held_max }
    }

    /// The number of slots that sessions hold.
    pub(crate) fn held(&self) -> usize {
        self.count.saturating_sub(self.slots.available_permits())
    }

    /// The slot of a new session, not requested yet.
    pub(crate) fn slot(&self) -> TransferSlot {
        TransferSlot { limiter: self.clone(), state: SlotState::Idle }
    }
}

impl TransferSlot {
    /// Whether a transfer may begin.
    pub(crate) fn is_held(&self) -> bool {
        matches!(self.state, SlotState::Held { .. })
    }

    /// Joins the queue, unless the session waits or holds the slot already.
    pub(crate) fn request(&mut self) {
        if matches!(self.state, SlotState::Idle | SlotState::Over) {
            let slots = self.limiter.slots.clone();
            let permit = async move { slots.acquire_owned().await.ok() };
            self.state = SlotState::Waiting(Box::pin(permit));
        }
    }

    /// Releases the slot: the transfer is sent, or no longer needed.
    pub(crate) fn release(&mut self) {
        if matches!(self.state, SlotState::Held { .. } | SlotState::Over) {
            self.state = SlotState::Idle;
        }
    }

    /// Returns when the requested slot is granted. Cancel safe.
    pub(crate) async fn granted(&mut self) {
        loop {
            match &mut self.state {
                SlotState::Waiting(permit) => {
                    // The semaphore is never closed.
                    let permit = permit.await;
                    let until = Instant::now() + self.limiter.held_max;
                    self.state = SlotState::Held { _permit: permit, until };
                    return;
                }
                SlotState::Held { until, .. } => {
                    sleep_until(*until).await;
                    self.state = SlotState::Over;
                }
                SlotState::Idle | SlotState::Over => pending().await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn slots_go_to_sessions_in_order_and_expire() {
        let limiter = TransferLimiter::new(1, Duration::from_secs(5));
        let [mut first, mut second, mut third] = [limiter.slot(), limiter.slot(), limiter.slot()];
        for slot in [&mut first, &mut second, &mut third] {
            slot.request();
            let _ = slot.granted().now_or_never();
        }
        assert!(first.is_held() && !second.is_held() && !third.is_held());
        first.release();
        assert!(third.granted().now_or_never().is_none(), "the second waits before the third");
        assert!(second.granted().now_or_never().is_some());
        // The second stalls: the third gets the slot when the time is over.
        tokio::select! {
            () = second.granted() => unreachable!("it holds the slot"),
            () = third.granted() => {}
        }
        assert!(third.is_held() && !second.is_held());
        second.request();
        assert!(second.granted().now_or_never().is_none());
        drop(third);
        assert!(second.granted().now_or_never().is_some());
    }
}
