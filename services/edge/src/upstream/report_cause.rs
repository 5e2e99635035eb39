//! The trace of a report: it continues the trace of the change that caused it.

use headwater_event::ResourceKey;
use tracing::Span;

/// The most bytes of a trace context; one by W3C has 55.
const TRACEPARENT_BYTES_MAX: usize = 64;

/// The span from the pod worker's report to the synced write.
#[derive(Debug)]
pub(super) struct ReportCause {
    span: Span,
    traceparent: String,
}

impl ReportCause {
    /// The cause that the caller named. `None`: none, or one that is too long.
    pub(super) fn of(pod: &ResourceKey, traceparent: Option<String>) -> Option<Self> {
        let traceparent = traceparent.filter(|text| text.len() <= TRACEPARENT_BYTES_MAX)?;
        let span = tracing::info_span!("report", key = %pod);
        headwater_telemetry::continue_from(&span, Some(&traceparent));
        Some(Self { span, traceparent })
    }

    /// The trace context of the report: this span's, else the caller's.
    pub(super) fn traceparent(&self) -> String {
        headwater_telemetry::traceparent(&self.span).unwrap_or_else(|| self.traceparent.clone())
    }
}
