//! Export of spans to an OTLP receiver over gRPC; without a receiver there are no spans.
//!
//! The `OTEL_*` variables of OpenTelemetry's SDKs apply: the endpoint and its headers, time-outs and
//! compression, service name and resource attributes, sampler, batch sizes, and whether to trace
//! at all. Nothing waits for the receiver: spans are queued up to a bound and dropped beyond it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{ExporterBuildError, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanExporter};
use tracing::level_filters::LevelFilter;
use tracing::{Subscriber, warn};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::registry::LookupSpan;

use crate::trace_context::note_exporter;

/// The service name of this program, unless the environment has another.
const SERVICE: &str = "headwater";

/// The target prefix of exported spans: those of Headwater, not of its libraries.
const TARGET: &str = "headwater";

/// The variables that may name a receiver: that of traces comes before the general one.
const ENDPOINT_VARIABLES: [&str; 2] =
    ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];

/// How long a stop waits until the receiver has the last spans.
const STOP_MAX: Duration = Duration::from_secs(2);

/// The export of spans.
pub struct Traces {
    provider: SdkTracerProvider,
}

/// The endpoint is malformed.
#[derive(Debug, thiserror::Error)]
#[error(
    "spans cannot be sent to {endpoint}: want the address of an OTLP receiver over gRPC, like http://127.0.0.1:4317"
)]
pub struct TracesError {
    endpoint: String,
    source: ExporterBuildError,
}

impl Traces {
    /// Sends spans to `endpoint`, or to the endpoint of the environment; `None` if neither is
    /// set. Must be called inside a Tokio runtime. Returns at once: it does not wait for the
    /// receiver.
    ///
    /// # Errors
    /// When the endpoint is malformed.
    pub fn start(endpoint: Option<&str>) -> Result<Option<Self>, TracesError> {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        if variable("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
            return Ok(None);
        }
        let named = ENDPOINT_VARIABLES.iter().find_map(|name| variable(name));
        let Some(endpoint) = endpoint.map(str::to_owned).or(named) else { return Ok(None) };
        let exporter = opentelemetry_otlp::SpanExporter::builder()
            .with_tonic()
            .with_endpoint(endpoint.clone())
            .build()
            .map_err(|source| TracesError { endpoint: endpoint.clone(), source })?;
        let exporter =
            LoggedExporter { inner: exporter, endpoint, failing: AtomicBool::new(false) };
        let provider = SdkTracerProvider::builder()
            .with_resource(resource())
            .with_batch_exporter(exporter)
            .build();
        Ok(Some(Self { provider }))
    }

    /// The layer that creates the spans of Headwater's own crates.
    pub(crate) fn layer<S>(&self) -> impl Layer<S> + Send + Sync + use<S>
    where
        S: Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
    {
        note_exporter();
        let filter = Targets::new().with_target(TARGET, LevelFilter::INFO);
        tracing_opentelemetry::layer()
            .with_tracer(self.provider.tracer(SERVICE))
            .with_location(false)
            .with_threads(false)
            .with_tracked_inactivity(false)
            .with_filter(filter)
    }

    /// Sends the queued spans, within a bound of time.
    pub async fn stop(self) {
        // The shutdown blocks its thread.
        let stopped =
            tokio::task::spawn_blocking(move || self.provider.shutdown_with_timeout(STOP_MAX));
        if let Ok(Err(error)) = stopped.await {
            tracing::debug!(%error, "the last spans were not sent");
        }
    }
}

/// The resource attributes of the program; those of the environment win.
fn resource() -> Resource {
    let ours = [
        KeyValue::new("service.name", SERVICE),
        KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
    ];
    let environment = Resource::builder_empty()
        .with_detector(Box::new(opentelemetry_sdk::resource::EnvResourceDetector::new()))
        .build();
    let mut builder = Resource::builder_empty().with_attributes(ours).with_attributes(
        environment.iter().map(|(key, value)| KeyValue::new(key.clone(), value.clone())),
    );
    if let Ok(name) = std::env::var("OTEL_SERVICE_NAME")
        && !name.is_empty()
    {
        builder = builder.with_service_name(name);
    }
    builder.build()
}

/// An exporter that logs once when its receiver does not answer, and once when it does again.
#[derive(Debug)]
struct LoggedExporter<E> {
    inner: E,
    endpoint: String,
    failing: AtomicBool,
}

impl<E: SpanExporter> SpanExporter for LoggedExporter<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let exported = self.inner.export(batch).await;
        let was_failing = self.failing.swap(exported.is_err(), Ordering::Relaxed);
        match &exported {
            Err(error) if !was_failing => {
                warn!(endpoint = self.endpoint, %error, "the receiver of spans does not answer; spans are lost");
            }
            Ok(()) if was_failing => {
                warn!(endpoint = self.endpoint, "the receiver of spans answers again");
            }
            _ => {}
        }
        exported
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.inner.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Mutex;

    use opentelemetry_sdk::error::OTelSdkError;
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    #[tokio::test]
    async fn a_malformed_endpoint_is_named() {
        for wrong in ["http://[", "https://127.0.0.1:4317"] {
            let Err(error) = Traces::start(Some(wrong)) else { panic!("{wrong} was taken") };
            assert!(error.to_string().contains(wrong), "{error}");
        }
    }

    #[tokio::test]
    async fn an_absent_receiver_delays_nothing() {
        // No process listens on port 1.
        let traces = Traces::start(Some("http://127.0.0.1:1")).expect("well-formed");
        let traces = traces.expect("it is named");
        let subscriber = tracing_subscriber::registry().with(traces.layer());
        tracing::subscriber::with_default(subscriber, || {
            let ours = tracing::info_span!(target: "headwater_edge", "apply");
            assert!(crate::traceparent(&ours).is_some());
            let foreign = tracing::info_span!(target: "h2", "frame");
            assert_eq!(crate::traceparent(&foreign), None);
        });
        let stopped = tokio::time::timeout(STOP_MAX * 10, traces.stop()).await;
        stopped.expect("it stops in time");
    }

    #[derive(Debug)]
    struct ScriptedExporter(Mutex<VecDeque<OTelSdkResult>>);

    impl SpanExporter for ScriptedExporter {
        async fn export(&self, _: Vec<SpanData>) -> OTelSdkResult {
            self.0.lock().expect("not poisoned").pop_front().unwrap_or(Ok(()))
        }
    }

    #[tokio::test]
    async fn an_unreachable_receiver_is_logged_once() {
        let away = || Err(OTelSdkError::InternalFailure("away".to_owned()));
        let script = [away(), away(), away(), Ok(()), Ok(()), away()];
        let inner = ScriptedExporter(Mutex::new(script.into()));
        let exporter = LoggedExporter {
            inner,
            endpoint: "http://x".to_owned(),
            failing: AtomicBool::new(false),
        };
        let mut states = Vec::new();
        for _ in 0..6 {
            let before = exporter.failing.load(Ordering::Relaxed);
            let _ = exporter.export(Vec::new()).await;
            let after = exporter.failing.load(Ordering::Relaxed);
            states.push(before != after);
        }
        assert_eq!(states, [true, false, false, true, false, true], "logged when it changes");
    }
}
