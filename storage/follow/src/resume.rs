//! Where a fold of a log continues: from its stored cursors.
//!
//! A fold that has no acceptance rules, such as that of the reports of nodes, stores the cursor of
//! each partition in the batch of its rows. It opens the log again from them. A partition that cannot be
//! read is left out, and the others are followed. Once it can be read, the log is opened again with it. Those
//! that are still away are not asked then: each would take the whole timeout of a request, and the fold waits.

use std::future::pending;
use std::pin::pin;
use std::time::Duration;

use futures::future::{join_all, ready};
use futures::{StreamExt, stream};
use headwater_event::{Cursor, Partition};
use headwater_log::{CatchUpTarget, Description, Log, ReadError};
use headwater_store::{Engine, EngineError, Folded, Table};
use tokio::time::{sleep, timeout};

/// How many partitions are asked at once. Each takes a thread until the log answers, and one without a leader
/// takes it for the whole timeout of a request.
pub const STARTS_AT_ONCE: usize = 64;

/// The wait before a partition that is away is asked again whether it can be read: an election takes about as long.
pub const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(2);

/// How long the answers of other partitions are waited for after the first one: a broker that returns leads many,
/// and each return opens the log again.
const GATHER_WITHIN: Duration = Duration::from_millis(500);

/// Where a fold continues.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResumePoint {
    /// The cursor of each partition that can be read: the stored one, else the start of the partition.
    pub cursors: Vec<Cursor>,
    /// The present ends of these partitions.
    pub ends: CatchUpTarget,
    /// The partitions that cannot be read at present.
    pub away: Vec<Partition>,
    /// Whether an earlier fold left a cursor.
    pub is_resumed: bool,
}

/// Reads where the fold whose cursors are in `stored` continues in the log that `described` describes; without
/// `stored`, each partition is read from its start. [`Log::read`] refuses cursors that are no longer valid; the
/// fold then begins anew ([`must_refold`]). The partitions `known_away` are not asked, and count as away.
///
/// # Errors
/// When the engine cannot be read, or no partition of the log, or one of them for good.
pub async fn resume_point<E>(
    log: &dyn Log,
    described: &Description,
    engine: &dyn Engine,
    stored: Option<&Table<Partition, Cursor, Folded>>,
    known_away: &[Partition],
) -> Result<ResumePoint, E>
where
    E: From<ReadError> + From<EngineError>,
{
    let mut resume = ResumePoint::default();
    let mut starts = Vec::new();
    for partition in described.all_partitions() {
        let cursor = match stored {
            Some(stored) => stored.get(engine, &partition)?,
            None => None,
        };
        resume.is_resumed |= cursor.is_some();
        if known_away.contains(&partition) {
            resume.away.push(partition);
        } else {
            starts.push((partition, cursor));
        }
    }
    let mut unavailable = None;
    for some in starts.chunks(STARTS_AT_ONCE) {
        let found =
            some.iter().map(|(partition, cursor)| partition_start(log, *partition, *cursor));
        for ((partition, _), start) in some.iter().zip(join_all(found).await) {
            match start {
                Ok((cursor, end)) => {
                    resume.cursors.push(cursor);
                    resume.ends.include(end);
                }
                Err(error) if !must_refold(&error) => {
                    resume.away.push(*partition);
                    unavailable = Some(error);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
    match unavailable {
        Some(error) if resume.cursors.is_empty() => Err(error.into()),
        _ => Ok(resume),
    }
}

/// Waits until one of the partitions that are `away` can be read; for ever if there is none. Returns it, and the
/// others that answer at about the same time.
pub async fn until_readable(log: &dyn Log, away: &[Partition]) -> Vec<Partition> {
    if away.is_empty() {
        return pending().await;
    }
    loop {
        sleep(LOOK_AGAIN_AFTER).await;
        let looks: Vec<_> = away.iter().map(|partition| look(log, *partition)).collect();
        let looks = stream::iter(looks).buffer_unordered(STARTS_AT_ONCE);
        let mut answers = pin!(looks.filter_map(ready));
        let Some(first) = answers.next().await else { continue };
        let mut readable = vec![first];
        let gathering = async {
            while let Some(partition) = answers.next().await {
                readable.push(partition);
            }
        };
        // Those that do not answer in time have a look of their own later.
        let _ = timeout(GATHER_WITHIN, gathering).await;
        return readable;
    }
}

/// Whether the stored cursors of a fold whose read failed so no longer mark a prefix of the log: the
/// topic was made again, or its records up to a cursor were lost or have expired.
pub fn must_refold(error: &ReadError) -> bool {
    !matches!(error, ReadError::Unavailable { .. })
}

/// Returns the partition if it can be read.
async fn look(log: &dyn Log, partition: Partition) -> Option<Partition> {
    log.bounds(partition).await.ok().map(|_| partition)
}

/// The cursor of a partition, the `stored` one or else its start, and its present end.
///
/// # Errors
/// When the partition cannot be read.
pub async fn partition_start(
    log: &dyn Log,
    partition: Partition,
    stored: Option<Cursor>,
) -> Result<(Cursor, CatchUpTarget), ReadError> {
    let cursor = match stored {
        Some(stored) => stored,
        None => log.start(partition).await?,
    };
    Ok((cursor, CatchUpTarget::ahead_of(log, &[cursor]).await?))
}

#[cfg(test)]
mod tests {
    use headwater_log::{MemoryLog, MemorySettings, PartitionFault};
    use headwater_store::MemoryEngine;
    use headwater_store::position::CURSORS;

    use super::*;
    use crate::follower::FollowError;

    /// Longer than a few looks.
    const SOON: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn of_the_partitions_that_are_away_those_that_can_be_read_are_opened_and_no_other_is_asked()
     {
        // More than are asked at once.
        let partitions = u32::try_from(2 * STARTS_AT_ONCE).expect("a small number");
        let log = MemoryLog::new(MemorySettings { partitions, ..MemorySettings::default() });
        let engine = MemoryEngine::new();
        let last = Partition(partitions - 1);
        let fault = |number: u32, fault| log.set_partition_fault(Partition(number), fault);
        (1..partitions).for_each(|number| fault(number, Some(PartitionFault::NoLeader)));
        let described = log.describe().await.expect("there");
        let resume = async |known_away: &[Partition]| {
            resume_point::<FollowError>(&log, &described, &engine, Some(&CURSORS), known_away).await
        };
        let away = resume(&[]).await.expect("one can be read").away;
        assert_eq!(away, (1..partitions).map(Partition).collect::<Vec<_>>());

        fault(1, None);
        fault(last.0, None);
        let readable = timeout(SOON, until_readable(&log, &away)).await;
        let mut readable = readable.expect("two can be read");
        readable.sort_unstable();
        assert_eq!(readable, [Partition(1), last]);
        // A partition that counts as away is not asked: it could be read.
        fault(2, None);
        let known_away: Vec<Partition> = (2..last.0).map(Partition).collect();
        let resume = resume(&known_away).await.expect("three are asked");
        let read: Vec<Partition> = resume.cursors.iter().map(|cursor| cursor.partition).collect();
        assert_eq!((read, resume.away), (vec![Partition(0), Partition(1), last], known_away));
    }
}
