//! When a hub connects to the controller: at once at each claim, and again after each failure.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use headwater_event::WriterAddress;
use tokio::sync::watch;
use tokio::time::sleep;

/// The first and the longest wait before a hub connects again. The wait doubles in between. The jitter, because all
/// hubs lose a controller at the same time, adds up to as much again: a hub waits for 2 s at most, so a controller
/// that starts again at its address has its hubs back within 3 s.
const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(1);

/// Runs one attempt at a time to hold a stream to the present writer, until the sender of the claims is dropped.
/// `attempt` returns when its stream has failed, with whether it was established. A new claim drops an attempt or the
/// wait after it, also at the same address: a controller that has started again may be another machine.
pub(crate) async fn follow<A: Future<Output = bool>>(
    mut claims: watch::Receiver<Option<WriterAddress>>,
    attempt: impl Fn(Option<WriterAddress>) -> A,
) {
    let mut waits = waits();
    loop {
        let writer = claims.borrow_and_update().clone();
        let held = async {
            if attempt(writer).await {
                waits = self::waits();
            }
            sleep(waits.next().unwrap_or(RETRY_MAX)).await;
        };
        tokio::select! {
            biased;
            changed = claims.changed() => {
                if changed.is_err() {
                    return;
                }
                waits = self::waits();
            }
            () = held => {}
        }
    }
}

/// The waits after failures in a row.
fn waits() -> ExponentialBackoff {
    ExponentialBuilder::default()
        .with_min_delay(RETRY_MIN)
        .with_max_delay(RETRY_MAX)
        .with_jitter()
        .without_max_times()
        .build()
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use headwater_event::WriterEpoch;
    use tokio::sync::mpsc;
    use tokio::task::JoinHandle;
    use tokio::time::Instant;

    use super::*;

    /// How long after a claim, or the return of a controller, the lane is back at the latest.
    const BACK_WITHIN: Duration = Duration::from_secs(3);

    fn claim(epoch: u64) -> Option<WriterAddress> {
        let address = "controller-0:7301".to_owned();
        Some(WriterAddress { epoch: WriterEpoch(epoch), address })
    }

    /// The attempts that a test has not read yet: few, because time goes on only while it waits.
    const UNREAD_MAX: usize = 8;

    /// The epochs and times of the attempts, each of which fails at once, or hangs.
    fn attempts(
        claims: watch::Receiver<Option<WriterAddress>>,
        hangs: bool,
    ) -> (JoinHandle<()>, mpsc::Receiver<(u64, Instant)>) {
        let (begun, attempts) = mpsc::channel(UNREAD_MAX);
        let attempt = move |writer: Option<WriterAddress>| {
            let epoch = writer.expect("a writer").epoch.0;
            begun.try_send((epoch, Instant::now())).expect("the test reads");
            async move { if hangs { pending().await } else { false } }
        };
        (tokio::spawn(follow(claims, attempt)), attempts)
    }

    #[tokio::test(start_paused = true)]
    async fn a_claim_of_the_same_address_begins_at_once_and_with_short_waits() {
        let (claims, seen) = watch::channel(claim(1));
        let (task, mut attempts) = attempts(seen, false);
        let mut last = attempts.recv().await.expect("an attempt").1;
        // The waits are at their longest, and no controller that is back waits for longer.
        for _ in 0..100 {
            let (_, at) = attempts.recv().await.expect("an attempt");
            assert!(at - last < BACK_WITHIN, "a hub waits for {:?}", at - last);
            last = at;
        }
        // In the middle of a wait.
        sleep(RETRY_MIN).await;
        let claimed = Instant::now();
        claims.send_replace(claim(2));
        assert_eq!(attempts.recv().await, Some((2, claimed)));
        let mut before = claimed;
        for factor in [1, 2, 4] {
            let (_, at) = attempts.recv().await.expect("an attempt");
            // The timer counts whole milliseconds.
            let longest = 2 * factor * RETRY_MIN + Duration::from_millis(1);
            assert!(at - before <= longest, "the wait begins anew: {:?}", at - before);
            before = at;
        }
        drop(claims);
        task.await.expect("it ends with the claims");
    }

    #[tokio::test(start_paused = true)]
    async fn a_claim_of_the_same_address_cuts_an_attempt_that_hangs() {
        let (claims, seen) = watch::channel(claim(1));
        let (task, mut attempts) = attempts(seen, true);
        attempts.recv().await.expect("an attempt");
        sleep(BACK_WITHIN).await;
        let claimed = Instant::now();
        claims.send_replace(claim(2));
        assert_eq!(attempts.recv().await, Some((2, claimed)));
        drop(claims);
        task.await.expect("it ends with the claims");
    }
}
