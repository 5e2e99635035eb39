//! The messages of an edge within one session.
//!
//! `headwater-session` shortens reports by what the session has carried before ([`ReportEncoder`],
//! [`ReportDecoder`]). This module converts the short form to the wire form and back. Other
//! messages have no short form.

#[cfg(test)]
mod tests;

use bytes::Bytes;
use headwater_event::ReportBody;
use headwater_session::message::EdgeMessage;
use headwater_session::report_codec::{
    BaseStore, BodyFormat, EncodedBody, EncodedReport, EncodedReports, Predecessor,
    ReportDecodeError, ReportDecoder, ReportEncoder, ReportFault,
};
use prost::Message as _;

use super::position::{hash, hash_bytes};
use super::report::{body_from_wire, body_to_wire};
use super::{REPORTS_MAX, WireError, WireFault, at_most, optional, required};
use crate::replication as wire;
use wire::edge_message::Message;
use wire::report::Body;

/// Encodes the messages of an edge in one session.
#[derive(Debug, Default)]
pub struct EdgeMessageEncoder {
    reports: ReportEncoder,
}

/// Decodes the messages of an edge in one session. After an error the session cannot continue.
#[derive(Debug, Default)]
pub struct EdgeMessageDecoder {
    reports: ReportDecoder,
}

/// Why a message of an edge cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EdgeMessageError<S> {
    /// The message violates the protocol.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The store of the session's bases failed; the edge is not at fault.
    #[error("the bases of the session cannot be stored or read")]
    Store(#[source] S),
}

impl EdgeMessageEncoder {
    /// Encodes a message. Each message of a session is encoded once, in the order of sending.
    pub fn encode(&mut self, message: EdgeMessage) -> wire::EdgeMessage {
        match message {
            EdgeMessage::Reports(reports) => {
                let encoded = self.reports.encode::<ProtoBody>(reports);
                wire::EdgeMessage { message: Some(Message::Reports(encoded.into())) }
            }
            message => message.into(),
        }
    }
}

impl EdgeMessageDecoder {
    /// Decodes a message. Each message of a session is decoded once, in the order of arrival.
    ///
    /// # Errors
    /// See [`EdgeMessageError`].
    pub fn decode<S: BaseStore>(
        &mut self,
        message: wire::EdgeMessage,
        bases: &mut S,
    ) -> Result<EdgeMessage, EdgeMessageError<S::Error>> {
        match message.message {
            Some(Message::Reports(reports)) => {
                let reports = self.reports.decode::<ProtoBody, S>(reports.try_into()?, bases);
                Ok(EdgeMessage::Reports(reports?))
            }
            message => Ok(wire::EdgeMessage { message }.try_into()?),
        }
    }
}

/// Encodes a body as a wire `Report` that has only this body.
#[derive(Debug)]
struct ProtoBody;

impl BodyFormat for ProtoBody {
    type Error = WireError;

    fn encode(body: &ReportBody) -> Bytes {
        let body = Some(body_to_wire(body.clone()));
        wire::Report { body, ..wire::Report::default() }.encode_to_vec().into()
    }

    fn decode(bytes: &Bytes) -> Result<ReportBody, WireError> {
        let malformed = |reason: String| WireFault::Packed { reason }.of("Report.body");
        let report =
            wire::Report::decode(bytes.clone()).map_err(|error| malformed(error.to_string()))?;
        match report.body {
            Some(Body::Packed(_) | Body::Patch(_)) | None => {
                Err(malformed("it holds no whole body".to_owned()))
            }
            Some(body) => body_from_wire(body),
        }
    }
}

impl From<EncodedReports> for wire::Reports {
    fn from(encoded: EncodedReports) -> Self {
        let (after, before) = match encoded.after {
            Predecessor::Id(id) => (id.map(Into::into), 0),
            Predecessor::Count(count) => (None, count),
        };
        Self {
            reports: encoded.reports.into_iter().map(Into::into).collect(),
            after,
            before,
            closed: encoded.closed.map(hash_bytes).unwrap_or_default(),
        }
    }
}

impl TryFrom<wire::Reports> for EncodedReports {
    type Error = WireError;

    fn try_from(reports: wire::Reports) -> Result<Self, WireError> {
        at_most(&reports.reports, REPORTS_MAX, "Reports.reports")?;
        let after = match reports.before {
            0 => Predecessor::Id(reports.after.map(Into::into)),
            count => Predecessor::Count(count),
        };
        let closed = match reports.closed.is_empty() {
            true => None,
            false => Some(hash(&reports.closed, "Reports.closed")?),
        };
        let reports = reports.reports.into_iter().map(TryInto::try_into);
        Ok(Self { after, reports: reports.collect::<Result<_, _>>()?, closed })
    }
}

impl From<EncodedReport> for wire::Report {
    fn from(report: EncodedReport) -> Self {
        let (body, keep, base) = match report.body {
            EncodedBody::Whole(body) => (body_to_wire(body), 0, 0),
            EncodedBody::Packed { frame, keep } => (Body::Packed(frame), keep, 0),
            EncodedBody::Patch { frame, keep, base } => (Body::Patch(frame), keep, base),
        };
        Self {
            id: report.id.map(Into::into),
            traceparent: report.traceparent.unwrap_or_default(),
            body: Some(body),
            keep,
            base,
        }
    }
}

impl TryFrom<wire::Report> for EncodedReport {
    type Error = WireError;

    fn try_from(report: wire::Report) -> Result<Self, WireError> {
        let (keep, base) = (report.keep, report.base);
        let body = match required(report.body, "Report.body")? {
            Body::Packed(frame) => EncodedBody::Packed { frame, keep },
            Body::Patch(frame) => EncodedBody::Patch { frame, keep, base },
            whole => EncodedBody::Whole(body_from_wire(whole)?),
        };
        let traceparent = optional(report.traceparent);
        Ok(Self { id: report.id.map(Into::into), traceparent, body })
    }
}

impl<S> From<ReportDecodeError<WireError, S>> for EdgeMessageError<S> {
    fn from(error: ReportDecodeError<WireError, S>) -> Self {
        match error {
            ReportDecodeError::Report(fault) => {
                let field = field(&fault);
                Self::Wire(WireFault::Report(fault).of(field))
            }
            ReportDecodeError::Body(error) => Self::Wire(error),
            ReportDecodeError::Store(error) => Self::Store(error),
        }
    }
}

/// The field with the fault, by its name in the .proto file.
fn field(fault: &ReportFault) -> &'static str {
    match fault {
        ReportFault::Missing { .. } => "Reports.before",
        ReportFault::NoPreviousReport => "Report.id",
        ReportFault::NoPreviousSnapshot => "Reports.closed",
        ReportFault::NoBase { .. } | ReportFault::Frame { is_patch: true, .. } => "Report.patch",
        ReportFault::Frame { is_patch: false, .. } => "Report.packed",
        ReportFault::BaseNumber { .. } => "Report.keep",
    }
}
