//! The fold from the start of partitions, for a reader without usable state.

use headwater_event::Partition;
use headwater_event::record::LogMetadata;

use crate::acceptance::{Acceptance, FoldRange};
use crate::log::{Log, ReadError};

/// Begins a fold of every partition in the log's metadata, up to its present end. The caller reads
/// from [`Acceptance::cursors`]. `now_ms` is the reader's clock.
///
/// # Errors
/// See [`ReadError`].
pub async fn begin_fold(
    log: &dyn Log,
    metadata: LogMetadata,
    now_ms: i64,
) -> Result<Acceptance, ReadError> {
    begin_fold_of(log, metadata, (0..metadata.partitions).map(Partition), now_ms).await
}

/// Begins a fold of some partitions; see [`begin_fold`].
///
/// # Errors
/// See [`ReadError`].
pub async fn begin_fold_of(
    log: &dyn Log,
    metadata: LogMetadata,
    partitions: impl IntoIterator<Item = Partition>,
    now_ms: i64,
) -> Result<Acceptance, ReadError> {
    let mut ranges = Vec::new();
    for partition in partitions {
        let start = log.start(partition).await?;
        let high = log.bounds(partition).await?.high;
        ranges.push(FoldRange { start, high });
    }
    let window_ms = log.describe().await?.replay_window_ms;
    // Half the window is reserved for a difference between the reader's clock and the log's.
    let intact_from_ms = now_ms.saturating_sub_unsigned(window_ms / 2);
    Ok(Acceptance::fold(metadata, ranges, intact_from_ms, now_ms))
}
