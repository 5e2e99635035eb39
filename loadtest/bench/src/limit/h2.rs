//! A bare HTTP/2 server: as many connections with one idle stream each.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use headwater_loadtest::failure::{Attempt, Failure};
use headwater_proto::replication as wire;
use headwater_proto::replication::replication_client::ReplicationClient;
use headwater_proto::replication::replication_server::{Replication, ReplicationServer};
use tokio::net::TcpListener;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::transport::{Endpoint, Server};
use tonic::{Request, Response, Status, Streaming};

use crate::kafka::runtime;

/// The server, a process of this program.
pub(crate) struct BareServer {
    child: Child,
    address: SocketAddr,
}

/// What a client holds.
pub(crate) struct Stream {
    _from: Streaming<wire::HubMessage>,
    _to: tokio::sync::mpsc::Sender<wire::EdgeMessage>,
}

impl BareServer {
    /// Starts it.
    ///
    /// # Errors
    /// When it does not say where it listens.
    pub(crate) fn start() -> Result<Self, Failure> {
        let program = std::env::current_exe().tried("finding this program")?;
        let mut command = Command::new(program);
        command.arg("--serve").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().tried("starting a process")?;
        let output = child.stdout.take().tried("its output is piped")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).tried("waiting for a process")?;
        let address = line.trim().parse().tried("the address of a bare server")?;
        Ok(Self { child, address })
    }

    /// Its process.
    pub(crate) fn process_id(&self) -> u32 {
        self.child.id()
    }

    /// Opens `count` connections, each with a stream.
    ///
    /// # Errors
    /// When it takes no more.
    pub(crate) async fn connect(&self, count: usize) -> Result<Vec<Stream>, Failure> {
        let mut streams = Vec::new();
        for _ in 0..count {
            let endpoint = Endpoint::from_shared(format!("http://{}", self.address));
            let channel = endpoint.tried("an address")?.connect().await.tried("connecting")?;
            let (to, said) = tokio::sync::mpsc::channel(1);
            let session = ReplicationClient::new(channel).session(ReceiverStream::new(said)).await;
            let from = session.tried("opening a stream")?.into_inner();
            streams.push(Stream { _from: from, _to: to });
        }
        Ok(streams)
    }
}

impl Drop for BareServer {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Is that server, until its input ends.
///
/// # Errors
/// When it cannot listen.
pub(crate) fn serve() -> Result<(), Failure> {
    let runtime = runtime("bare", 2)?;
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).tried("finding a port")?;
    println!("{}", listener.local_addr().tried("finding a port")?);
    let serving = Server::builder()
        .add_service(ReplicationServer::new(Silent))
        .serve_with_incoming(TcpListenerStream::new(listener));
    runtime.spawn(serving);
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).tried("waiting for the end")?;
    Ok(())
}

/// Takes streams and says nothing.
struct Silent;

#[tonic::async_trait]
impl Replication for Silent {
    type SessionStream = tokio_stream::Pending<Result<wire::HubMessage, Status>>;

    async fn session(
        &self,
        request: Request<Streaming<wire::EdgeMessage>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let mut said = request.into_inner();
        tokio::spawn(async move { while said.message().await.is_ok_and(|one| one.is_some()) {} });
        Ok(Response::new(tokio_stream::pending()))
    }
}
