//! The hub's end: restores reports from their short form.

use bytes::Bytes;
use headwater_event::report::SnapshotClosed;
use headwater_event::{Report, ReportBody, ReportId, StateHash};

use super::{
    BASE_BYTES_MAX, BASES_MAX, BaseStore, BodyFormat, EncodedBody, EncodedReports, Predecessor,
    ReportDecodeError, ReportFault, UNPACKED_BYTES_MAX, frame, next,
};
use crate::message::Reports;

/// Decodes the reports of one session; a hundred bytes. After an error the session cannot go on.
#[derive(Debug, Default)]
pub struct ReportDecoder {
    /// The number of reports decoded.
    count: u64,
    /// The last of them.
    last: Option<ReportId>,
    /// The last closed snapshot, without its hash.
    closed: Option<SnapshotClosed>,
}

impl ReportDecoder {
    /// Decodes a message of reports. Each message of a session is decoded once, in the order of
    /// arrival.
    ///
    /// # Errors
    /// See [`ReportDecodeError`].
    pub fn decode<F: BodyFormat, S: BaseStore>(
        &mut self,
        encoded: EncodedReports,
        bases: &mut S,
    ) -> Result<Reports, ReportDecodeError<F::Error, S::Error>> {
        let after = match encoded.after {
            Predecessor::Id(id) => id,
            Predecessor::Count(sent) if sent == self.count => self.last,
            Predecessor::Count(sent) => {
                return Err(ReportFault::Missing { sent, received: self.count }.into());
            }
        };
        let mut unpacking = Unpacking { bases, room: UNPACKED_BYTES_MAX };
        let mut reports = Vec::with_capacity(encoded.reports.len() + 1);
        for report in encoded.reports {
            let id = self.identify(report.id)?;
            let body = match report.body {
                EncodedBody::Whole(body) => {
                    if let ReportBody::SnapshotClosed(closed) = &body {
                        self.closed = Some(SnapshotClosed { hash: StateHash::EMPTY, ..*closed });
                    }
                    body
                }
                EncodedBody::Packed { frame, keep } => unpacking.body::<F>(&frame, None, keep)?,
                EncodedBody::Patch { frame, keep, base } => {
                    let base = if base == 0 { keep } else { base };
                    let prefix = unpacking.bases.get(base).map_err(ReportDecodeError::Store)?;
                    let prefix = prefix.ok_or(ReportFault::NoBase { number: base })?;
                    unpacking.body::<F>(&frame, Some(&prefix), keep)?
                }
            };
            reports.push(Report { id, body, traceparent: report.traceparent });
        }
        if let Some(hash) = encoded.closed {
            let closed = self.closed.ok_or(ReportFault::NoPreviousSnapshot)?;
            let body = ReportBody::SnapshotClosed(SnapshotClosed { hash, ..closed });
            reports.push(Report { id: self.identify(None)?, body, traceparent: None });
        }
        Ok(Reports { after, reports })
    }

    /// The id of the next report; `None`: it continues the report before.
    fn identify(&mut self, id: Option<ReportId>) -> Result<ReportId, ReportFault> {
        let id = id.or_else(|| self.last.and_then(next)).ok_or(ReportFault::NoPreviousReport)?;
        self.last = Some(id);
        self.count += 1;
        Ok(id)
    }
}

/// The packed bodies of one message.
struct Unpacking<'s, S> {
    bases: &'s mut S,
    /// The bytes that they may still have.
    room: usize,
}

impl<S: BaseStore> Unpacking<'_, S> {
    /// The body in `packed`; it becomes the base `keep`, unless that is 0.
    fn body<F: BodyFormat>(
        &mut self,
        packed: &[u8],
        prefix: Option<&[u8]>,
        keep: u32,
    ) -> Result<ReportBody, ReportDecodeError<F::Error, S::Error>> {
        if keep > BASES_MAX {
            return Err(ReportFault::BaseNumber { number: keep }.into());
        }
        let is_patch = prefix.is_some();
        let bytes: Bytes = frame::unpack(packed, prefix, BASE_BYTES_MAX.min(self.room))
            .map_err(|reason| ReportFault::Frame { is_patch, reason })?;
        self.room -= bytes.len();
        let body = F::decode(&bytes).map_err(ReportDecodeError::Body)?;
        if keep != 0 {
            self.bases.put(keep, bytes).map_err(ReportDecodeError::Store)?;
        }
        Ok(body)
    }
}
