//! The controller's spans: a change at a source, each append that it leads to, and a report on
//! its way into the cloud's picture.
//!
//! What is in no trace gets no span and is passed on untouched.

use headwater_event::{ReportId, ResourceKey};
use headwater_log::{DOWNSTREAM_TOPIC, Draft, Recorded, UPSTREAM_TOPIC, Written};
use headwater_trace::{continue_from, messaging, traceparent};
use tracing::Span;
use tracing::field::Empty;

use crate::source::Cause;

/// Begins the trace of a change, or goes on with the one that its source had. From here on the
/// change's context is the span's. `None` where nobody takes spans.
pub(crate) fn source_change(
    cause: &mut Cause,
    key: &ResourceKey,
    kind: &'static str,
) -> Option<Span> {
    let span = tracing::info_span!("source change", source = cause.source.name(), %key, kind);
    continue_from(&span, cause.traceparent.as_deref());
    cause.traceparent = Some(traceparent(&span)?);
    Some(span)
}

/// The spans of those drafts that are in a trace, by their place. Each record gets the context of
/// its own append.
pub(crate) fn appends(drafts: &mut [Draft], partitions: u32) -> Vec<(usize, Span)> {
    let mut spans = Vec::new();
    for (place, draft) in drafts.iter_mut().enumerate() {
        let Some(parent) = draft.traceparent.as_deref() else { continue };
        let span = tracing::info_span!(
            "append",
            stream = %draft.stream,
            seq = Empty,
            { messaging::SYSTEM } = messaging::HEADWATER,
            { messaging::OPERATION_NAME } = "append",
            { messaging::OPERATION_TYPE } = messaging::SEND,
            { messaging::DESTINATION } = DOWNSTREAM_TOPIC,
            { messaging::PARTITION } = %draft.stream.partition(partitions),
        );
        continue_from(&span, Some(parent));
        if let Some(own) = traceparent(&span) {
            draft.traceparent = Some(own);
            spans.push((place, span));
        }
    }
    spans
}

/// Says in the spans which seqs the events got, and ends them.
pub(crate) fn appended(spans: Vec<(usize, Span)>, written: &[Written]) {
    for (place, span) in spans {
        if let Some(written) = written.get(place) {
            span.record("seq", written.seq.0);
        }
    }
}

/// The span of a report that is in a trace; it ends when the picture has the report.
pub(crate) fn fold_report(recorded: &Recorded, report: ReportId, kind: &str) -> Option<Span> {
    let parent = recorded.record.traceparent.as_deref()?;
    let span = tracing::info_span!(
        "fold report",
        %report,
        kind,
        { messaging::SYSTEM } = messaging::HEADWATER,
        { messaging::OPERATION_NAME } = "fold",
        { messaging::OPERATION_TYPE } = messaging::PROCESS,
        { messaging::DESTINATION } = UPSTREAM_TOPIC,
        { messaging::PARTITION } = %recorded.partition,
        { messaging::OFFSET } = recorded.offset.0,
    );
    continue_from(&span, Some(parent));
    Some(span)
}
