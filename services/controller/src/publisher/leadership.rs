//! Leadership: which of several controllers writes the log.
//!
//! A controller that starts beside a working writer must not take the log from it. A standby cannot
//! tell from old records whether their writer still runs, because the clocks of two machines may
//! differ by any amount. It therefore waits for a whole silence on its own clock.

use std::time::Duration;

use headwater_follow::TakeOverError;
use headwater_log::{ClaimError, Claimant, Log, Writer};
use headwater_telemetry::error_chain;
use uuid::Uuid;

use super::log_fold::{DownstreamLog, LogFollower};
use super::own_claims::OwnClaims;
use super::{PublishError, backup};

/// What decides when this controller claims the log.
pub(super) struct Leadership {
    downstream: DownstreamLog,
    own_claims: OwnClaims,
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
    /// The claim before, if it was another controller's.
    pub(super) another: Option<Uuid>,
    /// Whether other controllers may have claimed between the two.
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
        let (own_claims, read) = OwnClaims::load(downstream.engine.clone());
        if let Err(error) = read {
            let error = error_chain(&error);
            tracing::warn!(error, "the last claim cannot be read; starting as a standby");
        }
        let is_released = follower.acceptance().is_released();
        let mut leadership = Self {
            downstream,
            own_claims,
            address,
            follower: Some(follower),
            rebuild: false,
            is_standby: false,
        };
        let newest = leadership.newest_claim();
        leadership.is_standby = !sole_writer && !is_released && leadership.is_anothers(newest);
        leadership
    }

    /// The downstream log.
    pub(super) fn log(&self) -> &dyn Log {
        &*self.downstream.log
    }

    /// The UUID of the newest claim that the opened fold knows.
    pub(super) fn newest_claim(&self) -> Option<Uuid> {
        newest_claim(self.follower.as_ref()?)
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
    pub(super) fn wrote_last(&self, follower: &LogFollower) -> bool {
        newest_claim(follower).is_some_and(|newest| self.own_claims.contains(newest))
    }

    /// Whether a claim, if there is one, was another controller's.
    pub(super) fn is_anothers(&self, claim: Option<Uuid>) -> bool {
        claim.is_some_and(|claim| !self.own_claims.contains(claim))
    }

    /// Notes why publishing stopped. A controller that lost the log to another one becomes its
    /// standby, and stays so through other failures until the other is silent.
    pub(super) fn note_failure(&mut self, error: &PublishError) {
        let is_own = match error {
            PublishError::Claim(ClaimError::Lost { winner, .. }) => {
                self.own_claims.contains(winner.writer)
            }
            _ => false,
        };
        self.is_standby |= error.is_to_another_writer() && !is_own;
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

    /// Claims the log, with an epoch above every epoch that is known. Partitions other than the first
    /// have `marks_within` to take the claim.
    pub(super) async fn claim(
        &mut self,
        mut follower: LogFollower,
        marks_within: Duration,
    ) -> Result<WonClaim, PublishError> {
        let newest = follower.acceptance().writer().map(|claim| (claim.writer, claim.epoch.0));
        let above = backup::highest_epoch(&*self.downstream.engine)?;
        let address = self.address.clone();
        let own = self.own_claims.begin((self.downstream.new_uuid)())?;
        let claimant = Claimant { above, address, marks_within, ..Claimant::new(own) };
        let writer = match follower.take_over(&self.downstream.log, &claimant).await {
            Ok(writer) => writer,
            Err(error) => {
                // The fold is right, and follows the log. To open it again would need every partition.
                if let TakeOverError::Claim(
                    ClaimError::Append(_) | ClaimError::Read(_) | ClaimError::Lost { .. },
                ) = error
                {
                    self.follower = Some(follower);
                }
                return Err(error.into());
            }
        };
        let another = newest.map(|(claim, _)| claim).filter(|claim| self.is_anothers(Some(*claim)));
        // The first claim of a log has an epoch that follows no other one.
        let has_gap = newest.is_some_and(|(_, epoch)| writer.epoch().0 - 1 != epoch);
        self.own_claims.win(own, writer.epoch())?;
        Ok(WonClaim { follower, writer, another, has_gap })
    }
}

/// The UUID of the newest claim that a fold knows.
pub(super) fn newest_claim(follower: &LogFollower) -> Option<Uuid> {
    follower.acceptance().writer().map(|claim| claim.writer)
}
