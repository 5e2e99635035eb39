//! The hub's end: makes whole what it hears.

use bytes::Bytes;
use headwater_event::ReportId;
use headwater_session::message::EdgeMessage;
use prost::Message as _;

use super::super::{REPORTS_MAX, WireError, WireFault, at_most, required};
use super::{
    BASE_BYTES_MAX, BASES_MAX, BaseStore, EdgeMessageError, UNPACKED_BYTES_MAX, frame, next,
};
use crate::replication as wire;
use wire::edge_message::Message;
use wire::report::Body;

/// Hears what an edge says in one session; a hundred bytes. Once something was not understood, the
/// session cannot go on.
#[derive(Debug, Default)]
pub struct EdgeMessageDecoder {
    /// How many reports were heard, and the last of them.
    heard: u64,
    last: Option<ReportId>,
    /// The last closing of a snapshot, its hash aside.
    closed: Option<wire::SnapshotClosed>,
}

impl EdgeMessageDecoder {
    /// What the edge says: each message, once, in the order in which they arrive.
    ///
    /// # Errors
    /// [`EdgeMessageError::Wire`] when it is not one of the protocol; as `kept`.
    pub fn decode<K: BaseStore>(
        &mut self,
        mut message: wire::EdgeMessage,
        kept: &mut K,
    ) -> Result<EdgeMessage, EdgeMessageError<K::Error>> {
        if let Some(Message::Reports(reports)) = &mut message.message {
            self.restore(reports, kept)?;
        }
        Ok(EdgeMessage::try_from(message)?)
    }

    fn restore<K: BaseStore>(
        &mut self,
        reports: &mut wire::Reports,
        kept: &mut K,
    ) -> Result<(), EdgeMessageError<K::Error>> {
        at_most(&reports.reports, REPORTS_MAX, "Reports.reports")?;
        let said = std::mem::take(&mut reports.before);
        if said != 0 {
            if said != self.heard {
                let missed = WireFault::Missed { said, heard: self.heard };
                return Err(missed.of("Reports.before").into());
            }
            reports.after = self.last.map(Into::into);
        }
        let mut unpacking = Unpacking { kept, room: UNPACKED_BYTES_MAX };
        for report in &mut reports.reports {
            self.identify(report)?;
            let (keep, base) = (std::mem::take(&mut report.keep), std::mem::take(&mut report.base));
            report.body = Some(match required(report.body.take(), "Report.body")? {
                Body::Packed(packed) => unpacking.packed(&packed, keep)?,
                Body::Patch(patch) => unpacking.patch(&patch, keep, base)?,
                Body::SnapshotClosed(closed) => {
                    self.closed = Some(wire::SnapshotClosed { hash: Bytes::new(), ..closed });
                    Body::SnapshotClosed(closed)
                }
                whole => whole,
            });
        }
        let hash = std::mem::take(&mut reports.closed);
        if !hash.is_empty() {
            let like = self.closed.as_ref();
            let like =
                like.ok_or_else(|| not_said("a snapshot that was closed", "Reports.closed"))?;
            let body = Some(Body::SnapshotClosed(wire::SnapshotClosed { hash, ..*like }));
            let mut report = wire::Report { body, ..wire::Report::default() };
            self.identify(&mut report)?;
            reports.reports.push(report);
        }
        Ok(())
    }

    /// Gives a report the id that it did not need to say.
    fn identify(&mut self, report: &mut wire::Report) -> Result<(), WireError> {
        let id = match report.id {
            Some(id) => id.into(),
            None => (self.last.and_then(next))
                .ok_or_else(|| not_said("the report before it", "Report.id"))?,
        };
        report.id = Some(id.into());
        self.last = Some(id);
        self.heard += 1;
        Ok(())
    }
}

/// The bodies of one message.
struct Unpacking<'k, K> {
    kept: &'k mut K,
    /// How many bytes they may have.
    room: usize,
}

impl<K: BaseStore> Unpacking<'_, K> {
    fn packed(&mut self, packed: &[u8], keep: u32) -> Result<Body, EdgeMessageError<K::Error>> {
        self.take(packed, None, keep, "Report.packed")
    }

    fn patch(
        &mut self,
        patch: &[u8],
        keep: u32,
        base: u32,
    ) -> Result<Body, EdgeMessageError<K::Error>> {
        let base = if base == 0 { keep } else { base };
        let prefix = self.kept.get(base).map_err(EdgeMessageError::Store)?;
        let prefix = prefix
            .ok_or_else(|| not_said(&format!("what is kept under {base}"), "Report.patch"))?;
        self.take(patch, Some(&prefix), keep, "Report.patch")
    }

    /// The body in `packed`, kept under `keep` if that is a number.
    fn take(
        &mut self,
        packed: &[u8],
        prefix: Option<&[u8]>,
        keep: u32,
        field: &'static str,
    ) -> Result<Body, EdgeMessageError<K::Error>> {
        if keep > BASES_MAX {
            let (lower, upper) = (keep.into(), BASES_MAX.into());
            return Err(WireFault::OutOfOrder { lower, upper }.of("Report.keep").into());
        }
        let wrong = |reason: String| WireFault::Packed { reason }.of(field);
        let text = frame::unpack(packed, prefix, BASE_BYTES_MAX.min(self.room)).map_err(wrong)?;
        self.room -= text.len();
        let whole = wire::Report::decode(text.clone()).map_err(|error| wrong(error.to_string()))?;
        let body = match whole.body {
            Some(Body::Packed(_) | Body::Patch(_)) | None => {
                return Err(wrong("it holds no whole body".to_owned()).into());
            }
            Some(body) => body,
        };
        if keep != 0 {
            self.kept.put(keep, text).map_err(EdgeMessageError::Store)?;
        }
        Ok(body)
    }
}

fn not_said(what: &str, field: &'static str) -> WireError {
    WireFault::NotSaid { what: what.to_owned() }.of(field)
}
