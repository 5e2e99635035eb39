//! Opens the fold of the downstream log: everything that was published.

use std::sync::Arc;
use std::time::Duration;

use headwater_follow::{BodyReferences, FollowError, Follower, WallClock};
use headwater_log::{CatchUpTarget, Log, MetadataProposal, read_or_create_metadata};
use headwater_store::{Engine, EngineError};
use headwater_telemetry::error_chain;
use tokio::time::sleep;

use super::backup;
use super::log_generation::last_generation;
use super::unadopted_keys::{PublishedRows, UnadoptedKeys};
use super::{PublishError, UuidGenerator};
use crate::picture::DepartedPods;

/// The wait before a log that cannot be read is opened again: short enough for a broker that starts.
const OPEN_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// The fold of the downstream log, with the number of references to each body. It notes the objects
/// whose UIDs are to be adopted.
pub(crate) type LogFollower = Follower<PublishedRows>;

/// The downstream log, and the engine that holds its fold.
#[derive(Clone)]
pub(crate) struct DownstreamLog {
    pub(crate) log: Arc<dyn Log>,
    /// Its position records name the generations that the downstream log has had.
    pub(crate) upstream: Arc<dyn Log>,
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) clock: WallClock,
    pub(crate) new_uuid: UuidGenerator,
    pub(crate) unadopted: UnadoptedKeys,
    pub(crate) departed: DepartedPods,
}

/// Why the fold of what was published cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("what was published before cannot be read")]
pub struct OpenError(#[source] PublishError);

impl DownstreamLog {
    /// Opens the fold and reads to the end of the log. An empty log gets its metadata record. While the
    /// log cannot be read, this waits for it.
    pub(crate) async fn open(&self) -> Result<LogFollower, OpenError> {
        loop {
            match self.follow(false).await {
                Err(error) if error.is_unavailable() => {
                    let error = error_chain(&error);
                    tracing::warn!(error, "the log cannot be read; waiting for it");
                    sleep(OPEN_AGAIN_AFTER).await;
                }
                opened => return opened.map_err(OpenError),
            }
        }
    }

    /// As [`DownstreamLog::open`]; `rebuild` drops the fold and reads the log from its start.
    pub(super) async fn follow(&self, rebuild: bool) -> Result<LogFollower, PublishError> {
        let (log, engine) = (&*self.log, &*self.engine);
        let previous = last_generation(log, &*self.upstream, engine).await?;
        let proposal = MetadataProposal { previous, uuid: (self.new_uuid)() };
        let metadata = read_or_create_metadata(log, proposal).await?;
        backup::save_if_lost(log, metadata.log_id, engine, rebuild).await?;
        let (held, clock) = (self.engine.clone(), self.clock.clone());
        let mut follower = if rebuild {
            Follower::rebuild(log, held, self.rows()?, clock).await?
        } else {
            self.open_verified().await?
        };
        // A fold that was complete in an earlier run may end anywhere: a loss of power took its
        // tail, which is still in the log.
        let mut ends = CatchUpTarget::ahead_of(log, &follower.acceptance().cursors())
            .await
            .map_err(FollowError::from)?;
        while !follower.is_folded() || !ends.is_reached() {
            if let Some((cursor, _)) = follower.next().await?.read {
                ends.pass(&cursor);
            }
        }
        if follower.acceptance().is_reconciled() {
            backup::clear(engine)?;
        }
        Ok(follower)
    }

    fn rows(&self) -> Result<PublishedRows, EngineError> {
        self.departed.load(&*self.engine)?;
        let (unadopted, departed) = (self.unadopted.clone(), self.departed.clone());
        Ok(PublishedRows { references: BodyReferences, unadopted, departed })
    }

    /// Opens the stored fold, and folds again if it has lost objects: sources take the UIDs of their
    /// objects from it.
    async fn open_verified(&self) -> Result<LogFollower, FollowError> {
        let log = &*self.log;
        let mut follower =
            Follower::open(log, self.engine.clone(), self.rows()?, self.clock.clone()).await?;
        match follower.verify() {
            Ok(()) => Ok(follower),
            Err(error) if error.needs_rebuild() => {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "the controller folds the log again"
                );
                Follower::rebuild(log, self.engine.clone(), self.rows()?, self.clock.clone()).await
            }
            Err(error) => Err(error),
        }
    }
}
