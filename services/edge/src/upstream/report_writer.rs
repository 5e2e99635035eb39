//! Writes reports: gives each its id, and its row in the batch that the group shares.

use std::sync::Arc;

use headwater_event::{Identity, Report, ReportBody, ReportId, ReportKey};
use headwater_store::{Batch, Durability, Engine, EngineError};

use super::identity::Issuer;
use super::outbox::{Outbox, OutboxFull, OutboxPage, PageRequest};
use super::report_cause::ReportCause;
use crate::meta::operation::OperationError;
use crate::metrics::{EdgeCounts, ErrorKind};

/// A batch of this size takes no further command. A batch may have 8 MiB, one report 1.5 MiB.
const BATCH_BYTES_MAX: usize = 1 << 20;

/// Identity, outbox, and the batch that is not written yet.
pub(super) struct ReportWriter {
    engine: Arc<dyn Engine>,
    metrics: EdgeCounts,
    pub(super) issuer: Issuer,
    pub(super) outbox: Outbox,
    pub(super) batch: Batch,
    /// The spans of the reports in the batch; they end when it is on disk.
    causes: Vec<ReportCause>,
    /// Whether the outbox has a report that the session does not know of.
    has_new: bool,
}

/// Why a report was not stored.
#[derive(Debug)]
pub(super) enum ReportError {
    /// The outbox has no room. Reports before it in the batch are stored.
    Full(OutboxFull),
    /// The engine failed.
    Engine(EngineError),
}

impl ReportWriter {
    pub(super) fn new(
        engine: Arc<dyn Engine>,
        metrics: EdgeCounts,
        issuer: Issuer,
        outbox: Outbox,
    ) -> Self {
        Self {
            engine,
            metrics,
            issuer,
            outbox,
            batch: Batch::new(),
            causes: Vec::new(),
            has_new: false,
        }
    }

    /// Adds a report under a new id.
    pub(super) fn report(
        &mut self,
        body: ReportBody,
        cause: Option<ReportCause>,
    ) -> Result<ReportId, ReportError> {
        let id = self.next_id()?;
        let traceparent = cause.as_ref().map(ReportCause::traceparent);
        let report = Report { id, body, traceparent };
        self.causes.extend(cause);
        let dropped = self.outbox.dropped();
        let put = self.outbox.put(&mut self.batch, self.issuer.node(), &report);
        self.metrics.discarded(self.outbox.dropped() - dropped);
        if let Err(full) = put {
            self.metrics.failed(ErrorKind::OutboxFull);
            return Err(ReportError::Full(full));
        }
        self.has_new = true;
        if self.batch.bytes() > BATCH_BYTES_MAX {
            self.write()?;
        }
        Ok(id)
    }

    /// Issues an id that no report has.
    pub(super) fn next_id(&mut self) -> Result<ReportId, EngineError> {
        self.issuer.issue(&*self.engine)
    }

    /// Removes the reports up to `through`. True: there were some.
    pub(super) fn forget(&mut self, through: ReportId) -> bool {
        let forgotten = self.outbox.forget(&mut self.batch, through);
        if self.issuer.full_since().is_some() && !self.outbox.holds(&ReportKey::Snapshot) {
            // The end of the full snapshot is acknowledged.
            self.issuer.set_base(&mut self.batch, self.issuer.base(), None);
        }
        forgotten > 0
    }

    /// Moves the identity past `known`, and issues the outbox anew. The open batch must be empty.
    pub(super) fn raise(&mut self, known: &Identity, nonce: u64) -> Result<(), EngineError> {
        self.issuer.raise(&mut self.batch, known, nonce);
        self.reissue()
    }

    /// Issues the outbox anew under the present identity. Of the pods' statuses, a full snapshot
    /// takes the place of their reports: the cloud may have received anything from the other start.
    pub(super) fn reissue(&mut self) -> Result<(), EngineError> {
        let reports = self.outbox.read_all(&*self.engine)?;
        for key in self.outbox.keys() {
            self.outbox.withdraw(&mut self.batch, &key);
        }
        for mut report in reports {
            let is_of_snapshot = matches!(
                report.body,
                ReportBody::PodStatus { .. }
                    | ReportBody::PodStatusRemoved { .. }
                    | ReportBody::SnapshotClosed(_)
            );
            if !is_of_snapshot {
                report.id = self.next_id()?;
                // The same report had room a moment ago.
                let _ = self.outbox.put(&mut self.batch, self.issuer.node(), &report);
            }
        }
        self.issuer.set_base(&mut self.batch, None, None);
        Ok(())
    }

    /// Reads a page of the outbox.
    pub(super) fn read(&self, request: PageRequest) -> Result<OutboxPage, EngineError> {
        self.outbox.read(&*self.engine, request)
    }

    /// Whether the batch takes no further command.
    pub(super) fn is_full(&self) -> bool {
        self.batch.bytes() >= BATCH_BYTES_MAX
    }

    /// Writes and syncs the batch.
    pub(super) fn write(&mut self) -> Result<(), EngineError> {
        let batch = std::mem::take(&mut self.batch);
        if batch.is_empty() {
            return Ok(());
        }
        batch.write(&*self.engine, Durability::Synced)
    }

    /// Ends the group after its write. True: the outbox has a new report.
    pub(super) fn end_group(&mut self) -> bool {
        self.causes.clear();
        std::mem::take(&mut self.has_new)
    }
}

impl ReportError {
    /// The refusal for the caller, or the failure that ends upstream.
    pub(super) fn refusal(self) -> Result<OperationError, EngineError> {
        match self {
            Self::Full(full) => Ok(OperationError::Unavailable(full.to_string())),
            Self::Engine(error) => Err(error),
        }
    }
}

impl From<EngineError> for ReportError {
    fn from(error: EngineError) -> Self {
        Self::Engine(error)
    }
}
