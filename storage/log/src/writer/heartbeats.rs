//! The heartbeats of a writer, which another task appends while the writer works.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use headwater_event::record::Heartbeat;
use headwater_event::{Partition, RecordKey, WriterEpoch};
use tokio::time::sleep;

use super::error::failure;
use super::{WriterError, sign};
use crate::log::{Append, AppendError, Log};

/// Appends the heartbeats of one writer. A heartbeat has no position in a stream, so it needs no
/// order with the writer's events.
#[derive(Clone)]
pub struct Heartbeats {
    pub(super) log: Arc<dyn Log>,
    pub(super) epoch: WriterEpoch,
    pub(super) partitions: u32,
}

impl Heartbeats {
    /// Appends a heartbeat to partition 0. If that has no success after `patience`, every other
    /// partition gets one too: a standby reads all of them. When this returns `Ok`, every standby can
    /// read it. `yields`: a standby whose sources follow may claim at once; it claims in partition 0,
    /// so that alone counts. Cancel safe: a heartbeat may then be in the log or not.
    ///
    /// # Errors
    /// As [`super::Writer::finished`]: no partition takes a heartbeat. The owner ends the writer.
    pub async fn append(&self, yields: bool, patience: Duration) -> Result<(), WriterError> {
        let mut calls = FuturesUnordered::from_iter([self.append_to(Partition(0), yields)]);
        let mut others = Some((1..self.partitions).map(Partition));
        let mut late = pin!(sleep(patience));
        let mut failed = None;
        loop {
            tokio::select! {
                Some(result) = calls.next() => match result {
                    Ok(()) => return Ok(()),
                    Err(error) => failed = Some(error),
                },
                () = &mut late, if others.is_some() => {}
            }
            let others = others.take().into_iter().flatten();
            calls.extend(others.map(|other| self.append_to(other, yields)));
            if calls.is_empty()
                && let Some(error) = failed.take()
            {
                return Err(failure(self.epoch, error));
            }
        }
    }

    /// Appends a heartbeat to one partition.
    ///
    /// # Errors
    /// See [`AppendError`].
    pub async fn probe(&self, partition: Partition) -> Result<(), AppendError> {
        self.append_to(partition, false).await
    }

    fn append_to(
        &self,
        partition: Partition,
        yields: bool,
    ) -> BoxFuture<'static, Result<(), AppendError>> {
        let value = Heartbeat { yields, ..Heartbeat::default() };
        let (log, append) = (self.log.clone(), heartbeat(self.epoch, partition, value));
        Box::pin(async move { log.append(vec![append]).await.map(drop) })
    }
}

/// The record of a heartbeat.
pub(super) fn heartbeat(epoch: WriterEpoch, partition: Partition, value: Heartbeat) -> Append {
    let mut append = sign(&RecordKey::Heartbeat(epoch), partition);
    if let Ok(value) = serde_json::to_vec(&value) {
        append.record.value = Some(value.into());
    }
    append
}
