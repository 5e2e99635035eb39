//! Collection of finished spans, for tests of crates that create spans.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanExporter};
use tracing::Dispatch;
use tracing_subscriber::layer::SubscriberExt;

use crate::trace_context::note_exporter;

/// A span as an exporter receives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinishedSpan {
    /// Its name.
    pub name: String,
    /// The trace that it is part of, in hex.
    pub trace: String,
    /// Its own id, in hex.
    pub id: String,
    /// The id of the span that it continues; zeros for the first span of a trace.
    pub parent: String,
    /// Its attributes, values as text.
    pub attributes: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default)]
struct SpanCollector(Arc<Mutex<Vec<FinishedSpan>>>);

impl SpanExporter for SpanCollector {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let ended = batch.into_iter().map(|span| FinishedSpan {
            name: span.name.into_owned(),
            trace: span.span_context.trace_id().to_string(),
            id: span.span_context.span_id().to_string(),
            parent: span.parent_span_id.to_string(),
            attributes: span
                .attributes
                .into_iter()
                .map(|pair| (pair.key.to_string(), pair.value.to_string()))
                .collect(),
        });
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(ended);
        Ok(())
    }
}

/// Keeps a callsite of a span enabled that a thread without a subscriber meets first. `tracing`
/// caches whether any subscriber takes a callsite. While one subscriber exists, it asks only that of
/// the present thread.
static OTHER_SUBSCRIBER: OnceLock<Dispatch> = OnceLock::new();

/// Runs `test` and returns the spans that ended meanwhile on this thread, in their order.
pub fn ended_spans(test: impl FnOnce()) -> Vec<FinishedSpan> {
    OTHER_SUBSCRIBER.get_or_init(|| Dispatch::new(tracing_subscriber::registry()));
    let collector = SpanCollector::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(collector.clone()).build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
    let subscriber = Dispatch::new(tracing_subscriber::registry().with(layer));
    // Last: from now on other threads meet the callsites of spans.
    note_exporter();
    tracing::dispatcher::with_default(&subscriber, test);
    std::mem::take(&mut *collector.0.lock().unwrap_or_else(PoisonError::into_inner))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_callsite_that_another_thread_meets_first_is_enabled() {
        let span = || tracing::info_span!("met by two threads");
        let ended = ended_spans(|| {
            // That thread has no subscriber.
            std::thread::spawn(move || drop(span())).join().expect("no panic");
            drop(span());
        });
        assert_eq!(ended.len(), 1, "{ended:?}");
    }
}
