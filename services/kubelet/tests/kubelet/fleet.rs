//! The server of many nodes: which node a request goes to, and who may ask.

use std::net::SocketAddr;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use headwater_kubelet::KubeletLimits;
use headwater_kubelet::fleet::{Fleet, FleetServer, Unreachable};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_util::sync::DropGuard;

use crate::bench::{UPGRADE, WITHIN};
use crate::certificates::{Authority, Credentials, connect, tls_door};

/// The bytes between a client and a node.
const BYTES: usize = 4 << 10;

/// Two nodes whose servers answer with their own name and the request line, a third one that is away, and
/// one that has as many streams as it may have. The pod `web` is on the first.
struct FourNodes;

impl Fleet for FourNodes {
    fn node_of_pod<'a>(
        &'a self,
        namespace: &'a str,
        pod: &'a str,
        uid: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Option<String>, Unreachable>> {
        let is_web = (namespace, pod) == ("shop", "web") && uid.is_none_or(|uid| uid == "u-1");
        async move { Ok(is_web.then(|| "gw-1".to_owned())) }.boxed()
    }

    fn has_node<'a>(&'a self, node: &'a str) -> BoxFuture<'a, Result<bool, Unreachable>> {
        async move { Ok(["gw-1", "gw-2", "away", "busy"].contains(&node)) }.boxed()
    }

    fn connect<'a>(&'a self, node: &'a str) -> BoxFuture<'a, Result<DuplexStream, Unreachable>> {
        let (near, far) = duplex(BYTES);
        let node = node.to_owned();
        async move {
            let reason = format!("node {node} is not connected");
            match &*node {
                "away" => Err(Unreachable { reason, is_busy: false }),
                "busy" => Err(Unreachable { reason, is_busy: true }),
                _ => {
                    tokio::spawn(serve(node, far));
                    Ok(near)
                }
            }
        }
        .boxed()
    }
}

/// A node's own server: one request, and an echo of what follows an upgrade.
async fn serve(node: String, mut stream: DuplexStream) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.expect("a request"));
    }
    let head = String::from_utf8(head).expect("text");
    assert!(!head.contains("authorization") && !head.contains("origin"), "{head}");
    if head.contains("upgrade: SPDY/3.1") {
        let switch =
            "HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: SPDY/3.1\r\n\r\n";
        stream.write_all(switch.as_bytes()).await.expect("written");
        let (mut reader, mut writer) = tokio::io::split(stream);
        let _ = tokio::io::copy(&mut reader, &mut writer).await;
        let _ = writer.shutdown().await;
        return;
    }
    let body = format!("{node}: {}", head.lines().next().expect("a line"));
    let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    let answer = format!("{head}{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    stream.write_all(answer.as_bytes()).await.expect("written");
}

struct Bench {
    address: SocketAddr,
    authority: Authority,
    _dir: tempfile::TempDir,
    _stop: DropGuard,
}

impl Bench {
    async fn start() -> Self {
        let (dir, authority) = (tempfile::tempdir().expect("a folder"), Authority::new());
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let door = tls_door(dir.path(), &authority)(listener);
        let stop = tokio_util::sync::CancellationToken::new();
        let limits = KubeletLimits { streams: 2, ..KubeletLimits::default() };
        tokio::spawn(FleetServer::new(FourNodes, limits).serve(door, stop.clone()));
        Self { address, authority, _dir: dir, _stop: stop.drop_guard() }
    }

    fn api_server(&self) -> Option<Credentials> {
        Some(self.authority.issue("kube-apiserver-kubelet-client", "any", None))
    }

    /// The status and the body of an answer to a client that calls the server `name`.
    async fn ask(&self, own: Option<Credentials>, name: &str, path: &str) -> (u16, String) {
        let stream = TcpStream::connect(self.address).await.expect("it listens");
        let asking = async {
            let mut stream = connect(stream, &self.authority, own, name).await;
            let head = format!(
                "GET {path} HTTP/1.1\r\nhost: {name}\r\nauthorization: Bearer x\r\n\
                 origin: https://x\r\nconnection: close\r\n\r\n"
            );
            let mut answer = Vec::new();
            stream.write_all(head.as_bytes()).await.expect("written");
            let _ = stream.read_to_end(&mut answer).await;
            String::from_utf8_lossy(&answer).into_owned()
        };
        let answer = timeout(WITHIN, asking).await.expect("in time");
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
        (status.unwrap_or_else(|| panic!("{answer}")), answer)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_path_with_a_pod_names_its_node_and_every_other_goes_by_the_servers_name() {
    let bench = Bench::start().await;
    for (name, path, status, words) in [
        // Whatever the server is called.
        ("gw-2.edges.test", "/containerLogs/shop/web/main?tailLines=1", 200, "gw-1: GET"),
        ("127.0.0.1", "/containerLogs/shop/web/main?tailLines=1", 200, "main?tailLines=1 HTTP/1.1"),
        ("127.0.0.1", "/containerLogs/shop/none/main", 404, "pod \"none\" does not exist"),
        ("gw-1.edges.test", "/metrics/resource", 200, "gw-1: GET /metrics/resource"),
        ("gw-2.edges.test", "/stats/summary", 200, "gw-2: GET /stats/summary"),
        ("gw-2.edges.test", "/pods", 200, "gw-2: GET /pods"),
        ("gw-3.edges.test", "/pods", 404, "NODE.edges.example.org"),
        ("127.0.0.1", "/metrics/resource", 404, "NODE.edges.example.org"),
        ("away.edges.test", "/pods", 503, "node away is not connected"),
        ("busy.edges.test", "/pods", 429, "retry-after: 5"),
        ("127.0.0.1", "/healthz", 200, "ok"),
        ("127.0.0.1", "/exec/shop/web/main?command=sh", 400, "Upgrade request required"),
        ("gw-1.edges.test", "/no/such/path", 404, "Page Not Found"),
    ] {
        let (found, answer) = bench.ask(bench.api_server(), name, path).await;
        assert_eq!(found, status, "{name} {path}: {answer}");
        assert!(answer.contains(words), "{name} {path}: {answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_and_a_stranger_reach_no_other_node() {
    let bench = Bench::start().await;
    let own = |user, group, uri| Some(bench.authority.issue(user, group, uri));
    for (client, status) in [
        (None, 401),
        (own("mallory", "shop", None), 403),
        (own("system:node:gw-2", "system:nodes", None), 403),
        (own("gw-2", "system:masters", Some("headwater://node/gw-2")), 403),
    ] {
        for path in ["/containerLogs/shop/web/main", "/containerLogs/shop/none/main", "/pods"] {
            let client = client.clone();
            let (found, answer) = bench.ask(client, "gw-1.edges.test", path).await;
            assert_eq!(found, status, "{path}: {answer}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgraded_connection_is_copied_and_the_requests_in_flight_are_bounded() {
    let bench = Bench::start().await;
    let mut streams = Vec::new();
    for at in 0..3 {
        let stream = TcpStream::connect(bench.address).await.expect("it listens");
        let mut stream = connect(stream, &bench.authority, bench.api_server(), "127.0.0.1").await;
        stream.write_all(UPGRADE.as_bytes()).await.expect("written");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(timeout(WITHIN, stream.read_u8()).await.expect("in time").expect("a byte"));
        }
        let head = String::from_utf8(head).expect("text");
        assert!(head.contains(if at < 2 { " 101 " } else { " 429 " }), "{at}: {head}");
        streams.push(stream);
    }
    let sent = vec![7; 8 * BYTES];
    let (mut reader, mut writer) = tokio::io::split(streams.swap_remove(0));
    let writing = async {
        writer.write_all(&sent).await.expect("written");
        writer.shutdown().await.expect("its end");
    };
    let mut echoed = Vec::new();
    let both = async { tokio::join!(writing, reader.read_to_end(&mut echoed)).1 };
    timeout(WITHIN, both).await.expect("in time").expect("read");
    assert!(echoed == sent, "{} bytes", echoed.len());
}
