//! The claim by which a process becomes the one writer of a log, without the broker's help.
//!
//! ```text
//!  begin: append the claim     read back in partition 0      read back everywhere, or in time
//!  ──────────────────────► Claimed ───────────────────► Marking ───────────────► Writer
//!                             │ another's was first        │ a higher claim
//!                             └──────────► lost ◄──────────┘
//! ```
//!
//! The claimant reads the log meanwhile, in its own loop, into the same [`Acceptance`] as its fold.
//! As soon as the claimant has read its claim in a partition, later records of a former writer there
//! are invalid, and the positions in `Acceptance` are final.
//!
//! Partition 0 decides between claimants. Another partition that takes no claim in time is suspended:
//! the writer appends nothing to it, so no promise depends on a claim there.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use headwater_event::record::Claim;
use headwater_event::{LogId, Partition, RecordKey, WriterEpoch};
use tokio::time::{Instant, sleep_until};
use uuid::Uuid;

use crate::acceptance::{Acceptance, Outcome};
use crate::log::{Append, AppendError, Batch, Description, Log, ReadError, Reader, Record};
use crate::writer::Writer;

/// The number of epochs reserved for each life of a log. An append in flight when the topic is
/// re-created arrives in the next life, where its epoch must be invalid. The number is larger than
/// the claims of one life, and small enough that epochs of many lives stay exact in JSON.
const EPOCHS_OF_A_LIFE: u64 = 1_000_000_000;

/// How long a claimant waits at most for a partition other than the first to take its claim. A log that
/// works takes it within milliseconds, and a partition whose leader is elected anew within seconds.
pub const MARKS_WITHIN: Duration = Duration::from_secs(5);

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
    /// How long partitions other than the first may take over the claim. The claimant appends no
    /// heartbeat meanwhile, so this is well within the silence after which a standby claims too.
    pub marks_within: Duration,
}

impl Claimant {
    /// A claimant without an address that knows only the writers in the log, and waits for
    /// [`MARKS_WITHIN`].
    pub fn new(writer: Uuid) -> Self {
        let (above, marks_within) = (WriterEpoch::default(), MARKS_WITHIN);
        Self { writer, address: None, above, marks_within }
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
pub struct ClaimAttempt {
    claim: Claim,
    description: Description,
    marks_within: Duration,
    marks: Option<Marks>,
}

/// The claim on its way to the partitions other than the first.
struct Marks {
    running: FuturesUnordered<BoxFuture<'static, (Partition, Result<(), AppendError>)>>,
    /// The partitions that took it. However late it is read there, they take appends.
    appended: BTreeSet<Partition>,
    /// The partitions that did not take it, and why.
    failed: BTreeMap<Partition, AppendError>,
    deadline: Instant,
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
        // Before the claim: a writer that cannot describe its log would have ended the one before it.
        let description = log.describe().await?;
        log.append(vec![append(&claim, Partition(0))?]).await?;
        Ok(Self { claim, description, marks_within: claimant.marks_within, marks: None })
    }

    /// Waits until the claim can continue without a batch: a partition refused it, or one has not
    /// answered in time. Otherwise waits for ever. Cancel safe.
    pub async fn changed(&mut self) {
        let Some(Marks { running, appended, failed, deadline }) = &mut self.marks else {
            return pending().await;
        };
        if Instant::now() >= *deadline {
            // Once it has continued, batches alone continue it.
            return pending().await;
        }
        loop {
            tokio::select! {
                biased;
                Some((partition, result)) = running.next() => match result {
                    Ok(()) => {
                        appended.insert(partition);
                    }
                    Err(error) => {
                        failed.insert(partition, error);
                        return;
                    }
                },
                () = sleep_until(*deadline) => return,
            }
        }
    }

    /// Continues the claim after a batch that `acceptance` has processed, and after
    /// [`ClaimAttempt::changed`]; call it after each. Returns the writer as soon as the claim was read
    /// back in every partition but those that took none in time.
    ///
    /// # Errors
    /// See [`ClaimError`].
    pub async fn advance(
        &mut self,
        log: &Arc<dyn Log>,
        acceptance: &Acceptance,
    ) -> Result<Option<Writer>, ClaimError> {
        let mut missing = Vec::new();
        for (partition, state) in acceptance.partitions() {
            match &state.claim {
                Some(winner) if winner.epoch >= self.claim.epoch => {
                    if winner.epoch > self.claim.epoch || winner.writer != self.claim.writer {
                        let winner = Box::new(winner.clone());
                        return Err(ClaimError::Lost { epoch: self.claim.epoch, winner });
                    }
                }
                _ => missing.push(*partition),
            }
        }
        if missing.contains(&Partition(0)) {
            return Ok(None);
        }
        if let Some(suspended) = self.suspended(&missing)? {
            let (claim, description) = (self.claim.clone(), self.description.clone());
            return Ok(Some(Writer::new(log.clone(), description, claim, acceptance, suspended)));
        }
        if self.marks.is_none() {
            let running = FuturesUnordered::new();
            for partition in missing {
                let (log, mark) = (log.clone(), append(&self.claim, partition)?);
                let call: BoxFuture<'static, _> =
                    Box::pin(async move { (partition, log.append(vec![mark]).await.map(drop)) });
                running.push(call);
            }
            let deadline = Instant::now() + self.marks_within;
            let (appended, failed) = (BTreeSet::new(), BTreeMap::new());
            self.marks = Some(Marks { running, appended, failed, deadline });
        }
        Ok(None)
    }

    /// The partitions to be suspended, of those where the claim was not read back; `None`: it may
    /// still be in some of them.
    fn suspended(
        &mut self,
        missing: &[Partition],
    ) -> Result<Option<BTreeMap<Partition, String>>, ClaimError> {
        if missing.is_empty() {
            return Ok(Some(BTreeMap::new()));
        }
        let within = self.marks_within;
        let Some(Marks { appended, failed, deadline, .. }) = &mut self.marks else {
            return Ok(None);
        };
        let is_lasting = |error: &AppendError| {
            matches!(error, AppendError::NoPartition { .. } | AppendError::Fatal { .. })
        };
        if let Some(partition) = missing.iter().find(|at| failed.get(at).is_some_and(is_lasting))
            && let Some(error) = failed.remove(partition)
        {
            return Err(error.into());
        }
        let is_late = Instant::now() >= *deadline;
        let is_awaited = |partition: &Partition| {
            appended.contains(partition) || (!is_late && !failed.contains_key(partition))
        };
        if missing.iter().any(is_awaited) {
            return Ok(None);
        }
        let reason = |partition: &Partition| match failed.get(partition) {
            Some(error) => error.to_string(),
            None => format!("it has not taken the claim within {within:?}"),
        };
        Ok(Some(missing.iter().map(|partition| (*partition, reason(partition))).collect()))
    }
}

impl fmt::Debug for ClaimAttempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClaimAttempt").field("claim", &self.claim).finish_non_exhaustive()
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
        tokio::select! {
            biased;
            () = claiming.changed() => {}
            batch = reader.next() => {
                let batch = batch?;
                let outcomes = acceptance.accept_batch(&batch, clock());
                each(&batch, outcomes);
            }
        }
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
