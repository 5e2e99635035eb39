//! The claim by which a process becomes the one writer of a log, without the broker's help.
//!
//! ```text
//!  begin: append the claim     read back in partition 0      read back everywhere
//!  ──────────────────────► Claimed ───────────────────► Marking ───────────────► Writer
//!                             │ another's was first        │ a higher claim
//!                             └──────────► lost ◄──────────┘
//! ```
//!
//! The claimant reads the log meanwhile, in its own loop, into the same [`Acceptance`] as its fold.
//! As soon as the claimant has read its claim in a partition, later records of a former writer there
//! are invalid, and the positions in `Acceptance` are final.

use std::sync::Arc;

use bytes::Bytes;
use headwater_event::record::Claim;
use headwater_event::{LogId, Partition, RecordKey, WriterEpoch};
use uuid::Uuid;

use crate::acceptance::{Acceptance, Outcome};
use crate::log::{Append, AppendError, Batch, Log, ReadError, Reader, Record};
use crate::writer::Writer;

/// The number of epochs reserved for each life of a log. An append in flight when the topic is
/// re-created arrives in the next life, where its epoch must be invalid. The number is larger than
/// the claims of one life, and small enough that epochs of many lives stay exact in JSON.
const EPOCHS_OF_A_LIFE: u64 = 1_000_000_000;

/// The process that claims, in one attempt.
#[derive(Debug, PartialEq, Eq)]
pub struct Claimant {
    /// A random UUID, drawn for every attempt. Two claims with one UUID would share a key, and
    /// compaction would drop the first, which is the valid one.
    pub writer: Uuid,
    /// The address at which hubs reach the claimant, if it listens.
    pub address: Option<String>,
    /// The highest claimed epoch that the claimant ever knew. A log that lost its tail may have lost
    /// that claim, while edges have its events: the new writer needs a higher epoch.
    pub above: WriterEpoch,
}

impl Claimant {
    /// A claimant without an address that knows only the writers in the log.
    pub fn new(writer: Uuid) -> Self {
        Self { writer, address: None, above: WriterEpoch::default() }
    }
}

/// Why a claim failed.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// Another process claimed first, or claimed a higher epoch. That process is the writer, and
    /// the claimant stays standby.
    #[error("epoch {epoch} was lost to {winner:?}")]
    Lost {
        /// The claimed epoch.
        epoch: WriterEpoch,
        /// The claim of the writer.
        winner: Box<Claim>,
    },
    /// The reader does not read every partition of the log, or has not folded it to its end.
    #[error("a claim needs a reader that has folded all {partitions} partitions")]
    NotFolded {
        /// The number of partitions in the log's metadata.
        partitions: u32,
    },
    /// The claim or a mark could not be appended. A retry with a new UUID is safe.
    #[error("the claim cannot be appended")]
    Append(#[from] AppendError),
    /// The log could not be read back.
    #[error("the claim cannot be read back")]
    Read(#[from] ReadError),
    /// The claim cannot be written as JSON.
    #[error("the claim cannot be encoded")]
    Encode(#[from] serde_json::Error),
}

/// A claim in progress.
#[derive(Debug)]
pub struct ClaimAttempt {
    claim: Claim,
    marking: bool,
}

impl ClaimAttempt {
    /// Claims the next epoch in partition 0.
    ///
    /// # Errors
    /// See [`ClaimError`].
    pub async fn begin(
        log: &dyn Log,
        acceptance: &Acceptance,
        claimant: &Claimant,
    ) -> Result<Self, ClaimError> {
        let partitions = acceptance.metadata().partitions;
        let read = acceptance.partitions().keys().copied();
        if !acceptance.is_folded() || !read.eq((0..partitions).map(Partition)) {
            return Err(ClaimError::NotFolded { partitions });
        }
        let highest = acceptance.partitions().values().map(|state| state.claimed()).max();
        let highest = highest.unwrap_or_default().max(before_first(&acceptance.metadata().log_id));
        let highest = highest.max(claimant.above);
        let claim = Claim {
            epoch: highest.next(),
            writer: claimant.writer,
            address: claimant.address.clone(),
        };
        log.append(vec![append(&claim, Partition(0))?]).await?;
        Ok(Self { claim, marking: false })
    }

    /// Continues the claim after a batch that `acceptance` has processed; call it after every batch.
    /// Returns the writer as soon as the claim was read back in every partition.
    ///
    /// # Errors
    /// See [`ClaimError`].
    pub async fn advance(
        &mut self,
        log: &Arc<dyn Log>,
        acceptance: &Acceptance,
    ) -> Result<Option<Writer>, ClaimError> {
        let mut came_back = 0;
        for state in acceptance.partitions().values() {
            let Some(winner) = &state.claim else { continue };
            if winner.epoch < self.claim.epoch {
                continue;
            }
            if winner.epoch > self.claim.epoch || winner.writer != self.claim.writer {
                let winner = Box::new(winner.clone());
                return Err(ClaimError::Lost { epoch: self.claim.epoch, winner });
            }
            came_back += 1;
        }
        if came_back == acceptance.partitions().len() {
            let description = log.describe().await?;
            let claim = self.claim.clone();
            return Ok(Some(Writer::new(log.clone(), &description, claim, acceptance)));
        }
        if came_back > 0 && !self.marking {
            let others = acceptance.partitions().keys().filter(|other| **other != Partition(0));
            let marks = others.map(|other| append(&self.claim, *other));
            log.append(marks.collect::<Result<_, _>>()?).await?;
            self.marking = true;
        }
        Ok(None)
    }
}

/// Claims the log and reads through `reader` until the claim is won or lost. `each` receives every
/// batch with its outcomes and folds them, as the reader's own loop would; `acceptance` has
/// processed them already. `clock` returns the reader's time in milliseconds.
///
/// # Errors
/// See [`ClaimError`]; the batches that `each` received stay valid.
pub async fn claim(
    log: &Arc<dyn Log>,
    reader: &mut dyn Reader,
    acceptance: &mut Acceptance,
    claimant: &Claimant,
    clock: &(dyn Fn() -> i64 + Sync),
    each: &mut (dyn FnMut(&Batch, Vec<Outcome>) + Send),
) -> Result<Writer, ClaimError> {
    let mut claiming = ClaimAttempt::begin(log.as_ref(), acceptance, claimant).await?;
    loop {
        let batch = reader.next().await?;
        let outcomes = acceptance.accept_batch(&batch, clock());
        each(&batch, outcomes);
        if let Some(writer) = claiming.advance(log, acceptance).await? {
            return Ok(writer);
        }
    }
}

/// The epoch before the first one of this life of the log.
fn before_first(log_id: &LogId) -> WriterEpoch {
    WriterEpoch(log_id.number.saturating_sub(1).saturating_mul(EPOCHS_OF_A_LIFE))
}

fn append(claim: &Claim, partition: Partition) -> Result<Append, serde_json::Error> {
    let record = Record {
        key: RecordKey::Claim(claim.epoch, claim.writer).to_string().into(),
        value: Some(Bytes::from(serde_json::to_vec(claim)?)),
        header: Bytes::new(),
        traceparent: None,
    };
    Ok(Append { partition, record })
}
