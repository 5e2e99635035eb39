//! The span of a traced report, while the hub appends it.

use headwater_event::{NodeName, Partition, Report};
use headwater_log::UPSTREAM_TOPIC;
use headwater_telemetry::{continue_from, has_exporter, messaging, traceparent};
use tracing::Span;

/// Starts the span of a traced report, and lets the report continue in its context. The caller
/// drops the span when the log has the report.
pub(super) fn append_report(
    report: &mut Report,
    node: &NodeName,
    partition: Partition,
) -> Option<Span> {
    let parent = report.traceparent.as_deref().filter(|_| has_exporter())?;
    let span = tracing::info_span!(
        "append report",
        %node,
        report = %report.id,
        kind = report.body.kind().name(),
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
    use headwater_event::{ReportBody, ReportId};
    use headwater_telemetry::testing::ended_spans;

    use super::*;

    const REMOTE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn node() -> NodeName {
        "gw-1".parse().expect("a name")
    }

    fn report(traceparent: Option<&str>) -> Report {
        let body = ReportBody::Node { object: "{}".into() };
        Report { id: ReportId::default(), body, traceparent: traceparent.map(str::to_owned) }
    }

    #[test]
    fn an_appended_report_carries_the_span_of_the_append() {
        let mut reported = report(Some(REMOTE));
        let ended = ended_spans(|| {
            drop(append_report(&mut reported, &node(), Partition(2)));
            assert!(append_report(&mut report(None), &node(), Partition(2)).is_none());
        });
        let [append] = &ended[..] else { panic!("{ended:?}") };
        assert_eq!(append.name, "append report");
        assert_eq!((&*append.trace, &*append.parent), (&REMOTE[3..35], &REMOTE[36..52]));
        assert_eq!(append.attributes["node"], "gw-1");
        assert_eq!(append.attributes[messaging::PARTITION], "2");
        let context = format!("00-{}-{}-01", &REMOTE[3..35], append.id);
        assert_eq!(reported.traceparent, Some(context));
    }

    #[test]
    fn a_report_without_subscriber_stays_as_it_is() {
        let mut reported = report(Some(REMOTE));
        assert!(append_report(&mut reported, &node(), Partition(2)).is_none());
        assert_eq!(reported, report(Some(REMOTE)));
    }
}
