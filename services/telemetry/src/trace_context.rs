//! The trace context that travels with an event: a W3C `traceparent`, and the span it names.
//!
//! A change at the source begins a trace. The record in the log, the push to the edge, the watch
//! event to the worker and the report back carry its `traceparent`, so that they form one trace
//! across processes. No decision depends on the context; a malformed one is ignored.
//!
//! Without an exporter a span has no context and [`traceparent`] returns `None`: records stay as
//! they are.

use std::sync::atomic::{AtomicBool, Ordering};

use opentelemetry::propagation::{Extractor, Injector, TextMapPropagator};
use opentelemetry::trace::TraceContextExt;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// The name of the field, in a record's headers as in HTTP's ([W3C Trace
/// Context](https://www.w3.org/TR/trace-context/#traceparent-header)).
pub const TRACEPARENT: &str = "traceparent";

/// The length of version, trace, span and flags with their dashes.
const BYTES_MIN: usize = 55;

/// Whether the spans of this process have an exporter.
static HAS_EXPORTER: AtomicBool = AtomicBool::new(false);

/// A carrier of the one field `traceparent`.
#[derive(Default)]
struct Field(Option<String>);

impl Injector for Field {
    fn set(&mut self, key: &str, value: String) {
        if key == TRACEPARENT {
            self.0 = Some(value);
        }
    }
}

impl Extractor for Field {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.as_deref().filter(|_| key == TRACEPARENT)
    }

    fn keys(&self) -> Vec<&str> {
        vec![TRACEPARENT]
    }
}

/// Whether the spans of this process have an exporter. Without one no trace begins here, and a span would cost time
/// for nothing: a subscriber of log lines formats its fields.
pub fn has_exporter() -> bool {
    HAS_EXPORTER.load(Ordering::Acquire)
}

/// Notes that the spans of this process have an exporter.
pub(crate) fn note_exporter() {
    HAS_EXPORTER.store(true, Ordering::Release);
}

/// The context of `span` as text; `None` if the span is in no trace.
pub fn traceparent(span: &Span) -> Option<String> {
    let context = span.context();
    if !context.span().span_context().is_valid() {
        return None;
    }
    let mut field = Field::default();
    TraceContextPropagator::new().inject_context(&context, &mut field);
    field.0
}

/// Makes `span` part of the trace that `traceparent` names. No code may have entered the span yet.
/// A malformed text leaves the span as it is.
pub fn continue_from(span: &Span, traceparent: Option<&str>) {
    // Parsers accept ids that are too short.
    let Some(traceparent) = traceparent.filter(|text| text.len() >= BYTES_MIN) else { return };
    let field = Field(Some(traceparent.to_owned()));
    let context = TraceContextPropagator::new().extract(&field);
    if context.span().span_context().is_valid() {
        // It fails only without an exporter, and then there is no trace.
        let _ = span.set_parent(context);
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry::trace::TracerProvider;
    use opentelemetry_sdk::trace::SdkTracerProvider;
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    const REMOTE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn traced(test: impl FnOnce()) {
        let provider = SdkTracerProvider::builder().build();
        let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), test);
    }

    #[test]
    fn a_span_continues_the_trace_of_its_context() {
        traced(|| {
            let span = tracing::info_span!("apply");
            continue_from(&span, Some(REMOTE));
            let sent = traceparent(&span).expect("it is in a trace");
            assert_eq!(sent[..36], REMOTE[..36], "the same trace");
            assert_ne!(sent[36..52], REMOTE[36..52], "another span");
        });
    }

    #[test]
    fn a_malformed_context_is_ignored() {
        traced(|| {
            for text in ["", "00-00-00-00", "\u{0}", &REMOTE[..54]] {
                let span = tracing::info_span!("apply");
                continue_from(&span, Some(text));
                let sent = traceparent(&span).expect("a trace of its own");
                assert_ne!(sent[..36], REMOTE[..36], "{text:?}");
            }
        });
    }

    #[test]
    fn without_an_exporter_there_is_no_context() {
        let span = tracing::info_span!("apply");
        continue_from(&span, Some(REMOTE));
        assert_eq!(traceparent(&span), None);
    }
}
