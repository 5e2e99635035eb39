//! A connection to a hub: gRPC, both directions bounded.
//!
//! A task of its own reads what the hub says, and waits where the session does not take it, so
//! that HTTP/2 holds the hub back. The session's clock runs outside, whatever the socket does.

use std::error::Error;
use std::io;

use futures::{Stream, StreamExt};
use headwater_identity::{Connector, PeerRefusal, PeerRefusalCell};
use headwater_proto::replication;
use headwater_proto::replication::replication_client::ReplicationClient;
use headwater_proto::wire::WireError;
use headwater_session::message::HubMessage;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::task::AbortOnDropHandle;
use tonic::Status;

use crate::connection::address::HubAddress;
use crate::connection::transport::{DialError, dial};
use crate::metrics::ErrorKind;

/// The largest message, either way: one object of the largest size and its frame.
pub(crate) const MESSAGE_BYTES_MAX: usize = 4 << 20;

/// Messages that wait to be written: acknowledgements and reports, which the session bounds.
const OUTGOING_MAX: usize = 64;

/// Messages that were read and wait for the session: the next is ready when it has done one.
const INCOMING_MAX: usize = 4;

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
        address: HubAddress,
        /// What happened.
        source: DialError,
    },
    /// The hub did not like who we are.
    #[error("cannot connect to hub {address}")]
    Refused {
        /// The hub.
        address: HubAddress,
        /// What it said.
        source: PeerRefusal,
    },
    /// The hub ended it, or it broke.
    #[error("the connection to hub {address} ended: {}", in_words(status))]
    Ended {
        /// The hub.
        address: HubAddress,
        /// What the hub or the transport said.
        status: Box<Status>,
    },
    /// The hub closed the stream without a word.
    #[error("hub {address} closed the session")]
    Closed {
        /// The hub.
        address: HubAddress,
    },
    /// The hub said what the protocol does not know.
    #[error("hub {address} sent a malformed message")]
    Malformed {
        /// The hub.
        address: HubAddress,
        /// What is wrong with it.
        source: WireError,
    },
}

impl LinkError {
    /// What a person has to do something about: a certificate, a clock, a name.
    pub(crate) fn trouble(&self) -> Option<String> {
        match self {
            Self::Connect { address, source: DialError::Tls(error) } => {
                Some(format!("hub {address}: {error}"))
            }
            Self::Refused { address, source } => Some(format!("hub {address}: {source}")),
            _ => None,
        }
    }

    /// Whether nobody answered at all.
    pub(crate) fn is_unreachable(&self) -> bool {
        matches!(self, Self::Connect { source, .. } if source.is_unreachable())
    }

    /// How it is counted.
    pub(crate) fn counts_as(&self) -> ErrorKind {
        match self {
            Self::Connect { .. } | Self::Refused { .. } => ErrorKind::Connect,
            Self::Ended { .. } | Self::Closed { .. } => ErrorKind::Link,
            Self::Malformed { .. } => ErrorKind::Malformed,
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

/// What happened to a connection, in a few words: what it began with, and not what each layer above
/// made of it.
fn in_words(status: &Status) -> String {
    let (mut io, mut first, mut cause) = (None, None, status.source());
    while let Some(error) = cause {
        io = io.or(error.downcast_ref::<io::Error>());
        first = Some(error);
        cause = error.source();
    }
    match io.map(io::Error::kind) {
        Some(io::ErrorKind::UnexpectedEof) => "it broke off".to_owned(),
        Some(io::ErrorKind::ConnectionReset) => "it was reset".to_owned(),
        Some(io::ErrorKind::TimedOut) => "nothing came through any more".to_owned(),
        Some(kind) => kind.to_string(),
        None => match first {
            Some(first) => first.to_string(),
            None if status.message().is_empty() => status.code().description().to_owned(),
            None => status.message().to_owned(),
        },
    }
}

/// Connects to a hub. Nothing has been said when this returns.
pub(crate) async fn connect(
    address: HubAddress,
    tls: Option<Connector>,
) -> Result<Link, LinkError> {
    let dialed = dial(&address, tls.as_ref()).await;
    let (channel, verdict) =
        dialed.map_err(|source| LinkError::Connect { address: address.clone(), source })?;
    let mut client = ReplicationClient::new(channel)
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    let (outgoing, said) = mpsc::channel(OUTGOING_MAX);
    let (heard, incoming) = mpsc::channel(INCOMING_MAX);
    let reader = tokio::spawn(async move {
        // A hub may answer only once it was greeted: the session begins before that.
        match client.session(ReceiverStream::new(said)).await {
            Ok(response) => hear(address, verdict, response.into_inner(), heard).await,
            Err(status) => {
                let _ = heard.send(Err(ended(address, status, &verdict))).await;
            }
        }
    });
    Ok(Link::new(outgoing, incoming, AbortOnDropHandle::new(reader)))
}

/// Takes up a connection that somebody else made: `said` goes to the hub, `hub` comes from it.
pub(crate) fn take_up(
    address: HubAddress,
    said: mpsc::Sender<replication::EdgeMessage>,
    hub: impl Stream<Item = Result<replication::HubMessage, Status>> + Send + Unpin + 'static,
) -> Link {
    let (heard, incoming) = mpsc::channel(INCOMING_MAX);
    let reader = tokio::spawn(hear(address, PeerRefusalCell::default(), hub, heard));
    Link::new(said, incoming, AbortOnDropHandle::new(reader))
}

/// Reads what a hub says until it ends, or nobody hears it any more.
async fn hear(
    address: HubAddress,
    verdict: PeerRefusalCell,
    mut hub: impl Stream<Item = Result<replication::HubMessage, Status>> + Unpin,
    heard: mpsc::Sender<Result<HubMessage, LinkError>>,
) {
    loop {
        let message = match hub.next().await {
            Some(Ok(message)) => HubMessage::try_from(message)
                .map_err(|source| LinkError::Malformed { address: address.clone(), source }),
            None => Err(LinkError::Closed { address: address.clone() }),
            Some(Err(status)) => Err(ended(address.clone(), status, &verdict)),
        };
        let is_last = message.is_err();
        if heard.send(message).await.is_err() || is_last {
            return;
        }
    }
}

pub(crate) fn ended(address: HubAddress, status: Status, verdict: &PeerRefusalCell) -> LinkError {
    match verdict.refusal() {
        Some(source) => LinkError::Refused { address, source },
        None => LinkError::Ended { address, status: Box::new(status) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_told_in_a_few_words() {
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
        let said = ended(Status::failed_precondition("a session begins with a hello, and soon"));
        assert!(said.ends_with("ended: a session begins with a hello, and soon"), "{said}");
    }
}
