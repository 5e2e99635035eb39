//! Probes restart containers and make them ready.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic_health::ServingStatus;

use crate::bench::{Bench, content, is_ready, is_running, script_pod};

#[tokio::test]
async fn a_container_that_fails_its_liveness_probe_is_restarted() {
    let bench = Bench::new(&[]);
    let sick = bench.path("sick");
    let well = bench.path("well");
    let script =
        format!("rm -f {}; echo well > {}; exec sleep 1000", sick.display(), well.display());
    let mut pod = script_pod("web", "u1", &script);
    pod["spec"]["containers"][0]["livenessProbe"] = json!({
        "exec": {"command": ["test", "!", "-e", sick]}, "periodSeconds": 1, "failureThreshold": 1,
    });
    bench.edge.apply(&pod);
    let edged = bench.edged().await;
    bench.edge.until_status("web", "a ready pod", is_ready).await;
    content(&well).await;
    std::fs::write(&sick, "").expect("written");
    let restarted = |s: &Value| is_running(s) && s["containerStatuses"][0]["restartCount"] == 1;
    let status = bench.edge.until_status("web", "a restart", restarted).await;
    let last = &status["containerStatuses"][0]["lastState"]["terminated"];
    assert_eq!(last["signal"], 15, "it was asked to end");
    edged.stop_pods(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_pod_is_ready_while_its_port_answers_well() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let (answers, answer) = tokio::sync::watch::channel("503 Service Unavailable");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let status = *answer.borrow();
            let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
            let mut request = [0; 1024];
            let _ = stream.read(&mut request).await;
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    let mut pod = script_pod("web", "u1", "exec sleep 1000");
    let container = &mut pod["spec"]["containers"][0];
    container["ports"] = json!([{"name": "http", "containerPort": port}]);
    container["readinessProbe"] = json!({
        "httpGet": {"path": "/ready", "port": "http"}, "periodSeconds": 1, "failureThreshold": 1,
    });
    container["startupProbe"] = json!({"tcpSocket": {"port": port}, "periodSeconds": 1});
    let bench = Bench::new(&[pod]);
    let edged = bench.edged().await;
    let started = |s: &Value| s["containerStatuses"][0]["started"] == true;
    let status = bench.edge.until_status("web", "a started container", started).await;
    assert!(!is_ready(&status));
    answers.send("200 OK").expect("the server runs");
    bench.edge.until_status("web", "a ready pod", is_ready).await;
    answers.send("500 Internal Server Error").expect("the server runs");
    let status = bench.edge.until_status("web", "an unready pod", |s| !is_ready(s)).await;
    assert!(is_running(&status), "readiness restarts nothing");
    assert_eq!(status["containerStatuses"][0]["restartCount"], 0);
    edged.stop_pods(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_pod_is_ready_while_its_grpc_health_service_serves() {
    let (reporter, service) = tonic_health::server::health_reporter();
    reporter.set_service_status("shop", ServingStatus::NotServing).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let server = tonic::transport::Server::builder().add_service(service);
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    let mut pod = script_pod("web", "u1", "exec sleep 1000");
    pod["spec"]["containers"][0]["readinessProbe"] =
        json!({"grpc": {"port": port, "service": "shop"}, "periodSeconds": 1});
    let bench = Bench::new(&[pod]);
    let edged = bench.edged().await;
    let status = bench.edge.until_status("web", "a running pod", is_running).await;
    assert!(!is_ready(&status));
    reporter.set_service_status("shop", ServingStatus::Serving).await;
    bench.edge.until_status("web", "a ready pod", is_ready).await;
    edged.stop_pods(Duration::from_secs(5)).await;
}
