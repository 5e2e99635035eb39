//! Both logs, read as any reader of them would.

use std::error::Error;
use std::sync::Arc;

use headwater_check::fencing::Seen;
use headwater_embedded::{EmbeddedLog, EmbeddedSettings, LogTopic};
use headwater_event::ReportKey;
use headwater_event::upstream::{ReportRecord, decode_report};
use headwater_log::{Batch, Ends, Log, Outcome, Recorded, begin_fold, read_birth, starts};
use headwater_store::Engine;

use super::Evidence;

/// Reads both logs of `engine` into `evidence`.
pub(super) fn read(engine: Arc<dyn Engine>, evidence: &mut Evidence) -> Result<(), Box<Failure>> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    runtime.block_on(async {
        downstream(&open(&engine, LogTopic::Downstream)?, evidence).await?;
        upstream(&open(&engine, LogTopic::Upstream)?, evidence).await
    })
}

type Failure = dyn Error + Send + Sync;

fn open(engine: &Arc<dyn Engine>, topic: LogTopic) -> Result<EmbeddedLog, Box<Failure>> {
    // Nothing is appended, and every record that is there is young.
    let clock = Arc::new(|| 0);
    Ok(EmbeddedLog::open(engine.clone(), EmbeddedSettings::new(topic), clock)?)
}

async fn downstream(log: &EmbeddedLog, evidence: &mut Evidence) -> Result<(), Box<Failure>> {
    evidence.birth = read_birth(log).await?;
    let Some(birth) = evidence.birth else { return Ok(()) };
    let mut acceptance = begin_fold(log, birth, 0).await?;
    let mut ends = Ends::ahead_of(log, &acceptance.cursors()).await?;
    let mut reader = log.read(acceptance.cursors()).await?;
    while !ends.are_reached() {
        let batch = reader.next().await?;
        let outcomes = acceptance.accept_batch(&batch, 0);
        for (recorded, outcome) in batch.records.iter().zip(outcomes) {
            take(evidence, recorded, outcome);
        }
        ends.pass(&batch.cursor);
    }
    Ok(())
}

fn take(evidence: &mut Evidence, recorded: &Recorded, outcome: Outcome) {
    let seen = match outcome {
        Outcome::Claimed { claim, .. } => Seen::Claim(claim.epoch),
        Outcome::Fenced(fenced) => Seen::PassedOver(fenced.epoch),
        Outcome::Accepted(envelope) => {
            let epoch = envelope.epoch;
            evidence.streams.entry(envelope.stream.clone()).or_default().push(envelope);
            Seen::Visible(epoch)
        }
        Outcome::Hole(hole) => return evidence.flaws.push(format!("{hole:?}")),
        Outcome::Malformed(malformed) => return evidence.flaws.push(malformed.to_string()),
        _ => return,
    };
    evidence.readings.entry(recorded.partition).or_default().push((recorded.offset, seen));
}

async fn upstream(log: &EmbeddedLog, evidence: &mut Evidence) -> Result<(), Box<Failure>> {
    let cursors = starts(log).await?;
    let mut ends = Ends::ahead_of(log, &cursors).await?;
    let mut reader = log.read(cursors).await?;
    while !ends.are_reached() {
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

fn report(evidence: &mut Evidence, recorded: &Recorded) -> Result<(), Box<Failure>> {
    let record = ReportRecord {
        key: recorded.record.key.clone(),
        value: recorded.record.value.clone(),
        header: recorded.record.header.clone(),
    };
    if let Some((node, report)) = decode_report(&record, None)? {
        evidence.reports.entry(node).or_default().push(report);
    } else if let Some(value) = &record.value {
        let (node, _) = ReportKey::decode(&record.key)?;
        evidence.standings.push((node, serde_json::from_slice(value)?));
    }
    Ok(())
}
