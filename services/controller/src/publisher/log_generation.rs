//! The generations of the downstream log. A log that is created again gets the next number, so
//! that edges follow it.

use headwater_event::{LogId, NodeProgress, ReportKey};
use headwater_follow::FollowError;
use headwater_log::{CatchUpTarget, Log, ReadError, Record, read_metadata, start_cursors};
use headwater_store::Engine;
use headwater_view::StreamReader;
use uuid::Uuid;

/// The highest number that is believed. A node that reports a higher one by mistake does not raise
/// the next number.
const GENERATIONS_MAX: u64 = 1_000_000;

/// The last generation of the log that is known. Sources of this are the fold, and, where the log
/// has no metadata record yet, the position records of all nodes: the controller that creates the log
/// may never have read the one before.
pub(crate) async fn last_generation(
    downstream: &dyn Log,
    upstream: &dyn Log,
    engine: &dyn Engine,
) -> Result<Option<LogId>, FollowError> {
    let folded = StreamReader::new(engine).streams()?;
    let folded = folded.iter().map(|position| position.checkpoint.log_id);
    let folded = folded.max_by_key(|log| log.number);
    if read_metadata(downstream).await?.is_some() {
        return Ok(folded);
    }
    let reported = highest_reported(upstream).await?;
    Ok([reported, folded].into_iter().flatten().max_by_key(|log| log.number))
}

/// The highest generation in the position records of the upstream log. These shorten its UUID, so
/// only the number is given.
async fn highest_reported(upstream: &dyn Log) -> Result<Option<LogId>, ReadError> {
    let cursors = start_cursors(upstream).await?;
    let mut ends = CatchUpTarget::ahead_of(upstream, &cursors).await?;
    let mut reader = upstream.read(cursors).await?;
    let mut highest = None;
    while !ends.is_reached() {
        let batch = reader.next().await?;
        let numbers = batch.records.iter().filter_map(|recorded| number(&recorded.record));
        highest = highest.max(numbers.max());
        ends.pass(&batch.cursor);
    }
    Ok(highest.map(|number| LogId { number, uuid: Uuid::nil() }))
}

/// The highest generation in a position record.
fn number(record: &Record) -> Option<u64> {
    let Ok((_, ReportKey::Position)) = ReportKey::decode(&record.key) else { return None };
    let standing: NodeProgress = serde_json::from_slice(record.value.as_deref()?).ok()?;
    let ids = standing.streams.iter().filter_map(|stream| stream.log_id.split_once('-'));
    let numbers = ids.filter_map(|(number, _)| number.parse().ok());
    numbers.filter(|number| *number < GENERATIONS_MAX).max()
}
