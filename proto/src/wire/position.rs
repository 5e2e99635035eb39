//! Log ids, checkpoints, identities and positions.

use bytes::Bytes;
use headwater_event::{
    Boot, Checkpoint, Identity, Incarnation, LogId, ReportId, Seq, StateHash, WriterEpoch,
};
use headwater_session::message::{ReplicaPosition, StreamProgress};
use uuid::Uuid;

use super::{WireError, WireFault, fixed, node_name, required, stream};
use crate::replication as wire;

impl From<LogId> for wire::LogId {
    fn from(log_id: LogId) -> Self {
        Self { number: log_id.number, uuid: Bytes::copy_from_slice(log_id.uuid.as_bytes()) }
    }
}

impl TryFrom<wire::LogId> for LogId {
    type Error = WireError;

    fn try_from(log_id: wire::LogId) -> Result<Self, WireError> {
        let uuid = Uuid::from_bytes(fixed(&log_id.uuid, "LogId.uuid")?);
        Ok(Self { number: log_id.number, uuid })
    }
}

impl From<Checkpoint> for wire::Checkpoint {
    fn from(checkpoint: Checkpoint) -> Self {
        let Checkpoint { log_id, epoch, seq } = checkpoint;
        Self { log_id: Some(log_id.into()), epoch: epoch.0, seq: seq.0 }
    }
}

impl TryFrom<wire::Checkpoint> for Checkpoint {
    type Error = WireError;

    fn try_from(checkpoint: wire::Checkpoint) -> Result<Self, WireError> {
        Ok(Self {
            log_id: required(checkpoint.log_id, "Checkpoint.log_id")?.try_into()?,
            epoch: WriterEpoch(checkpoint.epoch),
            seq: Seq(checkpoint.seq),
        })
    }
}

impl From<Identity> for wire::Identity {
    fn from(identity: Identity) -> Self {
        Self {
            node: identity.node.into(),
            incarnation: identity.incarnation.0,
            boot: identity.boot.number,
            nonce: identity.boot.nonce,
        }
    }
}

impl TryFrom<wire::Identity> for Identity {
    type Error = WireError;

    fn try_from(identity: wire::Identity) -> Result<Self, WireError> {
        Ok(Self {
            node: node_name(identity.node, "Identity.node")?,
            incarnation: Incarnation(identity.incarnation),
            boot: Boot { number: identity.boot, nonce: identity.nonce },
        })
    }
}

impl From<ReportId> for wire::ReportId {
    fn from(id: ReportId) -> Self {
        Self { incarnation: id.incarnation.0, boot: id.boot, seq: id.seq }
    }
}

impl From<wire::ReportId> for ReportId {
    fn from(id: wire::ReportId) -> Self {
        Self { incarnation: Incarnation(id.incarnation), boot: id.boot, seq: id.seq }
    }
}

impl From<ReplicaPosition> for wire::StreamPosition {
    fn from(position: ReplicaPosition) -> Self {
        Self {
            stream: position.stream.to_string(),
            checkpoint: Some(position.checkpoint.into()),
            hash: hash_bytes(position.hash),
        }
    }
}

impl TryFrom<wire::StreamPosition> for ReplicaPosition {
    type Error = WireError;

    fn try_from(position: wire::StreamPosition) -> Result<Self, WireError> {
        Ok(Self {
            stream: stream(&position.stream, "StreamPosition.stream")?,
            checkpoint: required(position.checkpoint, "StreamPosition.checkpoint")?.try_into()?,
            hash: hash(&position.hash, "StreamPosition.hash")?,
        })
    }
}

impl From<ReplicaPosition> for wire::StreamTail {
    fn from(position: ReplicaPosition) -> Self {
        Self {
            stream: position.stream.to_string(),
            tail: Some(position.checkpoint.into()),
            hash: hash_bytes(position.hash),
        }
    }
}

impl TryFrom<wire::StreamTail> for ReplicaPosition {
    type Error = WireError;

    fn try_from(tail: wire::StreamTail) -> Result<Self, WireError> {
        Ok(Self {
            stream: stream(&tail.stream, "StreamTail.stream")?,
            checkpoint: required(tail.tail, "StreamTail.tail")?.try_into()?,
            hash: hash(&tail.hash, "StreamTail.hash")?,
        })
    }
}

impl From<StreamProgress> for wire::StreamProgress {
    fn from(progress: StreamProgress) -> Self {
        Self {
            stream: progress.stream.to_string(),
            applied: progress.applied.0,
            durable: progress.durable.0,
        }
    }
}

impl TryFrom<wire::StreamProgress> for StreamProgress {
    type Error = WireError;

    fn try_from(progress: wire::StreamProgress) -> Result<Self, WireError> {
        let (lower, upper) = (progress.durable, progress.applied);
        if lower > upper {
            return Err(WireFault::OutOfOrder { lower, upper }.of("StreamProgress.durable"));
        }
        Ok(Self {
            stream: stream(&progress.stream, "StreamProgress.stream")?,
            applied: Seq(progress.applied),
            durable: Seq(progress.durable),
        })
    }
}

pub(super) fn hash_bytes(hash: StateHash) -> Bytes {
    Bytes::copy_from_slice(&hash.to_bytes())
}

pub(super) fn hash(bytes: &[u8], field: &'static str) -> Result<StateHash, WireError> {
    Ok(StateHash::from_bytes(&fixed(bytes, field)?))
}
