//! The hub's spans: the first delivery of an event to a node, and the append of a report.
//!
//! What is in no trace gets no span and is passed on untouched. What a catch-up carries has been
//! delivered late or not at all: it goes on with the context that it was logged with.

use headwater_event::{NodeName, Partition, Report};
use headwater_log::UPSTREAM_TOPIC;
use headwater_session::message::{Push, PushMode};
use headwater_telemetry::{continue_from, messaging, traceparent};
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

#[cfg(test)]
mod tests {
    use headwater_event::{
        Change, Checkpoint, Gone, LogId, Removed, ReportBody, ReportId, Seq, StateHash, StreamId,
        WriterEpoch,
    };
    use headwater_session::message::PushedChange;
    use headwater_telemetry::testing::ended_spans;
    use uuid::Uuid;

    use super::*;

    const REMOTE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn node() -> NodeName {
        "gw-1".parse().expect("a name")
    }

    fn pushed(traceparent: Option<&str>) -> PushedChange {
        let key = "d/configmap/app".parse().expect("a key");
        let change = Change::Removed(Removed { key, uid: "u".to_owned() });
        PushedChange { traceparent: traceparent.map(str::to_owned), ..change.into() }
    }

    fn push_of(mode: PushMode) -> Push {
        let log_id = LogId { number: 1, uuid: Uuid::nil() };
        Push {
            stream: StreamId::Cluster,
            mode,
            from: Seq(3),
            to: Checkpoint { log_id, epoch: WriterEpoch(1), seq: Seq(5) },
            gone: Gone::default(),
            changes: vec![pushed(None), pushed(Some(REMOTE))],
            hash: StateHash::EMPTY,
            part: 0,
            last_part: true,
        }
    }

    fn report(traceparent: Option<&str>) -> Report {
        let body = ReportBody::Node { object: "{}".into() };
        Report { id: ReportId::default(), body, traceparent: traceparent.map(str::to_owned) }
    }

    #[test]
    fn what_is_handed_on_carries_the_span_of_the_hand_over() {
        let mut sent = push_of(PushMode::Tail);
        let mut reported = report(Some(REMOTE));
        let ended = ended_spans(|| {
            drop(push(&mut sent, &node()));
            drop(append_report(&mut reported, &node(), Partition(2)));
            assert!(append_report(&mut report(None), &node(), Partition(2)).is_none());
        });
        let [push, append] = &ended[..] else { panic!("{ended:?}") };
        assert_eq!((&*push.name, &*append.name), ("push", "append report"));
        for span in [push, append] {
            assert_eq!((&*span.trace, &*span.parent), (&REMOTE[3..35], &REMOTE[36..52]));
            assert_eq!(span.attributes["node"], "gw-1");
        }
        assert_eq!((&*push.attributes["stream"], &*push.attributes["to"]), ("cluster", "5"));
        assert_eq!(append.attributes[messaging::PARTITION], "2");
        assert_eq!(sent.changes[0].traceparent, None);
        let context = |id: &str| Some(format!("00-{}-{id}-01", &REMOTE[3..35]));
        assert_eq!(sent.changes[1].traceparent, context(&push.id));
        assert_eq!(reported.traceparent, context(&append.id));
    }

    #[test]
    fn a_catch_up_and_what_nobody_takes_stay_as_they_are() {
        let ended = ended_spans(|| {
            for mode in [PushMode::Delta, PushMode::Snapshot, PushMode::Correction] {
                let mut sent = push_of(mode);
                assert!(push(&mut sent, &node()).is_empty());
                assert_eq!(sent, push_of(mode));
            }
        });
        assert_eq!(ended, []);
        let mut sent = push_of(PushMode::Tail);
        assert!(push(&mut sent, &node()).is_empty());
        assert_eq!(sent, push_of(PushMode::Tail));
        let mut reported = report(Some(REMOTE));
        assert!(append_report(&mut reported, &node(), Partition(2)).is_none());
        assert_eq!(reported, report(Some(REMOTE)));
    }
}
