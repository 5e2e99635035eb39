//! A proxy on loopback between a controller and its API that refuses writes, or loses them or their
//! answers. Reads pass.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// What becomes of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It passes.
    Pass,
    /// It is done, and its answer is lost.
    LoseAnswer,
    /// It does not arrive.
    Lose,
    /// The proxy answers with this status.
    Answer(u16),
}

/// Decides the fate of a write by its number, its method and its path.
type Decide = dyn Fn(usize, &str, &str) -> Fate + Send + Sync;

/// See the module.
pub(super) struct FaultyProxy {
    kubeconfig: PathBuf,
    /// Writes that passed, whether or not their answers were lost. Those of Leases, whose number grows with time,
    /// do not count.
    passed: Arc<AtomicUsize>,
    kubectl: Child,
    accepting: JoinHandle<()>,
    _folder: tempfile::TempDir,
}

/// A request: its bytes, with the connection closed after it.
struct ProxiedRequest {
    method: String,
    path: String,
    bytes: Vec<u8>,
}

impl FaultyProxy {
    /// A proxy for the API that `kubectl` talks to.
    pub(super) async fn start(
        mut kubectl: Command,
        decide: impl Fn(usize, &str, &str) -> Fate + Send + Sync + 'static,
    ) -> Self {
        // It ends the TLS, and has the credentials.
        kubectl.args(["proxy", "--port=0"]).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut kubectl = kubectl.spawn().expect("kubectl starts");
        let mut line = String::new();
        let output = kubectl.stdout.as_mut().expect("piped");
        BufReader::new(output).read_line(&mut line).expect("readable");
        let upstream = line.trim().rsplit(' ').next().expect("an address").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let folder = tempfile::tempdir().expect("a folder");
        let kubeconfig = folder.path().join("kubeconfig");
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             clusters: [{{name: c, cluster: {{server: \"http://{address}\"}}}}]\n\
             contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n\
             users: [{{name: u, user: {{}}}}]\n"
        );
        std::fs::write(&kubeconfig, text).expect("written");
        let (passed, count) = (Arc::new(AtomicUsize::new(0)), AtomicUsize::new(0));
        let counted = passed.clone();
        let (decide, count): (Arc<Decide>, _) = (Arc::new(decide), Arc::new(count));
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (decide, count) = (decide.clone(), count.clone());
                let (passed, upstream) = (counted.clone(), upstream.clone());
                tokio::spawn(
                    async move { serve(client, &upstream, &*decide, &count, &passed).await },
                );
            }
        });
        Self { kubeconfig, passed, kubectl, accepting, _folder: folder }
    }

    /// The kubeconfig of a controller behind it.
    pub(super) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// How many writes passed, without those of Leases.
    pub(super) fn passed(&self) -> usize {
        self.passed.load(Ordering::SeqCst)
    }
}

impl Drop for FaultyProxy {
    fn drop(&mut self) {
        self.accepting.abort();
        // It may have ended by itself.
        let _ = self.kubectl.kill();
        let _ = self.kubectl.wait();
    }
}

/// Serves one request of a connection.
async fn serve(
    mut client: TcpStream,
    upstream: &str,
    decide: &Decide,
    count: &AtomicUsize,
    passed: &AtomicUsize,
) -> Option<()> {
    let request = read_request(&mut client).await?;
    let fate = if request.method == "GET" {
        Fate::Pass
    } else {
        decide(count.fetch_add(1, Ordering::SeqCst), &request.method, &request.path)
    };
    match fate {
        Fate::Lose => return None,
        Fate::Answer(code) => {
            let body = format!(r#"{{"kind":"Status","message":"by the proxy","code":{code}}}"#);
            let length = body.len();
            let answer = format!(
                "HTTP/1.1 {code} Fault\r\ncontent-type: application/json\r\nretry-after: 1\r\n\
                 content-length: {length}\r\nconnection: close\r\n\r\n{body}"
            );
            return client.write_all(answer.as_bytes()).await.ok();
        }
        Fate::Pass | Fate::LoseAnswer => {}
    }
    let mut server = TcpStream::connect(upstream).await.ok()?;
    server.write_all(&request.bytes).await.ok()?;
    if request.method != "GET" && !request.path.contains("/leases") {
        passed.fetch_add(1, Ordering::SeqCst);
    }
    if fate == Fate::LoseAnswer {
        // The request is done when the server closes the connection.
        let mut answer = Vec::new();
        let _ = server.read_to_end(&mut answer).await;
        return None;
    }
    let (mut from_client, mut to_client) = client.split();
    let (mut from_server, _to_server) = server.split();
    let mut ended = [0];
    tokio::select! {
        _ = copy(&mut from_server, &mut to_client) => {}
        // The controller gives up a watch.
        _ = from_client.read(&mut ended) => {}
    }
    None
}

/// Reads a request with its body.
async fn read_request(client: &mut TcpStream) -> Option<ProxiedRequest> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).ok()?;
    let mut words = head.split(' ');
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let lower = head.to_ascii_lowercase();
    let length = lower.lines().find_map(|line| line.strip_prefix("content-length: "));
    let length: usize = length.map_or(0, |length| length.trim().parse().unwrap_or(0));
    let mut body = vec![0; length];
    client.read_exact(&mut body).await.ok()?;
    let mut bytes = head.trim_end().as_bytes().to_vec();
    bytes.extend_from_slice(b"\r\nconnection: close\r\n\r\n");
    bytes.extend_from_slice(&body);
    Some(ProxiedRequest { method, path, bytes })
}
