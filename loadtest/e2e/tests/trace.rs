//! One trace from a change at the source to the pod, and back into the cloud's picture: a real
//! OTLP receiver collects what a real `headwater up` sends while a manifest is changed.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use headwater_e2e::running::Running;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use tokio::runtime::Runtime;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

const POD: &str = "\
apiVersion: v1
kind: Pod
metadata: {name: traced}
spec:
  nodeName: node-1
  terminationGracePeriodSeconds: 2
  containers:
  - {name: sleep, command: [sleep, '1000']}
";

const CONFIG: &str = "\
apiVersion: v1
kind: ConfigMap
metadata: {name: words}
data: {word: first}
";

/// The parts of the way there and back, each the child of the one before.
const WAY: [&str; 9] = [
    "source change",
    "append",
    "push",
    "apply",
    "pod lay out",
    "pod start",
    "report",
    "append report",
    "fold report",
];

/// The received spans, and the attributes of their senders.
#[derive(Clone, Default)]
struct SharedCollector(Arc<Mutex<CollectedSpans>>);

#[derive(Default)]
struct CollectedSpans {
    spans: Vec<Span>,
    resource: BTreeMap<String, String>,
}

#[tonic::async_trait]
impl TraceService for SharedCollector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let mut collected = self.0.lock().expect("not poisoned");
        for sent in request.into_inner().resource_spans {
            for attribute in sent.resource.into_iter().flat_map(|resource| resource.attributes) {
                let value = attribute.value.and_then(|value| value.value);
                if let Some(Value::StringValue(text)) = value {
                    collected.resource.insert(attribute.key, text);
                }
            }
            let spans = sent.scope_spans.into_iter().flat_map(|scope| scope.spans);
            collected.spans.extend(spans);
        }
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

impl SharedCollector {
    /// Listens on loopback for as long as the runtime lives.
    fn listen(&self, runtime: &Runtime) -> SocketAddr {
        let _inside = runtime.enter();
        let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
        let incoming = TcpIncoming::bind(loopback).expect("a free port");
        let address = incoming.local_addr().expect("an address");
        let service = TraceServiceServer::new(self.clone());
        let server = tonic::transport::Server::builder().add_service(service);
        runtime.spawn(server.serve_with_incoming(incoming));
        address
    }

    fn spans(&self) -> Vec<Span> {
        self.0.lock().expect("not poisoned").spans.clone()
    }

    /// The spans from a span without a parent to one of the last name of [`WAY`], by parents.
    fn way(&self) -> Option<Vec<Span>> {
        let spans = self.spans();
        let by_id: BTreeMap<_, _> = spans.iter().map(|span| (&span.span_id, span)).collect();
        let ends = spans.iter().filter(|span| Some(&span.name.as_str()) == WAY.last());
        let ways = ends.map(|end| {
            let mut way = vec![end.clone()];
            let mut span = end;
            while let Some(parent) = by_id.get(&span.parent_span_id) {
                way.push((*parent).clone());
                span = parent;
            }
            way.reverse();
            way
        });
        let names = |way: &Vec<Span>| way.iter().map(|span| span.name.clone()).collect::<Vec<_>>();
        ways.into_iter().find(|way| names(way) == WAY)
    }
}

fn attribute<'a>(span: &'a Span, key: &str) -> Option<&'a Value> {
    let attribute = span.attributes.iter().find(|attribute| attribute.key == key)?;
    attribute.value.as_ref()?.value.as_ref()
}

#[test]
fn a_change_is_one_trace_from_the_source_to_the_pod_and_back() {
    let runtime = Runtime::new().expect("a runtime");
    let received = SharedCollector::default();
    let endpoint = format!("http://{}", received.listen(&runtime));
    let folder = tempfile::tempdir().expect("a temporary folder");
    fs::write(folder.path().join("config.yaml"), CONFIG).expect("written");
    let manifests = folder.path().to_str().expect("UTF-8");
    let mut running = Running::start(&[manifests, "--otlp-endpoint", &endpoint]);
    // What is found at the start is no change.
    running.wait_until_in_step();
    running.wait_for("what was found is published", |running| {
        running.output().contains("published").then_some(())
    });
    fs::write(folder.path().join("pod.yaml"), POD).expect("written");
    running.wait_for_pods(1, |status| status == "Running");
    running.wait_until_in_step();
    // A stop sends what has not been sent.
    assert!(running.interrupt().success(), "{}", running.output());

    let way = received.way().unwrap_or_else(|| {
        let spans = received.spans();
        let spans = spans.iter().map(|span| {
            let (id, parent) = (hex(&span.span_id), hex(&span.parent_span_id));
            format!("{} {id} of {parent} in {}\n", span.name, hex(&span.trace_id))
        });
        panic!("no way there and back in\n{}", spans.collect::<String>())
    });
    let trace = &way[0].trace_id;
    assert!(way.iter().all(|span| span.trace_id == *trace), "it is one trace");
    assert!(way[0].parent_span_id.is_empty(), "it begins at the source");
    let named = |name: &str| way.iter().find(|span| span.name == name).expect("it is on the way");
    let stream = Value::StringValue("node/node-1".to_owned());
    for part in ["append", "push", "apply"] {
        assert_eq!(attribute(named(part), "stream"), Some(&stream), "{part}");
    }
    let seq = attribute(named("append"), "seq");
    let is_seq = |text: &str| text.parse::<u64>().is_ok_and(|seq| seq > 0);
    assert!(matches!(seq, Some(Value::StringValue(text)) if is_seq(text)), "{seq:?}");
    assert_eq!(attribute(named("apply"), "seq"), seq, "what was appended is what is applied");
    for pair in way.windows(2) {
        assert!(
            pair[0].start_time_unix_nano <= pair[1].start_time_unix_nano,
            "{} begins after {}",
            pair[0].name,
            pair[1].name
        );
    }
    let resource = received.0.lock().expect("not poisoned").resource.clone();
    assert_eq!(resource.get("service.name").map(String::as_str), Some("headwater"));
    assert!(resource.contains_key("service.version"), "{resource:?}");
}

#[test]
fn a_receiver_that_is_not_there_changes_nothing() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    fs::write(folder.path().join("pod.yaml"), POD).expect("written");
    fs::write(folder.path().join("config.yaml"), CONFIG).expect("written");
    let manifests = folder.path().to_str().expect("UTF-8");
    // Port 1 of this machine has no listener.
    let mut running = Running::start(&[manifests, "--otlp-endpoint", "http://127.0.0.1:1"]);
    running.wait_for_pods(1, |status| status == "Running");
    for word in ["second", "third"] {
        let config = CONFIG.replace("first", word);
        fs::write(folder.path().join("config.yaml"), config).expect("written");
        running.wait_for("the change", |running| {
            let found = running.json(&["get", "configmap", "words", "-o", "json"])?;
            (found["data"]["word"] == word).then_some(())
        });
    }
    running.wait_for("the loss is logged", |running| {
        running.output().contains("spans are lost").then_some(())
    });
    assert!(running.interrupt().success(), "{}", running.output());
    let output = running.output();
    assert_eq!(output.matches("spans are lost").count(), 1, "it is logged once: {output}");
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
