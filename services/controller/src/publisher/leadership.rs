//! Leadership: which of several controllers writes the log.
//!
//! A controller that starts beside a working writer must not take the log from it. A standby cannot
//! tell from old records whether their writer still runs, because the clocks of two machines may
//! differ by any amount. It therefore waits for a whole silence on its own clock.

use headwater_event::WriterEpoch;
use headwater_follow::TakeOverError;
use headwater_log::{ClaimError, Claimant, Log, Writer};
use headwater_store::{Batch, Durability, Engine, EngineError, Free, Json, Table, TableId};
use headwater_telemetry::error_chain;
use uuid::Uuid;

use super::log_fold::{DownstreamLog, LogFollower};
use super::{PublishError, backup};

/// The UUID of this controller's last claim. One process at a time opens the database, so a
/// controller that finds it here knows that the writer of that claim has ended.
const OWN_CLAIM: Table<(), Json<Uuid>, Free> = Table::new(TableId::OwnClaim);

/// What decides when this controller claims the log.
pub(super) struct Leadership {
    downstream: DownstreamLog,
    /// Where hubs reach this controller.
    address: Option<String>,
    /// The fold, if it need not be opened: before the first claim, and between two epochs.
    follower: Option<LogFollower>,
    /// Whether the fold is to be rebuilt before the next claim.
    rebuild: bool,
    /// Whether another writer has to be silent before the next claim.
    is_standby: bool,
}

/// A claim that was won.
pub(super) struct WonClaim {
    pub(super) follower: LogFollower,
    pub(super) writer: Writer,
    /// The UUID of the claim before.
    pub(super) previous: Option<Uuid>,
    /// The UUID of this claim.
    pub(super) own: Uuid,
    /// Whether other controllers claimed between the two.
    pub(super) has_gap: bool,
}

impl Leadership {
    /// Starts with an opened fold. `sole_writer`: no other process can write the log.
    pub(super) fn new(
        downstream: DownstreamLog,
        follower: LogFollower,
        address: Option<String>,
        sole_writer: bool,
    ) -> Self {
        let is_standby = !sole_writer
            && may_be_anothers(&*downstream.engine, &follower).unwrap_or_else(|error| {
                let error = error_chain(&error);
                tracing::warn!(error, "the last claim cannot be read; starting as a standby");
                true
            });
        Self { downstream, address, follower: Some(follower), rebuild: false, is_standby }
    }

    /// The downstream log.
    pub(super) fn log(&self) -> &dyn Log {
        &*self.downstream.log
    }

    /// The UUID of the newest claim that the opened fold knows.
    pub(super) fn newest_claim(&self) -> Option<Uuid> {
        Some(self.follower.as_ref()?.acceptance().writer()?.writer)
    }

    /// Whether another writer has to be silent before the next claim.
    pub(super) fn is_standby(&self) -> bool {
        self.is_standby
    }

    /// Notes that another controller has claimed the log.
    pub(super) fn begin_standby(&mut self) {
        self.is_standby = true;
    }

    /// Notes that the other writer has left the log to this controller.
    pub(super) fn end_standby(&mut self) {
        self.is_standby = false;
    }

    /// Whether the newest writer that `follower` knows is this controller.
    pub(super) fn wrote_last(&self, follower: &LogFollower) -> Result<bool, EngineError> {
        wrote_last(&*self.downstream.engine, follower)
    }

    /// Notes why publishing stopped. A controller that lost the log to another one becomes its
    /// standby, and stays so through other failures until the other is silent.
    pub(super) fn note_failure(&mut self, error: &PublishError) {
        self.is_standby |= error.is_to_another_writer();
        self.rebuild = matches!(error, PublishError::Follow(error) if error.needs_rebuild());
    }

    /// Keeps the fold of a writer that ends its epoch, and claims again at once.
    pub(super) fn keep(&mut self, follower: LogFollower) {
        self.follower = Some(follower);
    }

    /// The fold, read to the end of the log.
    pub(super) async fn follower(&mut self) -> Result<LogFollower, PublishError> {
        match self.follower.take() {
            Some(follower) => Ok(follower),
            None => self.downstream.follow(self.rebuild).await,
        }
    }

    /// Claims the log, with an epoch above every epoch that is known.
    pub(super) async fn claim(
        &mut self,
        mut follower: LogFollower,
    ) -> Result<WonClaim, PublishError> {
        let newest = follower.acceptance().writer().map(|claim| (claim.writer, claim.epoch.0));
        let own = (self.downstream.new_uuid)();
        let above = backup::highest_epoch(&*self.downstream.engine)?;
        let address = self.address.clone();
        let claimant = Claimant { above, address, ..Claimant::new(own) };
        let writer = match follower.take_over(&self.downstream.log, &claimant).await {
            Ok(writer) => writer,
            Err(error) => {
                // The fold is right, and follows the log. To open it again would need every partition.
                if let TakeOverError::Claim(ClaimError::Append(_) | ClaimError::Read(_)) = error {
                    self.follower = Some(follower);
                }
                return Err(error.into());
            }
        };
        let has_gap = writer.epoch().0 - 1 != newest.map_or(0, |(_, epoch)| epoch);
        self.remember_claim(own, writer.epoch())?;
        let previous = newest.map(|(writer, _)| writer);
        Ok(WonClaim { follower, writer, previous, own, has_gap })
    }

    /// Stores the claim durably, so that a restart claims at once.
    fn remember_claim(&self, own: Uuid, epoch: WriterEpoch) -> Result<(), EngineError> {
        let mut batch = Batch::new();
        batch.put(&OWN_CLAIM, &(), &Json(own));
        backup::record_epoch(&mut batch, epoch);
        batch.write(&*self.downstream.engine, Durability::Synced)
    }
}

/// Whether the newest writer that the fold knows may be another controller that still runs.
fn may_be_anothers(engine: &dyn Engine, follower: &LogFollower) -> Result<bool, EngineError> {
    let acceptance = follower.acceptance();
    let has_writer = acceptance.writer().is_some() && !acceptance.is_released();
    Ok(has_writer && !wrote_last(engine, follower)?)
}

/// Whether the newest claim that the fold knows is the last one of this database.
fn wrote_last(engine: &dyn Engine, follower: &LogFollower) -> Result<bool, EngineError> {
    let own = OWN_CLAIM.get(engine, &())?.map(|Json(own)| own);
    Ok(own.is_some() && own == follower.acceptance().writer().map(|claim| claim.writer))
}
