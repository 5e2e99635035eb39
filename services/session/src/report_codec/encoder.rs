//! The edge's end: shortens reports.

use std::collections::HashMap;

use bytes::Bytes;
use headwater_event::report::SnapshotClosed;
use headwater_event::{Report, ReportBody, ReportId, StateHash};

use super::{
    BASE_BYTES_MAX, BASES_MAX, BodyFormat, EncodedBody, EncodedReport, EncodedReports, Predecessor,
    frame, next,
};
use crate::message::Reports;

/// Encodes the reports of one session. It takes as much memory as the hub's store of the bases.
#[derive(Debug, Default)]
pub struct ReportEncoder {
    /// The number of reports encoded.
    count: u64,
    /// The last of them.
    last: Option<ReportId>,
    /// The last closed snapshot, without its hash.
    closed: Option<SnapshotClosed>,
    /// The base of number n is at n - 1.
    bases: Vec<Base>,
    /// The number of each key's base.
    numbers: HashMap<String, u32>,
    /// The number used last: the next body of a new key is likely similar.
    latest: u32,
}

/// A body that the hub keeps too.
#[derive(Debug)]
struct Base {
    key: String,
    body: Bytes,
    /// The number of reports encoded when it was last used.
    used: u64,
}

impl ReportEncoder {
    /// Encodes a message of reports. Each message of a session is encoded once, in the order of
    /// sending.
    pub fn encode<F: BodyFormat>(&mut self, reports: Reports) -> EncodedReports {
        let Reports { after, reports } = reports;
        let after = match self.last {
            Some(_) if after == self.last => Predecessor::Count(self.count),
            _ => Predecessor::Id(after),
        };
        let mut closed = None;
        let mut encoded = Vec::with_capacity(reports.len());
        for report in reports {
            let (report, hash) = self.report::<F>(report);
            encoded.push(report);
            closed = hash;
        }
        if closed.is_some() {
            encoded.pop();
        }
        EncodedReports { after, reports: encoded, closed }
    }

    /// Encodes a report; also returns the hash that can stand for all of it.
    fn report<F: BodyFormat>(&mut self, report: Report) -> (EncodedReport, Option<StateHash>) {
        let Report { id, body, traceparent } = report;
        let follows = self.last.and_then(next) == Some(id);
        self.last = Some(id);
        self.count += 1;
        let is_traced = traceparent.as_ref().is_some_and(|text| !text.is_empty());
        let mut hash = None;
        let body = match body {
            ReportBody::SnapshotClosed(closed) => {
                let is_alike = self.close(closed);
                hash = (is_alike && follows && !is_traced).then_some(closed.hash);
                EncodedBody::Whole(ReportBody::SnapshotClosed(closed))
            }
            body => self.body::<F>(body),
        };
        (EncodedReport { id: (!follows).then_some(id), traceparent, body }, hash)
    }

    /// Compresses a body, as a patch if there is a base for it.
    fn body<F: BodyFormat>(&mut self, body: ReportBody) -> EncodedBody {
        let (key, is_base) = key(&body);
        // The hash of a closed snapshot covers pod statuses, and nothing else.
        let checked = !matches!(body, ReportBody::PodStatus { .. });
        let bytes = F::encode(&body);
        if bytes.len() > BASE_BYTES_MAX {
            return EncodedBody::Whole(body);
        }
        let base = self.numbers.get(&key).copied().unwrap_or(self.latest);
        let prefix = self.base(base).map(|base| base.body.clone());
        let Some(frame) = frame::pack(&bytes, prefix.as_deref(), checked) else {
            return EncodedBody::Whole(body);
        };
        let keep = if is_base { self.keep(key, bytes) } else { 0 };
        match prefix {
            Some(_) => {
                let base = if base == keep { 0 } else { base };
                EncodedBody::Patch { frame, keep, base }
            }
            None => EncodedBody::Packed { frame, keep },
        }
    }

    /// Takes note of a closed snapshot. True: it differs from the last one in its hash at most.
    fn close(&mut self, closed: SnapshotClosed) -> bool {
        let closed = Some(SnapshotClosed { hash: StateHash::EMPTY, ..closed });
        let is_alike = self.closed == closed;
        self.closed = closed;
        is_alike
    }

    fn base(&self, number: u32) -> Option<&Base> {
        self.bases.get(usize::try_from(number.checked_sub(1)?).ok()?)
    }

    /// Keeps a body as the base of its key, and returns its number. When there is no room, a new
    /// key replaces the base that has not been used for longest.
    fn keep(&mut self, key: String, body: Bytes) -> u32 {
        let used = self.count;
        let at = match self.numbers.get(&key) {
            Some(number) => *number as usize - 1,
            None if self.bases.len() < BASES_MAX as usize => self.bases.len(),
            None => {
                let bases = self.bases.iter().enumerate();
                bases.min_by_key(|(_, base)| base.used).map_or(0, |(at, _)| at)
            }
        };
        let base = Base { key: key.clone(), body, used };
        match self.bases.get_mut(at) {
            Some(before) => {
                let before = std::mem::replace(before, base);
                self.numbers.remove(&before.key);
            }
            None => self.bases.push(base),
        }
        let number = u32::try_from(at + 1).unwrap_or(BASES_MAX);
        self.numbers.insert(key, number);
        self.latest = number;
        number
    }
}

/// The key of a body, and whether the body becomes a base. The end of a pod is reported once, so
/// it becomes none.
fn key(body: &ReportBody) -> (String, bool) {
    match body {
        ReportBody::PodStatus { pod, .. } => (format!("pod {pod}"), true),
        ReportBody::PodStatusRemoved { pod, .. } | ReportBody::PodTerminated { pod, .. } => {
            (format!("pod {pod}"), false)
        }
        ReportBody::Message { key, .. } => (format!("message {key}"), true),
        ReportBody::Event { key, .. } => (format!("event {key}"), true),
        ReportBody::Node { .. } => ("node".to_owned(), true),
        ReportBody::SnapshotClosed(_) => (String::new(), false),
    }
}
