//! The outbox: reports that the cloud has not acknowledged, the latest of each key, in the order of
//! their ids.
//!
//! The rows are keyed by id. The index from key to id is in memory and is built from the rows at
//! the start. A report that replaces another of its key goes to the end, so reports whose order
//! matters (a pod's last status, then its termination) stay in order. The outbox is bounded: when
//! it is full, it discards the oldest messages of functions and Events and counts them, and nothing
//! else. Of Events it has so many at most, and discards the oldest one for another.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use bytes::Bytes;
use headwater_event::upstream::{ReportRecord, decode_report, encode_report};
use headwater_event::{NodeName, Report, ReportBody, ReportId, ReportKey};
use headwater_store::{Batch, Engine, EngineError, Proto, Table, TableId};

const REPORTS: Table<ReportId, Proto<Row>> = Table::new(TableId::OutboxReports);

/// The most reports: several for each pod of a node, and a day of messages.
pub const OUTBOX_REPORTS_MAX: usize = 8_192;

/// The most bytes of reports, whatever the settings allow. When the boot number is raised, one write
/// batch issues all of them anew, and a batch has at most 8 MiB.
pub const OUTBOX_BYTES_MAX: usize = 6 << 20;

/// The most Events: ten minutes of those that a node may have a second. A node that was away for
/// longer sends the last ones.
pub const OUTBOX_EVENTS_MAX: usize = 512;

/// The type in the key of an Event. No message has it.
const EVENT: &str = "event";

/// The bounds of an outbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutboxSettings {
    /// See [`OUTBOX_REPORTS_MAX`].
    pub reports_max: usize,
    /// See [`OUTBOX_BYTES_MAX`].
    pub bytes_max: usize,
}

/// The outbox is full, and has no message that it may discard. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the outbox is full ({reports} reports, {bytes} bytes): it empties when a hub takes them")]
pub struct OutboxFull {
    /// How many reports it holds.
    pub reports: usize,
    /// How many bytes.
    pub bytes: usize,
}

/// Which reports of the outbox to read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageRequest {
    /// The report before them; `None`: from the first.
    pub(crate) after: Option<ReportId>,
    /// The highest number of reports.
    pub(crate) count: usize,
    /// The bytes after which the page ends, in the outbox. It has one report at least.
    pub(crate) bytes: u64,
}

/// Some reports of the outbox, in their order.
#[derive(Debug)]
pub(crate) struct OutboxPage {
    pub(crate) reports: Vec<Report>,
    /// Whether the outbox has none behind them.
    pub(crate) is_end: bool,
}

/// The index of the outbox. The reports stay on disk.
#[derive(Debug)]
pub(crate) struct Outbox {
    settings: OutboxSettings,
    by_id: BTreeMap<ReportId, IndexEntry>,
    by_key: BTreeMap<ReportKey, ReportId>,
    /// The ids of Events.
    events: BTreeSet<ReportId>,
    bytes: usize,
    dropped: u64,
}

#[derive(Debug)]
struct IndexEntry {
    key: ReportKey,
    bytes: usize,
    /// Whether a full outbox may discard the report.
    is_discardable: bool,
}

/// A stored report: its upstream record. Field numbers are never reused.
#[derive(Clone, PartialEq, prost::Message)]
struct Row {
    #[prost(bytes = "bytes", tag = "1")]
    key: Bytes,
    #[prost(bytes = "bytes", optional, tag = "2")]
    value: Option<Bytes>,
    #[prost(bytes = "bytes", tag = "3")]
    header: Bytes,
    #[prost(string, optional, tag = "4")]
    traceparent: Option<String>,
}

impl Outbox {
    /// Reads the outbox from `engine`.
    ///
    /// # Errors
    /// As the engine. A malformed row is [`EngineError::Corrupt`].
    pub(crate) fn open(engine: &dyn Engine, settings: OutboxSettings) -> Result<Self, EngineError> {
        let mut outbox = Self {
            settings: OutboxSettings {
                bytes_max: settings.bytes_max.min(OUTBOX_BYTES_MAX),
                ..settings
            },
            by_id: BTreeMap::new(),
            by_key: BTreeMap::new(),
            events: BTreeSet::new(),
            bytes: 0,
            dropped: 0,
        };
        for row in REPORTS.rows(engine) {
            let (id, Proto(row)) = row?;
            let (node, report) = row.decode()?;
            let key = key_of(&report.body, &node)?;
            outbox.insert(id, key, row.bytes(), is_discardable(&report.body));
        }
        Ok(outbox)
    }

    /// Stores a report in the place of the earlier one of its key.
    ///
    /// # Errors
    /// When there is no room; nothing is changed then.
    pub(crate) fn put(
        &mut self,
        batch: &mut Batch,
        node: &NodeName,
        report: &Report,
    ) -> Result<(), OutboxFull> {
        let full = OutboxFull { reports: self.by_id.len(), bytes: self.bytes };
        let Ok(key) = report.body.key(node) else { return Err(full) };
        let stored = Report { body: as_stored(&report.body), ..report.clone() };
        let Ok(record) = encode_report(node, &stored) else { return Err(full) };
        let row = Row::new(record, report.traceparent.clone());
        let replaced = self.by_key.get(&key).copied();
        let mut discarded = self.room_for(replaced, row.bytes()).ok_or(full)?;
        if matches!(report.body, ReportBody::Event { .. })
            && replaced.is_none()
            && let Some(id) = self.superfluous_event()
            && !discarded.contains(&id)
        {
            discarded.push(id);
        }
        self.dropped += discarded.len() as u64;
        for id in discarded.into_iter().chain(replaced) {
            self.remove(batch, id);
        }
        self.insert(report.id, key, row.bytes(), is_discardable(&report.body));
        batch.put(&REPORTS, &report.id, &Proto(row));
        Ok(())
    }

    /// Removes every report up to `through`, inclusive.
    pub(crate) fn forget(&mut self, batch: &mut Batch, through: ReportId) -> usize {
        let gone: Vec<_> = self.by_id.range(..=through).map(|(id, _)| *id).collect();
        for id in &gone {
            self.remove(batch, *id);
        }
        gone.len()
    }

    /// Removes the report of `key`, if there is one.
    pub(crate) fn withdraw(&mut self, batch: &mut Batch, key: &ReportKey) {
        if let Some(id) = self.by_key.get(key).copied() {
            self.remove(batch, id);
        }
    }

    /// Reads a page of reports.
    ///
    /// # Errors
    /// As the engine.
    pub(crate) fn read(
        &self,
        engine: &dyn Engine,
        request: PageRequest,
    ) -> Result<OutboxPage, EngineError> {
        let from = request.after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut behind = self.by_id.range((from, Bound::Unbounded)).peekable();
        let (mut reports, mut bytes) = (Vec::new(), 0);
        while bytes < request.bytes
            && reports.len() < request.count
            && let Some((id, entry)) = behind.next()
        {
            if let Some(Proto(row)) = REPORTS.get(engine, id)? {
                reports.push(row.decode()?.1);
                bytes += entry.bytes as u64;
            }
        }
        Ok(OutboxPage { reports, is_end: behind.peek().is_none() })
    }

    /// Reads all reports.
    ///
    /// # Errors
    /// As the engine.
    pub(crate) fn read_all(&self, engine: &dyn Engine) -> Result<Vec<Report>, EngineError> {
        let all = PageRequest { after: None, count: usize::MAX, bytes: u64::MAX };
        Ok(self.read(engine, all)?.reports)
    }

    /// The key of a report.
    pub(crate) fn key(&self, id: ReportId) -> Option<&ReportKey> {
        self.by_id.get(&id).map(|entry| &entry.key)
    }

    /// Whether there is a report of `key`.
    pub(crate) fn holds(&self, key: &ReportKey) -> bool {
        self.by_key.contains_key(key)
    }

    /// The keys of the reports, in the order of the reports.
    pub(crate) fn keys(&self) -> Vec<ReportKey> {
        self.by_id.values().map(|entry| entry.key.clone()).collect()
    }

    /// How many reports there are.
    pub(crate) fn depth(&self) -> usize {
        self.by_id.len()
    }

    /// How many bytes the reports have.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many messages were discarded since the start.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// The messages to discard so that `bytes` have room; `None`: there is no room.
    fn room_for(&self, replaced: Option<ReportId>, bytes: usize) -> Option<Vec<ReportId>> {
        let freed = replaced.and_then(|id| self.by_id.get(&id)).map_or(0, |entry| entry.bytes);
        let mut reports = self.by_id.len() + 1 - usize::from(replaced.is_some());
        let mut total = self.bytes - freed + bytes;
        let mut discarded = Vec::new();
        let mut candidates =
            self.by_id.iter().filter(|(id, entry)| entry.is_discardable && Some(**id) != replaced);
        while reports > self.settings.reports_max || total > self.settings.bytes_max {
            let (id, entry) = candidates.next()?;
            discarded.push(*id);
            reports -= 1;
            total -= entry.bytes;
        }
        Some(discarded)
    }

    /// The oldest Event, if there is no room for another one.
    fn superfluous_event(&self) -> Option<ReportId> {
        if self.events.len() < OUTBOX_EVENTS_MAX { None } else { self.events.first().copied() }
    }

    fn insert(&mut self, id: ReportId, key: ReportKey, bytes: usize, is_discardable: bool) {
        if is_discardable && is_event(&key) {
            self.events.insert(id);
        }
        self.by_key.insert(key.clone(), id);
        self.by_id.insert(id, IndexEntry { key, bytes, is_discardable });
        self.bytes += bytes;
    }

    fn remove(&mut self, batch: &mut Batch, id: ReportId) {
        let Some(entry) = self.by_id.remove(&id) else { return };
        self.events.remove(&id);
        self.bytes -= entry.bytes;
        if self.by_key.get(&entry.key) == Some(&id) {
            self.by_key.remove(&entry.key);
        }
        batch.delete(&REPORTS, &id);
    }
}

impl Default for OutboxSettings {
    fn default() -> Self {
        Self { reports_max: OUTBOX_REPORTS_MAX, bytes_max: OUTBOX_BYTES_MAX }
    }
}

impl Row {
    fn new(record: ReportRecord, traceparent: Option<String>) -> Self {
        Self { key: record.key, value: record.value, header: record.header, traceparent }
    }

    fn bytes(&self) -> usize {
        let value = self.value.as_ref().map_or(0, Bytes::len);
        let traceparent = self.traceparent.as_ref().map_or(0, String::len);
        self.key.len() + value + self.header.len() + traceparent
    }

    fn decode(&self) -> Result<(NodeName, Report), EngineError> {
        let record = ReportRecord {
            key: self.key.clone(),
            value: self.value.clone(),
            header: self.header.clone(),
        };
        match decode_report(&record, self.traceparent.clone()) {
            Ok(Some((node, report))) => {
                Ok((node, Report { body: as_reported(report.body), ..report }))
            }
            Ok(None) => Err(corrupt("a row is no report")),
            Err(error) => Err(corrupt(&error.to_string())),
        }
    }
}

/// An Event is stored as a message of its key: an edge of an earlier version, to which a node may go back,
/// knows no Events.
fn as_stored(body: &ReportBody) -> ReportBody {
    match body {
        ReportBody::Event { key, object } => {
            ReportBody::Message { key: key.with_kind(EVENT), content: object.clone() }
        }
        body => body.clone(),
    }
}

fn as_reported(body: ReportBody) -> ReportBody {
    match body {
        ReportBody::Message { key, content } if key.kind() == EVENT => {
            ReportBody::Event { key, object: content }
        }
        body => body,
    }
}

fn key_of(body: &ReportBody, node: &NodeName) -> Result<ReportKey, EngineError> {
    body.key(node).map_err(|error| corrupt(&error.to_string()))
}

fn corrupt(reason: &str) -> EngineError {
    EngineError::Corrupt { reason: format!("the outbox: {reason}") }
}

/// Whether the key is that of an Event. No message has such a key.
fn is_event(key: &ReportKey) -> bool {
    matches!(key, ReportKey::Resource(key) if key.kind() == EVENT)
}

fn is_discardable(body: &ReportBody) -> bool {
    matches!(body, ReportBody::Message { .. } | ReportBody::Event { .. })
}

#[cfg(test)]
mod tests;
