//! For the tests of those who make spans: what an exporter would be given.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanExporter};
use tracing_subscriber::layer::SubscriberExt;

/// A span that ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Its name.
    pub name: String,
    /// The trace that it is part of, in hex.
    pub trace: String,
    /// Its own id, in hex.
    pub id: String,
    /// The id of the span that it continues; zeros where it began the trace.
    pub parent: String,
    /// What it says, values as text.
    pub attributes: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default)]
struct Kept(Arc<Mutex<Vec<Ended>>>);

impl SpanExporter for Kept {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let ended = batch.into_iter().map(|span| Ended {
            name: span.name.into_owned(),
            trace: span.span_context.trace_id().to_string(),
            id: span.span_context.span_id().to_string(),
            parent: span.parent_span_id.to_string(),
            attributes: span
                .attributes
                .into_iter()
                .map(|said| (said.key.to_string(), said.value.to_string()))
                .collect(),
        });
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(ended);
        Ok(())
    }
}

/// Runs `test` where spans are taken, and gives those that ended meanwhile on this thread, in the
/// order in which they did.
pub fn ended_spans(test: impl FnOnce()) -> Vec<Ended> {
    let kept = Kept::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(kept.clone()).build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), test);
    std::mem::take(&mut *kept.0.lock().unwrap_or_else(PoisonError::into_inner))
}
