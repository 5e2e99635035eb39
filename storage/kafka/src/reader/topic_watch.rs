//! A watch over the topic of a reader.

use std::sync::Arc;
use std::time::Duration;

use headwater_event::{Partition, TopicId};
use headwater_log::ReadError;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::ReaderDependencies;
use super::position::ReaderPosition;
use crate::cluster::blocking;
use crate::metrics::Counts;

/// How often the ends of the partitions are requested for the metric of the lag: as often as a metric is mostly
/// scraped.
const LAG_INTERVAL: Duration = Duration::from_secs(15);

/// Checks whether the topic is still the one that the reader reads: librdkafka goes on in silence
/// when a topic was deleted and created again.
pub(super) struct TopicWatch {
    pub(super) dependencies: ReaderDependencies,
    /// The topic that the reader reads.
    pub(super) topic: TopicId,
    pub(super) position: Arc<ReaderPosition>,
}

impl TopicWatch {
    /// Runs until the topic is another, or the cluster has not answered for too long. Sends that
    /// fault.
    pub(super) async fn run(self, faults: mpsc::Sender<ReadError>) {
        let Self { dependencies, topic: was, position } = self;
        let ReaderDependencies { settings, cluster, counts } = &dependencies;
        let mut times = cluster.check_times();
        let mut answered = Instant::now();
        let mut counted = answered;
        loop {
            let time = times.tick().await;
            let error = match cluster.check_topic(time).await {
                Ok(is) if is == was => {
                    answered = Instant::now();
                    if let Some(counts) = counts
                        && counted.elapsed() >= LAG_INTERVAL
                        && position.is_shown()
                    {
                        counted = answered;
                        count_lag(&dependencies, counts, &position).await;
                    }
                    continue;
                }
                Ok(is) => ReadError::Recreated { was, is },
                Err(_) if answered.elapsed() < settings.unreachable_after => continue,
                Err(error) => error,
            };
            let _ = faults.send(error).await;
            return;
        }
    }
}

/// Requests the ends of the partitions: a reader that is not polled does not learn them.
async fn count_lag(
    dependencies: &ReaderDependencies,
    counts: &Arc<Counts>,
    position: &Arc<ReaderPosition>,
) {
    let partitions: Vec<Partition> = position.all().into_keys().collect();
    let cluster = dependencies.cluster.clone();
    // The metric of a partition without an answer keeps its value. If there is no answer for long, the watch reports it.
    let Ok(ends) = blocking(move || cluster.ends(&partitions)).await else { return };
    for (partition, end) in ends {
        // The reader may have handled more meanwhile.
        if let Some(next) = position.next(partition) {
            counts.handled(partition, next);
        }
        counts.ends(partition, end);
    }
}
