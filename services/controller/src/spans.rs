//! The controller's spans: a change at a source, each append that it leads to, and a report on
//! its way into the cloud's picture.
//!
//! An event outside of a trace gets no span and passes unchanged.

use headwater_event::{ReportId, ResourceKey};
use headwater_log::{DOWNSTREAM_TOPIC, Draft, EventPosition, StoredRecord, UPSTREAM_TOPIC};
use headwater_telemetry::{continue_from, has_exporter, messaging, traceparent};
use tracing::Span;
use tracing::field::Empty;

use crate::source::Cause;

/// Continues the trace of a change, or begins one. The change's context becomes the span's. `None`
/// when nothing exports spans.
pub(crate) fn source_change(
    cause: &mut Cause,
    key: &ResourceKey,
    kind: &'static str,
) -> Option<Span> {
    if !has_exporter() {
        return None;
    }
    let span = tracing::info_span!("source change", source = cause.source.name(), %key, kind);
    continue_from(&span, cause.traceparent.as_deref());
    cause.traceparent = Some(traceparent(&span)?);
    Some(span)
}

/// The spans of the drafts that are in a trace, by their index. Each record gets the context of its
/// own append.
pub(crate) fn appends(drafts: &mut [Draft], partitions: u32) -> Vec<(usize, Span)> {
    let mut spans = Vec::new();
    for (place, draft) in drafts.iter_mut().enumerate() {
        let parent = draft.traceparent.as_deref().filter(|_| has_exporter());
        let Some(parent) = parent else { continue };
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

/// Records the seqs of the events in their spans, and ends them.
pub(crate) fn appended(spans: Vec<(usize, Span)>, written: &[EventPosition]) {
    for (place, span) in spans {
        if let Some(written) = written.get(place) {
            span.record("seq", written.seq.0);
        }
    }
}

/// The span of a report that is in a trace. It ends when the picture has the report.
pub(crate) fn fold_report(recorded: &StoredRecord, report: ReportId, kind: &str) -> Option<Span> {
    let parent = recorded.record.traceparent.as_deref().filter(|_| has_exporter())?;
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

#[cfg(test)]
mod tests {
    use headwater_event::{Event, Offset, Partition, Seq, StateHash, StreamId};
    use headwater_log::Record;
    use headwater_telemetry::testing::ended_spans;

    use super::*;
    use crate::source::SourceKind;

    const REMOTE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn cause(traceparent: Option<&str>) -> Cause {
        let traceparent = traceparent.map(str::to_owned);
        Cause { traceparent, source: SourceKind::OBJECTS, ..Cause::default() }
    }

    fn key() -> ResourceKey {
        "d/configmap/app".parse().expect("a key")
    }

    fn draft(traceparent: Option<String>) -> Draft {
        Draft {
            stream: StreamId::Cluster,
            event: Event::Head,
            replaces: None,
            traceparent,
            is_shared: false,
        }
    }

    fn report(traceparent: Option<String>) -> StoredRecord {
        let record = Record { key: "k".into(), value: None, header: "h".into(), traceparent };
        let (partition, offset) = (Partition(3), Offset(7));
        let leader_epoch = Default::default();
        StoredRecord { partition, offset, leader_epoch, time_ms: 0, record }
    }

    #[test]
    fn one_trace_leads_from_the_source_through_the_log_into_the_picture() {
        let ended = ended_spans(|| {
            let mut cause = cause(Some(REMOTE));
            let change =
                source_change(&mut cause, &key(), "applied").expect("a subscriber records it");
            let mut drafts = [draft(None), draft(cause.traceparent)];
            let spans = appends(&mut drafts, 4);
            let written = |seq| EventPosition {
                stream: StreamId::Cluster,
                seq: Seq(seq),
                hash: StateHash::EMPTY,
            };
            appended(spans, &[written(8), written(9)]);
            drop(change);
            let [untraced, traced] = drafts;
            assert_eq!(untraced.traceparent, None);
            assert!(fold_report(&report(None), ReportId::default(), "node").is_none());
            drop(fold_report(&report(traced.traceparent), ReportId::default(), "node"));
        });
        let [append, change, fold] = &ended[..] else { panic!("{ended:?}") };
        assert_eq!((&*append.name, &*change.name), ("append", "source change"));
        assert_eq!(change.trace, &REMOTE[3..35], "the source's own trace goes on");
        assert_eq!(change.parent, &REMOTE[36..52]);
        assert_eq!((&append.trace, &append.parent), (&change.trace, &change.id));
        assert_eq!((&fold.trace, &fold.parent), (&append.trace, &append.id));
        for (span, name, value) in [
            (change, "source", "objects"),
            (change, "key", "d/configmap/app"),
            (change, "kind", "applied"),
            (append, "stream", "cluster"),
            (append, "seq", "9"),
            (append, messaging::DESTINATION, DOWNSTREAM_TOPIC),
            (append, messaging::OPERATION_TYPE, "send"),
            (fold, messaging::PARTITION, "3"),
            (fold, messaging::OFFSET, "7"),
        ] {
            assert_eq!(span.attributes.get(name).map(String::as_str), Some(value), "{span:?}");
        }
    }

    #[test]
    fn a_change_without_a_cause_begins_a_trace() {
        let ended = ended_spans(|| {
            let mut cause = cause(None);
            drop(source_change(&mut cause, &key(), "removed"));
            assert!(cause.traceparent.is_some());
        });
        assert_eq!(ended[0].parent, "0000000000000000");
    }

    #[test]
    fn without_a_subscriber_everything_stays_as_it_is() {
        for given in [None, Some(REMOTE)] {
            let mut cause = cause(given);
            assert!(source_change(&mut cause, &key(), "applied").is_none());
            assert_eq!(cause.traceparent.as_deref(), given);
            let mut drafts = [draft(cause.traceparent)];
            assert!(appends(&mut drafts, 4).is_empty());
            assert_eq!(drafts[0].traceparent.as_deref(), given);
        }
    }
}
