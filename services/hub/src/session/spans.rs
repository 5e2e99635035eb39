//! The span of the first delivery of an event to a node.
//!
//! An event outside a trace gets no span. A transfer delivers events late or merges them: its
//! changes keep the trace context that the log recorded.

use headwater_event::NodeName;
use headwater_session::message::{Push, PushMode};
use headwater_telemetry::{continue_from, has_exporter, traceparent};
use tracing::Span;

/// Starts a span for each traced event of a push, and sends the event on in the context of its
/// span. The caller drops the spans when the transport has the push.
pub(super) fn push(push: &mut Push, node: &NodeName) -> Vec<Span> {
    let mut spans = Vec::new();
    if push.mode != PushMode::Tail || !has_exporter() {
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

#[cfg(test)]
mod tests {
    use headwater_event::{
        Change, Checkpoint, LogId, RemovalRuns, Removed, Seq, StateHash, StreamId, WriterEpoch,
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
            gone: RemovalRuns::default(),
            changes: vec![pushed(None), pushed(Some(REMOTE))],
            hash: StateHash::EMPTY,
            part: 0,
            last_part: true,
        }
    }

    #[test]
    fn a_pushed_event_carries_the_span_of_its_delivery() {
        let mut sent = push_of(PushMode::Tail);
        let ended = ended_spans(|| drop(push(&mut sent, &node())));
        let [push] = &ended[..] else { panic!("{ended:?}") };
        assert_eq!(push.name, "push");
        assert_eq!((&*push.trace, &*push.parent), (&REMOTE[3..35], &REMOTE[36..52]));
        assert_eq!(push.attributes["node"], "gw-1");
        assert_eq!((&*push.attributes["stream"], &*push.attributes["to"]), ("cluster", "5"));
        assert_eq!(sent.changes[0].traceparent, None);
        let context = format!("00-{}-{}-01", &REMOTE[3..35], push.id);
        assert_eq!(sent.changes[1].traceparent, Some(context));
    }

    #[test]
    fn a_transfer_and_a_push_without_subscriber_stay_as_they_are() {
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
    }
}
