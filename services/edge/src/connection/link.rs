//! The gRPC stream to a hub, bounded in both directions.
//!
//! A separate task reads the stream. When the session does not take its messages, the reader
//! waits, and HTTP/2 flow control slows the hub. The session's own timers do not depend on the
//! socket.

use std::error::Error;
use std::io;
use std::iter::successors;

use futures::{Stream, StreamExt};
use headwater_identity::{Connector, Distrust, PeerRefusal, PeerRefusalCell, PeerTrust};
use headwater_proto::replication;
use headwater_proto::replication::replication_client::ReplicationClient;
use headwater_proto::wire::WireError;
use headwater_session::message::HubMessage;
use headwater_telemetry::error_chain;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::task::AbortOnDropHandle;
use tonic::Status;

use super::address::HubAddress;
use super::transport::{DialError, HubConnection, HubRoute, dial};
use crate::metrics::ErrorKind;

/// The largest message in either direction: one object of the largest size, and its frame.
pub(crate) const MESSAGE_BYTES_MAX: usize = 4 << 20;

/// Messages that wait to be written: acknowledgements and reports. The session bounds both.
const OUTGOING_MAX: usize = 64;

/// Messages that were read and wait for the session, so that the next is ready at once.
const INCOMING_MAX: usize = 4;

/// An open stream to a hub.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) outgoing: mpsc::Sender<replication::EdgeMessage>,
    pub(crate) incoming: mpsc::Receiver<Result<HubMessage, LinkError>>,
    /// Where a second connection goes; `None`: the caller opened the stream.
    pub(crate) route: Option<HubRoute>,
    _reader: AbortOnDropHandle<()>,
}

/// Why there is no stream, or why it ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkError {
    /// The connection was not made.
    #[error("cannot connect to hub {address}")]
    Connect {
        /// The hub.
        address: HubAddress,
        /// The cause.
        source: DialError,
    },
    /// The hub refused the node's certificate.
    #[error("cannot connect to hub {address}")]
    Refused {
        /// The hub.
        address: HubAddress,
        /// The hub's reason.
        source: PeerRefusal,
    },
    /// The CAs changed, and the hub's certificate does not verify any more.
    #[error("the connection to hub {address} ended")]
    Distrusted {
        /// The hub.
        address: HubAddress,
        /// What is wrong with its certificate.
        source: Distrust,
    },
    /// The hub ended the stream, or the connection broke.
    #[error("the connection to hub {address} ended: {}", root_cause(status))]
    Ended {
        /// The hub.
        address: HubAddress,
        /// The status of the hub or of the transport.
        status: Box<Status>,
    },
    /// The hub closed the stream without a status.
    #[error("hub {address} closed the session")]
    Closed {
        /// The hub.
        address: HubAddress,
    },
    /// The hub sent a message that is not of the protocol.
    #[error("hub {address} sent a malformed message")]
    Malformed {
        /// The hub.
        address: HubAddress,
        /// The defect of the message.
        source: WireError,
    },
}

impl LinkError {
    /// Why there is no connection, in a sentence with the hub; `None` where one was made and has
    /// ended.
    pub(crate) fn trouble(&self) -> Option<String> {
        match self {
            Self::Connect { address, source: DialError::Tls(error) } => {
                Some(format!("hub {address}: {error}"))
            }
            Self::Connect { address, source } => {
                Some(format!("hub {address}: {}", error_chain(source)))
            }
            Self::Refused { address, source } => Some(format!("hub {address}: {source}")),
            Self::Distrusted { address, source } => Some(format!("hub {address}: {source}")),
            Self::Ended { .. } | Self::Closed { .. } | Self::Malformed { .. } => None,
        }
    }

    /// Whether no machine responded.
    pub(crate) fn is_unreachable(&self) -> bool {
        matches!(self, Self::Connect { source, .. } if source.is_unreachable())
    }

    /// The kind under which the failure is counted.
    pub(crate) fn kind(&self) -> ErrorKind {
        match self {
            Self::Connect { .. } | Self::Refused { .. } => ErrorKind::Connect,
            Self::Distrusted { .. } | Self::Ended { .. } | Self::Closed { .. } => ErrorKind::Link,
            Self::Malformed { .. } => ErrorKind::Malformed,
        }
    }
}

impl Link {
    /// A stream whose `reader` sends `incoming`.
    pub(crate) fn new(
        outgoing: mpsc::Sender<replication::EdgeMessage>,
        incoming: mpsc::Receiver<Result<HubMessage, LinkError>>,
        reader: AbortOnDropHandle<()>,
    ) -> Self {
        Self { outgoing, incoming, route: None, _reader: reader }
    }
}

/// The root cause of a status in a few words. Each layer above it repeats it in its own terms.
fn root_cause(status: &Status) -> String {
    let causes = || successors(status.source(), |&error| error.source());
    let io = causes().find_map(|error| error.downcast_ref::<io::Error>());
    match io.map(io::Error::kind) {
        Some(io::ErrorKind::UnexpectedEof) => "it broke off".to_owned(),
        Some(io::ErrorKind::ConnectionReset) => "it was reset".to_owned(),
        Some(io::ErrorKind::TimedOut) => "it timed out".to_owned(),
        Some(kind) => kind.to_string(),
        None => match causes().last() {
            Some(root) => root.to_string(),
            None if status.message().is_empty() => status.code().description().to_owned(),
            None => status.message().to_owned(),
        },
    }
}

/// Connects to a hub and opens the stream. Returns before anything is sent.
pub(crate) async fn connect(
    address: HubAddress,
    tls: Option<Connector>,
) -> Result<Link, LinkError> {
    let dialed = dial(&address, tls.as_ref()).await;
    let HubConnection { route, channel, refusal, trust } =
        dialed.map_err(|source| LinkError::Connect { address: address.clone(), source })?;
    let mut client = ReplicationClient::new(channel)
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    let (outgoing, to_hub) = mpsc::channel(OUTGOING_MAX);
    let (received, incoming) = mpsc::channel(INCOMING_MAX);
    let reader = tokio::spawn(async move {
        let (hub, to_session) = (address.clone(), received.clone());
        let served = async {
            // A hub may respond only after the hello, so the session begins before the response.
            match client.session(ReceiverStream::new(to_hub)).await {
                Ok(response) => read(hub, refusal, response.into_inner(), to_session).await,
                Err(status) => {
                    let _ = to_session.send(Err(ended(hub, status, &refusal))).await;
                }
            }
        };
        tokio::select! {
            () = served => {}
            source = lost(trust) => {
                let _ = received.send(Err(LinkError::Distrusted { address, source })).await;
            }
        }
    });
    let link = Link::new(outgoing, incoming, AbortOnDropHandle::new(reader));
    Ok(Link { route: Some(route), ..link })
}

/// Waits until the hub is not trusted any more: without TLS for ever.
async fn lost(trust: Option<PeerTrust>) -> Distrust {
    match trust {
        Some(mut trust) => trust.lost().await,
        None => std::future::pending().await,
    }
}

/// Makes a link of a stream that the caller opened: `to_hub` carries messages to the hub,
/// `from_hub` its messages.
pub(crate) fn adopt(
    address: HubAddress,
    to_hub: mpsc::Sender<replication::EdgeMessage>,
    from_hub: impl Stream<Item = Result<replication::HubMessage, Status>> + Send + Unpin + 'static,
) -> Link {
    let (received, incoming) = mpsc::channel(INCOMING_MAX);
    let reader = tokio::spawn(read(address, PeerRefusalCell::default(), from_hub, received));
    Link::new(to_hub, incoming, AbortOnDropHandle::new(reader))
}

/// Reads the hub's messages until the stream ends or the session drops the link.
async fn read(
    address: HubAddress,
    refusal: PeerRefusalCell,
    mut from_hub: impl Stream<Item = Result<replication::HubMessage, Status>> + Unpin,
    received: mpsc::Sender<Result<HubMessage, LinkError>>,
) {
    loop {
        let message = match from_hub.next().await {
            Some(Ok(message)) => HubMessage::try_from(message)
                .map_err(|source| LinkError::Malformed { address: address.clone(), source }),
            None => Err(LinkError::Closed { address: address.clone() }),
            Some(Err(status)) => Err(ended(address.clone(), status, &refusal)),
        };
        let is_last = message.is_err();
        if received.send(message).await.is_err() || is_last {
            return;
        }
    }
}

/// Why a stream ended with `status`. A refusal by TLS explains it better than the status.
pub(crate) fn ended(address: HubAddress, status: Status, refusal: &PeerRefusalCell) -> LinkError {
    match refusal.refusal() {
        Some(source) => LinkError::Refused { address, source },
        None => LinkError::Ended { address, status: Box::new(status) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_link_names_its_root_cause() {
        let ended = |status: Status| {
            let address = "127.0.0.1:7300".parse().expect("an address");
            LinkError::Ended { address, status: Box::new(status) }.to_string()
        };
        let rude = "peer closed connection without sending TLS close_notify: https://example.org";
        let rude = io::Error::new(io::ErrorKind::UnexpectedEof, rude);
        assert_eq!(
            ended(Status::from_error(Box::new(rude))),
            "the connection to hub 127.0.0.1:7300 ended: it broke off"
        );
        let refused = ended(Status::failed_precondition("a session begins with a hello, and soon"));
        assert!(refused.ends_with("ended: a session begins with a hello, and soon"), "{refused}");
    }
}
