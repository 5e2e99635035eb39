//! A connection to a hub: gRPC over TCP, both directions bounded.
//!
//! A task of its own reads what the hub says, and waits where the session does not take it, so
//! that HTTP/2 holds the hub back. The session's clock runs outside, whatever the socket does.

use std::net::SocketAddr;
use std::time::Duration;

use futures::{Stream, StreamExt};
use headwater_proto::replication;
use headwater_proto::replication::replication_client::ReplicationClient;
use headwater_proto::wire::WireError;
use headwater_session::message::HubMessage;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::task::AbortOnDropHandle;
use tonic::Status;
use tonic::codec::CompressionEncoding;
use tonic::transport::Endpoint;

use crate::metrics::Trouble;

/// The largest message, either way: one object of the largest size and its frame.
pub(crate) const MESSAGE_BYTES_MAX: usize = 4 << 20;

/// How long a hub may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A half-open connection is noticed within this and the next: well below the 45 s of silence
/// after which either end gives up.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(20);

/// How long a hub may take to answer a ping.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// Messages that wait to be written: acknowledgements and reports, which the session bounds.
const OUTGOING_MAX: usize = 64;

/// Messages that were read and wait for the session: the next is ready when it has done one.
const INCOMING_MAX: usize = 4;

/// Response headers of a hub are a few hundred bytes.
const HEADERS_BYTES_MAX: u32 = 16 << 10;

/// An open connection.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) outgoing: mpsc::Sender<replication::EdgeMessage>,
    pub(crate) incoming: mpsc::Receiver<Result<HubMessage, LinkError>>,
    _reader: AbortOnDropHandle<()>,
}

/// Why there is no connection, or no more.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkError {
    /// Nobody accepted it.
    #[error("cannot connect to hub {address}")]
    Connect {
        /// The hub.
        address: SocketAddr,
        /// What happened.
        source: tonic::transport::Error,
    },
    /// The hub ended it, or it broke.
    #[error("the connection to hub {address} ended: {status}")]
    Ended {
        /// The hub.
        address: SocketAddr,
        /// What the hub or the transport said.
        status: Box<Status>,
    },
    /// The hub closed the stream without a word.
    #[error("hub {address} closed the session")]
    Closed {
        /// The hub.
        address: SocketAddr,
    },
    /// The hub said what the protocol does not know.
    #[error("hub {address} sent a malformed message")]
    Malformed {
        /// The hub.
        address: SocketAddr,
        /// What is wrong with it.
        source: WireError,
    },
}

impl LinkError {
    /// How it is counted.
    pub(crate) fn counts_as(&self) -> Trouble {
        match self {
            Self::Connect { .. } => Trouble::Connect,
            Self::Ended { .. } | Self::Closed { .. } => Trouble::Link,
            Self::Malformed { .. } => Trouble::Malformed,
        }
    }
}

impl Link {
    /// A connection whose `reader` says `incoming`.
    pub(crate) fn new(
        outgoing: mpsc::Sender<replication::EdgeMessage>,
        incoming: mpsc::Receiver<Result<HubMessage, LinkError>>,
        reader: AbortOnDropHandle<()>,
    ) -> Self {
        Self { outgoing, incoming, _reader: reader }
    }
}

/// Connects to a hub. Nothing has been said when this returns.
pub(crate) async fn connect(address: SocketAddr) -> Result<Link, LinkError> {
    let failed = |source| LinkError::Connect { address, source };
    let channel = Endpoint::from_shared(format!("http://{address}"))
        .map_err(failed)?
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT)
        .keep_alive_while_idle(true)
        .http2_max_header_list_size(HEADERS_BYTES_MAX)
        .connect()
        .await
        .map_err(failed)?;
    let mut client = ReplicationClient::new(channel)
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX)
        .accept_compressed(CompressionEncoding::Zstd);
    let (outgoing, said) = mpsc::channel(OUTGOING_MAX);
    let (heard, incoming) = mpsc::channel(INCOMING_MAX);
    let reader = tokio::spawn(async move {
        // A hub may answer only once it was greeted: the session begins before that.
        match client.session(ReceiverStream::new(said)).await {
            Ok(response) => hear(address, response.into_inner(), heard).await,
            Err(status) => {
                let _ = heard.send(Err(ended(address, status))).await;
            }
        }
    });
    Ok(Link::new(outgoing, incoming, AbortOnDropHandle::new(reader)))
}

/// Takes up a connection that somebody else made: `said` goes to the hub, `hub` comes from it.
pub(crate) fn take_up(
    address: SocketAddr,
    said: mpsc::Sender<replication::EdgeMessage>,
    hub: impl Stream<Item = Result<replication::HubMessage, Status>> + Send + Unpin + 'static,
) -> Link {
    let (heard, incoming) = mpsc::channel(INCOMING_MAX);
    let reader = tokio::spawn(hear(address, hub, heard));
    Link::new(said, incoming, AbortOnDropHandle::new(reader))
}

/// Reads what a hub says until it ends, or nobody hears it any more.
async fn hear(
    address: SocketAddr,
    mut hub: impl Stream<Item = Result<replication::HubMessage, Status>> + Unpin,
    heard: mpsc::Sender<Result<HubMessage, LinkError>>,
) {
    loop {
        let message = match hub.next().await {
            Some(Ok(message)) => HubMessage::try_from(message)
                .map_err(|source| LinkError::Malformed { address, source }),
            None => Err(LinkError::Closed { address }),
            Some(Err(status)) => Err(ended(address, status)),
        };
        let is_last = message.is_err();
        if heard.send(message).await.is_err() || is_last {
            return;
        }
    }
}

pub(crate) fn ended(address: SocketAddr, status: Status) -> LinkError {
    LinkError::Ended { address, status: Box::new(status) }
}
