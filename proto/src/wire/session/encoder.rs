//! The edge's end: says in short what it says.

use std::collections::HashMap;

use bytes::Bytes;
use headwater_event::ReportId;
use headwater_session::message::EdgeMessage;
use prost::Message as _;

use super::{BASE_BYTES_MAX, BASES_MAX, frame, next};
use crate::replication as wire;
use wire::edge_message::Message;
use wire::report::Body;

/// Says what an edge says in one session. It takes as much memory as the hub keeps for the session.
#[derive(Debug, Default)]
pub struct EdgeMessageEncoder {
    /// How many reports were said, and the last of them.
    said: u64,
    last: Option<ReportId>,
    /// The last closing of a snapshot, its hash aside.
    closed: Option<wire::SnapshotClosed>,
    kept: Vec<Slot>,
    numbers: HashMap<String, u32>,
    /// The number that was used last: what is said next may well be like it.
    latest: u32,
}

/// A body that the hub has under the number of this slot: its place in the list, from 1.
#[derive(Debug)]
struct Slot {
    key: String,
    body: Bytes,
    /// How many reports had been said when it was last used.
    used: u64,
}

impl EdgeMessageEncoder {
    /// The message as it is to be sent: each one, once, in the order in which they are said.
    pub fn encode(&mut self, message: EdgeMessage) -> wire::EdgeMessage {
        let mut message = wire::EdgeMessage::from(message);
        if let Some(Message::Reports(reports)) = &mut message.message {
            self.shorten(reports);
        }
        message
    }

    fn shorten(&mut self, reports: &mut wire::Reports) {
        if self.last.is_some() && reports.after.map(ReportId::from) == self.last {
            reports.after = None;
            reports.before = self.said;
        }
        let mut like = None;
        for report in &mut reports.reports {
            let id = report.id.map(ReportId::from);
            if id.is_some() && id == self.last.and_then(next) {
                report.id = None;
            }
            self.last = id;
            self.said += 1;
            like = match report.body.take() {
                Some(Body::SnapshotClosed(closed)) => {
                    let like = self.close(&closed).filter(|_| says_nothing_else(report));
                    report.body = Some(Body::SnapshotClosed(closed));
                    like
                }
                Some(body) => {
                    self.pack(report, body);
                    None
                }
                None => None,
            };
        }
        if let Some(hash) = like {
            reports.reports.pop();
            reports.closed = hash;
        }
    }

    fn pack(&mut self, report: &mut wire::Report, body: Body) {
        let (key, is_kept) = key(&body);
        let checked = !matches!(body, Body::PodStatus(_));
        let whole = wire::Report { body: Some(body), ..wire::Report::default() };
        let text = Bytes::from(whole.encode_to_vec());
        if text.len() > BASE_BYTES_MAX {
            report.body = whole.body;
            return;
        }
        let own = self.numbers.get(&key).copied();
        // What it was, else what it is probably like.
        let base = own.unwrap_or(self.latest);
        let prefix = self.slot(base).map(|slot| slot.body.clone());
        let Some(packed) = frame::pack(&text, prefix.as_deref(), checked) else {
            report.body = whole.body;
            return;
        };
        if is_kept {
            report.keep = self.keep(key, text);
        }
        report.body = Some(match prefix {
            Some(_) => {
                report.base = if base == report.keep { 0 } else { base };
                Body::Patch(packed)
            }
            None => Body::Packed(packed),
        });
    }

    /// A snapshot is closed: its hash, if that is all that differs from the last time.
    fn close(&mut self, closed: &wire::SnapshotClosed) -> Option<Bytes> {
        let like = Some(wire::SnapshotClosed { hash: Bytes::new(), ..*closed });
        let is_like = self.closed == like;
        self.closed = like;
        is_like.then(|| closed.hash.clone())
    }

    fn slot(&self, number: u32) -> Option<&Slot> {
        self.kept.get(usize::try_from(number.checked_sub(1)?).ok()?)
    }

    /// Keeps a body under the number of its key; a new one takes the place of what was not said for
    /// longest, where there is no room.
    fn keep(&mut self, key: String, body: Bytes) -> u32 {
        let used = self.said;
        let at = match self.numbers.get(&key) {
            Some(number) => *number as usize - 1,
            None if self.kept.len() < BASES_MAX as usize => self.kept.len(),
            None => {
                let slots = self.kept.iter().enumerate();
                slots.min_by_key(|(_, slot)| slot.used).map_or(0, |(at, _)| at)
            }
        };
        let slot = Slot { key: key.clone(), body, used };
        match self.kept.get_mut(at) {
            Some(before) => {
                let before = std::mem::replace(before, slot);
                self.numbers.remove(&before.key);
            }
            None => self.kept.push(slot),
        }
        let number = u32::try_from(at + 1).unwrap_or(BASES_MAX);
        self.numbers.insert(key, number);
        self.latest = number;
        number
    }
}

/// What a body is about, and whether more of that may be said. The end of a pod is said once.
fn key(body: &Body) -> (String, bool) {
    let pod = |pod: &Option<wire::PodRef>| {
        format!("pod {}", pod.as_ref().map_or("", |pod| pod.pod.as_str()))
    };
    match body {
        Body::PodStatus(status) => (pod(&status.pod), true),
        Body::PodStatusRemoved(gone) | Body::PodTerminated(gone) => {
            (format!("pod {}", gone.pod), false)
        }
        Body::Message(message) => (format!("message {}", message.key), true),
        Body::Node(_) => ("node".to_owned(), true),
        Body::SnapshotClosed(_) | Body::Packed(_) | Body::Patch(_) => (String::new(), false),
    }
}

/// Whether a report's id follows, and nothing caused it that is to be said.
fn says_nothing_else(report: &wire::Report) -> bool {
    report.id.is_none() && report.traceparent.is_empty()
}
