//! The messages of a hub.

use headwater_event::{Applied, Change, RemovalRuns, Removed, Seq, StreamId};
use headwater_session::message::{
    Compare, Dial, DialId, Goodbye, HubHeartbeat, HubMessage, ParkNotice, Push, PushMode,
    PushedChange, Refusal, RefusalCode, RefusedReport, ReportsAcked, Welcome,
};

use super::packed::{pack, unpack};
use super::position::{hash, hash_bytes};
use super::request::{verb_from_wire, verb_to_wire};
use super::{
    CHANGES_MAX, REPORTS_MAX, STREAMS_MAX, SUMMARY_ENTRIES_MAX, WireError, WireFault, at_most,
    entry_key, fixed, optional, required, stream,
};
use crate::replication as wire;
use wire::hub_message::Message;

impl From<HubMessage> for wire::HubMessage {
    fn from(message: HubMessage) -> Self {
        let message = match message {
            HubMessage::Welcome(welcome) => Message::Welcome(welcome.into()),
            HubMessage::Push(push) => Message::Push(push.into()),
            HubMessage::Compare(compare) => Message::Compare(compare.into()),
            HubMessage::ReportsAcked(acked) => Message::ReportsAcked(acked.into()),
            HubMessage::Heartbeat(heartbeat) => Message::Heartbeat(heartbeat.into()),
            HubMessage::Response(response) => Message::Response(response.into()),
            HubMessage::ParkNotice(notice) => Message::Parked(notice.into()),
            HubMessage::Refusal(refusal) => Message::Refusal(refusal.into()),
            HubMessage::Goodbye(goodbye) => {
                Message::Goodbye(wire::Goodbye { reason: goodbye.reason })
            }
            HubMessage::Dial(dial) => Message::Dial(wire::Dial {
                id: dial.id.0.to_vec().into(),
                within_ms: dial.within_ms,
            }),
            HubMessage::Unknown => return Self { message: None },
        };
        Self { message: Some(message) }
    }
}

impl TryFrom<wire::HubMessage> for HubMessage {
    type Error = WireError;

    fn try_from(message: wire::HubMessage) -> Result<Self, WireError> {
        // A later version may have more messages. A session ignores those that it did not ask for.
        let Some(message) = message.message else { return Ok(Self::Unknown) };
        Ok(match message {
            Message::Welcome(welcome) => Self::Welcome(welcome.try_into()?),
            Message::Push(push) => Self::Push(push.try_into()?),
            Message::Compare(compare) => Self::Compare(compare.try_into()?),
            Message::ReportsAcked(acked) => Self::ReportsAcked(acked.try_into()?),
            Message::Heartbeat(heartbeat) => Self::Heartbeat(heartbeat.try_into()?),
            Message::Response(response) => Self::Response(response.try_into()?),
            Message::Parked(parked) => Self::ParkNotice(parked.try_into()?),
            Message::Refusal(refusal) => Self::Refusal(refusal.try_into()?),
            Message::Goodbye(goodbye) => Self::Goodbye(Goodbye { reason: goodbye.reason }),
            Message::Dial(dial) => Self::Dial(Dial {
                id: DialId(fixed(&dial.id, "Dial.id")?),
                within_ms: dial.within_ms,
            }),
        })
    }
}

impl From<Welcome> for wire::Welcome {
    fn from(welcome: Welcome) -> Self {
        Self {
            protocol: welcome.protocol,
            log_id: Some(welcome.log_id.into()),
            streams: welcome.streams.iter().map(StreamId::to_string).collect(),
            known: welcome.known.map(Into::into),
            verbs: welcome.verbs.into_iter().map(|verb| verb_to_wire(verb).into()).collect(),
            takes_events: welcome.takes_events,
        }
    }
}

impl TryFrom<wire::Welcome> for Welcome {
    type Error = WireError;

    fn try_from(welcome: wire::Welcome) -> Result<Self, WireError> {
        at_most(&welcome.streams, STREAMS_MAX, "Welcome.streams")?;
        let streams = welcome.streams.iter().map(|text| stream(text, "Welcome.streams"));
        // A hub of a later version may take more.
        let verbs = welcome.verbs.iter().filter_map(|verb| (*verb).try_into().ok());
        let verbs = verbs.filter_map(verb_from_wire).collect();
        Ok(Self {
            protocol: welcome.protocol,
            log_id: required(welcome.log_id, "Welcome.log_id")?.try_into()?,
            streams: streams.collect::<Result<_, _>>()?,
            known: welcome.known.map(TryInto::try_into).transpose()?,
            verbs,
            takes_events: welcome.takes_events,
        })
    }
}

impl From<Push> for wire::Push {
    fn from(push: Push) -> Self {
        let mode = match push.mode {
            PushMode::Tail => wire::push::Mode::Tail,
            PushMode::Delta => wire::push::Mode::Delta,
            PushMode::Snapshot => wire::push::Mode::Snapshot,
            PushMode::Correction => wire::push::Mode::Correction,
        };
        let changes: Vec<wire::Change> = push.changes.into_iter().map(Into::into).collect();
        let packed = pack(&changes);
        let changes = if packed.is_some() { Vec::new() } else { changes };
        Self {
            stream: push.stream.to_string(),
            mode: mode.into(),
            from: push.from.0,
            to: Some(push.to.into()),
            changes,
            packed: packed.unwrap_or_default(),
            hash: hash_bytes(push.hash),
            part: push.part,
            last_part: push.last_part,
            gone: push.gone.runs().to_vec(),
        }
    }
}

impl TryFrom<wire::Push> for Push {
    type Error = WireError;

    fn try_from(push: wire::Push) -> Result<Self, WireError> {
        at_most(&push.changes, CHANGES_MAX, "Push.changes")?;
        let mode = match push.mode() {
            wire::push::Mode::Tail => PushMode::Tail,
            wire::push::Mode::Delta => PushMode::Delta,
            wire::push::Mode::Snapshot => PushMode::Snapshot,
            wire::push::Mode::Correction => PushMode::Correction,
            wire::push::Mode::Unspecified => {
                return Err(WireFault::Unknown { value: push.mode }.of("Push.mode"));
            }
        };
        let unpacked = match push.packed.is_empty() {
            true => Vec::new(),
            false => unpack(&push.packed)?,
        };
        let changes = push.changes.into_iter().chain(unpacked).map(PushedChange::try_from);
        let changes = changes.collect::<Result<Vec<_>, _>>()?;
        if mode != PushMode::Tail && changes.iter().any(|change| change.base.is_some()) {
            return Err(WireFault::Patch.of("Change.base"));
        }
        Ok(Self {
            stream: stream(&push.stream, "Push.stream")?,
            mode,
            from: Seq(push.from),
            to: required(push.to, "Push.to")?.try_into()?,
            gone: gone(push.gone, mode)?,
            changes,
            hash: hash(&push.hash, "Push.hash")?,
            part: push.part,
            last_part: push.last_part,
        })
    }
}

/// Checks the removed entries of a push: a correction has no more than a summary has entries.
fn gone(runs: Vec<u32>, mode: PushMode) -> Result<RemovalRuns, WireError> {
    const FIELD: &str = "Push.gone";
    if mode != PushMode::Correction && !runs.is_empty() {
        return Err(WireFault::Gone.of(FIELD));
    }
    // No run is empty except possibly the first, so there is at most one run more than entries.
    at_most(&runs, SUMMARY_ENTRIES_MAX + 1, FIELD)?;
    let gone = RemovalRuns::from_runs(runs);
    let (count, max) = (usize::try_from(gone.entries()).unwrap_or(usize::MAX), SUMMARY_ENTRIES_MAX);
    if count > max {
        return Err(WireFault::TooMany { count, max }.of(FIELD));
    }
    Ok(gone)
}

impl From<Compare> for wire::Compare {
    fn from(compare: Compare) -> Self {
        Self { stream: compare.stream.to_string(), nonce: compare.nonce }
    }
}

impl TryFrom<wire::Compare> for Compare {
    type Error = WireError;

    fn try_from(compare: wire::Compare) -> Result<Self, WireError> {
        Ok(Self { stream: stream(&compare.stream, "Compare.stream")?, nonce: compare.nonce })
    }
}

impl From<PushedChange> for wire::Change {
    fn from(pushed: PushedChange) -> Self {
        let PushedChange { change, base, traceparent, appended_ms } = pushed;
        let itself = String::new();
        let base = base.map(|base| if base == *change.key() { itself } else { base.into() });
        let traceparent = traceparent.unwrap_or_default();
        match change {
            Change::Applied(applied) => Self {
                key: applied.key.into(),
                uid: applied.uid,
                resource_version: applied.resource_version,
                object: Some(applied.object),
                traceparent,
                appended_ms,
                base,
            },
            Change::Removed(removed) => Self {
                key: removed.key.into(),
                uid: removed.uid,
                resource_version: String::new(),
                object: None,
                traceparent,
                appended_ms,
                base: None,
            },
        }
    }
}

impl TryFrom<wire::Change> for PushedChange {
    type Error = WireError;

    fn try_from(change: wire::Change) -> Result<Self, WireError> {
        let traceparent = optional(change.traceparent);
        let appended_ms = change.appended_ms;
        let key = entry_key(&change.key, "Change.key")?;
        let uid = change.uid;
        let base = match change.base.as_deref() {
            None => None,
            // Reserved entries are small, and their readers expect whole objects.
            Some(_) if key.resource().is_none() || change.object.is_none() => {
                return Err(WireFault::Patch.of("Change.base"));
            }
            Some("") => Some(key.clone()),
            Some(base) => Some(entry_key(base, "Change.base")?),
        };
        let change = match change.object {
            Some(object) => Change::Applied(Applied {
                key,
                uid,
                resource_version: change.resource_version,
                object,
            }),
            None => Change::Removed(Removed { key, uid }),
        };
        Ok(Self { change, base, traceparent, appended_ms })
    }
}

impl From<ReportsAcked> for wire::ReportsAcked {
    fn from(acked: ReportsAcked) -> Self {
        let refused = acked.refused.into_iter().map(|refused| wire::RefusedReport {
            id: Some(refused.id.into()),
            reason: refused.reason,
        });
        Self { through: Some(acked.through.into()), refused: refused.collect() }
    }
}

impl TryFrom<wire::ReportsAcked> for ReportsAcked {
    type Error = WireError;

    fn try_from(acked: wire::ReportsAcked) -> Result<Self, WireError> {
        at_most(&acked.refused, REPORTS_MAX, "ReportsAcked.refused")?;
        let refused = acked.refused.into_iter().map(|refused| {
            let id = required(refused.id, "RefusedReport.id")?.into();
            Ok(RefusedReport { id, reason: refused.reason })
        });
        Ok(Self {
            through: required(acked.through, "ReportsAcked.through")?.into(),
            refused: refused.collect::<Result<_, _>>()?,
        })
    }
}

impl From<HubHeartbeat> for wire::HubHeartbeat {
    fn from(heartbeat: HubHeartbeat) -> Self {
        Self { tails: heartbeat.tails.into_iter().map(Into::into).collect() }
    }
}

impl TryFrom<wire::HubHeartbeat> for HubHeartbeat {
    type Error = WireError;

    fn try_from(heartbeat: wire::HubHeartbeat) -> Result<Self, WireError> {
        at_most(&heartbeat.tails, STREAMS_MAX, "HubHeartbeat.tails")?;
        let tails = heartbeat.tails.into_iter().map(TryInto::try_into);
        Ok(Self { tails: tails.collect::<Result<_, _>>()? })
    }
}

impl From<ParkNotice> for wire::Parked {
    fn from(notice: ParkNotice) -> Self {
        Self { stream: notice.stream.to_string(), reason: notice.reason }
    }
}

impl TryFrom<wire::Parked> for ParkNotice {
    type Error = WireError;

    fn try_from(parked: wire::Parked) -> Result<Self, WireError> {
        Ok(Self { stream: stream(&parked.stream, "Parked.stream")?, reason: parked.reason })
    }
}

impl From<Refusal> for wire::Refusal {
    fn from(refusal: Refusal) -> Self {
        use wire::refusal::Code;
        let code = match refusal.code {
            RefusalCode::Clone => Code::Clone,
            RefusalCode::StaleIdentity => Code::StaleIdentity,
            RefusalCode::Protocol => Code::Protocol,
            RefusalCode::Violation => Code::Violation,
            RefusalCode::Forbidden => Code::Forbidden,
            RefusalCode::Superseded => Code::Superseded,
            RefusalCode::Unavailable => Code::Unavailable,
        };
        Self { code: code.into(), message: refusal.message }
    }
}

impl TryFrom<wire::Refusal> for Refusal {
    type Error = WireError;

    fn try_from(refusal: wire::Refusal) -> Result<Self, WireError> {
        use wire::refusal::Code;
        let code = match refusal.code() {
            Code::Clone => RefusalCode::Clone,
            Code::StaleIdentity => RefusalCode::StaleIdentity,
            Code::Protocol => RefusalCode::Protocol,
            Code::Violation => RefusalCode::Violation,
            Code::Forbidden => RefusalCode::Forbidden,
            Code::Superseded => RefusalCode::Superseded,
            Code::Unavailable => RefusalCode::Unavailable,
            Code::Unspecified => {
                return Err(WireFault::Unknown { value: refusal.code }.of("Refusal.code"));
            }
        };
        Ok(Self { code, message: refusal.message })
    }
}
