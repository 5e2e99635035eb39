//! Where a fold of a log continues: from its stored cursors.
//!
//! A fold that has no acceptance rules, such as that of the reports of nodes, stores the cursor of
//! each partition in the batch of its rows. It opens the log again from them.

use headwater_event::{Cursor, Partition};
use headwater_log::{Log, ReadError, start_cursors};
use headwater_store::{Engine, EngineError, Folded, Table};

/// Where a fold continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResumePoint {
    /// The cursor of each partition of the log: the stored one, else the start of the partition.
    pub cursors: Vec<Cursor>,
    /// Whether an earlier fold left a cursor.
    pub is_resumed: bool,
}

/// Reads where the fold whose cursors are in `stored` continues. [`Log::read`] refuses cursors that
/// are no longer valid; the fold then begins anew ([`must_refold`]).
///
/// # Errors
/// When the log or the engine cannot be read.
pub async fn resume_point<E>(
    log: &dyn Log,
    engine: &dyn Engine,
    stored: &Table<Partition, Cursor, Folded>,
) -> Result<ResumePoint, E>
where
    E: From<ReadError> + From<EngineError>,
{
    let mut resume = ResumePoint { cursors: start_cursors(log).await?, is_resumed: false };
    for cursor in &mut resume.cursors {
        if let Some(stored) = stored.get(engine, &cursor.partition)? {
            *cursor = stored;
            resume.is_resumed = true;
        }
    }
    Ok(resume)
}

/// Whether the stored cursors of a fold whose read failed so no longer mark a prefix of the log: the
/// topic was made again, or its records up to a cursor were lost or have expired.
pub fn must_refold(error: &ReadError) -> bool {
    !matches!(error, ReadError::Unavailable { .. })
}
