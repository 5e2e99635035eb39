//! Log lines: text for people, or one JSON object a line.
//!
//! A JSON line has `timestamp`, `level`, `target`, `message`, and the fields of the event and of its
//! spans, among them `stream` and `seq`. A line inside a trace has `trace_id` and `span_id`, so that
//! logs and traces can be joined.

use std::fmt;
use std::io::IsTerminal;

use opentelemetry::Context;
use opentelemetry::trace::{SpanContext, TraceContextExt};
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::format::{self, FormatEvent, FormatFields, Writer};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormattedFields, MakeWriter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry};

use super::error_chain::error_chain;
use super::traces::Traces;

/// The variables that may hold the filter; the first one that is set counts.
const FILTER_VARIABLES: [&str; 2] = ["HEADWATER_LOG", "RUST_LOG"];

/// The filter is malformed.
#[derive(Debug, thiserror::Error)]
#[error("{variable} is no log filter (want, for instance, `info` or `warn,headwater_edge=debug`)")]
pub struct FilterError {
    variable: &'static str,
    source: tracing_subscriber::filter::ParseError,
}

/// Sends log lines to `writer` and spans to `traces`, once for the process. `default_filter` applies
/// unless the environment has a filter.
///
/// # Errors
/// When the filter is malformed.
pub fn set_up<W>(
    json: bool,
    default_filter: &str,
    writer: W,
    traces: Option<&Traces>,
) -> Result<(), FilterError>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let lines = if json {
        let lines = tracing_subscriber::fmt::layer().event_format(Json).fmt_fields(JsonFields);
        lines.with_writer(writer).boxed()
    } else {
        let text = Text(format::format().with_target(false));
        let lines = tracing_subscriber::fmt::layer().event_format(text).with_writer(writer);
        // Log lines go to stderr. On a terminal, the variable NO_COLOR decides about colours.
        if std::io::stderr().is_terminal() { lines.boxed() } else { lines.with_ansi(false).boxed() }
    };
    let layers = vec![lines.with_filter(filter(default_filter)?).boxed()];
    let layers = layers.into_iter().chain(traces.map(|traces| traces.layer().boxed()));
    let layers: Vec<Box<dyn Layer<Registry> + Send + Sync>> = layers.collect();
    // Only a second call fails, and then logging is set up already.
    let _ = tracing_subscriber::registry().with(layers).try_init();
    Ok(())
}

fn filter(default_filter: &str) -> Result<EnvFilter, FilterError> {
    for variable in FILTER_VARIABLES {
        if let Ok(directives) = std::env::var(variable)
            && !directives.is_empty()
        {
            let filter = EnvFilter::builder().parse(directives);
            return filter.map_err(|source| FilterError { variable, source });
        }
    }
    Ok(EnvFilter::new(default_filter))
}

/// Reads the context of the current trace, if there is one.
fn in_trace<T>(read: impl FnOnce(&SpanContext) -> T) -> Option<T> {
    Context::map_current(|context| {
        let span = context.span();
        let span = span.span_context();
        span.is_valid().then(|| read(span))
    })
}

/// The text format of `tracing_subscriber`, after the trace id if there is one.
struct Text(format::Format);

impl<S, N> FormatEvent<S, N> for Text
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        if let Some(trace_id) = in_trace(SpanContext::trace_id) {
            write!(writer, "trace_id={trace_id} ")?;
        }
        self.0.format_event(context, writer, event)
    }
}

/// One JSON object a line.
struct Json;

impl<S, N> FormatEvent<S, N> for Json
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut line = Map::new();
        let mut timestamp = String::new();
        SystemTime.format_time(&mut Writer::new(&mut timestamp))?;
        line.insert("timestamp".to_owned(), timestamp.into());
        line.insert("level".to_owned(), event.metadata().level().as_str().into());
        line.insert("target".to_owned(), event.metadata().target().into());
        if let Some((trace_id, span_id)) = in_trace(|span| (span.trace_id(), span.span_id())) {
            line.insert("trace_id".to_owned(), trace_id.to_string().into());
            line.insert("span_id".to_owned(), span_id.to_string().into());
        }
        // From the outermost span to the event, so that the innermost value of a field counts.
        for span in context.event_scope().into_iter().flat_map(|scope| scope.from_root()) {
            let extensions = span.extensions();
            let fields = extensions.get::<FormattedFields<N>>();
            let fields = fields.and_then(|fields| {
                serde_json::from_str::<Map<String, Value>>(fields.as_str()).ok()
            });
            Fields(&mut line).extend(fields.into_iter().flatten());
        }
        event.record(&mut Fields(&mut line));
        writeln!(writer, "{}", Value::Object(line))
    }
}

/// Formats the fields of a span as JSON, which the line then includes.
struct JsonFields;

impl<'a> FormatFields<'a> for JsonFields {
    fn format_fields<R: RecordFields>(&self, mut writer: Writer<'a>, fields: R) -> fmt::Result {
        let mut object = Map::new();
        fields.record(&mut Fields(&mut object));
        write!(writer, "{}", Value::Object(object))
    }

    fn add_fields(
        &self,
        current: &'a mut FormattedFields<Self>,
        fields: &tracing::span::Record<'_>,
    ) -> fmt::Result {
        let mut object = serde_json::from_str(current.as_str()).unwrap_or_default();
        fields.record(&mut Fields(&mut object));
        current.fields = Value::Object(object).to_string();
        Ok(())
    }
}

/// Adds fields to an object and keeps the reserved ones.
struct Fields<'a>(&'a mut Map<String, Value>);

/// Field names that an event must not overwrite.
const RESERVED: [&str; 5] = ["timestamp", "level", "target", "trace_id", "span_id"];

impl Fields<'_> {
    fn put(&mut self, name: &str, value: Value) {
        let name = if RESERVED.contains(&name) { format!("field_{name}") } else { name.to_owned() };
        self.0.insert(name, value);
    }

    fn extend(&mut self, fields: impl IntoIterator<Item = (String, Value)>) {
        fields.into_iter().for_each(|(name, value)| self.put(&name, value));
    }
}

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field.name(), format!("{value:?}").into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field.name(), value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field.name(), value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field.name(), value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field.name(), value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field.name(), value.into());
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.put(field.name(), error_chain(value).into());
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use opentelemetry::trace::TracerProvider;
    use opentelemetry_sdk::trace::SdkTracerProvider;
    use tracing_subscriber::fmt::layer;

    use super::*;

    #[derive(Clone, Default)]
    struct Output(Arc<Mutex<Vec<u8>>>);

    impl Write for Output {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().expect("not poisoned").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl Output {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().expect("not poisoned").clone()).expect("UTF-8")
        }

        fn lines(&self) -> Vec<Value> {
            let text = self.text();
            text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
        }
    }

    fn json(test: impl FnOnce()) -> Vec<Value> {
        let written = Output::default();
        let writer = written.clone();
        let lines = layer().event_format(Json).fmt_fields(JsonFields);
        let lines = lines.with_writer(move || writer.clone());
        tracing::subscriber::with_default(tracing_subscriber::registry().with(lines), test);
        written.lines()
    }

    #[test]
    fn a_line_is_one_object_with_the_fields_of_event_and_spans() {
        let lines = json(|| {
            let span = tracing::info_span!(
                "apply",
                stream = "node/gw",
                seq = 1,
                later = tracing::field::Empty
            );
            let _entered = span.enter();
            span.record("later", true);
            let error = std::io::Error::other("a \"quoted\"\nline");
            tracing::warn!(
                seq = 7,
                level = "high",
                error = &error as &dyn std::error::Error,
                "it {}",
                "fails"
            );
        });
        let [line] = lines.as_slice() else { panic!("{lines:?}") };
        assert_eq!(line["stream"], "node/gw");
        assert_eq!(line["seq"], 7, "the innermost value counts");
        assert_eq!(line["later"], true);
        assert_eq!(line["message"], "it fails");
        assert_eq!(line["error"], "a \"quoted\"\nline");
        assert_eq!((&line["level"], &line["field_level"]), (&"WARN".into(), &"high".into()));
        assert!(line["timestamp"].as_str().is_some_and(|time| time.ends_with('Z')), "{line}");
        assert!(line.get("trace_id").is_none(), "{line}");
    }

    #[test]
    fn a_line_inside_a_trace_names_it() {
        let provider = SdkTracerProvider::builder().build();
        let traced = || tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
        let written = Output::default();
        let (json_writer, text) = (written.clone(), Output::default());
        let text_writer = text.clone();
        let lines = layer()
            .event_format(Json)
            .fmt_fields(JsonFields)
            .with_writer(move || json_writer.clone());
        let texts = layer()
            .event_format(Text(format::format().with_target(false)))
            .with_writer(move || text_writer.clone());
        let subscriber = tracing_subscriber::registry().with(lines).with(texts).with(traced());
        tracing::subscriber::with_default(subscriber, || {
            let span = tracing::info_span!("apply");
            span.in_scope(|| tracing::warn!("inside"));
            tracing::warn!("outside");
        });
        let lines = written.lines();
        let trace_id = lines[0]["trace_id"].as_str().expect("it is in one");
        assert_eq!(trace_id.len(), 32);
        assert!(text.text().starts_with(&format!("trace_id={trace_id} ")), "{}", text.text());
        assert!(lines[1].get("trace_id").is_none(), "{}", lines[1]);
    }
}
