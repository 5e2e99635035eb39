//! Probes of suspended partitions: when one takes a record again, the next epoch can begin.

use std::future::pending;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use headwater_event::Partition;
use headwater_log::Heartbeats;
use tokio::time::sleep;

/// The first and the longest wait before a partition is probed; the wait doubles in between. Each
/// success costs an epoch, so a partition that takes every other append does not cost more than this.
const PROBE_AFTER_MIN: Duration = Duration::from_millis(500);
const PROBE_AFTER_MAX: Duration = Duration::from_secs(30);

/// One probe for each suspended partition.
#[derive(Default)]
pub(super) struct PartitionProbes {
    running: FuturesUnordered<BoxFuture<'static, Partition>>,
}

impl PartitionProbes {
    /// Probes `partition` with heartbeats until it takes one.
    pub(super) fn start(&mut self, heartbeats: Heartbeats, partition: Partition) {
        self.running.push(Box::pin(async move {
            let waits = ExponentialBuilder::default()
                .with_min_delay(PROBE_AFTER_MIN)
                .with_max_delay(PROBE_AFTER_MAX)
                .without_max_times();
            for wait in waits.build() {
                sleep(wait).await;
                match heartbeats.probe(partition).await {
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
