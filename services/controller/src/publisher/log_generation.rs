//! Which lives the downstream log has had: one that is made anew gets the next number, so that
//! edges follow.

use headwater_event::{LogId, NodeProgress, ReportKey};
use headwater_follow::FollowError;
use headwater_log::{CatchUpTarget, Log, ReadError, Record, read_metadata, start_cursors};
use headwater_store::Engine;
use headwater_view::StreamReader;
use uuid::Uuid;

/// No log has had more lives. A node that says so of its own makes the next one no larger.
const LIVES_MAX: u64 = 1_000_000;

/// The last life of the log that anyone knew: what was followed here, and, where the log is yet
/// to be born, what hubs ever said of their nodes. The controller that makes it may be a new one.
pub(crate) async fn last_life(
    downstream: &dyn Log,
    upstream: &dyn Log,
    engine: &dyn Engine,
) -> Result<Option<LogId>, FollowError> {
    let followed = StreamReader::new(engine).streams()?;
    let followed = followed.iter().map(|position| position.checkpoint.log_id);
    let followed = followed.max_by_key(|log| log.number);
    if read_metadata(downstream).await?.is_some() {
        return Ok(followed);
    }
    let told = told(upstream).await?;
    Ok([told, followed].into_iter().flatten().max_by_key(|log| log.number))
}

/// The highest life that the upstream log speaks of; by number, its UUID is not said in full.
async fn told(upstream: &dyn Log) -> Result<Option<LogId>, ReadError> {
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

/// The highest life in which the node of a position record stands.
fn number(record: &Record) -> Option<u64> {
    let Ok((_, ReportKey::Position)) = ReportKey::decode(&record.key) else { return None };
    let standing: NodeProgress = serde_json::from_slice(record.value.as_deref()?).ok()?;
    let lives = standing.streams.iter().filter_map(|stream| stream.log_id.split_once('-'));
    lives.filter_map(|(number, _)| number.parse().ok()).filter(|number| *number < LIVES_MAX).max()
}
