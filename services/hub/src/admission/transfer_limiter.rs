//! How many sessions begin a transfer at once, and how many hold a delta or a snapshot in memory: a
//! storm of reconnects must not hold the state of every node. Sessions get both in the order of
//! their requests.
//!
//! A transfer needs a slot and a place. The slot is for its start: a slow edge keeps it for a short
//! time only, so that others begin. The place is for its memory: the session keeps it until the
//! transfer is sent, however slow the edge is.
//!
//! ```text
//!         request             granted             its time is over
//!  Idle ───────────► Waiting ─────────► Held ────────────────────► Over (has a place, no slot)
//!   ▲                   ▲                │ release                  │ │ release
//!   │                   └────────────────┼────── request ───────────┘ │
//!   └────────────────────────────────────┴────────────────────────────┘
//! ```

use std::future::pending;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Sleep, sleep};

/// The transfer slots of a hub, and the places for what transfers hold in memory.
#[derive(Clone)]
pub(crate) struct TransferLimiter {
    slots: Arc<Semaphore>,
    places: Arc<Semaphore>,
    places_count: usize,
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
    Waiting(BoxFuture<'static, (Place, Slot)>),
    Held {
        place: Place,
        _slot: Slot,
        until: Pin<Box<Sleep>>,
    },
    /// The transfer took too long; another session holds the slot.
    Over(Place),
}

/// The memory of one session's transfers. `None`: the semaphore is closed, which never happens.
type Place = Option<OwnedSemaphorePermit>;

/// The start of one transfer. `None`: as for [`Place`].
type Slot = Option<OwnedSemaphorePermit>;

impl TransferLimiter {
    /// `slots`, at least one; a session holds one no longer than `held_max`. At least as many
    /// `places`.
    pub(crate) fn new(slots: usize, places: usize, held_max: Duration) -> Self {
        let slots = slots.clamp(1, Semaphore::MAX_PERMITS);
        let places_count = places.clamp(slots, Semaphore::MAX_PERMITS);
        let (slots, places) = (Semaphore::new(slots), Semaphore::new(places_count));
        Self { slots: Arc::new(slots), places: Arc::new(places), places_count, held_max }
    }

    /// The number of sessions that may hold a transfer in memory.
    pub(crate) fn held(&self) -> usize {
        self.places_count.saturating_sub(self.places.available_permits())
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
        let place = match &mut self.state {
            SlotState::Idle => None,
            // What the session holds already keeps its place.
            SlotState::Over(place) => place.take(),
            SlotState::Waiting(_) | SlotState::Held { .. } => return,
        };
        let TransferLimiter { slots, places, .. } = self.limiter.clone();
        let granted = async move {
            // The place comes first: a session that waits for memory keeps no slot from others.
            let place = match place {
                Some(place) => Some(place),
                None => places.acquire_owned().await.ok(),
            };
            (place, slots.acquire_owned().await.ok())
        };
        self.state = SlotState::Waiting(Box::pin(granted));
    }

    /// Releases slot and place: the transfer is sent, or no longer needed.
    pub(crate) fn release(&mut self) {
        if matches!(self.state, SlotState::Held { .. } | SlotState::Over(_)) {
            self.state = SlotState::Idle;
        }
    }

    /// Returns when the requested slot is granted. Cancel safe.
    pub(crate) async fn granted(&mut self) {
        loop {
            match &mut self.state {
                SlotState::Waiting(granted) => {
                    let (place, slot) = granted.await;
                    // Boxed: few sessions hold a slot, and each would have the size of the timer.
                    let until = Box::pin(sleep(self.limiter.held_max));
                    self.state = SlotState::Held { place, _slot: slot, until };
                    return;
                }
                SlotState::Held { place, until, .. } => {
                    until.await;
                    self.state = SlotState::Over(place.take());
                }
                SlotState::Idle | SlotState::Over(_) => pending().await,
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
        let limiter = TransferLimiter::new(1, 3, Duration::from_secs(5));
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

    #[tokio::test(start_paused = true)]
    async fn transfers_that_take_long_are_bounded_too() {
        let limiter = TransferLimiter::new(1, 2, Duration::from_secs(5));
        let mut slots: Vec<_> = (0..4).map(|_| limiter.slot()).collect();
        for slot in &mut slots {
            slot.request();
            let _ = slot.granted().now_or_never();
        }
        let [first, second, third, fourth] = &mut slots[..] else { unreachable!("four") };
        // The edges are slow: the slot goes on, what the sessions hold stays in memory.
        tokio::select! {
            () = first.granted() => unreachable!("it holds the slot"),
            () = second.granted() => {}
        }
        tokio::time::advance(Duration::from_secs(6)).await;
        assert!(second.granted().now_or_never().is_none(), "its time is over");
        assert_eq!(limiter.held(), 2);
        assert!(third.granted().now_or_never().is_none(), "no memory for a third");
        // A session that holds a place needs no further one for its next transfer.
        first.request();
        assert!(first.granted().now_or_never().is_some());
        first.release();
        assert!(third.granted().now_or_never().is_some());
        assert!(fourth.granted().now_or_never().is_none());
        second.release();
        third.release();
        assert!(fourth.granted().now_or_never().is_some());
        assert_eq!(limiter.held(), 1);
    }
}
