//! Both logs, read as any reader of them would.

use std::error::Error;
use std::iter::successors;

use headwater_check::fencing::ReaderOutcome;
use headwater_event::upstream::{ReportRecord, decode_report};
use headwater_event::{RecordKey, ReportKey};
use headwater_log::acceptance::RepairKey;
use headwater_log::{
    Batch, CatchUpTarget, Log, Outcome, ReadError, StoredRecord, begin_fold, read_metadata,
    start_cursors,
};

use super::Evidence;

/// Why a log cannot be read.
pub(super) type Failure = dyn Error + Send + Sync;

/// Whether the log was away: a broker that was frozen for longer than its session has no leader until
/// it has registered again.
pub(super) fn is_temporary(error: &(dyn Error + 'static)) -> bool {
    successors(Some(error), |&error| error.source())
        .any(|error| matches!(error.downcast_ref(), Some(ReadError::Unavailable { .. })))
}

/// Reads both logs into `evidence`, up to where they end now.
pub(super) fn read(
    downstream: &dyn Log,
    upstream: &dyn Log,
    evidence: &mut Evidence,
) -> Result<(), Box<Failure>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        read_downstream(downstream, evidence).await?;
        read_upstream(upstream, evidence).await
    })
}

async fn read_downstream(log: &dyn Log, evidence: &mut Evidence) -> Result<(), Box<Failure>> {
    evidence.log_metadata = read_metadata(log).await?;
    let Some(log_metadata) = evidence.log_metadata else { return Ok(()) };
    let mut acceptance = begin_fold(log, log_metadata, 0).await?;
    let mut ends = CatchUpTarget::ahead_of(log, &acceptance.cursors()).await?;
    let mut reader = log.read(acceptance.cursors()).await?;
    while !ends.is_reached() {
        let batch = reader.next().await?;
        let outcomes = acceptance.accept_batch(&batch, 0);
        for (recorded, outcome) in batch.records.iter().zip(outcomes) {
            take(evidence, recorded, outcome);
        }
        ends.pass(&batch.cursor);
    }
    Ok(())
}

fn take(evidence: &mut Evidence, recorded: &StoredRecord, outcome: Outcome) {
    let seen = match outcome {
        Outcome::Claimed { claim, .. } => ReaderOutcome::Claim(claim.epoch),
        Outcome::Fenced(fenced) => {
            let touched = fenced.key.map_or(RepairKey::Head, RepairKey::Entry);
            evidence.unrepaired.insert((fenced.stream, touched));
            ReaderOutcome::PassedOver(fenced.epoch)
        }
        Outcome::Accepted(envelope) => {
            let (epoch, stream) = (envelope.epoch, envelope.stream.clone());
            let touched = (stream.clone(), RepairKey::of(&envelope.event));
            if evidence.unrepaired.remove(&touched) {
                evidence.repairs.insert((stream, envelope.seq));
            }
            evidence.streams.entry(envelope.stream.clone()).or_default().push(envelope);
            ReaderOutcome::Visible(epoch)
        }
        Outcome::Hole(hole) => return evidence.flaws.push(format!("{hole:?}")),
        Outcome::Malformed(malformed) => return evidence.flaws.push(malformed.to_string()),
        _ => return,
    };
    evidence.readings.entry(recorded.partition).or_default().push((recorded.offset, seen));
}

async fn read_upstream(log: &dyn Log, evidence: &mut Evidence) -> Result<(), Box<Failure>> {
    let cursors = start_cursors(log).await?;
    let mut ends = CatchUpTarget::ahead_of(log, &cursors).await?;
    let mut reader = log.read(cursors).await?;
    while !ends.is_reached() {
        let batch: Batch = reader.next().await?;
        for recorded in &batch.records {
            if let Err(error) = report(evidence, recorded) {
                evidence.flaws.push(error.to_string());
            }
        }
        ends.pass(&batch.cursor);
    }
    Ok(())
}

fn report(evidence: &mut Evidence, recorded: &StoredRecord) -> Result<(), Box<Failure>> {
    let record = ReportRecord {
        key: recorded.record.key.clone(),
        value: recorded.record.value.clone(),
        header: recorded.record.header.clone(),
    };
    if let Ok(RecordKey::Log(_)) = RecordKey::decode(&record.key) {
        return Ok(());
    }
    if let Some((node, report)) = decode_report(&record, None)? {
        evidence.reports.entry(node).or_default().push(report);
    } else if let Some(value) = &record.value {
        let (node, _) = ReportKey::decode(&record.key)?;
        evidence.progress.push((node, serde_json::from_slice(value)?));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use headwater_log::MetadataError;

    use super::*;

    #[test]
    fn a_log_that_is_away_is_temporary_and_a_damaged_one_is_not() {
        let away = ReadError::Unavailable { reason: "no leader".to_owned() };
        assert!(is_temporary(&MetadataError::Read(away)));
        let foreign = MetadataError::NotALog { key: "key".to_owned() };
        assert!(!is_temporary(&foreign));
    }
}
