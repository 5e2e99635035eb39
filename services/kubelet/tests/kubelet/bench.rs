//! A pod worker with one pod, and the server beside it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use headwater_edged::pod::PodUid;
use headwater_edged::runtime::memory::MemoryRuntime;
use headwater_edged::runtime::{NodeRuntime, RuntimeError, StreamAddress, StreamRequest, Streams};
use headwater_edged::{Edged, EdgedConfig, Handle, NOTICES_MAX, RuntimeKind};
use headwater_kubelet::{Door, Kubelet, KubeletLimits};
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::fake_edge::{FakeEdge, latest_status};

/// The time limit of everything.
pub(crate) const WITHIN: Duration = Duration::from_secs(20);

/// The upgrade request of a stream.
pub(crate) const UPGRADE: &str = "POST /exec/shop/web/main?command=cat&input=1&output=1 HTTP/1.1\r\n\
    host: localhost\r\nconnection: Upgrade\r\nupgrade: SPDY/3.1\r\ncontent-length: 0\r\n\r\n";

pub(crate) struct Bench {
    pub(crate) address: SocketAddr,
    stop: CancellationToken,
    _edged: Handle,
    _edge: FakeEdge,
    _dir: TempDir,
}

/// Offers one address, whatever it is asked for.
struct OneAddress(SocketAddr);

impl Drop for Bench {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Bench {
    /// Serves the door that `door` makes of a listener on loopback.
    pub(crate) async fn start(
        limits: KubeletLimits,
        door: impl FnOnce(TcpListener) -> Door,
    ) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let socket = dir.path().join("edge.sock");
        let edge = FakeEdge::start(&socket, &[], true);
        let node = "gw-1".parse().expect("a name");
        let config = EdgedConfig::new(node, socket, dir.path().join("edged"), RuntimeKind::Hollow);
        let (notices, noticed) = mpsc::channel(NOTICES_MAX);
        let runtime = MemoryRuntime::new(notices);
        runtime.set_command_output(command_output());
        let runtime: NodeRuntime =
            runtime.node_runtime().with_streams(Arc::new(OneAddress(echoing().await)));
        let edged = Edged::spawn_with(config, runtime, noticed).await.expect("it starts");
        edge.apply(&json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "web", "namespace": "shop", "uid": "u-1"},
            "spec": {"nodeName": "gw-1", "containers": [{"name": "main", "image": "busybox"}]},
        }));
        let runs = async {
            while latest_status(&edge.operations(), "web").is_none_or(|it| it["phase"] != "Running")
            {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(WITHIN, runs).await.expect("the pod runs");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let stop = CancellationToken::new();
        let kubelet = Kubelet::new(edged.pods(), limits);
        tokio::spawn(kubelet.serve(door(listener), stop.clone()));
        Self { address, stop, _edged: edged, _edge: edge, _dir: dir }
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.expect("it listens")
    }

    /// All that comes back for these bytes.
    pub(crate) async fn send(&self, request: &[u8]) -> String {
        String::from_utf8_lossy(&self.send_for_bytes(request).await).into_owned()
    }

    /// As [`Bench::send`].
    pub(crate) async fn send_for_bytes(&self, request: &[u8]) -> Vec<u8> {
        let mut stream = self.connect().await;
        // The server may close the connection before it has read the whole request.
        let _ = stream.write_all(request).await;
        let mut answer = Vec::new();
        let _ = timeout(WITHIN, stream.read_to_end(&mut answer)).await.expect("an end in time");
        answer
    }

    pub(crate) async fn get(&self, path: &str) -> String {
        let head = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        self.send(head.as_bytes()).await
    }

    /// A stream, after the answer of the upgrade.
    pub(crate) async fn stream(&self) -> TcpStream {
        let mut stream = self.connect().await;
        stream.write_all(UPGRADE.as_bytes()).await.expect("sent");
        let head = timeout(WITHIN, head(&mut stream)).await.expect("an answer in time");
        assert!(head.starts_with("HTTP/1.1 101"), "{head}");
        assert!(head.to_ascii_lowercase().contains("upgrade: spdy/3.1"), "{head}");
        stream
    }
}

/// The output of each command in the pod: more than a probe keeps, and no text.
pub(crate) fn command_output() -> Vec<u8> {
    (0..=u8::MAX).cycle().take(1 << 20).collect()
}

/// The head of an answer; what follows stays unread.
pub(crate) async fn head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.expect("a whole head"));
    }
    String::from_utf8_lossy(&head).into_owned()
}

/// A server that upgrades every connection and sends back what it gets, until the client's end: then
/// it says so and ends, too.
async fn echoing() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let request = head(&mut stream).await;
                assert!(request.starts_with("POST /exec/token HTTP/1.1\r\n"), "{request}");
                let answer = "HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\n\
                              upgrade: SPDY/3.1\r\n\r\n";
                stream.write_all(answer.as_bytes()).await.expect("sent");
                let (mut from, mut to) = stream.split();
                if tokio::io::copy(&mut from, &mut to).await.is_ok() {
                    let _ = to.write_all(b"the end").await;
                    let _ = to.shutdown().await;
                }
            });
        }
    });
    address
}

#[async_trait]
impl Streams for OneAddress {
    async fn exec(
        &self,
        _: &PodUid,
        _: &str,
        _: &[String],
        _: StreamRequest,
    ) -> Result<StreamAddress, RuntimeError> {
        Ok(StreamAddress { url: format!("http://{}/exec/token", self.0) })
    }

    async fn attach(
        &self,
        _: &PodUid,
        _: &str,
        _: StreamRequest,
    ) -> Result<StreamAddress, RuntimeError> {
        Ok(StreamAddress { url: "http://192.0.2.1:1/attach".to_owned() })
    }

    async fn port_forward(&self, _: &PodUid, _: &[u16]) -> Result<StreamAddress, RuntimeError> {
        Err(RuntimeError::Unsupported { verb: "forward ports" })
    }
}
