//! Requests that are too many, too large, too slow or none.

use std::time::Duration;

use headwater_kubelet::{Door, KubeletLimits};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::bench::{Bench, WITHIN, command_output, head};

/// Connections and the requests of each: ten thousand together.
const CLIENTS: usize = 20;
const REQUESTS: usize = 500;

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_request_is_refused_and_the_next_one_is_answered() {
    let bench = Bench::start(KubeletLimits::default(), Door::Loopback).await;
    let close = "host: localhost\r\nconnection: close\r\n";
    let long = "x".repeat(1 << 20);
    for (request, statuses) in [
        (format!("GET /{long} HTTP/1.1\r\n{close}\r\n"), &["414", "431", "400"][..]),
        (format!("GET /pods HTTP/1.1\r\nlong: {long}\r\n{close}\r\n"), &["431"]),
        (format!("GET /{} HTTP/1.1\r\n{close}\r\n", &long[..4000]), &["400"]),
        ("\u{1}\u{2}\r\n\r\n".to_owned(), &["400"]),
        (format!("DELETE /pods HTTP/1.1\r\n{close}\r\n"), &["405"]),
        (format!("GET /pods HTTP/1.1\r\norigin: http://127.0.0.1\r\n{close}\r\n"), &["403"]),
        (format!("GET /run/shop/web/main?cmd=ls HTTP/1.1\r\n{close}\r\n"), &["405"]),
        (format!("GET /containerLogs/shop/../../etc HTTP/1.1\r\n{close}\r\n"), &["404"]),
        (format!("GET /containerLogs/shop/web/..%2f..%2fx HTTP/1.1\r\n{close}\r\n"), &["404"]),
        (format!("GET /exec/shop/web/main?command=a&output=1 HTTP/1.1\r\n{close}\r\n"), &["400"]),
        // A body of 1 GiB is announced, and not read.
        (
            format!(
                "POST /run/shop/no/main?cmd=a HTTP/1.1\r\ncontent-length: 1073741824\r\n{close}\r\n"
            ),
            &["404"],
        ),
    ] {
        let answer = bench.send(request.as_bytes()).await;
        // A client that still sends may not see the refusal before the end.
        let is_refused = statuses.iter().any(|it| answer.starts_with(&format!("HTTP/1.1 {it}")));
        let start: String = request.chars().take(60).collect();
        assert!(is_refused || answer.is_empty() && request.len() > 1 << 20, "{start:?}: {answer}");
    }
    assert!(bench.get("/healthz").await.starts_with("HTTP/1.1 200"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_output_of_a_command_is_whole_and_as_it_is() {
    let bench = Bench::start(KubeletLimits::default(), Door::Loopback).await;
    let request = "POST /run/shop/web/main?cmd=dump HTTP/1.1\r\nhost: localhost\r\n\
                   connection: close\r\ncontent-length: 0\r\n\r\n";
    let answer = bench.send_for_bytes(request.as_bytes()).await;
    assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", answer.len());
    assert!(answer.ends_with(&command_output()), "{}", answer.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_requests_are_answered() {
    let bench = Bench::start(KubeletLimits::default(), Door::Loopback).await;
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        let mut stream = bench.connect().await;
        clients.spawn(async move {
            for _ in 0..REQUESTS {
                stream
                    .write_all(b"GET /healthz/ping HTTP/1.1\r\nhost: localhost\r\n\r\n")
                    .await
                    .expect("sent");
                let head = head(&mut stream).await;
                assert!(head.starts_with("HTTP/1.1 200"), "{head}");
                let mut body = [0; 2];
                stream.read_exact(&mut body).await.expect("a body");
                assert_eq!(&body, b"ok");
            }
        });
    }
    timeout(3 * WITHIN, clients.join_all()).await.expect("in time");
    let counted = format!("path=\"healthz\"}} {}", CLIENTS * REQUESTS);
    assert!(bench.get("/metrics").await.contains(&counted));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_client_loses_its_connection_and_others_get_its_place() {
    let limits = KubeletLimits {
        connections: 2,
        head_within: Duration::from_millis(300),
        ..KubeletLimits::default()
    };
    let bench = Bench::start(limits, Door::Loopback).await;
    let mut slow = Vec::new();
    for _ in 0..2 {
        let mut stream = bench.connect().await;
        stream.write_all(b"GET /pods HT").await.expect("sent");
        slow.push(stream);
    }
    // Both places are taken, until the time of the slow ones is over. A request that this machine sends too late itself is
    // repeated.
    let served = async { while !bench.get("/pods").await.starts_with("HTTP/1.1 200") {} };
    timeout(WITHIN, served).await.expect("there is room");
    for mut stream in slow {
        let mut rest = Vec::new();
        let _ = timeout(WITHIN, stream.read_to_end(&mut rest)).await.expect("it is closed");
        assert!(!rest.starts_with(b"HTTP/1.1 200"));
    }
}
