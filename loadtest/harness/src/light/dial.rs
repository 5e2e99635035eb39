//! How a light edge reaches a hub: the same gRPC as a real one, over a counted socket, from one
//! of several loopback addresses, and only while its link is not cut.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use headwater_edge::HubAddress;
use headwater_edge::{HubDialer, HubStreams};
use headwater_proto::replication::replication_client::ReplicationClient;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpSocket, TcpStream, lookup_host};
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};
use tower::service_fn;

use super::wire::{WireCount, counted};

/// Edges that share a source address: a quarter of its ports, so that connections that wait for
/// their end do not use them up.
const EDGES_PER_ADDRESS: usize = 7_000;

/// The largest message, either way, as of a real edge.
const MESSAGE_BYTES_MAX: usize = 4 << 20;

/// Messages that wait to be written, as of a real edge.
const OUTGOING_MAX: usize = 64;

/// As of a real edge: a half-open connection is noticed within the two.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(20);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a hub may take to accept a connection, as of a real edge.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Dials for the `index`th edge while `cut` is false; what it dialed ends when that becomes true.
pub(super) fn dial(index: usize, cut: &watch::Receiver<bool>, count: &Arc<WireCount>) -> HubDialer {
    let (cut, count) = (cut.clone(), count.clone());
    let source = source(index);
    Arc::new(move |hub: HubAddress| {
        let (mut cut, count) = (cut.clone(), count.clone());
        async move {
            if *cut.borrow() {
                return Err(Status::unavailable("the link is cut"));
            }
            let mut client = connect(&hub, source, &count)
                .await
                .map_err(|error| Status::unavailable(error.to_string()))?
                .max_decoding_message_size(MESSAGE_BYTES_MAX)
                .max_encoding_message_size(MESSAGE_BYTES_MAX);
            let (to_hub, said) = mpsc::channel(OUTGOING_MAX);
            // A hub may answer only once it was greeted: the session begins before that.
            let session = async move { client.session(ReceiverStream::new(said)).await };
            let from_hub = session
                .into_stream()
                .flat_map(|answer| match answer {
                    Ok(answer) => answer.into_inner().boxed(),
                    Err(status) => futures::stream::iter([Err(status)]).boxed(),
                })
                .take_until(async move {
                    // Without a sender the link is never cut.
                    if cut.wait_for(|cut| *cut).await.is_err() {
                        std::future::pending::<()>().await;
                    }
                });
            Ok(HubStreams { to_hub, from_hub: from_hub.boxed() })
        }
        .boxed()
    })
}

/// Addresses of 127.0.0.0/8 in turn, so that no port is short.
fn source(index: usize) -> Ipv4Addr {
    let address = u8::try_from(1 + index / EDGES_PER_ADDRESS).unwrap_or(u8::MAX);
    Ipv4Addr::new(127, 0, 0, address)
}

async fn connect(
    hub: &HubAddress,
    source: Ipv4Addr,
    count: &Arc<WireCount>,
) -> Result<ReplicationClient<Channel>, Status> {
    let refused = |error: io::Error| Status::new(Code::Unavailable, error.to_string());
    let mut found = lookup_host((hub.host(), hub.port())).await.map_err(refused)?;
    let address = found.find(SocketAddr::is_ipv4);
    let address = address.ok_or_else(|| Status::unavailable("the hub has no IPv4 address"))?;
    let dialing = async {
        let socket = TcpSocket::new_v4()?;
        if address.ip().is_loopback() {
            socket.bind(SocketAddr::from((source, 0)))?;
        }
        let stream: TcpStream = socket.connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    };
    let stream = tokio::time::timeout(CONNECT_TIMEOUT, dialing).await;
    let stream = stream.map_err(|_| Status::unavailable("nobody accepts"))?.map_err(refused)?;
    let mut made = Some(TokioIo::new(counted(stream, count)));
    // One connection, which is there: a lost one is for the edge to make anew.
    let connector = service_fn(move |_| {
        let gone = io::Error::from(io::ErrorKind::NotConnected);
        std::future::ready(made.take().ok_or(gone))
    });
    let endpoint = Endpoint::from_shared(format!("http://{address}"))
        .map_err(|error| Status::unavailable(error.to_string()))?
        .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT)
        .keep_alive_while_idle(true);
    let channel = endpoint.connect_with_connector(connector).await;
    channel.map(ReplicationClient::new).map_err(|error| Status::unavailable(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_edges_come_from_many_addresses() {
        assert_eq!(source(0), Ipv4Addr::LOCALHOST);
        assert_eq!(source(EDGES_PER_ADDRESS), Ipv4Addr::new(127, 0, 0, 2));
        assert_eq!(source(usize::MAX), Ipv4Addr::new(127, 0, 0, 255));
    }
}
