//! Where a fold of a log continues: from its stored cursors.
//!
//! A fold that has no acceptance rules, such as that of the reports of nodes, stores the cursor of
//! each partition in the batch of its rows. It opens the log again from them. A partition that cannot be
//! read is left out, and the others are followed. Once it can be read, the log is opened again with it.

use std::future::pending;
use std::time::Duration;

use futures::future::{join_all, select_ok};
use headwater_event::{Cursor, Partition};
use headwater_log::{CatchUpTarget, Log, ReadError};
use headwater_store::{Engine, EngineError, Folded, Table};
use tokio::time::sleep;

/// How many partitions are asked for their ends at once. Each takes a thread until the log answers, and
/// one without a leader takes it for the whole timeout of a request.
const STARTS_AT_ONCE: usize = 64;

/// How often a partition that is away is asked whether it can be read: an election takes about as long.
const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(2);

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

/// Reads where the fold whose cursors are in `stored` continues. [`Log::read`] refuses cursors that
/// are no longer valid; the fold then begins anew ([`must_refold`]).
///
/// # Errors
/// When the engine cannot be read, or no partition of the log, or one of them for good.
pub async fn resume_point<E>(
    log: &dyn Log,
    engine: &dyn Engine,
    stored: &Table<Partition, Cursor, Folded>,
) -> Result<ResumePoint, E>
where
    E: From<ReadError> + From<EngineError>,
{
    let mut resume = ResumePoint::default();
    let mut starts = Vec::new();
    for partition in log.describe().await?.all_partitions() {
        let cursor = stored.get(engine, &partition)?;
        resume.is_resumed |= cursor.is_some();
        starts.push((partition, cursor));
    }
    let mut unavailable = None;
    for some in starts.chunks(STARTS_AT_ONCE) {
        let found = some.iter().map(|(partition, cursor)| start(log, *partition, *cursor));
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

/// Waits until one of the partitions that are `away` can be read; for ever if there is none.
pub async fn until_readable(log: &dyn Log, away: &[Partition]) {
    if away.is_empty() {
        return pending().await;
    }
    loop {
        sleep(LOOK_AGAIN_AFTER).await;
        let looks = away.iter().map(|partition| log.bounds(*partition));
        if select_ok(looks).await.is_ok() {
            return;
        }
    }
}

/// Whether the stored cursors of a fold whose read failed so no longer mark a prefix of the log: the
/// topic was made again, or its records up to a cursor were lost or have expired.
pub fn must_refold(error: &ReadError) -> bool {
    !matches!(error, ReadError::Unavailable { .. })
}

/// The cursor of a partition, and its present end.
async fn start(
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
