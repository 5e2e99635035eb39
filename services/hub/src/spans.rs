//! The hub's spans: the first delivery of an event to a node, and the append of a report.
//!
//! What is in no trace gets no span and is passed on untouched. What a catch-up carries has been
//! delivered late or not at all: it goes on with the context that it was logged with.

use headwater_event::{NodeName, Partition, Report};
use headwater_log::UPSTREAM_TOPIC;
use headwater_session::message::{Push, PushMode};
use headwater_trace::{continue_from, messaging, traceparent};
use tracing::Span;

use crate::metrics::RecordKind;

/// The spans of those events of a push that are in a trace; each goes on to the edge with the
/// context of its own span. They end when the push is handed to the transport.
pub(crate) fn push(push: &mut Push, node: &NodeName) -> Vec<Span> {
    let mut spans = Vec::new();
    if push.mode != PushMode::Tail {
        return spans;
    }
    let (stream, from, to) = (&push.stream, push.from, push.to.seq);
    for pushed in &mut push.changes {
        let Some(parent) = pushed.traceparent.as_deref() else { continue };
        let key = pushed.change.key();
        let span = tracing::info_span!("push", %node, %stream, %key, from = from.0, to = to.0);
        continue_from(&span, Some(parent));
        if let Some(own) = traceparent(&span) {
            pushed.traceparent = Some(own);
            spans.push(span);
        }
    }
    spans
}

/// The span of a report that is in a trace, and goes on with the context of that span. It ends
/// when the log has the report.
pub(crate) fn append_report(
    report: &mut Report,
    node: &NodeName,
    partition: Partition,
) -> Option<Span> {
    let parent = report.traceparent.as_deref()?;
    let span = tracing::info_span!(
        "append report",
        %node,
        report = %report.id,
        kind = RecordKind::of(&report.body).name(),
        { messaging::SYSTEM } = messaging::HEADWATER,
        { messaging::OPERATION_NAME } = "append",
        { messaging::OPERATION_TYPE } = messaging::SEND,
        { messaging::DESTINATION } = UPSTREAM_TOPIC,
        { messaging::PARTITION } = %partition,
    );
    continue_from(&span, Some(parent));
    report.traceparent = Some(traceparent(&span)?);
    Some(span)
}
