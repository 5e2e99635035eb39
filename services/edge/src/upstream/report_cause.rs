//! What caused a report: its trace goes on in it.

use headwater_event::ResourceKey;
use tracing::Span;

/// The most bytes of a trace context: W3C's is of 55.
const TRACEPARENT_BYTES_MAX: usize = 64;

/// From when a pod's change was told here to when its report is on disk.
#[derive(Debug)]
pub(super) struct ReportCause {
    span: Span,
    traceparent: String,
}

impl ReportCause {
    /// The cause that somebody of this node named, if it may be one.
    pub(super) fn of(pod: &ResourceKey, traceparent: Option<String>) -> Option<Self> {
        let traceparent = traceparent.filter(|text| text.len() <= TRACEPARENT_BYTES_MAX)?;
        let span = tracing::info_span!("report", key = %pod);
        headwater_telemetry::continue_from(&span, Some(&traceparent));
        Some(Self { span, traceparent })
    }

    /// What goes along with the report: this part of the trace, else what came.
    pub(super) fn traceparent(&self) -> String {
        headwater_telemetry::traceparent(&self.span).unwrap_or_else(|| self.traceparent.clone())
    }
}
