//! The client of a person: it reaches the server of a node by the socket in the data directory, or by the
//! port of a hub, and speaks the channels of Kubernetes over WebSocket with what answers there.

mod endpoint;
mod log;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt as _, StreamExt as _};
use headwater_identity::Connector;
use http::header::SEC_WEBSOCKET_PROTOCOL;
use http::{HeaderValue, Request, StatusCode};
use http_body_util::Empty;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use k8s_openapi::List;
use k8s_openapi::api::core::v1::Pod;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::{Error as WebSocketError, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

use self::endpoint::{ByteStream, Endpoint};

pub use self::endpoint::{EndpointError, HubAddressError};
pub use self::log::{LogRequest, LogStream};

/// The file name of the server's socket in the directory of a node.
pub const SOCKET: &str = "pods.sock";

/// How long the server may take to list its pods, or the runtime to accept a stream.
const ANSWER_WITHIN: Duration = Duration::from_secs(40);

/// The protocols of commands, the best one first. The fifth can end the standard input.
const COMMAND_PROTOCOLS: &str = "v5.channel.k8s.io, v4.channel.k8s.io";

/// The protocol of ports.
const PORT_PROTOCOLS: &str = "v4.channel.k8s.io";

/// The channels of a command.
const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const ERROR: u8 = 3;
const RESIZE: u8 = 4;

/// The message by which the fifth protocol ends a channel.
const CLOSE: u8 = 255;

/// The channels of a port.
const PORT_DATA: u8 = 0;
const PORT_ERROR: u8 = 1;

/// The bytes that a server sends first on each channel of a port: the port again.
const PORT_PREFIX_BYTES: usize = 2;

/// What stays as it is in a path or a query.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// The server of one node, or of a hub for all its nodes.
#[derive(Clone, Debug)]
pub struct NodeClient {
    /// The server, for people.
    server: String,
    endpoint: Endpoint,
    /// The host that requests name: a hub takes it for the name of a node where a path has no pod.
    host: String,
}

/// What a person wants to do with a container.
#[derive(Clone, Debug)]
pub struct CommandRequest {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod.
    pub pod: String,
    /// The container.
    pub container: String,
    /// The command; `None`: the process of the container itself.
    pub command: Option<Vec<String>>,
    /// The standard input is connected.
    pub stdin: bool,
    /// The process has a terminal.
    pub tty: bool,
}

/// Why a request fails.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The directory of nodes cannot be read.
    #[error("{} cannot be read", dir.display())]
    Directory {
        /// The directory.
        dir: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The server does not accept a connection.
    #[error("{server} cannot be reached at {at}")]
    Connect {
        /// The server.
        server: String,
        /// Where it listens.
        at: String,
        /// The cause.
        source: Box<EndpointError>,
    },
    /// The server does not answer.
    #[error("{server} did not answer within {} s", ANSWER_WITHIN.as_secs())]
    Slow {
        /// The server.
        server: String,
    },
    /// The server refuses.
    #[error("{words}")]
    Refused {
        /// The status of its answer.
        status: StatusCode,
        /// Its words.
        words: String,
    },
    /// The connection broke off, or has no valid form.
    #[error("the connection to the server broke off")]
    Broken(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// A running command, or a container's process.
#[derive(Debug)]
pub struct CommandStream {
    socket: WebSocketStream<ByteStream>,
    ends_stdin: bool,
}

/// The half that sends.
#[derive(Debug)]
pub struct CommandInput {
    socket: SplitSink<WebSocketStream<ByteStream>, Message>,
    ends_stdin: bool,
}

/// The half that receives.
#[derive(Debug)]
pub struct CommandOutput(SplitStream<WebSocketStream<ByteStream>>);

/// What a command says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandEvent {
    /// Bytes of the standard output.
    Stdout(Bytes),
    /// Bytes of the standard error.
    Stderr(Bytes),
    /// The command has ended with this exit code.
    Exit(i32),
    /// The runtime could not run it, or lost it.
    Failed(String),
}

/// A connection to a port of a pod.
#[derive(Debug)]
pub struct PortStream {
    socket: WebSocketStream<ByteStream>,
}

/// The half of a port that sends.
#[derive(Debug)]
pub struct PortInput(SplitSink<WebSocketStream<ByteStream>, Message>);

/// The half of a port that receives.
#[derive(Debug)]
pub struct PortOutput {
    socket: SplitStream<WebSocketStream<ByteStream>>,
    /// The bytes before data, for each channel.
    prefix: [usize; 2],
}

impl NodeClient {
    /// The nodes whose pod workers use this data directory, by name.
    ///
    /// # Errors
    /// [`ClientError::Directory`].
    pub fn all(data: &Path) -> Result<Vec<Self>, ClientError> {
        let dir = data.join("nodes");
        let failed = |source| ClientError::Directory { dir: dir.clone(), source };
        let mut nodes = Vec::new();
        for entry in std::fs::read_dir(&dir).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let socket = entry.path().join(SOCKET);
            if socket.exists() {
                let node = entry.file_name().to_string_lossy().into_owned();
                nodes.push((node, socket));
            }
        }
        nodes.sort();
        Ok(nodes.iter().map(|(node, socket)| Self::new(node, socket)).collect())
    }

    /// The server of `node` at this socket.
    pub fn new(node: &str, socket: &Path) -> Self {
        let server = format!("the pod worker of node {node}");
        let endpoint = Endpoint::Socket(socket.to_owned());
        Self { server, endpoint, host: "localhost".to_owned() }
    }

    /// The server at the port of a hub, which hands each request on to the node that has the pod. `node`: the one
    /// whose pods are listed. Without `tls`, the hub is on this machine.
    ///
    /// # Errors
    /// See [`HubAddressError`].
    pub fn of_hub(
        address: &str,
        tls: Option<Connector>,
        node: Option<&str>,
    ) -> Result<Self, HubAddressError> {
        let endpoint = Endpoint::hub(address, tls)?;
        let host = node.unwrap_or("localhost").to_owned();
        Ok(Self { server: "the hub".to_owned(), endpoint, host })
    }

    /// The pods of the node.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn pods(&self) -> Result<Vec<Pod>, ClientError> {
        let bytes = self.within(async { self.get("/pods").await?.whole().await }).await?;
        let list: List<Pod> = serde_json::from_slice(&bytes).map_err(broken)?;
        Ok(list.items)
    }

    /// Runs a command in a container, or connects to the container's own process.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn command(&self, request: &CommandRequest) -> Result<CommandStream, ClientError> {
        let (socket, protocol) =
            self.within(self.upgrade(&request.path(), COMMAND_PROTOCOLS)).await?;
        Ok(CommandStream { socket, ends_stdin: protocol == "v5.channel.k8s.io" })
    }

    /// Reads the log of a container.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn log(&self, request: &LogRequest) -> Result<LogStream, ClientError> {
        self.within(self.get(&request.path())).await
    }

    /// Connects to a port of a pod.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn port(
        &self,
        namespace: &str,
        pod: &str,
        port: u16,
    ) -> Result<PortStream, ClientError> {
        let path = format!("/portForward/{}/{}?port={port}", encoded(namespace), encoded(pod));
        let (socket, _) = self.within(self.upgrade(&path, PORT_PROTOCOLS)).await?;
        Ok(PortStream { socket })
    }

    async fn within<T>(
        &self,
        answer: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<T, ClientError> {
        let slow = |_| ClientError::Slow { server: self.server.clone() };
        timeout(ANSWER_WITHIN, answer).await.map_err(slow)?
    }

    async fn connect(&self) -> Result<ByteStream, ClientError> {
        self.endpoint.connect().await.map_err(|source| ClientError::Connect {
            server: self.server.clone(),
            at: self.endpoint.to_string(),
            source: Box::new(source),
        })
    }

    /// Sends a request, and returns its answer if the server does what it asks for.
    async fn get(&self, path: &str) -> Result<LogStream, ClientError> {
        let stream = self.connect().await?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
        let connection = tokio::spawn(connection);
        let request = Request::get(path).header("host", &self.host).body(Empty::<Bytes>::new());
        let answer = sender.send_request(request.map_err(broken)?).await.map_err(broken)?;
        let status = answer.status();
        let answer = LogStream { body: answer.into_body(), connection };
        if status == StatusCode::OK {
            return Ok(answer);
        }
        let words = String::from_utf8_lossy(&answer.whole().await?).into_owned();
        Err(ClientError::Refused { status, words })
    }

    async fn upgrade(
        &self,
        path: &str,
        protocols: &'static str,
    ) -> Result<(WebSocketStream<ByteStream>, String), ClientError> {
        let stream = self.connect().await?;
        let url = format!("ws://{}{path}", self.host);
        let mut request = url.into_client_request().map_err(broken)?;
        let protocols = HeaderValue::from_static(protocols);
        request.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, protocols);
        match client_async(request, stream).await {
            Ok((socket, answer)) => {
                let protocol = answer.headers().get(SEC_WEBSOCKET_PROTOCOL);
                let protocol = protocol.and_then(|name| name.to_str().ok()).unwrap_or_default();
                Ok((socket, protocol.to_owned()))
            }
            Err(WebSocketError::Http(answer)) => {
                let words = answer.body().as_deref().map(String::from_utf8_lossy);
                let words = words.map_or_else(|| answer.status().to_string(), String::from);
                Err(ClientError::Refused { status: answer.status(), words })
            }
            Err(error) => Err(broken(error)),
        }
    }
}

impl CommandRequest {
    fn path(&self) -> String {
        let Self { namespace, pod, container, command, stdin, tty } = self;
        let verb = if command.is_some() { "exec" } else { "attach" };
        let (namespace, pod, container) = (encoded(namespace), encoded(pod), encoded(container));
        let mut path = format!("/{verb}/{namespace}/{pod}/{container}?output=1");
        for (name, is_set) in [("input", *stdin), ("error", !*tty), ("tty", *tty)] {
            if is_set {
                path.push_str(&format!("&{name}=1"));
            }
        }
        for word in command.iter().flatten() {
            path.push_str(&format!("&command={}", encoded(word)));
        }
        path
    }
}

impl CommandStream {
    /// Whether the command can learn of the end of its input. A server that speaks the fourth protocol
    /// at most, such as that of containerd 1.6, has no message for it.
    pub fn ends_stdin(&self) -> bool {
        self.ends_stdin
    }

    /// Both halves.
    pub fn split(self) -> (CommandInput, CommandOutput) {
        let (sink, stream) = self.socket.split();
        (CommandInput { socket: sink, ends_stdin: self.ends_stdin }, CommandOutput(stream))
    }
}

impl CommandInput {
    /// Sends bytes to the standard input.
    ///
    /// # Errors
    /// The connection has ended.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        self.send(STDIN, bytes).await
    }

    /// Ends the standard input, if the server has a message for it.
    ///
    /// # Errors
    /// The connection has ended.
    pub async fn end(&mut self) -> Result<(), ClientError> {
        if self.ends_stdin { self.send(CLOSE, &[STDIN]).await } else { Ok(()) }
    }

    /// States the size of the terminal.
    ///
    /// # Errors
    /// The connection has ended.
    pub async fn resize(&mut self, columns: u16, rows: u16) -> Result<(), ClientError> {
        let size = json!({"Width": columns, "Height": rows}).to_string();
        self.send(RESIZE, size.as_bytes()).await
    }

    async fn send(&mut self, channel: u8, bytes: &[u8]) -> Result<(), ClientError> {
        let message = [&[channel], bytes].concat();
        self.socket.send(Message::Binary(message.into())).await.map_err(broken)
    }
}

impl CommandOutput {
    /// What comes next; `None` once the connection has ended. Cancel safe.
    ///
    /// # Errors
    /// The connection broke off.
    pub async fn next(&mut self) -> Result<Option<CommandEvent>, ClientError> {
        while let Some(message) = self.0.next().await {
            let Some((channel, bytes)) = content(message)? else { continue };
            return Ok(Some(match channel {
                STDOUT if bytes.is_empty() => continue,
                STDERR if bytes.is_empty() => continue,
                STDOUT => CommandEvent::Stdout(bytes),
                STDERR => CommandEvent::Stderr(bytes),
                ERROR if bytes.is_empty() => continue,
                ERROR => end_of(&bytes),
                _ => continue,
            }));
        }
        Ok(None)
    }
}

impl PortStream {
    /// Both halves.
    pub fn split(self) -> (PortInput, PortOutput) {
        let (sink, stream) = self.socket.split();
        (PortInput(sink), PortOutput { socket: stream, prefix: [PORT_PREFIX_BYTES; 2] })
    }
}

impl PortInput {
    /// Sends bytes to the port.
    ///
    /// # Errors
    /// The connection has ended.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        let message = [&[PORT_DATA], bytes].concat();
        self.0.send(Message::Binary(message.into())).await.map_err(broken)
    }

    /// Ends the connection.
    pub async fn close(&mut self) {
        // One that has ended needs no close.
        let _ = self.0.close().await;
    }
}

impl PortOutput {
    /// The bytes that come next; `None` once the connection has ended. Cancel safe.
    ///
    /// # Errors
    /// The connection broke off, or the port is closed.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        while let Some(message) = self.socket.next().await {
            let Some((channel, mut bytes)) = content(message)? else { continue };
            let Some(prefix) = self.prefix.get_mut(usize::from(channel)) else { continue };
            let skipped = bytes.len().min(*prefix);
            *prefix -= skipped;
            let bytes = bytes.split_off(skipped);
            match channel {
                _ if bytes.is_empty() => {}
                PORT_ERROR => {
                    let words = String::from_utf8_lossy(&bytes).into_owned();
                    return Err(ClientError::Refused { status: StatusCode::BAD_GATEWAY, words });
                }
                _ => return Ok(Some(bytes)),
            }
        }
        Ok(None)
    }
}

/// The channel and the bytes of a message; `None` if it has none.
fn content(message: Result<Message, WebSocketError>) -> Result<Option<(u8, Bytes)>, ClientError> {
    let mut bytes = match message {
        Ok(Message::Binary(bytes)) => bytes,
        Ok(Message::Text(text)) => Bytes::from(text),
        Ok(_) => return Ok(None),
        // A server ends the connection without a farewell once the process has ended.
        Err(
            WebSocketError::ConnectionClosed
            | WebSocketError::AlreadyClosed
            | WebSocketError::Protocol(
                tokio_tungstenite::tungstenite::error::ProtocolError::ResetWithoutClosingHandshake,
            ),
        ) => return Ok(None),
        Err(error) => return Err(broken(error)),
    };
    if bytes.is_empty() {
        return Ok(None);
    }
    let channel = bytes.split_to(1)[0];
    Ok(Some((channel, bytes)))
}

/// The end of a command, from the status on the channel of errors.
fn end_of(status: &[u8]) -> CommandEvent {
    let words = || String::from_utf8_lossy(status).into_owned();
    let Ok(status) = serde_json::from_slice::<Value>(status) else {
        return CommandEvent::Failed(words());
    };
    if status["status"] == "Success" {
        return CommandEvent::Exit(0);
    }
    let causes = status["details"]["causes"].as_array();
    let code = causes.into_iter().flatten().find(|cause| cause["reason"] == "ExitCode");
    let code = code.and_then(|cause| cause["message"].as_str()?.parse().ok());
    match (code, status["message"].as_str()) {
        (Some(code), _) => CommandEvent::Exit(code),
        (None, Some(message)) => CommandEvent::Failed(message.to_owned()),
        (None, None) => CommandEvent::Failed(words()),
    }
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, PLAIN).to_string()
}

fn broken(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> ClientError {
    ClientError::Broken(error.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_named_in_the_query() {
        let request = CommandRequest {
            namespace: "shop".to_owned(),
            pod: "web".to_owned(),
            container: "main".to_owned(),
            command: Some(vec!["sh".to_owned(), "-c".to_owned(), "a && b".to_owned()]),
            stdin: true,
            tty: false,
        };
        assert_eq!(
            request.path(),
            "/exec/shop/web/main?output=1&input=1&error=1&command=sh&command=-c&command=a%20%26%26%20b"
        );
        let attached = CommandRequest { command: None, tty: true, ..request };
        assert_eq!(attached.path(), "/attach/shop/web/main?output=1&input=1&tty=1");
    }

    #[test]
    fn the_end_of_a_command_is_its_exit_code_or_words() {
        assert_eq!(end_of(br#"{"status":"Success"}"#), CommandEvent::Exit(0));
        let failed = br#"{"status":"Failure","message":"command terminated with non-zero exit code",
            "reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"4"}]}}"#;
        assert_eq!(end_of(failed), CommandEvent::Exit(4));
        let failed = br#"{"status":"Failure","message":"no such program"}"#;
        assert_eq!(end_of(failed), CommandEvent::Failed("no such program".to_owned()));
        assert_eq!(end_of(b"garbage"), CommandEvent::Failed("garbage".to_owned()));
    }
}
