//! Probes of suspended partitions: when one takes a record again, the next epoch can begin.

use std::collections::BTreeMap;
use std::future::pending;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use headwater_event::Partition;
use headwater_log::Heartbeats;
use tokio::time::{Instant, sleep};

/// The first and the longest wait before a partition is probed; the wait doubles in between.
const PROBE_AFTER_MIN: Duration = Duration::from_millis(500);
const PROBE_AFTER_MAX: Duration = Duration::from_secs(30);

/// Each success costs an epoch. So a partition that is suspended again within this time is first probed
/// after twice the wait of the time before: one that takes probes and no events costs an epoch in 30 s.
const RECENT: Duration = Duration::from_secs(60);

/// One probe for each suspended partition, and the history of suspensions over the epochs of one
/// controller.
#[derive(Default)]
pub(super) struct PartitionProbes {
    running: FuturesUnordered<BoxFuture<'static, Partition>>,
    history: SuspensionHistory,
}

/// When each partition was last suspended, and how long it was not probed then.
#[derive(Debug, Default)]
struct SuspensionHistory(BTreeMap<Partition, (Instant, Duration)>);

impl SuspensionHistory {
    /// Notes that `partition` is suspended, and returns the wait before it is probed.
    fn note(&mut self, partition: Partition, now: Instant) -> Duration {
        let last = self.0.get(&partition);
        let recent = last.filter(|(last, wait)| *last + *wait + RECENT > now);
        let wait = recent.map_or(PROBE_AFTER_MIN, |(_, wait)| (*wait * 2).min(PROBE_AFTER_MAX));
        self.0.insert(partition, (now, wait));
        wait
    }
}

impl PartitionProbes {
    /// Ends all probes, and keeps the history for the next epoch.
    pub(super) fn clear(&mut self) {
        self.running.clear();
    }

    /// Probes `partition` with heartbeats until it takes one, and so does partition 0: the claim of the
    /// next epoch needs that.
    pub(super) fn start(&mut self, heartbeats: Heartbeats, partition: Partition, now: Instant) {
        let first = self.history.note(partition, now);
        self.running.push(Box::pin(async move {
            let waits = ExponentialBuilder::default()
                .with_min_delay(first)
                .with_max_delay(PROBE_AFTER_MAX)
                .without_max_times();
            for wait in waits.build() {
                sleep(wait).await;
                let mut probed = heartbeats.probe(partition).await;
                if probed.is_ok() && partition != Partition(0) {
                    probed = heartbeats.probe(Partition(0)).await;
                }
                match probed {
                    Ok(()) => return partition,
                    Err(error) => tracing::debug!(%partition, %error, "the partition is away"),
                }
            }
            pending().await
        }));
    }

    /// Waits for a partition that takes records again; for ever if none is probed. Cancel safe.
    pub(super) async fn next(&mut self) -> Partition {
        match self.running.next().await {
            Some(partition) => partition,
            None => pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_that_is_suspended_again_and_again_is_probed_less_often() {
        let (start, partition) = (Instant::now(), Partition(3));
        let mut history = SuspensionHistory::default();
        let mut now = start;
        let waits: Vec<_> = (0..9)
            .map(|_| {
                now += Duration::from_secs(31);
                history.note(partition, now).as_millis()
            })
            .collect();
        assert_eq!(waits, [500, 1000, 2000, 4000, 8000, 16000, 30000, 30000, 30000]);
        assert_eq!(history.note(Partition(4), now), PROBE_AFTER_MIN, "another one");
        now += PROBE_AFTER_MAX + RECENT;
        assert_eq!(history.note(partition, now), PROBE_AFTER_MIN, "it was well for long");
    }
}
