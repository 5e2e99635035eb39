//! Probes restart containers and make them ready.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic_health::ServingStatus;

use crate::bench::{
    Bench, condition, content, is_ready, is_running, probe, script_pod, startup_probe,
};
use crate::fake_edge::statuses;

/// What the status names of probes that fail.
fn failing_probe(status: &Value) -> Option<String> {
    let conditions = status["conditions"].as_array()?;
    let failing = conditions.iter().find(|one| one["type"] == "headwater/ProbeFailing")?;
    Some(failing["message"].as_str()?.to_owned())
}

#[tokio::test]
async fn a_container_that_fails_its_liveness_probe_is_restarted() {
    let bench = Bench::new(&[]);
    let sick = bench.path("sick");
    let well = bench.path("well");
    let script =
        format!("rm -f {}; echo well > {}; exec sleep 1000", sick.display(), well.display());
    let mut pod = script_pod("web", "u1", &script);
    pod["spec"]["containers"][0]["livenessProbe"] =
        probe(json!({"exec": {"command": ["test", "!", "-e", sick]}, "failureThreshold": 1}));
    // The second run is not probed before it has removed the file.
    pod["spec"]["containers"][0]["startupProbe"] =
        startup_probe(&format!("test ! -e {}", sick.display()));
    bench.edge.apply(&pod);
    let edged = bench.edged().await;
    bench.edge.until_status("web", "a ready pod", is_ready).await;
    content(&well).await;
    std::fs::write(&sick, "").expect("written");
    let restarted = |s: &Value| is_running(s) && s["containerStatuses"][0]["restartCount"] == 1;
    let status = bench.edge.until_status("web", "a restart", restarted).await;
    let last = &status["containerStatuses"][0]["lastState"]["terminated"];
    assert_eq!(last["signal"], 15, "it was asked to end");
    let statuses = statuses(&bench.edge.operations(), "web");
    let named = statuses.iter().find_map(failing_probe).expect("a status names the probe");
    assert!(named.starts_with("container main: liveness probe has failed since "), "{named}");
    assert!(named.ends_with("Z: command exited with 1"), "{named}");
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
    container["readinessProbe"] =
        probe(json!({"httpGet": {"path": "/ready", "port": "http"}, "failureThreshold": 1}));
    container["startupProbe"] = probe(json!({"tcpSocket": {"port": port}}));
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
    let named = failing_probe(&status).expect("the status names the probe");
    assert!(named.starts_with("container main: readiness probe has failed since "), "{named}");
    assert!(named.ends_with("Z: HTTP probe failed with statuscode: 500"), "{named}");
    answers.send("200 OK").expect("the server runs");
    let status = bench.edge.until_status("web", "a ready pod again", is_ready).await;
    assert_eq!(failing_probe(&status), None);
    edged.stop_pods(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_probe_follows_a_redirect_on_its_own_host_and_no_other() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 1024];
            let read = stream.read(&mut request).await.unwrap_or(0);
            let request = String::from_utf8_lossy(&request[..read]).into_owned();
            let head = match request.split(' ').nth(1) {
                Some("/here") => "302 Found\r\nlocation: sick",
                Some("/away") => "302 Found\r\nlocation: http://192.0.2.1/",
                Some("/loop") => "302 Found\r\nlocation: /loop",
                _ => "500 Internal Server Error",
            };
            let answer = format!("HTTP/1.1 {head}\r\ncontent-length: 0\r\n\r\n");
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    let mut pod = script_pod("web", "u1", "exec sleep 1000");
    let container = pod["spec"]["containers"][0].clone();
    let probed = ["/here", "/away", "/loop"].map(|path| {
        let mut container = container.clone();
        container["name"] = json!(path.trim_start_matches('/'));
        let get = json!({"path": path, "port": port});
        container["readinessProbe"] = probe(json!({"httpGet": get, "failureThreshold": 1}));
        container
    });
    pod["spec"]["containers"] = json!(probed);
    let bench = Bench::new(&[pod]);
    let edged = bench.edged().await;
    let are_known = |status: &Value| {
        let all = status["containerStatuses"].as_array().cloned().unwrap_or_default();
        let ready = all.iter().filter(|one| one["ready"] == true);
        let ready: Vec<_> = ready.filter_map(|one| one["name"].as_str()).collect();
        let failing = failing_probe(status).unwrap_or_default();
        let both = ["HTTP probe failed with statuscode: 500", "stopped after 10 redirects"];
        ready == ["away"] && both.iter().all(|words| failing.contains(words))
    };
    bench.edge.until_status("web", "the results of the probes", are_known).await;
    edged.stop_pods(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn an_https_probe_accepts_every_certificate_and_a_path_without_its_slash() {
    let key = rcgen::KeyPair::generate().expect("a key");
    let parameters = rcgen::CertificateParams::new(["elsewhere".to_owned()]).expect("a name");
    let certificate = parameters.self_signed(&key).expect("a certificate");
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(key.serialize_der());
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let server = rustls::ServerConfig::builder_with_provider(provider)
        // The oldest that a kubelet speaks.
        .with_protocol_versions(&[&rustls::version::TLS12])
        .expect("the provider has it")
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key.into())
        .expect("they belong together");
    let acceptor = tokio_rustls::TlsAcceptor::from(std::sync::Arc::new(server));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let (requests, mut request) = tokio::sync::mpsc::channel(100);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let mut buffer = [0; 1024];
            let bytes = stream.read(&mut buffer).await.unwrap_or_default();
            let _ = requests.try_send(String::from_utf8_lossy(&buffer[..bytes]).into_owned());
            let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await;
        }
    });
    let mut pod = script_pod("web", "u1", "exec sleep 1000");
    let container = &mut pod["spec"]["containers"][0];
    container["ports"] = json!([{"name": "https", "containerPort": port}]);
    container["readinessProbe"] = probe(json!({"httpGet": {
        "scheme": "HTTPS", "host": "localhost", "path": "ready?full=1", "port": "https",
        "httpHeaders": [{"name": "X-Shop", "value": "a"}, {"name": "Accept", "value": ""}]}}));
    let bench = Bench::new(&[pod]);
    let edged = bench.edged().await;
    bench.edge.until_status("web", "a ready pod", is_ready).await;
    let request = request.recv().await.expect("a request").to_lowercase();
    assert!(request.starts_with("get /ready?full=1 http/1.1\r\n"), "{request}");
    assert!(request.contains(&format!("host: localhost:{port}\r\n")), "{request}");
    assert!(request.contains("x-shop: a\r\n") && !request.contains("accept:"), "{request}");
    edged.stop_pods(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_readiness_gate_opens_when_the_cloud_sends_its_condition() {
    let mut pod = script_pod("web", "u1", "exec sleep 1000");
    pod["spec"]["readinessGates"] = json!([{"conditionType": "shop/traffic"}]);
    let bench = Bench::new(std::slice::from_ref(&pod));
    let edged = bench.edged().await;
    let has_containers = |s: &Value| condition(s, "ContainersReady") == "True";
    let status = bench.edge.until_status("web", "ready containers", has_containers).await;
    assert!(!is_ready(&status), "the gate is closed");
    pod["status"] = json!({"conditions": [{"type": "shop/traffic", "status": "True"}]});
    bench.edge.apply(&pod);
    bench.edge.until_status("web", "a ready pod", is_ready).await;
    pod["status"]["conditions"][0]["status"] = json!("False");
    bench.edge.apply(&pod);
    let status = bench.edge.until_status("web", "a closed gate", |s| !is_ready(s)).await;
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
        probe(json!({"grpc": {"port": port, "service": "shop"}}));
    let bench = Bench::new(&[pod]);
    let edged = bench.edged().await;
    let status = bench.edge.until_status("web", "a running pod", is_running).await;
    assert!(!is_ready(&status));
    reporter.set_service_status("shop", ServingStatus::Serving).await;
    bench.edge.until_status("web", "a ready pod", is_ready).await;
    edged.stop_pods(Duration::from_secs(5)).await;
}
