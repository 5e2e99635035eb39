//! What the session has for the two owners and they have not taken yet. The protocol bounds both
//! queues.

use std::collections::VecDeque;
use std::future::pending;
use std::sync::Arc;

use headwater_session::message::Push;
use tokio::sync::{Semaphore, mpsc};

use crate::replica::ReplicaCommand;
use crate::upstream::UpstreamCommand;

/// Bytes of pushes that may wait for the replica: two full windows. Beyond that the hub is not
/// read.
const INTAKE_BYTES_MAX: usize = 8 << 20;

/// The unit in which the intake is counted.
const INTAKE_UNIT: usize = 1 << 10;

/// Commands for the replica. Pushes count against the intake until they are folded.
pub(super) struct ReplicaQueue {
    waiting: VecDeque<Waiting>,
    intake: Arc<Semaphore>,
    replica: mpsc::Sender<ReplicaCommand>,
}

struct Waiting {
    command: ReplicaCommand,
    /// What the command takes of the intake.
    units: u32,
}

/// Commands for the outbox thread.
pub(super) struct UpstreamQueue {
    waiting: VecDeque<UpstreamCommand>,
    upstream: mpsc::Sender<UpstreamCommand>,
}

impl ReplicaQueue {
    pub(super) fn new(replica: mpsc::Sender<ReplicaCommand>) -> Self {
        let intake = Arc::new(Semaphore::new(INTAKE_BYTES_MAX / INTAKE_UNIT));
        Self { waiting: VecDeque::new(), intake, replica }
    }

    /// Queues a push.
    pub(super) fn push(&mut self, push: Push) {
        let bytes = usize::try_from(push.bytes()).unwrap_or(usize::MAX);
        let units = bytes.min(INTAKE_BYTES_MAX).div_ceil(INTAKE_UNIT);
        let units = u32::try_from(units).unwrap_or(1);
        let command = ReplicaCommand::Apply { push: push.into(), room: None };
        self.waiting.push_back(Waiting { command, units });
    }

    /// Queues a command that takes nothing of the intake.
    pub(super) fn add(&mut self, command: ReplicaCommand) {
        self.waiting.push_back(Waiting { command, units: 0 });
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Sends the clock past the queue. A full channel holds an earlier tick: a late clock does no
    /// harm.
    pub(super) fn tick(&self, now_ms: u64) {
        let _ = self.replica.try_send(ReplicaCommand::Tick(now_ms));
    }

    /// Hands the next command over; waits forever where there is none. False: the replica has
    /// ended. Dropping the future loses nothing.
    pub(super) async fn hand_over(&mut self) -> bool {
        let Some(units) = self.waiting.front().map(|next| next.units) else {
            return pending().await;
        };
        let room = match units {
            0 => None,
            units => Arc::clone(&self.intake).acquire_many_owned(units).await.ok(),
        };
        let Ok(permit) = self.replica.reserve().await else { return false };
        match self.waiting.pop_front().map(|next| next.command) {
            Some(ReplicaCommand::Apply { push, .. }) => {
                permit.send(ReplicaCommand::Apply { push, room });
            }
            Some(command) => permit.send(command),
            None => {}
        }
        true
    }
}

impl UpstreamQueue {
    pub(super) fn new(upstream: mpsc::Sender<UpstreamCommand>) -> Self {
        Self { waiting: VecDeque::new(), upstream }
    }

    pub(super) fn add(&mut self, command: UpstreamCommand) {
        self.waiting.push_back(command);
    }

    /// As [`ReplicaQueue::tick`].
    pub(super) fn tick(&self, now_ms: u64) {
        let _ = self.upstream.try_send(UpstreamCommand::Tick(now_ms));
    }

    /// As [`ReplicaQueue::hand_over`]; false: the outbox thread has ended.
    pub(super) async fn hand_over(&mut self) -> bool {
        if self.waiting.is_empty() {
            return pending().await;
        }
        let Ok(permit) = self.upstream.reserve().await else { return false };
        if let Some(command) = self.waiting.pop_front() {
            permit.send(command);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use headwater_event::{Checkpoint, LogId, RemovalRuns, Seq, StateHash, StreamId, WriterEpoch};
    use headwater_session::message::PushMode;

    use super::*;

    #[tokio::test]
    async fn the_intake_is_bounded_by_what_the_replica_has_not_folded() {
        let (sender, mut replica) = mpsc::channel(9);
        let mut queue = ReplicaQueue::new(sender);
        queue.intake = Arc::new(Semaphore::new(2));
        let push = Push {
            stream: StreamId::Cluster,
            mode: PushMode::Tail,
            from: Seq(1),
            to: Checkpoint {
                log_id: LogId { number: 1, uuid: uuid::Uuid::nil() },
                epoch: WriterEpoch(1),
                seq: Seq(2),
            },
            gone: RemovalRuns::default(),
            changes: Vec::new(),
            hash: StateHash::EMPTY,
            part: 0,
            last_part: true,
        };
        for _ in 0..2 {
            queue.push(push.clone());
        }
        queue.waiting.iter_mut().for_each(|waiting| waiting.units = 2);
        assert!(queue.hand_over().await);
        assert!(queue.hand_over().now_or_never().is_none());
        assert_eq!(queue.len(), 1, "a wait that is dropped loses nothing");
        let folded = replica.recv().await;
        drop(folded);
        assert!(queue.hand_over().await);
        assert!(queue.is_empty());
    }
}
