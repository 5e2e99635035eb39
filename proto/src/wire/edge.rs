//! The messages of an edge.

use bytes::Bytes;
use headwater_event::{EntryDigest, Identity, Seq, StreamId};
use headwater_session::message::{
    Ack, DialSupport, Divergence, EdgeHeartbeat, EdgeMessage, Hello, ReplicaPosition, Reports,
    Summary,
};

use super::{
    REPORTS_MAX, STREAMS_MAX, SUMMARY_ENTRIES_MAX, WireError, WireFault, at_most, required, stream,
};
use crate::replication as wire;
use wire::edge_message::Message;

impl From<EdgeMessage> for wire::EdgeMessage {
    fn from(message: EdgeMessage) -> Self {
        let message = match message {
            EdgeMessage::Hello(hello) => Message::Hello(hello.into()),
            EdgeMessage::Ack(ack) => Message::Ack(ack.into()),
            EdgeMessage::Divergence(divergence) => Message::Diverged(divergence.into()),
            EdgeMessage::Reports(reports) => Message::Reports(reports.into()),
            EdgeMessage::Heartbeat(heartbeat) => Message::Heartbeat(heartbeat.into()),
            EdgeMessage::Request(request) => Message::Request(request.into()),
            EdgeMessage::Summary(summary) => Message::Summary(summary.into()),
            EdgeMessage::DialReceipt => Message::DialReceipt(wire::DialReceipt {}),
            EdgeMessage::Unknown => return Self { message: None },
        };
        Self { message: Some(message) }
    }
}

impl TryFrom<wire::EdgeMessage> for EdgeMessage {
    type Error = WireError;

    fn try_from(message: wire::EdgeMessage) -> Result<Self, WireError> {
        // A later version may have more messages. A session ignores those that it did not ask for.
        let Some(message) = message.message else { return Ok(Self::Unknown) };
        Ok(match message {
            Message::Hello(hello) => Self::Hello(hello.try_into()?),
            Message::Ack(ack) => Self::Ack(ack.try_into()?),
            Message::Diverged(diverged) => Self::Divergence(diverged.try_into()?),
            Message::Reports(reports) => Self::Reports(reports.try_into()?),
            Message::Heartbeat(heartbeat) => Self::Heartbeat(heartbeat.into()),
            Message::Request(request) => Self::Request(request.try_into()?),
            Message::Summary(summary) => Self::Summary(summary.try_into()?),
            Message::DialReceipt(wire::DialReceipt {}) => Self::DialReceipt,
        })
    }
}

impl From<Hello> for wire::Hello {
    /// The wire form leaves out repetitions of the first log id and of the node's own stream.
    fn from(hello: Hello) -> Self {
        let own = StreamId::node(&hello.identity.node);
        let log_id = hello.positions.first().map(|position| position.checkpoint.log_id);
        let position = |position: ReplicaPosition| {
            let is_own = position.stream == own;
            let is_same = Some(position.checkpoint.log_id) == log_id;
            let mut position = wire::StreamPosition::from(position);
            if is_own {
                position.stream.clear();
            }
            if let Some(checkpoint) = position.checkpoint.as_mut().filter(|_| is_same) {
                checkpoint.log_id = None;
            }
            position
        };
        Self {
            protocol: hello.protocol,
            positions: hello.positions.into_iter().map(position).collect(),
            identity: Some(hello.identity.into()),
            window_bytes: hello.window_bytes,
            log_id: log_id.map(Into::into),
            connection: hello.connection,
            takes_dials: hello.dials.is_taken(),
            confirms_dials: hello.dials == DialSupport::Confirmed,
        }
    }
}

impl TryFrom<wire::Hello> for Hello {
    type Error = WireError;

    fn try_from(mut hello: wire::Hello) -> Result<Self, WireError> {
        at_most(&hello.positions, STREAMS_MAX, "Hello.positions")?;
        let identity: Identity = required(hello.identity, "Hello.identity")?.try_into()?;
        // A position without a checkpoint means the same as no position: the edge has no replica.
        hello.positions.retain(|position| position.checkpoint.is_some());
        let positions = hello.positions.into_iter().map(|mut position| {
            if position.stream.is_empty() {
                position.stream = StreamId::node(&identity.node).to_string();
            }
            if let Some(checkpoint) = &mut position.checkpoint
                && checkpoint.log_id.is_none()
            {
                checkpoint.log_id = hello.log_id.clone();
            }
            position.try_into()
        });
        Ok(Self {
            protocol: hello.protocol,
            positions: positions.collect::<Result<_, _>>()?,
            identity,
            window_bytes: hello.window_bytes,
            connection: hello.connection,
            dials: match (hello.takes_dials, hello.confirms_dials) {
                (false, _) => DialSupport::None,
                (true, false) => DialSupport::Taken,
                (true, true) => DialSupport::Confirmed,
            },
        })
    }
}

impl From<Ack> for wire::Ack {
    fn from(ack: Ack) -> Self {
        Self {
            received_bytes: ack.received_bytes,
            progress: ack.progress.into_iter().map(Into::into).collect(),
        }
    }
}

impl TryFrom<wire::Ack> for Ack {
    type Error = WireError;

    fn try_from(ack: wire::Ack) -> Result<Self, WireError> {
        at_most(&ack.progress, STREAMS_MAX, "Ack.progress")?;
        let progress = ack.progress.into_iter().map(TryInto::try_into);
        Ok(Self {
            received_bytes: ack.received_bytes,
            progress: progress.collect::<Result<_, _>>()?,
        })
    }
}

impl From<Divergence> for wire::Diverged {
    fn from(divergence: Divergence) -> Self {
        Self { stream: divergence.stream.to_string(), seq: divergence.seq.0 }
    }
}

impl TryFrom<wire::Diverged> for Divergence {
    type Error = WireError;

    fn try_from(diverged: wire::Diverged) -> Result<Self, WireError> {
        let stream = stream(&diverged.stream, "Diverged.stream")?;
        Ok(Self { stream, seq: Seq(diverged.seq) })
    }
}

impl From<Reports> for wire::Reports {
    fn from(reports: Reports) -> Self {
        Self {
            reports: reports.reports.into_iter().map(Into::into).collect(),
            after: reports.after.map(Into::into),
            before: 0,
            closed: Bytes::new(),
        }
    }
}

impl TryFrom<wire::Reports> for Reports {
    type Error = WireError;

    fn try_from(reports: wire::Reports) -> Result<Self, WireError> {
        at_most(&reports.reports, REPORTS_MAX, "Reports.reports")?;
        if reports.before != 0 {
            return Err(WireFault::OutOfSession.of("Reports.before"));
        }
        if !reports.closed.is_empty() {
            return Err(WireFault::OutOfSession.of("Reports.closed"));
        }
        let after = reports.after.map(Into::into);
        let reports = reports.reports.into_iter().map(TryInto::try_into);
        Ok(Self { after, reports: reports.collect::<Result<_, _>>()? })
    }
}

impl From<EdgeHeartbeat> for wire::EdgeHeartbeat {
    fn from(heartbeat: EdgeHeartbeat) -> Self {
        let EdgeHeartbeat { outbox_depth, time_ms, meta_sync_ms, consumes_cluster, lacks_worker } =
            heartbeat;
        let meta_sync_ago_ms = (meta_sync_ms != 0).then(|| time_ms.wrapping_sub(meta_sync_ms));
        Self { outbox_depth, time_ms, meta_sync_ago_ms, consumes_cluster, lacks_worker }
    }
}

impl From<wire::EdgeHeartbeat> for EdgeHeartbeat {
    fn from(heartbeat: wire::EdgeHeartbeat) -> Self {
        let wire::EdgeHeartbeat {
            outbox_depth,
            time_ms,
            meta_sync_ago_ms,
            consumes_cluster,
            lacks_worker,
        } = heartbeat;
        let meta_sync_ms = meta_sync_ago_ms.map_or(0, |ago_ms| time_ms.wrapping_sub(ago_ms));
        Self { outbox_depth, time_ms, meta_sync_ms, consumes_cluster, lacks_worker }
    }
}

impl From<Summary> for wire::Summary {
    fn from(summary: Summary) -> Self {
        let digests = summary.digests.iter().flat_map(|digest| digest.to_bytes());
        Self {
            stream: summary.stream.to_string(),
            nonce: summary.nonce,
            digests: digests.collect::<Vec<_>>().into(),
        }
    }
}

impl TryFrom<wire::Summary> for Summary {
    type Error = WireError;

    fn try_from(summary: wire::Summary) -> Result<Self, WireError> {
        const FIELD: &str = "Summary.digests";
        let (digests, rest) = summary.digests.as_chunks();
        if !rest.is_empty() {
            let (of, found) = (EntryDigest::BYTES, summary.digests.len());
            return Err(WireFault::Multiple { of, found }.of(FIELD));
        }
        at_most(digests, SUMMARY_ENTRIES_MAX, FIELD)?;
        Ok(Self {
            stream: stream(&summary.stream, "Summary.stream")?,
            nonce: summary.nonce,
            digests: digests.iter().copied().map(EntryDigest::from_bytes).collect(),
        })
    }
}
