//! Whose turn it is to catch up: a storm of reconnects does not hold every node's state in
//! memory at once. First come, first served.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until};

/// The turns of a hub.
#[derive(Clone)]
pub(crate) struct Turns {
    slots: Arc<Semaphore>,
    count: usize,
    lasts: Duration,
}

/// The place of one session in the line.
pub(crate) struct Turn {
    turns: Turns,
    state: State,
}

enum State {
    /// Nothing to catch up with.
    Idle,
    Waiting(BoxFuture<'static, Option<OwnedSemaphorePermit>>),
    Held {
        _permit: Option<OwnedSemaphorePermit>,
        until: Instant,
    },
    /// It took so long that another has its turn now.
    Over,
}

impl Turns {
    /// `count` at once, at least one; each lasts no longer than `lasts`.
    pub(crate) fn new(count: usize, lasts: Duration) -> Self {
        let count = count.clamp(1, Semaphore::MAX_PERMITS);
        Self { slots: Arc::new(Semaphore::new(count)), count, lasts }
    }

    /// How many have their turn.
    pub(crate) fn held(&self) -> usize {
        self.count.saturating_sub(self.slots.available_permits())
    }

    /// A place outside the line.
    pub(crate) fn turn(&self) -> Turn {
        Turn { turns: self.clone(), state: State::Idle }
    }
}

impl Turn {
    /// Whether a catch-up may begin.
    pub(crate) fn is_held(&self) -> bool {
        matches!(self.state, State::Held { .. })
    }

    /// Stands in the line, unless it does already.
    pub(crate) fn ask(&mut self) {
        if matches!(self.state, State::Idle | State::Over) {
            let slots = self.turns.slots.clone();
            self.state = State::Waiting(Box::pin(async move { slots.acquire_owned().await.ok() }));
        }
    }

    /// The catch-up is sent, or not needed any more: the next may begin.
    pub(crate) fn done(&mut self) {
        if matches!(self.state, State::Held { .. } | State::Over) {
            self.state = State::Idle;
        }
    }

    /// Returns when the turn comes that was asked for; safe to drop and call again.
    pub(crate) async fn granted(&mut self) {
        loop {
            match &mut self.state {
                State::Waiting(permit) => {
                    // The semaphore is never closed.
                    let permit = permit.await;
                    let until = Instant::now() + self.turns.lasts;
                    self.state = State::Held { _permit: permit, until };
                    return;
                }
                State::Held { until, .. } => {
                    sleep_until(*until).await;
                    self.state = State::Over;
                }
                State::Idle | State::Over => pending().await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn turns_go_round_in_order_and_nobody_keeps_one() {
        let turns = Turns::new(1, Duration::from_secs(5));
        let [mut first, mut second, mut third] = [turns.turn(), turns.turn(), turns.turn()];
        for turn in [&mut first, &mut second, &mut third] {
            turn.ask();
            let _ = turn.granted().now_or_never();
        }
        assert!(first.is_held() && !second.is_held() && !third.is_held());
        first.done();
        assert!(third.granted().now_or_never().is_none(), "it is not the third's turn");
        assert!(second.granted().now_or_never().is_some());
        // The second stalls: when its time is over, the third goes on.
        tokio::select! {
            () = second.granted() => unreachable!("it has been granted"),
            () = third.granted() => {}
        }
        assert!(third.is_held() && !second.is_held());
        second.ask();
        assert!(second.granted().now_or_never().is_none());
        drop(third);
        assert!(second.granted().now_or_never().is_some());
    }
}
